/* SPDX-License-Identifier: BSD-3-Clause */
/* channel.c: sending and receiving messages, what Endpoint and Channel share:
 * an endpoint is its channel 0, and the one with raw tags. */
#include "op/channel.h"

#include "base/args.h"
#include "object/endpoint.h"
#include "op/event.h"
#include "op/many.h"
#include "op/tag.h"
#include "request/event.h"
#include "worker/worker.h"

#include <inttypes.h>

/* ---- operations ----------------------------------------------------------
 */

static umx_status
send_post(RequestObject *req, const umx_op_params *params)
{
    umx_op_params after;

    if (UNLIKELY(req->rare != NULL)) {
        after  = request_params_after(req, params);
        params = &after;
    }
    return umx_channel_send(req->endpoint->umx, req->channel, &req->match,
                            &req->hold.buf, params, &req->op);
}

static umx_status
recv_post(RequestObject *req, const umx_op_params *params)
{
    umx_op_params after;

    if (UNLIKELY(req->rare != NULL)) {
        after  = request_params_after(req, params);
        params = &after;
    }
    return umx_channel_recv(req->endpoint->umx, req->channel, &req->match,
                            &req->hold.buf, params, &req->op, &req->info);
}

static umx_status
recv_message_post(RequestObject *req, const umx_op_params *params)
{
    return umx_channel_recv_message(req->endpoint->umx, req->channel,
                                    &req->match, params, &req->op,
                                    &req->message);
}

umx_status
channel_unrecv_message(RequestObject *req, PyObject *header)
{
    if (req->endpoint->umx == NULL) {
        return UMX_OK;
    }
    return umx_message_unrecv(
        req->endpoint->umx, &req->info,
        (header != NULL) ? PyBytes_AS_STRING(header) : NULL,
        (header != NULL) ? (size_t)PyBytes_GET_SIZE(header) : 0,
        &req->hold.buf);
}

static umx_status
recv_unrecv(RequestObject *req)
{
    return channel_unrecv_message(req, NULL);
}

/* Write what programs of ucx-py look for in the text of an error. */
static void
describe(const RequestObject *req, const char *word, size_t capacity,
         char *text, size_t size)
{
    uint64_t id = 0;

    if (req->endpoint != NULL && req->endpoint->umx != NULL) {
        id = umx_ep_id(req->endpoint->umx);
    }
    if (req->match.flags & UMX_MATCH_UNTAGGED) {
        snprintf(text, size, "<[%s] ep: %" PRIu64 ", tag: None, nbytes: %zu>",
                 word, id, capacity);
    } else {
        snprintf(text, size,
                 "<[%s] ep: %" PRIu64 ", tag: %#" PRIx64 ", nbytes: %zu>", word,
                 id, req->match.tag, capacity);
    }
}

void
channel_describe_send(const RequestObject *req, umx_status status,
                      size_t capacity, char *text, size_t size)
{
    (void)status;
    describe(req, "Send", capacity, text, size);
}

void
channel_describe_recv(const RequestObject *req, umx_status status,
                      size_t capacity, char *text, size_t size)
{
    if (!request_is_length_error(status)) {
        describe(req, "Recv", capacity, text, size);
    }
}

const op_type op_send = {
    .name     = "send",
    .flags    = OP_SEND | OP_PLAIN | OP_BARE,
    .post     = send_post,
    .describe = channel_describe_send,
};

const op_type op_recv = {
    .name  = "recv",
    .flags = OP_RECV | OP_PLAIN | OP_BARE | OP_UNRECV | OP_UNRECV_LATE |
             OP_STAYS,
    .post     = recv_post,
    .describe = channel_describe_recv,
    .unrecv   = recv_unrecv,
};

const op_type op_recv_into = {
    .name     = "recv_into",
    .flags    = OP_RECV | OP_UNRECV | OP_UNRECV_LATE | OP_STAYS,
    .post     = recv_post,
    .result   = request_length,
    .describe = channel_describe_recv,
    .unrecv   = recv_unrecv,
};

const op_type op_recv_message = {
    .name   = "recv_message",
    .flags  = OP_RECV,
    .post   = recv_message_post,
    .note   = event_note_message,
    .result = request_message,
};

/* ---- methods -------------------------------------------------------------
 */

/* A request for a message of `channel`. */
static inline RequestObject *
new_request(EndpointObject *self, uint16_t channel, const op_type *type)
{
    RequestObject *req = request_new(self->worker, self, type);

    if (LIKELY(req != NULL)) {
        req->channel = channel;
    }
    return req;
}

/* Acquire the memory of a message; `after` gets the stream of a device that it
 * waits for. What a foreign thread calls is posted later, when its own streams
 * may be others: it waits here. */
static inline int
acquire(RequestObject *req, buffer_acquire_fn *fn, PyObject *obj, bool is_recv,
        buffer_stream *after)
{
    if (UNLIKELY(!worker_is_mine(req->worker))) {
        after->handle = 0;
        return fn(req->worker->st, obj, is_recv, &req->hold);
    }
    return buffer_acquire_late(req->worker->st, fn, obj, is_recv, &req->hold,
                               after);
}

