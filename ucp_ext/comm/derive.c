/* SPDX-License-Identifier: BSD-3-Clause */
/* derive.c: a communicator of the same ranks, made without a message. */
#include "comm/derive.h"

#include "base/args.h"
#include "comm/communicator.h"
#include "worker/worker.h"

const char comm_derive_doc[] =
    "_derive($self, label, /)\n--\n\n"
    "Make a Communicator of the same ranks at once: the nth of a label, an\n"
    "int of 64 bits, belongs to the nth of that label on the other ranks. It\n"
    "fails with this one, and is closed by itself. No callbacks run in the\n"
    "call.";

PyObject *
comm_derive(PyObject *op, PyObject *number)
{
    CommObject *self = (CommObject *)op;
    CommObject *made;
    uint64_t    label;
    umx_status  status;

    if (args_raw_tag(number, "label", &label) < 0 || comm_check(self) < 0) {
        return NULL;
    }
    made = comm_new_like(self);
    if (made == NULL) {
        return NULL;
    }
    status = umx_comm_derive(self->umx, label, &made->umx);
    if (status != UMX_OK) {
        Py_DECREF(made);
        return errors_set(comm_error(self, status, "_derive", -1));
    }
    worker_schedule_drain(self->worker); /* messages that had come before */
    return (PyObject *)made;
}
