/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint.c: the type of endpoints. */
#include "type/type.h"

#include "base/args.h"
#include "object/context.h"
#include "object/endpoint.h"
#include "object/rkey.h"
#include "object/unseen.h"
#include "op/am.h"
#include "op/channel.h"
#include "op/close.h"
#include "op/query.h"
#include "op/stream.h"
#include "request/request.h"
#include "type/endpoint_info.h"
#include "worker/worker.h"

/* ---- messages: those of channel 0 -----------------------------------------
 */

#define DEFINE(name)                                                           \
    static PyObject *endpoint_##name(PyObject *op, PyObject *const *args,      \
                                     Py_ssize_t nargs, PyObject *kwnames)      \
    {                                                                          \
        return messages_##name((EndpointObject *)op, 0, args, nargs, kwnames); \
    }
MESSAGE_METHODS(DEFINE)
DEFINE(recv_pickle)
#undef DEFINE

PyDoc_STRVAR(send_doc,
             "send($self, buffer, tag=None, force_tag=False, *,\n"
             "     strided=False, stream=None)\n--\n\n"
             "Send all of buffer as one message; awaitable. The request is\n"
             "done when the buffer may be reused; the peer may not have\n"
             "received the message yet. A message of 64 KiB or more over\n"
             "shared memory (Config.rndv_thresh_shm), of 256 KiB or more over\n"
             "a network (Config.rndv_thresh_net), one from device memory, and\n"
             "any for which the peer has granted no credit, waits until the\n"
             "peer receives it: two tasks that both send such a message first\n"
             "and receive then wait for each other.\n\n"
             "Args:\n"
             "    buffer: contiguous host or device memory of any dtype. The\n"
             "        items of an array in host memory are sent in C order.\n"
             "    tag: None, an int of 64 bits, str, bytes, or a tuple of\n"
             "        these. Only a receive with the same tag gets the\n"
             "        message.\n"
             "    force_tag: send with UCX's own tags, as Worker.send(). tag\n"
             "        is then an int of 64 bits, and Worker.recv() or\n"
             "        ucp.recv() receives the message.\n"
             "    strided: buffer is an array in host memory with any\n"
             "        strides, whose items are sent in C order.\n"
             "    stream: a CUDA stream to wait for before sending, besides\n"
             "        the one that buffer names.\n\n"
             "Raises:\n"
             "    UCXCloseError: the endpoint is closed.\n"
             "    UCXConnectionReset: the peer has died, or the network\n"
             "        failed.\n"
             "    ValueError: buffer is not contiguous.\n"
             "    TypeError: buffer has none of the interfaces for memory.\n\n"
             "When cancelled, the message is withdrawn if the peer has not\n"
             "asked for its bytes. Otherwise it arrives whole, with the bytes\n"
             "that the buffer had at that time. The buffer is the caller's\n"
             "when the await has ended.");

PyDoc_STRVAR(recv_doc,
             "recv($self, buffer, tag=None, force_tag=False, *,\n"
             "     strided=False, stream=None)\n--\n\n"
             "Receive one message of exactly the length of buffer;\n"
             "awaitable.\n\n"
             "Args:\n"
             "    buffer: writable, contiguous host or device memory of any\n"
             "        dtype. What comes are its items in C order.\n"
             "    tag: receive the next message with this tag; None: the\n"
             "        next one without a tag; ANY: the next one.\n"
             "    force_tag: receive a message that was sent with force_tag\n"
             "        and this tag, by any peer. The receive fails when this\n"
             "        endpoint does, unless a message has arrived before.\n"
             "    strided, stream: as for send().\n\n"
             "Raises:\n"
             "    UCXMsgTruncated: the lengths differ; the message is for\n"
             "        the next receive: recv_obj() or recv_into(). If it\n"
             "        does not fit that one, either, it is dropped, and the\n"
             "        receive takes the message behind it. With force_tag it\n"
             "        is lost.\n"
             "    UCXPeerClosed: the endpoint was closed while this was\n"
             "        pending.\n"
             "    UCXCloseError: the endpoint was closed before.\n"
             "    UCXConnectionReset: the peer has died, or the network\n"
             "        failed.\n"
             "    ValueError: buffer is read-only or not contiguous.\n\n"
             "When cancelled, the next receive gets the message.");