static inline int
set_stream(RequestObject *req, const buffer_stream *after)
{
    return UNLIKELY(after->handle != 0) ? request_set_stream(req, after) : 0;
}

/* acquire() of any message but one that has a stream of its own. */
static inline int
acquire_plain(RequestObject *req, PyObject *obj, bool is_recv)
{
    buffer_stream after;

    return (acquire(req, buffer_acquire, obj, is_recv, &after) < 0) ?
               -1 :
               set_stream(req, &after);
}

/* -1 with an exception; NULL is false. */
static int
is_true(PyObject *value)
{
    return (value != NULL) ? PyObject_IsTrue(value) : 0;
}

/* send() and recv() with all their arguments; raw tags only without a
 * channel. */
static NOINLINE PyObject *
transfer_full(EndpointObject *self, uint16_t channel, PyObject *const *args,
              Py_ssize_t nargs, PyObject *kwnames, bool is_recv)
{
    static const char *const keywords[] = {"buffer", "tag", "strided",
                                           "stream"};
    /* Positional as in ucx-py. */
    static const char *const with_raw[] = {"buffer", "tag", "force_tag",
                                           "strided", "stream"};
    mod_state               *st         = self->worker->st;
    bool                     has_raw    = (channel == 0);
    int                      num_tags   = has_raw ? 3 : 2;
    PyObject                *values[5]  = {NULL};
    RequestObject           *req;
    int                      is_forced, is_strided, rc;
    const op_type           *type;
    buffer_acquire_fn       *fn;
    buffer_stream            after;
    bool                     is_late;

    if (args_parse(is_recv ? "recv" : "send", args, nargs, kwnames,
                   has_raw ? with_raw : keywords, num_tags + 2, num_tags, 1,
                   values) < 0) {
        return NULL;
    }
    is_forced  = has_raw ? is_true(values[2]) : 0;
    is_strided = is_true(values[num_tags]);
    if (is_forced < 0 || is_strided < 0) {
        return NULL;
    }
    /* As in ucx-py: without a tag there is nothing to force. */
    is_forced = is_forced && values[1] != NULL && values[1] != Py_None;
    if (!is_recv && values[1] == st->any) {
        PyErr_SetString(PyExc_ValueError, "ANY is for receiving");
        return NULL;
    }
    if (is_forced) {
        type = is_recv ? &op_tag_recv : &op_tag_send;
    } else {
        type = is_recv ? &op_recv : &op_send;
    }
    req = new_request(self, channel, type);
    if (req == NULL) {
        return NULL;
    }
    req->match.mask = UINT64_MAX;
    fn              = is_strided ? buffer_acquire_strided : buffer_acquire;
    is_late         = !is_forced && worker_is_mine(self->worker);
    if (is_forced) {
        rc = (args_raw_tag(values[1], "tag", &req->match.tag) < 0 ||
              fn(st, values[0], is_recv, &req->hold) < 0 ||
              device_wait(st, values[num_tags + 1], &req->hold, NULL) < 0);
    } else {
        rc = (args_tag(st, values[1], &req->match) < 0 ||
              acquire(req, fn, values[0], is_recv, &after) < 0 ||
              device_wait(st, values[num_tags + 1], &req->hold,
                          is_late ? &after : NULL) < 0 ||
              set_stream(req, &after) < 0);
    }
    if (rc != 0) {
        Py_DECREF(req);
        return NULL;
    }
    if (is_recv) {
        req->match.flags |= UMX_MATCH_EXACT;
    }
    return request_post(req);
}

/* Send memory that is plain, which is held only if libumx has it after the
 * call. False: the memory is not, and nothing has been done. */
static inline bool
send_plain(RequestObject *req, PyObject *obj)
{
    WorkerObject *worker = req->worker;
    umx_op_params params = event_op_params(req);
    umx_status    status;

    if (!worker_is_mine(worker) || worker->umx == NULL ||
        req->endpoint->umx == NULL ||
        !buffer_find_plain(worker->st, obj, &req->hold.buf)) {
        return false;
    }
    status = umx_channel_send(req->endpoint->umx, req->channel, &req->match,
                              &req->hold.buf, &params, &req->op);
    if (LIKELY(status == UMX_OK)) {
        request_end_in_call(req);
    } else {
        buffer_hold_plain(obj, &req->hold);
        (void)request_posted(req, status);
    }
    return true;
}

