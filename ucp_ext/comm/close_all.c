/* SPDX-License-Identifier: BSD-3-Clause */
/* close_all.c: the communicators of a worker that is about to end. */
#include "comm/close_all.h"

#include "base/args.h"
#include "comm/communicator.h"
#include "worker/worker.h"

int
comm_parse_fault(PyObject *object, umx_comm_failure *fault)
{
    unsigned long long group;
    int                cause;

    *fault = (umx_comm_failure){.member = -1};
    if (object == NULL || object == Py_None) {
        return 0;
    }
    if (!PyTuple_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "_fault must be a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(object, "Kii", &group, &fault->member, &cause)) {
        return -1;
    }
    fault->group = group;
    fault->cause = (umx_status)cause;
    return 0;
}

const char comm_close_all_doc[] =
    "close_communicators(worker, reason=None, fault=None, /)\n--\n\n"
    "Close all communicators of a worker that is about to end, those that\n"
    "were made last first. With a reason they are aborted, as by\n"
    "Communicator.abort(reason, fault).";

/* `values`: reason and fault. */
static int
close_all(WorkerObject *worker, PyObject *const *values)
{
    umx_comm_failure fault;
    PyObject        *reason = NULL;

    if (worker_check(worker) < 0 || comm_parse_fault(values[1], &fault) < 0) {
        return -1;
    }
    if (values[0] != NULL && values[0] != Py_None &&
        args_reason(values[0], &reason) < 0) {
        return -1;
    }
    umx_comm_close_all(worker->umx, (reason != NULL) ? &fault : NULL,
                       (reason != NULL) ? PyBytes_AS_STRING(reason) : NULL);
    Py_XDECREF(reason);
    worker_after_call(worker);
    worker_schedule_drain(worker);
    return 0;
}

PyObject *
comm_close_all(PyObject *module, PyObject *args)
{
    mod_state *st = PyModule_GetState(module);
    PyObject  *worker, *values[2] = {NULL, NULL};

    if (!PyArg_ParseTuple(args, "O!|OO:close_communicators", st->worker_type,
                          &worker, &values[0], &values[1]) ||
        close_all((WorkerObject *)worker, values) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}