PyDoc_STRVAR(
    recv_into_doc,
    "recv_into($self, buffer, tag=ANY, mask=0xffffffffffffffff)\n--\n\n"
    "Receive one message of at most the length of buffer;\n"
    "awaitable. The result is the number of bytes.\n\n"
    "Args:\n"
    "    buffer: as for recv().\n"
    "    tag: as for recv(); by default any message is received.\n"
    "    mask: the bits of a tag of 64 bits that are compared.\n\n"
    "Raises the exceptions of recv(). UCXMsgTruncated is raised if the\n"
    "message is longer than buffer; the next receive gets this message,\n"
    "as with recv().");

PyDoc_STRVAR(send_many_doc,
             "send_many($self, buffers, tag=None)\n--\n\n"
             "Send each buffer as a message, with one await for all.\n\n"
             "Raises the exceptions of send(). If some sends fail: UCXError,\n"
             "whose attribute results has None or an exception for each\n"
             "buffer.");

PyDoc_STRVAR(recv_many_doc,
             "recv_many($self, buffers, tag=None)\n--\n\n"
             "Receive a message into each buffer, in order, with one await\n"
             "for all. Exceptions are those of recv() and send_many(). A\n"
             "message that does not fit its buffer is tried with the next\n"
             "one, and dropped if it does not fit that, either.");

PyDoc_STRVAR(recv_message_doc,
             "recv_message($self, tag=None)\n--\n\n"
             "Take the next message without its bytes; awaitable. The result\n"
             "is a Message, which receives the bytes by its recv().");

PyDoc_STRVAR(recv_obj_doc,
             "recv_obj($self, tag=None, allocator=None)\n--\n\n"
             "Receive the next message, of any length; awaitable. The result\n"
             "is an object with its bytes.\n\n"
             "Args:\n"
             "    tag: as for recv().\n"
             "    allocator: called with the length in bytes, in the event\n"
             "        loop; returns the writable buffer that is filled and\n"
             "        is the result. None: bytearray.\n\n"
             "Raises the exceptions of recv(), and those of allocator.\n\n"
             "When cancelled, or when allocator raises, the next receive gets\n"
             "the message.");

PyDoc_STRVAR(probe_doc,
             "probe($self, tag=ANY)\n--\n\n"
             "Look for the next message that matches tag and has arrived.\n"
             "Return its length in bytes and its tag, which is None for a\n"
             "message without one; or None if there is no message. The\n"
             "message is not consumed.");

/* ---- state ---------------------------------------------------------------
 */

PyDoc_STRVAR(send_frames_doc,
             "send_frames($self, buffers, header=b'')\n--\n\n"
             "Send several buffers and a header as one message; awaitable.\n"
             "The request is done when the buffers may be reused.\n"
             "recv_frames() receives the message.\n\n"
             "Args:\n"
             "    buffers: a sequence of contiguous buffers.\n"
             "    header: at most 64 KiB.");

PyDoc_STRVAR(
    recv_frames_doc,
    "recv_frames($self, allocator=None, *, into=None)\n--\n\n"
    "Receive the next message of frames; awaitable. The result is\n"
    "its header and a list.\n\n"
    "Args:\n"
    "    allocator: called with the number of bytes of each frame;\n"
    "        returns a writable buffer. The list contains these\n"
    "        buffers. None: bytearray, and for frames that were\n"
    "        sent from a GPU the worker's allocator, if it has one.\n"
    "    into: a sequence of writable buffers, one for each frame\n"
    "        and at least as long, into which the frames are\n"
    "        received. The list contains the lengths of the frames.\n\n"
    "Raises:\n"
    "    UCXMsgTruncated: the buffers of into are too few or too\n"
    "        short; the message is for the next receive, and dropped\n"
    "        if the buffers of that one do not suffice, either.\n"
    "    Otherwise as recv().\n\n"
    "When cancelled, the next receive gets the message.");

PyDoc_STRVAR(recv_multi_doc,
             "recv_multi($self, allocator=None)\n--\n\n"
             "Receive the next message of frames; awaitable. The result is\n"
             "the list of its buffers: as recv_frames(), without the header.");

