/* SPDX-License-Identifier: BSD-3-Clause */
/* describe.c: what a worker has under way, for people. */
#include "worker/event.h"
#include "worker/methods.h"

#include "base/errors.h"

const char worker_describe_doc[] =
    "_describe($self, max, /)\n--\n\n"
    "(text, more): at most `max` lines about what is under way, and\n"
    "how many were left out. Any thread.";

/* The caller has the GIL, and the owner makes calls of libumx with it, but for
 * those that it counts: during them nothing is read. */
PyObject *
worker_describe(PyObject *op, PyObject *max)
{
    WorkerObject *self  = (WorkerObject *)op;
    text_lines    lines = {.max = PyLong_AsSize_t(max)};
    PyObject     *result;
    umx_status    status;

    if (PyErr_Occurred()) {
        return NULL;
    }
    if (self->umx == NULL || worker_is_forked(self)) {
        return Py_BuildValue("(sK)", "", 0ULL);
    }
    status = (self->num_unlocked != 0) ? UMX_ERR_BUSY :
                                         event_describe(self->umx, &lines);
    if (status < 0) {
        free(lines.text);
        return errors_raise(self->st, status, "describe", NULL);
    }
    result = Py_BuildValue(
        "(NK)",
        PyUnicode_DecodeUTF8((lines.text != NULL) ? lines.text : "",
                             (Py_ssize_t)lines.len, "replace"),
        (unsigned long long)lines.num_more);
    free(lines.text);
    return result;
}
