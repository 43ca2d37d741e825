/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.c: an endpoint that connects to a listener. */
#include "op/connect.h"

#include "base/args.h"
#include "base/errors.h"
#include "base/sockaddr.h"
#include "object/endpoint.h"
#include "object/event.h"
#include "op/event.h"
#include "worker/worker.h"

#include <sys/socket.h>

typedef struct TAIL connect_tail {
    umx_ep   *ep;   /* until it is open, or NULL */
    PyObject *peer; /* its address */
} connect_tail;

static PyObject *
connect_error(RequestObject *req, umx_ep *ep, umx_status status)
{
    const char  *reason = umx_ep_reason(ep);
    errors_place place  = {"to", TAIL_OF(req, connect_tail)->peer,
                           umx_ep_errno(ep)};

    return errors_new_at(req->worker->st, status, "connect", &place,
                         reason[0] != '\0' ? reason : NULL);
}

/* Make the exception of what umx_ep_connect() refused at once. */
static PyObject *
refused_error(WorkerObject *self, PyObject *peer, umx_status status)
{
    errors_place place = {"to", peer, umx_take_errno()};

    return errors_new_at(self->st, status, "connect", &place, NULL);
}

/* op_type.told(): the endpoint is open, or has failed. */
static void
connect_told(RequestObject *req)
{
    connect_tail *tail   = TAIL_OF(req, connect_tail);
    umx_ep       *ep     = tail->ep;
    umx_status    status = req->status;
    PyObject     *exc    = NULL;

    tail->ep         = NULL;
    req->num_pending = 0;
    event_watch_endpoint(ep, NULL);
    if (req->info.length != 0) {
        req->result = endpoint_new(req->worker, ep);
        status      = UMX_OK;
    } else {
        exc = connect_error(req, ep, status);
        umx_ep_destroy(ep);
    }
    if (req->result == NULL && exc == NULL) {
        exc    = PyErr_GetRaisedException();
        status = UMX_ERR_NO_MEMORY;
    }
    if (exc != NULL) {
        request_set_exception(req, exc);
    }
    request_settle(req, status);
}

static bool
connect_cancel(RequestObject *req, cancel_fn *cancel)
{
    connect_tail *tail = TAIL_OF(req, connect_tail);
    umx_ep       *ep   = tail->ep;

    if (ep != NULL) {
        tail->ep         = NULL;
        req->num_pending = 0;
        event_watch_endpoint(ep, NULL);
        umx_ep_destroy(ep);
    }
    (void)cancel;
    return true;
}

static PyObject *
connect_result(RequestObject *req)
{
    (void)req;
    PyErr_SetString(PyExc_RuntimeError, "the endpoint was handed out");
    return NULL;
}

static void
connect_clear(RequestObject *req)
{
    Py_CLEAR(TAIL_OF(req, connect_tail)->peer);
}

static int
connect_traverse(const RequestObject *req, visitproc visit, void *arg)
{
    Py_VISIT(TAIL_OF(req, connect_tail)->peer);
    return 0;
}

/* op_type.error() of a request that has no exception of its own. */
static PyObject *
ended_error(RequestObject *req)
{
    PyObject *exc  = request_status_error(req, req->status, &req->info, 0);
    PyObject *peer = TAIL_OF(req, connect_tail)->peer;

    if (exc != NULL && peer != NULL &&
        PyObject_SetAttr(exc, NAME(req->worker->st, peer), peer) < 0) {
        Py_CLEAR(exc);
    }
    return exc;
}

const op_type op_connect = {
    .name     = "connect",
    .flags    = OP_CONNECT | OP_ONCE,
    .result   = connect_result,
    .error    = ended_error,
    .cancel   = connect_cancel,
    .told     = connect_told,
    .clear    = connect_clear,
    .traverse = connect_traverse,
};

typedef struct connect_args {
    umx_connect_params      params;
    struct sockaddr_storage addr;
    struct sockaddr_storage local;
    PyObject               *peer; /* borrowed */
} connect_args;

