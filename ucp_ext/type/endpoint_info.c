/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint_info.c: what is known of an endpoint. */
#include "type/endpoint_info.h"

#include "base/event.h"
#include "object/endpoint.h"
#include "worker/worker.h"

#include <string.h>

static const char *const state_names[] = {
    [UMX_EP_CONNECTING] = "connecting", [UMX_EP_OPEN] = "open",
    [UMX_EP_DRAINING] = "draining",     [UMX_EP_CLOSED] = "closed",
    [UMX_EP_FAILED] = "failed",
};

int
endpoint_check_open(EndpointObject *self, const char *op)
{
    if (self->worker->umx == NULL) {
        (void)errors_raise(self->worker->st, UMX_ERR_CLOSED, op,
                           endpoint_closed_by(self));
        return -1;
    }
    return worker_check(self->worker);
}

const char endpoint_info_doc[] = "_info($self, /)\n--\n\n"
                                 "UCX's description of the endpoint.";

PyObject *
endpoint_info(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    EndpointObject *self = (EndpointObject *)op;
    char           *chars;

    if (endpoint_check_open(self, "info") < 0) {
        return NULL;
    }
    return errors_or_text(self->worker->st, umx_ep_info(self->umx, &chars),
                          &chars, "info");
}

const char endpoint_transports_doc[] =
    "transports($self, /)\n--\n\n"
    "Return the pairs of transport and device that the endpoint\n"
    "uses.";

const char endpoint_ways_doc[] =
    "ways($self, /)\n--\n\n"
    "Return by which ways the messages went, to find out why they are\n"
    "slow: a dictionary of names, each with the number of messages that\n"
    "were sent and received so, and what is done with such a message.\n\n"
    "A message of memory of a device is counted as \"bounce\", and where\n"
    "it is fetched, by how its bytes come: \"direct\", \"cuda_ipc\",\n"
    "\"device slots\" or \"host slots\".";

PyObject *
endpoint_ways(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    EndpointObject *self = (EndpointObject *)op;
    umx_way         ways[UMX_WAYS_MAX];
    size_t          count;
    PyObject       *dict;

    if (endpoint_check_open(self, "ways") < 0) {
        return NULL;
    }
    count = umx_ep_ways(self->umx, ways);
    dict  = PyDict_New();
    for (size_t i = 0; dict != NULL && i < count; i++) {
        PyObject *way = Py_BuildValue(
            "{s:K,s:K,s:s}", "sent", (unsigned long long)ways[i].sent,
            "received", (unsigned long long)ways[i].received, "how",
            ways[i].how);

        if (way == NULL || PyDict_SetItemString(dict, ways[i].name, way) < 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(way);
    }
    return dict;
}

PyObject *
endpoint_transports(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    EndpointObject *self  = (EndpointObject *)op;
    text_pairs      pairs = {0};
    const char     *text;
    PyObject       *list;
    umx_status      status;

    if (endpoint_check_open(self, "transports") < 0) {
        return NULL;
    }
    status = event_list_transports(self->umx, &pairs);
    if (status != UMX_OK) {
        free(pairs.texts);
        return errors_raise(self->worker->st, status, "transports", NULL);
    }
    list = PyList_New((Py_ssize_t)pairs.count);
    text = pairs.texts;
    for (size_t i = 0; list != NULL && i < pairs.count; i++) {
        const char *device = text + strlen(text) + 1;
        PyObject   *pair   = Py_BuildValue("(ss)", text, device);

        if (pair == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, (Py_ssize_t)i, pair);
        }
        text = device + strlen(device) + 1;
    }
    free(pairs.texts);
    return list;
}

const char endpoint_stats_doc[] =
    "stats($self, /)\n--\n\n"
    "Return counters by name: messages and bytes that were sent\n"
    "(given to UCX) and received (arrived, whether read or not),\n"
    "bytes of pending sends, sends that wait, and messages and\n"
    "bytes that no receive has asked for.";

PyObject *
endpoint_stats(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    EndpointObject *self = (EndpointObject *)op;
    umx_ep_stats    stats;

    if (endpoint_check_open(self, "stats") < 0) {
        return NULL;
    }
    umx_ep_query(self->umx, &stats);
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "sent_messages",
        stats.sent_messages, "sent_bytes", stats.sent_bytes,
        "received_messages", stats.received_messages, "received_bytes",
        stats.received_bytes, "pending_bytes", umx_ep_pending_bytes(self->umx),
        "waiting_sends", stats.waiting_sends, "unexpected_messages",
        stats.unexpected_messages, "unexpected_bytes", stats.unexpected_bytes,
        "dropped_messages", stats.dropped_messages);
}

static PyObject *
get_peer_id(PyObject *op, void *Py_UNUSED(closure))
{
    umx_peer_id peer;

    if (umx_ep_peer_id(((EndpointObject *)op)->umx, &peer) != UMX_OK) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(kN)", (unsigned long)peer.pid,
                         PyUnicode_FromFormat("%u.%u.%u", peer.version[0],
                                              peer.version[1],
                                              peer.version[2]));
}

