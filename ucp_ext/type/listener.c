/* SPDX-License-Identifier: BSD-3-Clause */
/* listener.c: the type of listeners. */
#include "type/listener.h"

#include "base/args.h"
#include "base/sockaddr.h"
#include "object/endpoint.h"
#include "type/event.h"
#include "type/type.h"
#include "worker/worker.h"

/* ---- life ----------------------------------------------------------------
 */

static void listener_shut(ListenerObject *self);

static void
settle_listener(event *self)
{
    event_append(&EVENT_OF(self, ListenerObject, event)->worker->calls, self);
}

/* Hand out one accepted endpoint, and call again for the next; at last tell
 * that a peer has closed the listener. */
static void
call_listener(event *self, bool is_direct)
{
    ListenerObject *listener = EVENT_OF(self, ListenerObject, event);
    WorkerObject   *worker   = listener->worker;
    PyObject       *func, *endpoint;
    umx_ep         *ep;

    if (compat_is_dying(listener) || listener->umx == NULL) {
        return;
    }
    Py_INCREF(listener);
    ep = umx_listener_take(listener->umx);
    if (ep != NULL) {
        event_append(&worker->calls, self);
        func     = Py_NewRef(listener->on_accept);
        endpoint = endpoint_new(worker, ep);
        if (endpoint == NULL) {
            worker_report_exception(worker, "a connection was dropped");
        } else {
            worker_call(worker, func, endpoint, is_direct);
            Py_DECREF(endpoint);
        }
        Py_DECREF(func);
    } else if (listener->is_remote_closed) {
        listener_shut(listener);
        worker_call(worker, listener->on_remote_close, NULL, is_direct);
    }
    Py_DECREF(listener);
}

static const event_type listener_event = {settle_listener, call_listener};

static int
read_address(ListenerObject *self)
{
    struct sockaddr_storage addr;
    size_t                  len = sizeof(addr);
    PyObject               *tuple;
    umx_status              status;

    status = umx_listener_address(self->umx, (struct sockaddr *)&addr, &len);
    if (status != UMX_OK) {
        (void)errors_raise(self->worker->st, status, "listen", NULL);
        return -1;
    }
    tuple = sockaddr_build(&addr);
    if (tuple == NULL) {
        return -1;
    }
    self->is_dual = umx_listener_is_dual(self->umx);
    self->host    = Py_NewRef(PyTuple_GET_ITEM(tuple, 0));
    self->port    = (int)PyLong_AsLong(PyTuple_GET_ITEM(tuple, 1));
    Py_DECREF(tuple);
    return 0;
}

static int
listener_start(ListenerObject *self, umx_listener_params *params,
               PyObject *sockaddr)
{
    errors_place place = {.preposition = "on", .address = sockaddr};
    umx_status   status;

    (void)umx_take_errno();
    status = umx_listener_create(self->worker->umx, params, &self->umx);
    if (status != UMX_OK) {
        place.error = umx_take_errno();
        (void)errors_set(
            errors_new_at(self->worker->st, status, "listen", &place, NULL));
        return -1;
    }
    self->worker->st->num_listeners++;
    worker_schedule_drain(self->worker);
    return read_address(self);
}

/* (None, port): all addresses of both families, as umx_listener_params say. */
static bool
is_any_host(PyObject *sockaddr)
{
    return PyTuple_Check(sockaddr) && PyTuple_GET_SIZE(sockaddr) == 2 &&
           Py_IsNone(PyTuple_GET_ITEM(sockaddr, 0));
}

static int
read_params_address(PyObject *sockaddr, umx_listener_params *params,
                    struct sockaddr_storage *addr)
{
    in_port_t port;

    if (!is_any_host(sockaddr)) {
        params->addr = (struct sockaddr *)addr;
        return sockaddr_parse(sockaddr, addr, &params->addr_len);
    }
    if (sockaddr_parse_port(sockaddr, &port) < 0) {
        return -1;
    }
    params->field_mask |= UMX_LISTENER_FIELD_PORT;
    params->port = ntohs(port);
    return 0;
}

