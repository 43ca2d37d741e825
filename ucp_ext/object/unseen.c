/* SPDX-License-Identifier: BSD-3-Clause */
#include "object/unseen.h"

#include "worker/worker.h"

/* Turns of the loop after which a task has run that waits for another one,
 * which waits for the operation. */
enum {
    TURNS = 3
};

bool
endpoint_has_ended_by(const EndpointObject *endpoint, umx_status status)
{
    switch (status) {
    case UMX_ERR_CONNECTION_RESET:
    case UMX_ERR_NOT_CONNECTED:
    case UMX_ERR_ENDPOINT_TIMEOUT:
    case UMX_ERR_CLOSED:
    case UMX_ERR_PEER_CLOSED:
        return true;
    case UMX_ERR_REJECTED: /* or it is of one operation only */
    case UMX_ERR_PROTOCOL:
    case UMX_ERR_VERSION:
    case UMX_ERR_AUTH:
    case UMX_ERR_TIMED_OUT:
    case UMX_ERR_UNREACHABLE:
    case UMX_ERR_IO_ERROR:
        return endpoint_is_closed(endpoint);
    default:
        return false;
    }
}

void
endpoint_note_seen(EndpointObject *endpoint)
{
    endpoint->is_end_seen = true;
    endpoint->num_unseen  = 0;
    Py_CLEAR(endpoint->unseen);
}

void
endpoint_report_unseen(EndpointObject *endpoint)
{
    PyObject *exc    = endpoint->unseen;
    uint32_t  number = endpoint->num_unseen;
    char      text[128];

    if (exc == NULL) {
        return;
    }
    endpoint->unseen = NULL;
    endpoint_note_seen(endpoint);
    if (number == 1) {
        PyOS_snprintf(text, sizeof(text),
                      "the exception of a ucp %s() was never retrieved",
                      endpoint->unseen_name);
    } else {
        PyOS_snprintf(
            text, sizeof(text),
            "the exceptions of %u ucp operations of one endpoint were "
            "never retrieved; the first is a %s()",
            (unsigned)number, endpoint->unseen_name);
    }
    PyErr_SetRaisedException(exc);
    worker_report_exception(endpoint->worker, text);
}

/* Have the loop call endpoint_report_soon(). -1 with an exception. */
static int
call_soon(EndpointObject *endpoint, long turns)
{
    PyObject *func = PyObject_GetAttrString((PyObject *)endpoint,
                                            "_report_unseen");
    PyObject *arg  = (func != NULL) ? PyLong_FromLong(turns) : NULL;
    int       rc   = -1;

    if (arg != NULL) {
        rc = worker_call_soon(endpoint->worker, func, arg, NULL);
        Py_DECREF(arg);
    }
    Py_XDECREF(func);
    return rc;
}

PyObject *
endpoint_report_soon(PyObject *op, PyObject *turns)
{
    EndpointObject *self   = (EndpointObject *)op;
    long            number = PyLong_AsLong(turns);

    if (number == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (number > 0 && self->unseen != NULL && self->worker->call_soon != NULL) {
        if (call_soon(self, number - 1) < 0) {
            return NULL;
        }
    } else {
        endpoint_report_unseen(self);
    }
    Py_RETURN_NONE;
}

bool
endpoint_keep_unseen(EndpointObject *endpoint, PyObject *exc, const char *name)
{
    if (endpoint->is_end_seen) {
        return true;
    }
    if (endpoint->unseen != NULL) {
        endpoint->num_unseen++;
        return true;
    }
    if (endpoint->worker->call_soon == NULL ||
        !worker_is_mine(endpoint->worker)) {
        endpoint->is_end_seen = true;
        return false;
    }
    if (call_soon(endpoint, TURNS) < 0) {
        PyErr_Clear(); /* no memory, or the loop is closed */
        endpoint->is_end_seen = true;
        return false;
    }
    endpoint->unseen     = Py_NewRef(exc);
    endpoint->num_unseen = 1;
    PyOS_snprintf(endpoint->unseen_name, sizeof(endpoint->unseen_name), "%s",
                  name);
    return true;
}