static PyObject *
get_state(PyObject *op, void *Py_UNUSED(closure))
{
    return PyUnicode_FromString(
        state_names[endpoint_state((EndpointObject *)op)]);
}

static PyObject *
get_error(PyObject *op, void *Py_UNUSED(closure))
{
    EndpointObject *self   = (EndpointObject *)op;
    umx_status      status = umx_ep_error(self->umx);
    const char     *reason = umx_ep_reason(self->umx);
    PyObject       *exc;

    if (status == UMX_OK) {
        Py_RETURN_NONE;
    }
    exc = errors_new(self->worker->st, status, NULL,
                     reason[0] != '\0' ? reason : NULL);
    if (status == UMX_ERR_ENDPOINT_TIMEOUT) {
        exc = errors_with_errno(exc, umx_ep_errno(self->umx));
    }
    if (exc != NULL &&
        PyObject_SetAttr(exc, NAME(self->worker->st, peer), self->peer) < 0) {
        Py_CLEAR(exc);
    }
    return exc;
}

static PyObject *
get_handle(PyObject *op, void *Py_UNUSED(closure))
{
    void *handle = umx_ep_handle(((EndpointObject *)op)->umx);

    return PyLong_FromVoidPtr(handle);
}

static PyObject *
get_uid(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(umx_ep_id(((EndpointObject *)op)->umx));
}

/* Known from when the socket is connected; the handshake comes after that. */
static void
look_for_addresses(EndpointObject *self)
{
    if (self->peer == Py_None && endpoint_state(self) == UMX_EP_CONNECTING &&
        worker_is_mine(self->worker)) {
        endpoint_update_addresses(self);
    }
}

static PyObject *
get_peer_address(PyObject *op, void *Py_UNUSED(closure))
{
    look_for_addresses((EndpointObject *)op);
    return Py_NewRef(((EndpointObject *)op)->peer);
}

static PyObject *
get_local_address(PyObject *op, void *Py_UNUSED(closure))
{
    look_for_addresses((EndpointObject *)op);
    return Py_NewRef(((EndpointObject *)op)->local);
}

static PyObject *
get_recv_count(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(
        umx_ep_recv_count(((EndpointObject *)op)->umx));
}

static PyObject *
get_unsent_bytes(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(
        umx_ep_unsent_bytes(((EndpointObject *)op)->umx));
}

static PyObject *
get_pending_bytes(PyObject *op, void *Py_UNUSED(closure))
{
    EndpointObject *self = (EndpointObject *)op;

    return PyLong_FromUnsignedLongLong(
        self->umx != NULL ? umx_ep_pending_bytes(self->umx) : 0);
}

static PyObject *
get_worker(PyObject *op, void *Py_UNUSED(closure))
{
    return Py_NewRef(((EndpointObject *)op)->worker);
}

static PyObject *
get_on_close(PyObject *op, void *Py_UNUSED(closure))
{
    PyObject *on_close = ((EndpointObject *)op)->on_close;

    return Py_NewRef(on_close != NULL ? on_close : Py_None);
}

static int
set_on_close(PyObject *op, PyObject *value, void *Py_UNUSED(closure))
{
    EndpointObject *self = (EndpointObject *)op;

    if (value == NULL || value == Py_None) {
        Py_CLEAR(self->on_close);
        return 0;
    }
    if (!PyCallable_Check(value)) {
        PyErr_Format(PyExc_TypeError, "on_close must be callable, not %.200s",
                     Py_TYPE(value)->tp_name);
        return -1;
    }
    Py_XSETREF(self->on_close, Py_NewRef(value));
    return 0;
}

PyGetSetDef endpoint_getset[] = {
    {"state", get_state, NULL,
     "'connecting', 'open', 'draining', 'closed' or 'failed'.", NULL},
    {"error", get_error, NULL,
     "The exception with which the endpoint has ended, or None.", NULL},
    {"_handle", get_handle, NULL, "UCX's ucp_ep_h; 0 once closed.", NULL},
    {"uid", get_uid, NULL, "A number that no other endpoint of the worker had.",
     NULL},
    {"peer_address", get_peer_address, NULL,
     "Pair of host and port of the peer, or None.", NULL},
    {"local_address", get_local_address, NULL,
     "Pair of host and port of this side, or None.", NULL},
    {"_peer_id", get_peer_id, NULL,
     "The peer's (pid, version of ucp); None before the handshake's end.",
     NULL},
    {"_recv_count", get_recv_count, NULL, "Number of messages received.", NULL},
    {"pending_bytes", get_pending_bytes, NULL, "Bytes of pending sends.", NULL},
    {"_unsent_bytes", get_unsent_bytes, NULL,
     "Bytes that were not sent when a close was forced.", NULL},
    {"worker", get_worker, NULL, "The worker of the endpoint.", NULL},
    {"_on_close", get_on_close, set_on_close,
     "Called once, without arguments, when the endpoint has closed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