PyObject *
listener_new(WorkerObject *worker, PyObject *sockaddr, PyObject *callback,
             PyObject *backlog, PyObject *timeout, PyObject *remote_close,
             PyObject *window)
{
    PyTypeObject           *type   = worker->listener_class;
    umx_listener_params     params = {0};
    struct sockaddr_storage addr;
    ListenerObject         *self;

    if (read_params_address(sockaddr, &params, &addr) < 0) {
        return NULL;
    }
    if (backlog != NULL && backlog != Py_None) {
        long value = PyLong_AsLong(backlog);

        if (value == -1 && PyErr_Occurred()) {
            return NULL;
        }
        if (value < 1 || value > INT32_MAX) {
            PyErr_Format(PyExc_ValueError, "backlog must be >= 1, not %ld",
                         value);
            return NULL;
        }
        params.field_mask |= UMX_LISTENER_FIELD_BACKLOG;
        params.backlog = (int)value;
    }
    if (timeout != NULL && timeout != Py_None) {
        if (args_timeout(timeout, 0, &params.timeout_ns) < 0) {
            return NULL;
        }
        params.field_mask |= UMX_LISTENER_FIELD_TIMEOUT;
    }
    if (args_window(window, &params.window) < 0) {
        return NULL;
    }
    params.field_mask |= UMX_LISTENER_FIELD_WINDOW;
    self = (ListenerObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->worker     = (WorkerObject *)Py_NewRef(worker);
    self->on_accept  = Py_NewRef(callback);
    self->event.type = &listener_event;
    if (remote_close != NULL && remote_close != Py_None) {
        self->on_remote_close = Py_NewRef(remote_close);
    }
    event_watch_listener(&params, self, self->on_remote_close != NULL);
    /* Code of the arguments has run since the call. */
    if (worker_check(worker) < 0 ||
        listener_start(self, &params, sockaddr) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void
listener_shut(ListenerObject *self)
{
    umx_listener *umx = self->umx;

    if (umx == NULL) {
        return;
    }
    self->umx = NULL;
    event_unlink(&self->event);
    self->worker->st->num_listeners--;
    if (self->worker->umx == NULL) {
        umx_listener_destroy(umx); /* stopped with the worker */
        return;
    }
    event_forget_listener(umx);
    if (worker_is_mine(self->worker)) {
        umx_listener_destroy(umx);
    } else {
        umx_listener_retire(umx);
    }
}

static int
listener_traverse(PyObject *op, visitproc visit, void *arg)
{
    ListenerObject *self = (ListenerObject *)op;

    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->worker);
    Py_VISIT(self->on_accept);
    Py_VISIT(self->on_remote_close);
    return 0;
}

/* Nobody can be called any more. */
static int
listener_clear(PyObject *op)
{
    ListenerObject *self = (ListenerObject *)op;

    listener_shut(self);
    Py_CLEAR(self->on_accept);
    Py_CLEAR(self->on_remote_close);
    return 0;
}

static void
listener_dealloc(PyObject *op)
{
    ListenerObject *self = (ListenerObject *)op;
    PyTypeObject   *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    listener_shut(self);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    (void)listener_clear(op);
    Py_CLEAR(self->host);
    Py_CLEAR(self->worker);
    type->tp_free(op);
    Py_DECREF(type);
}

/* ---- methods -------------------------------------------------------------
 */

PyDoc_STRVAR(close_doc, "close($self, /)\n--\n\n"
                        "Stop listening; open endpoints live on.");

static PyObject *
listener_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ListenerObject *self = (ListenerObject *)op;

    if (self->umx != NULL && self->worker->umx != NULL &&
        !worker_is_forked(self->worker) && worker_check(self->worker) < 0) {
        return NULL;
    }
    listener_shut(self);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(closed_doc, "closed($self, /)\n--\n\nTrue after close().");

static PyObject *
listener_closed(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ListenerObject *self = (ListenerObject *)op;

    return PyBool_FromLong(self->umx == NULL || self->worker->umx == NULL ||
                           worker_is_forked(self->worker));
}

static PyObject *
get_port(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((ListenerObject *)op)->port);
}

static PyObject *
get_host(PyObject *op, void *Py_UNUSED(closure))
{
    PyObject *host = ((ListenerObject *)op)->host;

    return Py_NewRef(host != NULL ? host : Py_None);
}

static PyObject *
get_addresses(PyObject *op, void *Py_UNUSED(closure))
{
    ListenerObject *self = (ListenerObject *)op;

    if (self->host == NULL) {
        return PyList_New(0);
    }
    return self->is_dual ? Py_BuildValue("[(si)(si)]", "0.0.0.0", self->port,
                                         "::", self->port) :
                           Py_BuildValue("[(Oi)]", self->host, self->port);
}

static PyMethodDef listener_methods[] = {
    {"close", listener_close, METH_NOARGS, close_doc},
    {"closed", listener_closed, METH_NOARGS, closed_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef listener_getset[] = {
    {"port", get_port, NULL, "The port it is bound to.", NULL},
    {"host", get_host, NULL,
     "The address it is bound to; the IPv4 one if there are two.", NULL},
    {"addresses", get_addresses, NULL,
     "Pairs of host and port: all that it is bound to.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef listener_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ListenerObject, weakrefs),
     READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(listener_doc, "Accepts connections; made by Worker.listen().");

static PyType_Slot listener_slots[] = {
    {Py_tp_doc, (void *)listener_doc},   {Py_tp_dealloc, listener_dealloc},
    {Py_tp_traverse, listener_traverse}, {Py_tp_clear, listener_clear},
    {Py_tp_methods, listener_methods},   {Py_tp_getset, listener_getset},
    {Py_tp_members, listener_members},   {0, NULL},
};

PyType_Spec listener_spec = {
    .name      = "ucp._ext.Listener",
    .basicsize = sizeof(ListenerObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = listener_slots,
};