PyObject *
messages_send(EndpointObject *self, uint16_t channel, PyObject *const *args,
              Py_ssize_t nargs, PyObject *kwnames)
{
    RequestObject *req;

    if (UNLIKELY(nargs != 1 || kwnames != NULL)) {
        return transfer_full(self, channel, args, nargs, kwnames, false);
    }
    req = new_request(self, channel, &op_send);
    if (UNLIKELY(req == NULL)) {
        return NULL;
    }
    req->match.mask  = UINT64_MAX; /* the tag is 0 */
    req->match.flags = UMX_MATCH_UNTAGGED;
    if (LIKELY(send_plain(req, args[0]))) {
        return (PyObject *)req;
    }
    if (UNLIKELY(acquire_plain(req, args[0], false) < 0)) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

PyObject *
messages_recv(EndpointObject *self, uint16_t channel, PyObject *const *args,
              Py_ssize_t nargs, PyObject *kwnames)
{
    RequestObject *req;

    if (UNLIKELY(nargs != 1 || kwnames != NULL)) {
        return transfer_full(self, channel, args, nargs, kwnames, true);
    }
    req = new_request(self, channel, &op_recv);
    if (UNLIKELY(req == NULL)) {
        return NULL;
    }
    if (UNLIKELY(acquire_plain(req, args[0], true) < 0)) {
        Py_DECREF(req);
        return NULL;
    }
    req->match.mask  = UINT64_MAX; /* the tag is 0 */
    req->match.flags = UMX_MATCH_UNTAGGED | UMX_MATCH_EXACT;
    return request_post(req);
}

PyObject *
messages_recv_into(EndpointObject *self, uint16_t channel,
                   PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const keywords[] = {"buffer", "tag", "mask"};
    mod_state               *st         = self->worker->st;
    PyObject                *values[3];
    uint64_t                 mask = UINT64_MAX;
    RequestObject           *req;

    if (args_parse("recv_into", args, nargs, kwnames, keywords, 3, 3, 1,
                   values) < 0 ||
        (values[2] != NULL && args_mask(values[2], &mask) < 0)) {
        return NULL;
    }
    req = new_request(self, channel, &op_recv_into);
    if (req == NULL) {
        return NULL;
    }
    if (args_tag(st, values[1] != NULL ? values[1] : st->any, &req->match) <
            0 ||
        acquire_plain(req, values[0], true) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    req->match.mask = mask;
    return request_post(req);
}

/* send_many() and recv_many() */
static PyObject *
transfer_many(EndpointObject *self, uint16_t channel, const char *name,
              PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
              const op_type *type)
{
    static const char *const keywords[] = {"buffers", "tag"};
    PyObject                *values[2];
    umx_match                match;
    RequestObject           *req;

    if (args_parse(name, args, nargs, kwnames, keywords, 2, 2, 1, values) < 0) {
        return NULL;
    }
    if (type == &op_send_many && values[1] == self->worker->st->any) {
        PyErr_SetString(PyExc_ValueError, "ANY is for receiving");
        return NULL;
    }
    req = new_request(self, channel, type);
    if (req == NULL) {
        return NULL;
    }
    if (args_tag(self->worker->st, values[1], &match) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    if (type == &op_recv_many) {
        match.flags |= UMX_MATCH_EXACT;
    }
    if (many_hold(req, values[0], &match) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

PyObject *
messages_send_many(EndpointObject *self, uint16_t channel,
                   PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return transfer_many(self, channel, "send_many", args, nargs, kwnames,
                         &op_send_many);
}

PyObject *
messages_recv_many(EndpointObject *self, uint16_t channel,
                   PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return transfer_many(self, channel, "recv_many", args, nargs, kwnames,
                         &op_recv_many);
}

PyObject *
messages_recv_message(EndpointObject *self, uint16_t channel,
                      PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames)
{
    static const char *const keywords[] = {"tag"};
    PyObject                *tag;
    RequestObject           *req;

    if (args_parse("recv_message", args, nargs, kwnames, keywords, 1, 1, 0,
                   &tag) < 0) {
        return NULL;
    }
    req = new_request(self, channel, &op_recv_message);
    if (req == NULL) {
        return NULL;
    }
    if (args_tag(self->worker->st, tag, &req->match) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

PyObject *
messages_probe(EndpointObject *self, uint16_t channel, PyObject *const *args,
               Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const keywords[] = {"tag"};
    mod_state               *st         = self->worker->st;
    PyObject                *tag;
    umx_match                match;
    umx_recv_info            info;
    umx_status               status;

    if (args_parse("probe", args, nargs, kwnames, keywords, 1, 1, 0, &tag) <
            0 ||
        args_tag(st, tag != NULL ? tag : st->any, &match) < 0) {
        return NULL;
    }
    if (self->worker->umx == NULL) {
        Py_RETURN_NONE;
    }
    status = umx_channel_probe(self->umx, channel, &match, &info);
    if (status == UMX_ERR_NO_MESSAGE) {
        Py_RETURN_NONE;
    }
    if (status != UMX_OK) {
        return errors_raise(st, status, "probe", NULL);
    }
    if (info.is_untagged) {
        return Py_BuildValue("(nO)", (Py_ssize_t)info.length, Py_None);
    }
    return Py_BuildValue("(nK)", (Py_ssize_t)info.length, info.tag);
}