PyDoc_STRVAR(recv_pickle_doc,
             "_recv_pickle($self, decode, allocator)\n--\n\n"
             "recv_frames() whose result is decode((header, frames)), called\n"
             "when it is handed out: the message does not come again.");

PyDoc_STRVAR(
    close_doc,
    "close($self, timeout=None)\n--\n\n"
    "Close in agreement with the peer; awaitable. What was sent is\n"
    "delivered first, and a receive whose bytes are on their way gets\n"
    "them. After timeout seconds the endpoint is closed\n"
    "by force, and UCXTimeout is raised. If the peer has gone, the\n"
    "endpoint is closed as well.");

static PyObject *
endpoint_close(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames)
{
    static const char *const keywords[] = {"timeout"};
    EndpointObject          *self       = (EndpointObject *)op;
    WorkerObject            *worker     = self->worker;
    PyObject                *timeout, *result;
    RequestObject           *req;
    uint64_t                 fallback_ns;

    if (args_parse("close", args, nargs, kwnames, keywords, 1, 1, 0, &timeout) <
        0) {
        return NULL;
    }
    fallback_ns = umx_context_config(worker->context->umx)->close_timeout_ns;
    req         = request_new(worker, self, &op_close);
    if (req == NULL) {
        return NULL;
    }
    if (args_timeout(timeout, fallback_ns, &req->ns) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    result = request_post(req);
    if (worker_is_mine(worker)) {
        worker_update_timer(worker);
    }
    return result;
}

PyDoc_STRVAR(abort_doc,
             "abort($self, /)\n--\n\n"
             "Close the endpoint immediately; pending operations raise\n"
             "UCXCanceled.");

static PyObject *
endpoint_abort(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    EndpointObject *self = (EndpointObject *)op;

    if (self->worker->umx == NULL || worker_is_forked(self->worker)) {
        Py_RETURN_NONE;
    }
    if (worker_check(self->worker) < 0) {
        return NULL;
    }
    umx_ep_abort(self->umx);
    worker_after_call(self->worker);
    worker_schedule_drain(self->worker);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    keep_last_doc,
    "_keep_last($self, number, count, /)\n--\n\n"
    "Keep only the last `count` unread messages of a channel; 0: all.");

static PyObject *
endpoint_keep_last(PyObject *op, PyObject *args)
{
    EndpointObject *self = (EndpointObject *)op;
    unsigned        number, count;
    umx_status      status;

    if (!PyArg_ParseTuple(args, "II:_keep_last", &number, &count) ||
        endpoint_check_open(self, "set_keep_last") < 0) {
        return NULL;
    }
    status = umx_channel_keep_last(self->umx, (uint16_t)number, count);
    if (status != UMX_OK) {
        return errors_raise(self->worker->st, status, "set_keep_last", NULL);
    }
    worker_after_call(self->worker);
    worker_drain_if_due(self->worker);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(closed_doc,
             "closed($self, /)\n--\n\n"
             "True if this side or the peer has closed the endpoint, or if\n"
             "it has failed. Messages that the peer sent before it closed\n"
             "may still be received.");

static PyObject *
endpoint_closed(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(endpoint_is_closed((EndpointObject *)op));
}

static PyObject *
begin(PyObject *op, const op_type *type)
{
    EndpointObject *self = (EndpointObject *)op;

    return request_begin(self->worker, self, type);
}

PyDoc_STRVAR(flush_doc,
             "flush($self, /)\n--\n\n"
             "Wait until everything that was sent has reached the memory of\n"
             "the peer; awaitable.\n\n"
             "The flush waits for short messages that lack credit. They get\n"
             "credit when the peer has received earlier messages. The flush\n"
             "does not wait for messages that are so long that they wait for\n"
             "their receive in any case: when their sends are done, they have\n"
             "arrived.");

static PyObject *
endpoint_flush(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return begin(op, &op_flush);
}

PyDoc_STRVAR(fence_doc,
             "fence($self, /)\n--\n\n"
             "Keep the order of operations on the memory of the peer: those\n"
             "that are called after the fence are executed after those that\n"
             "were called before it. Does not wait.");

static PyObject *
endpoint_fence(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    EndpointObject *self = (EndpointObject *)op;
    umx_status      status;

    if (worker_check(self->worker) < 0) {
        return NULL;
    }
    status = umx_ep_fence(self->umx);
    if (status != UMX_OK) {
        return errors_raise(self->worker->st, status, "fence", NULL);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(remote_doc,
             "remote($self, key, /)\n--\n\n"
             "Return the memory of the peer that key names, a RemoteMemory.\n\n"
             "Raises UCXInvalidKey if the key is damaged, belongs to another\n"
             "process, or its memory is closed.");

static PyObject *
endpoint_remote(PyObject *op, PyObject *key)
{
    EndpointObject *self   = (EndpointObject *)op;
    PyObject       *remote = NULL;
    Py_buffer       view;
    umx_ep_state    state;

    if (PyObject_GetBuffer(key, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    state = endpoint_state(self); /* now that the key's code has run */
    if (state == UMX_EP_OPEN || state == UMX_EP_CONNECTING) {
        remote = remote_new(self, view.buf, (size_t)view.len);
    } else {
        errors_raise(self->worker->st,
                     worker_is_forked(self->worker) ? UMX_ERR_FORKED :
                                                      UMX_ERR_CLOSED,
                     "remote", endpoint_closed_by(self));
    }
    PyBuffer_Release(&view);
    return remote;
}

PyDoc_STRVAR(drain_doc,
             "drain($self, /)\n--\n\n"
             "Wait until few enough bytes are being sent; awaitable. Done\n"
             "immediately while pending_bytes is at most the high limit,\n"
             "else as soon as it is at most the low limit: see set_limits().");

static PyObject *
endpoint_drain(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    EndpointObject *self = (EndpointObject *)op;
    RequestObject  *req  = request_new(self->worker, self, &op_drain);

    if (req == NULL) {
        return NULL;
    }
    if (self->umx != NULL && endpoint_state(self) == UMX_EP_OPEN &&
        umx_ep_pending_bytes(self->umx) <= self->high) {
        request_settle(req, UMX_OK);
        return (PyObject *)req;
    }
    return request_post(req);
}

PyDoc_STRVAR(set_limits_doc,
             "set_limits($self, high, low=None)\n--\n\n"
             "Set the limits of drain() in bytes. low is a quarter of high\n"
             "by default. Without a call the limits are 16 MiB and 4 MiB.");

static PyObject *
endpoint_set_limits(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                    PyObject *kwnames)
{
    static const char *const keywords[] = {"high", "low"};
    EndpointObject          *self       = (EndpointObject *)op;
    PyObject                *values[2];
    uint64_t                 high, low;

    if (args_parse("set_limits", args, nargs, kwnames, keywords, 2, 2, 1,
                   values) < 0) {
        return NULL;
    }
    high = PyLong_AsUnsignedLongLong(values[0]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    low = high / 4;
    if (values[1] != NULL && values[1] != Py_None) {
        low = PyLong_AsUnsignedLongLong(values[1]);
        if (PyErr_Occurred()) {
            return NULL;
        }
    }
    if (low > high) {
        return PyErr_Format(PyExc_ValueError,
                            "low (%R) must not be above high (%R)", values[1],
                            values[0]);
    }
    self->high = high;
    self->low  = low;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(close_after_recv_doc,
             "_close_after_recv($self, n, /)\n--\n\n"
             "Close once n messages have been received, including those\n"
             "before this call.");

static PyObject *
endpoint_close_after_recv(PyObject *op, PyObject *arg)
{
    EndpointObject    *self = (EndpointObject *)op;
    unsigned long long n    = PyLong_AsUnsignedLongLong(arg);
    umx_status         status;

    if (n == (unsigned long long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    if (endpoint_check_open(self, "close_after_recv") < 0) {
        return NULL;
    }
    status = umx_ep_close_after_recv(self->umx, n);
    if (status != UMX_OK) {
        return errors_raise(self->worker->st, status, "close_after_recv", NULL);
    }
    worker_schedule_drain(self->worker);
    Py_RETURN_NONE;
}

/* ---- the peer -----------------------------------------------------------
 */

PyDoc_STRVAR(ping_doc,
             "ping($self, /)\n--\n\n"
             "Measure the time until the peer has answered; awaitable. The\n"
             "result is in seconds. The library of the peer answers when the\n"
             "peer's worker makes progress. The call has no time limit.");

static PyObject *
endpoint_ping(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return begin(op, &op_ping);
}

PyDoc_STRVAR(peer_info_doc,
             "_peer_info($self, decode, /)\n--\n\n"
             "Ask the peer for information about itself; awaitable. The\n"
             "result is decode(text), of a JSON text.");

static PyObject *
endpoint_peer_info(PyObject *op, PyObject *decode)
{
    EndpointObject *self = (EndpointObject *)op;
    RequestObject  *req  = request_new(self->worker, self, &op_peer_info);

    if (req == NULL) {
        return NULL;
    }
    if (request_set_function(req, decode) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

PyDoc_STRVAR(close_listener_doc,
             "_close_listener($self, /)\n--\n\n"
             "Close the peer's listener that accepted this endpoint;\n"
             "awaitable. Open endpoints are not affected. UCXRejected: the\n"
             "listener does not allow it. UCXError: this side accepted the\n"
             "peer.");

static PyObject *
endpoint_close_listener(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return begin(op, &op_close_listener);
}

#define KEYWORDS (METH_FASTCALL | METH_KEYWORDS)
#define KEYWORDS_FUNC(f) ((PyCFunction)(void (*)(void))(f))

PyDoc_STRVAR(stream_send_doc,
             "stream_send($self, buffer, /)\n--\n\n"
             "Send all of buffer on the byte stream; awaitable. The request\n"
             "is done when the buffer may be reused. When cancelled, a send\n"
             "that has begun continues to its end, from a copy.");

PyDoc_STRVAR(stream_recv_doc,
             "stream_recv($self, buffer, wait_all=False)\n--\n\n"
             "Receive bytes of the byte stream; awaitable. The result is the\n"
             "number of bytes, 0 at the end of the stream: the peer has\n"
             "closed the endpoint or called stream_shutdown().\n\n"
             "Args:\n"
             "    buffer: writable; at most its length is received.\n"
             "    wait_all: wait until buffer is full, or the stream ends.\n\n"
             "When cancelled, the next receive gets the bytes. If a later\n"
             "receive was pending already, it may have got bytes that follow\n"
             "these.");

PyDoc_STRVAR(stream_shutdown_doc,
             "stream_shutdown($self, /)\n--\n\n"
             "End the byte stream after the bytes that were sent; the other\n"
             "direction stays open. A second call does nothing.");

PyDoc_STRVAR(
    am_send_doc,
    "am_send($self, buffer, *, id=None, header=b'', stream=None)\n--\n\n"
    "Send an active message; awaitable. The request is done when\n"
    "the buffer may be reused.\n\n"
    "Args:\n"
    "    buffer: contiguous memory; its bytes are the payload.\n"
    "    id: 16 to 65535, or None: messages without an id have a\n"
    "        queue of their own.\n"
    "    header: at most 1024 bytes, which arrive with the message.\n"
    "    stream: as for send().");

PyDoc_STRVAR(am_recv_doc,
             "am_recv($self, *, id=None)\n--\n\n"
             "Receive the bytes of the next active message of an id;\n"
             "awaitable. The result is a bytearray, or the buffer that the\n"
             "allocator of register_am_allocator() has made. When cancelled,\n"
             "the next receive gets the message.");

PyDoc_STRVAR(am_recv_message_doc,
             "am_recv_message($self, *, id=None)\n--\n\n"
             "Take the next active message of an id without its bytes;\n"
             "awaitable. The result is a Message.");

PyDoc_STRVAR(am_probe_doc,
             "am_probe($self, *, id=None)\n--\n\n"
             "Return the length in bytes of the next active message of an id\n"
             "that has arrived, or None.");

static PyMethodDef endpoint_methods[] = {
    {"send", KEYWORDS_FUNC(endpoint_send), KEYWORDS, send_doc},
    {"recv", KEYWORDS_FUNC(endpoint_recv), KEYWORDS, recv_doc},
    {"recv_into", KEYWORDS_FUNC(endpoint_recv_into), KEYWORDS, recv_into_doc},
    {"send_many", KEYWORDS_FUNC(endpoint_send_many), KEYWORDS, send_many_doc},
    {"recv_many", KEYWORDS_FUNC(endpoint_recv_many), KEYWORDS, recv_many_doc},
    {"recv_message", KEYWORDS_FUNC(endpoint_recv_message), KEYWORDS,
     recv_message_doc},
    {"probe", KEYWORDS_FUNC(endpoint_probe), KEYWORDS, probe_doc},
    {"send_frames", KEYWORDS_FUNC(endpoint_send_frames), KEYWORDS,
     send_frames_doc},
    {"recv_frames", KEYWORDS_FUNC(endpoint_recv_frames), KEYWORDS,
     recv_frames_doc},
    {"recv_obj", KEYWORDS_FUNC(endpoint_recv_obj), KEYWORDS, recv_obj_doc},
    {"recv_multi", KEYWORDS_FUNC(endpoint_recv_multi), KEYWORDS,
     recv_multi_doc},
    {"_recv_pickle", KEYWORDS_FUNC(endpoint_recv_pickle), KEYWORDS,
     recv_pickle_doc},
    {"stream_send", endpoint_stream_send, METH_O, stream_send_doc},
    {"stream_recv", KEYWORDS_FUNC(endpoint_stream_recv), KEYWORDS,
     stream_recv_doc},
    {"stream_shutdown", endpoint_stream_shutdown, METH_NOARGS,
     stream_shutdown_doc},
    {"am_send", KEYWORDS_FUNC(endpoint_am_send), KEYWORDS, am_send_doc},
    {"am_recv", KEYWORDS_FUNC(endpoint_am_recv), KEYWORDS, am_recv_doc},
    {"am_recv_message", KEYWORDS_FUNC(endpoint_am_recv_message), KEYWORDS,
     am_recv_message_doc},
    {"am_probe", KEYWORDS_FUNC(endpoint_am_probe), KEYWORDS, am_probe_doc},
    {"close", KEYWORDS_FUNC(endpoint_close), KEYWORDS, close_doc},
    {"abort", endpoint_abort, METH_NOARGS, abort_doc},
    {"closed", endpoint_closed, METH_NOARGS, closed_doc},
    {"flush", endpoint_flush, METH_NOARGS, flush_doc},
    {"fence", endpoint_fence, METH_NOARGS, fence_doc},
    {"remote", endpoint_remote, METH_O, remote_doc},
    {"drain", endpoint_drain, METH_NOARGS, drain_doc},
    {"set_limits", KEYWORDS_FUNC(endpoint_set_limits), KEYWORDS,
     set_limits_doc},
    {"_info", endpoint_info, METH_NOARGS, endpoint_info_doc},
    {"transports", endpoint_transports, METH_NOARGS, endpoint_transports_doc},
    {"ways", endpoint_ways, METH_NOARGS, endpoint_ways_doc},
    {"ping", endpoint_ping, METH_NOARGS, ping_doc},
    {"_peer_info", endpoint_peer_info, METH_O, peer_info_doc},
    {"_close_listener", endpoint_close_listener, METH_NOARGS,
     close_listener_doc},
    {"_keep_last", endpoint_keep_last, METH_VARARGS, keep_last_doc},
    {"_report_unseen", endpoint_report_soon, METH_O, NULL},
    {"stats", endpoint_stats, METH_NOARGS, endpoint_stats_doc},
    {"_close_after_recv", endpoint_close_after_recv, METH_O,
     close_after_recv_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef endpoint_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(EndpointObject, weakrefs),
     READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(endpoint_doc,
             "A connection to one peer; made by connect() and listen().");

static PyType_Slot endpoint_slots[] = {
    {Py_tp_doc, (void *)endpoint_doc},   {Py_tp_dealloc, endpoint_dealloc},
    {Py_tp_traverse, endpoint_traverse}, {Py_tp_clear, endpoint_clear},
    {Py_tp_methods, endpoint_methods},   {Py_tp_getset, endpoint_getset},
    {Py_tp_members, endpoint_members},   {0, NULL},
};

PyType_Spec endpoint_spec = {
    .name      = "ucp._ext.Endpoint",
    .basicsize = sizeof(EndpointObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = endpoint_slots,
};
