/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint.c: one side of a connection, and its end. */
#include "object/endpoint.h"

#include "base/sockaddr.h"
#include "object/event.h"
#include "object/unseen.h"
#include "worker/worker.h"

typedef umx_status (*address_fn)(const umx_ep *, struct sockaddr *, size_t *);

/* An address tuple; None where there is none, or not yet. */
static PyObject *
query_address(const umx_ep *ep, address_fn query)
{
    struct sockaddr_storage addr;
    size_t                  len = sizeof(addr);

    if (query(ep, (struct sockaddr *)&addr, &len) != UMX_OK) {
        Py_RETURN_NONE;
    }
    return sockaddr_build(&addr);
}

/* Read the addresses again: the object was made before it was connected. */
void
endpoint_update_addresses(EndpointObject *self)
{
    PyObject *peer  = query_address(self->umx, umx_ep_peer_address);
    PyObject *local = query_address(self->umx, umx_ep_local_address);

    if (peer == NULL || local == NULL) {
        PyErr_Clear(); /* the addresses stay None */
        Py_XDECREF(peer);
        Py_XDECREF(local);
        return;
    }
    Py_SETREF(self->peer, peer);
    Py_SETREF(self->local, local);
}

static void
settle_state(event *self)
{
    EndpointObject *endpoint = EVENT_OF(self, EndpointObject, event);

    if (compat_is_dying(endpoint)) {
        return;
    }
    Py_INCREF(endpoint);
    if (endpoint->has_opened) {
        endpoint->has_opened = false;
        endpoint_update_addresses(endpoint);
    }
    if (endpoint->has_ended && endpoint->on_close != NULL &&
        !event_is_listed(self)) {
        event_append(&endpoint->worker->calls, self);
    }
    Py_DECREF(endpoint);
}

/* Closed for whatever reason: tell, once. */
static void
call_on_close(event *self, bool is_direct)
{
    EndpointObject *endpoint = EVENT_OF(self, EndpointObject, event);
    PyObject       *on_close = endpoint->on_close;

    if (compat_is_dying(endpoint)) {
        return;
    }
    Py_INCREF(endpoint);
    endpoint->on_close = NULL;
    if (on_close != NULL) {
        worker_call(endpoint->worker, on_close, NULL, is_direct);
        Py_DECREF(on_close);
    }
    Py_DECREF(endpoint);
}

static const event_type endpoint_event = {settle_state, call_on_close};

enum {
    DRAIN_HIGH = 16 << 20
};

PyObject *
endpoint_new(WorkerObject *worker, umx_ep *ep)
{
    PyTypeObject   *type = worker->endpoint_class;
    EndpointObject *self = (EndpointObject *)type->tp_alloc(type, 0);

    if (self == NULL) {
        umx_ep_destroy(ep);
        return NULL;
    }
    self->worker     = (WorkerObject *)Py_NewRef(worker);
    self->umx        = ep;
    self->event.type = &endpoint_event;
    self->high       = DRAIN_HIGH;
    self->low        = DRAIN_HIGH / 4;
    worker->st->num_endpoints++;
    event_watch_endpoint(ep, self);
    self->peer  = query_address(ep, umx_ep_peer_address);
    self->local = query_address(ep, umx_ep_local_address);
    if (self->peer == NULL || self->local == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

int
endpoint_traverse(PyObject *op, visitproc visit, void *arg)
{
    EndpointObject *self = (EndpointObject *)op;

    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->worker);
    Py_VISIT(self->peer);
    Py_VISIT(self->local);
    Py_VISIT(self->on_close);
    Py_VISIT(self->unseen);
    return 0;
}

int
endpoint_clear(PyObject *op)
{
    EndpointObject *self = (EndpointObject *)op;

    Py_CLEAR(self->on_close);
    Py_CLEAR(self->unseen);
    return 0;
}

/* The last reference is dropped: for the program that is a close. */
static void
tell_dropped(EndpointObject *self)
{
    PyObject *exc;

    if (self->on_close == NULL || worker_is_forked(self->worker) ||
        (self->worker->umx == NULL && !worker_is_mine(self->worker))) {
        return;
    }
    exc = PyErr_GetRaisedException();
    worker_call_later(self->worker, self->on_close, NULL);
    if (worker_is_mine(self->worker)) {
        worker_after_call(self->worker);
    } /* for another thread's worker umx_ep_retire() has woken the thread */
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

/* Report what the loop did not get to, as it has been closed. */
static void
report_at_end(EndpointObject *self)
{
    PyObject *exc;

    if (self->unseen == NULL || compat_is_finalizing()) {
        return;
    }
    exc = PyErr_GetRaisedException();
    endpoint_report_unseen(self);
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

/* An open endpoint closes in the background: what was sent still arrives. */
void
endpoint_dealloc(PyObject *op)
{
    EndpointObject *self = (EndpointObject *)op;
    PyTypeObject   *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    event_unlink(&self->event);
    if (self->umx != NULL) {
        event_watch_endpoint(self->umx, NULL);
    }
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    if (self->umx != NULL) {
        umx_ep_retire(self->umx); /* any thread; never wait in dealloc */
        self->umx = NULL;
        tell_dropped(self);
        self->worker->st->num_endpoints--;
    }
    report_at_end(self);
    (void)endpoint_clear(op);
    Py_CLEAR(self->peer);
    Py_CLEAR(self->local);
    Py_CLEAR(self->worker);
    type->tp_free(op);
    Py_DECREF(type);
}

umx_ep_state
endpoint_state(const EndpointObject *self)
{
    if (self->worker->umx == NULL || worker_is_forked(self->worker)) {
        return UMX_EP_CLOSED;
    }
    return umx_ep_get_state(self->umx);
}

bool
endpoint_is_closed(const EndpointObject *self)
{
    umx_ep_state state = endpoint_state(self);

    return (state != UMX_EP_OPEN && state != UMX_EP_CONNECTING) ||
           umx_ep_is_peer_closed(self->umx);
}

const char *
endpoint_closed_by(const EndpointObject *self)
{
    if (self->worker->umx == NULL) {
        return (self->worker->loop != NULL &&
                worker_loop_is_closed(self->worker)) ?
                   ": its event loop has ended" :
                   ": its worker is closed";
    }
    if (worker_is_forked(self->worker)) {
        return "";
    }
    switch (umx_ep_error(self->umx)) {
    case UMX_OK:
        return " by close() in this process";
    case UMX_ERR_CANCELED:
        return " by abort() in this process";
    case UMX_ERR_PEER_CLOSED:
        return " by the peer";
    default:
        return ": the connection is lost";
    }
}