/* Parse the arguments of connect(). */
static int
parse_connect(const char *name, PyObject *const *args, Py_ssize_t nargs,
              PyObject *kwnames, connect_args *parsed)
{
    static const char *const keywords[] = {"sockaddr", "timeout", "local",
                                           "window"};
    umx_connect_params      *params     = &parsed->params;
    PyObject                *values[4];

    *params = (umx_connect_params){.field_mask = UMX_CONNECT_FIELD_TIMEOUT};
    if (args_parse(name, args, nargs, kwnames, keywords, 4, 4, 2, values) < 0 ||
        sockaddr_parse(values[0], &parsed->addr, &params->addr_len) < 0 ||
        args_timeout(values[1], UMX_TIMEOUT_INFINITE, &params->timeout_ns) <
            0) {
        return -1;
    }
    params->addr = (struct sockaddr *)&parsed->addr;
    if (values[2] != NULL && values[2] != Py_None) {
        if (sockaddr_parse(values[2], &parsed->local, &params->local_len) < 0) {
            return -1;
        }
        params->field_mask |= UMX_CONNECT_FIELD_LOCAL;
        params->local = (struct sockaddr *)&parsed->local;
    }
    if (args_window(values[3], &params->window) < 0) {
        return -1;
    }
    params->field_mask |= UMX_CONNECT_FIELD_WINDOW;
    parsed->peer = values[0];
    return 0;
}

const char worker_connect_doc[] =
    "_connect($self, sockaddr, timeout, local=None, window=None)\n--\n\n"
    "Connect to (host, port[, flowinfo, scope]), numeric; awaits an\n"
    "Endpoint. `timeout` in seconds is for the whole handshake.";

PyObject *
worker_connect(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames)
{
    WorkerObject  *self = (WorkerObject *)op;
    connect_args   parsed;
    RequestObject *req;
    connect_tail  *tail;
    umx_status     status;

    if (parse_connect("_connect", args, nargs, kwnames, &parsed) < 0) {
        return NULL;
    }
    req = request_new(self, NULL, &op_connect);
    if (req == NULL) {
        return NULL;
    }
    if (worker_check(self) < 0) { /* now that code of the arguments has run */
        Py_DECREF(req);
        return NULL;
    }
    tail       = TAIL_OF(req, connect_tail);
    tail->peer = Py_NewRef(parsed.peer);
    event_watch_connect(&parsed.params, req);
    (void)umx_take_errno();
    status = umx_ep_connect(self->umx, &parsed.params, &tail->ep);
    if (status != UMX_OK) {
        PyObject *exc = refused_error(self, parsed.peer, status);

        tail->ep = NULL;
        request_set_exception(req,
                              exc != NULL ? exc : PyErr_GetRaisedException());
        request_settle(req, status);
        return (PyObject *)req;
    }
    req->num_pending = 1;
    worker_schedule_drain(self);
    worker_update_timer(self);
    return (PyObject *)req;
}

const char worker_start_connect_doc[] =
    "_start_connect($self, sockaddr, timeout, local=None, window=None)\n--\n\n"
    "_connect() without waiting: an Endpoint whose state is\n"
    "'connecting'. What is sent on it waits.";

PyObject *
worker_start_connect(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                     PyObject *kwnames)
{
    WorkerObject *self = (WorkerObject *)op;
    connect_args  parsed;
    umx_status    status;
    umx_ep       *ep;

    if (parse_connect("_start_connect", args, nargs, kwnames, &parsed) < 0 ||
        worker_check(self) < 0) {
        return NULL;
    }
    (void)umx_take_errno();
    status = umx_ep_connect(self->umx, &parsed.params, &ep);
    if (status != UMX_OK) {
        return errors_set(refused_error(self, parsed.peer, status));
    }
    if (self->loop != NULL) {
        worker_schedule_drain(self);
    }
    worker_update_timer(self);
    return endpoint_new(self, ep);
}
