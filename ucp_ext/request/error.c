/* SPDX-License-Identifier: BSD-3-Clause */
/* error.c: the exceptions of requests. */
#include "request/internal.h"

#include "base/errors.h"
#include "object/unread.h"
#include "object/unseen.h"
#include "request/callback.h"
#include "worker/worker.h"

const char *
request_op_name(const RequestObject *req)
{
    return (request_low_level(req) != NULL) ? callback_name(req) :
                                              req->type->name;
}

/* ---- results -------------------------------------------------------------
 */

int
request_set_size(PyObject *exc, PyObject *name, uint64_t value)
{
    PyObject *number = PyLong_FromUnsignedLongLong(value);
    int       rc     = -1;

    if (number != NULL) {
        rc = PyObject_SetAttr(exc, name, number);
        Py_DECREF(number);
    }
    return rc;
}

static PyObject *
make_length_error(RequestObject *self, umx_status status,
                  const umx_recv_info *info, size_t capacity, char *text,
                  size_t size)
{
    PyObject *exc;

    if (text[0] == '\0') {
        int len = snprintf(text, size,
                           "length mismatch: %zu (got) != %zu (expected)",
                           info->length, capacity);

        if (request_is_a(self, OP_STAYS)) {
            snprintf(text + len, size - (size_t)len,
                     ": the message is for the next receive; recv_obj() takes "
                     "it whatever its length");
        }
    }
    exc = errors_new(self->worker->st, status, request_op_name(self), text);
    if (exc != NULL && request_set_size(exc, NAME(self->worker->st, nbytes),
                                        info->length) < 0) {
        Py_CLEAR(exc);
    }
    return exc;
}

/* Write which channel was refused, and how many the peer allows. */
static void
describe_channel(const RequestObject *self, char *text, size_t size)
{
    uint32_t limit = 0;

    if (self->endpoint != NULL && self->endpoint->umx != NULL) {
        limit = umx_ep_channels_max(self->endpoint->umx);
    }
    snprintf(text, size,
             "%s %u is one more than the %" PRIu32
             " of the peer's Config.channels_max",
             request_is_a(self, OP_BY_ID) ? "id" : "channel", self->channel,
             limit);
}

/* Write why the endpoint has failed, if more is known than the status says. */
static void
describe_end(const RequestObject *self, umx_status status, char *text,
             size_t size)
{
    const umx_ep *ep = (self->endpoint != NULL) ? self->endpoint->umx : NULL;

    if (ep != NULL && umx_ep_error(ep) == status) {
        snprintf(text, size, "%s", umx_ep_reason(ep));
    }
}

/* Append that the peer has been silent, and for how long, to the text of an
 * operation that tells what it was. */
static void
describe_silence(const RequestObject *self, umx_status status, char *text,
                 size_t size)
{
    size_t len = strlen(text);

    if (status == UMX_ERR_ENDPOINT_TIMEOUT) {
        snprintf(text + len, size - len, ": ");
        describe_end(self, status, text + len + 2, size - len - 2);
    }
}

/* Append what the peer has sent, to the text of a receive that gets nothing
 * more: it may have been of the wrong kind, channel or tag. */
static void
describe_unread(const RequestObject *self, umx_status status, char *text,
                size_t size)
{
    size_t len = strlen(text);
    char   unread[UNREAD_TEXT];

    if (request_is_a(self, OP_RECV) && self->endpoint != NULL &&
        (status == UMX_ERR_PEER_CLOSED || status == UMX_ERR_CLOSED) &&
        endpoint_describe_unread(self->endpoint, unread, sizeof(unread))) {
        snprintf(text + len, size - len, "%s%s", len != 0 ? "; " : "", unread);
    }
}

/* Is it this side whose close() has ended an operation that was pending? */
static bool
is_end_of_own_close(const RequestObject *self, umx_status status)
{
    const umx_ep *ep = (self->endpoint != NULL) ? self->endpoint->umx : NULL;

    return status == UMX_ERR_PEER_CLOSED && ep != NULL &&
           !umx_ep_is_peer_closed(ep);
}

/* Is it a receive that was called on an endpoint after this side's close()? It
 * raises what one raises that was called before: which of two tasks runs first
 * does not matter. */
static bool
is_after_own_close(const RequestObject *self)
{
    return request_is_a(self, OP_RECV) && self->worker->umx != NULL &&
           !worker_is_forked(self->worker) &&
           umx_ep_error(self->endpoint->umx) == UMX_OK;
}

/* What the system has said of the connection; or 0. */
static int
errno_of(const RequestObject *self)
{
    const umx_ep *ep = (self->endpoint != NULL) ? self->endpoint->umx : NULL;

    return (ep != NULL) ? umx_ep_errno(ep) : 0;
}

/* `text` may be empty. */
static PyObject *
make_timeout(RequestObject *self, const char *op, PyObject *peer,
             const char *text)
{
    errors_place place = {.preposition = "of the endpoint to", .address = peer};

    return errors_new_at(self->worker->st, UMX_ERR_TIMED_OUT, op, &place,
                         text[0] != '\0' ? text : NULL);
}

static PyObject *
new_own_close(const RequestObject *self, const char *op, const char *text)
{
    char whole[192 + UNREAD_TEXT];

    snprintf(whole, sizeof(whole), "%s: endpoint closed%s%s%s", op,
             endpoint_closed_by(self->endpoint), text[0] != '\0' ? ": " : "",
             text);
    return errors_new_text(self->worker->st, UMX_ERR_PEER_CLOSED, op, whole);
}

/* The error of anything but a length. */
static PyObject *
make_error(RequestObject *self, umx_status status, char *text, size_t size)
{
    mod_state  *st   = self->worker->st;
    const char *op   = request_op_name(self);
    PyObject   *peer = (self->endpoint != NULL) ? self->endpoint->peer : NULL;
    PyObject   *exc;

    if (status == UMX_ERR_CHANNEL_LIMIT) {
        describe_channel(self, text, size);
    }
    if (text[0] == '\0') {
        describe_end(self, status, text, size);
    } else {
        describe_silence(self, status, text, size);
    }
    if (status == UMX_ERR_CLOSED && self->endpoint != NULL) {
        snprintf(text, size, "Endpoint closed%s",
                 endpoint_closed_by(self->endpoint));
    }
    describe_unread(self, status, text, size);
    if (status == UMX_ERR_CLOSED && self->endpoint != NULL) {
        exc = errors_new_text(
            st, is_after_own_close(self) ? UMX_ERR_PEER_CLOSED : status, op,
            text);
    } else if (status == UMX_ERR_TIMED_OUT && peer != NULL) {
        exc = make_timeout(self, op, peer, text);
    } else if (is_end_of_own_close(self, status)) {
        exc = new_own_close(self, op, text);
    } else {
        exc = errors_new(st, status, op, text[0] != '\0' ? text : NULL);
    }
    if (status == UMX_ERR_ENDPOINT_TIMEOUT) {
        exc = errors_with_errno(exc, errno_of(self));
    }
    if (exc != NULL && peer != NULL &&
        PyObject_SetAttr(exc, NAME(st, peer), peer) < 0) {
        Py_CLEAR(exc);
    }
    return exc;
}

PyObject *
request_status_error(RequestObject *self, umx_status status,
                     const umx_recv_info *info, size_t capacity)
{
    char text[128 + UNREAD_TEXT];

    text[0] = '\0';
    if (self->type->describe != NULL) {
        self->type->describe(self, status, capacity, text, sizeof(text));
    }
    return request_is_length_error(status) ?
               make_length_error(self, status, info, capacity, text,
                                 sizeof(text)) :
               make_error(self, status, text, sizeof(text));
}

/* Name ranks that had not come: "; rank 2 had not come to it"; or "". */
static PyObject *
late_text(PyObject *late)
{
    Py_ssize_t count = (late != NULL) ? PyTuple_GET_SIZE(late) : 0;
    PyObject  *ranks, *text;

    if (count == 0) {
        return PyUnicode_FromString("");
    }
    ranks = PyUnicode_FromFormat("%S", PyTuple_GET_ITEM(late, 0));
    for (Py_ssize_t i = 1; i < count && ranks != NULL; i++) {
        text = PyUnicode_FromFormat("%U, %S", ranks, PyTuple_GET_ITEM(late, i));
        Py_SETREF(ranks, text);
    }
    if (ranks == NULL) {
        return NULL;
    }
    text = PyUnicode_FromFormat("; rank%s %U had not come to it",
                                (count == 1) ? "" : "s", ranks);
    Py_DECREF(ranks);
    return text;
}

PyObject *
request_timeout(const RequestObject *self, const char *name, PyObject *timeout)
{
    mod_state *st   = self->worker->st;
    PyObject  *late = NULL, *ending, *text = NULL, *exc = NULL;
    char       with[64] = "";

    if (self->type->late != NULL) {
        late = self->type->late(self, with, sizeof(with));
        if (late == NULL && PyErr_Occurred()) {
            return NULL;
        }
    }
    name   = (name != NULL) ? name : request_op_name(self);
    ending = late_text(late);
    if (ending != NULL) {
        text = PyUnicode_FromFormat("%s%s: not done within %S s%U", name, with,
                                    timeout, ending);
    }
    if (text != NULL) {
        exc = errors_new_text(st, UMX_ERR_TIMED_OUT, name,
                              PyUnicode_AsUTF8(text));
    }
    if (exc != NULL && late != NULL &&
        PyObject_SetAttr(exc, NAME(st, late), late) < 0) {
        Py_CLEAR(exc);
    }
    Py_XDECREF(text);
    Py_XDECREF(ending);
    Py_XDECREF(late);
    return exc;
}

PyObject *
request_with_results(RequestObject *self, PyObject *exc, PyObject *results)
{
    if (exc != NULL &&
        PyObject_SetAttr(exc, NAME(self->worker->st, results), results) < 0) {
        Py_CLEAR(exc);
    }
    Py_DECREF(results);
    return exc;
}

PyObject *
request_error(RequestObject *self)
{
    return (self->type->error != NULL) ?
               self->type->error(self) :
               request_status_error(self, self->status, &self->info,
                                    self->hold.buf.len);
}

/* Without memory the exception is dropped: the status tells enough. */
void
request_set_exception(RequestObject *req, PyObject *exc)
{
    request_rare *rare = request_get_rare(req);

    if (rare == NULL) {
        PyErr_Clear();
        Py_XDECREF(exc);
    } else {
        Py_XSETREF(rare->exception, exc);
    }
}

PyObject *
request_exception_object(RequestObject *self)
{
    PyObject *exc;

    self->is_seen = true;
    /* Nothing more to receive is no failure: what was sent may be lost. */
    if (self->endpoint != NULL &&
        endpoint_has_ended_by(self->endpoint, self->status) &&
        (self->status != UMX_ERR_PEER_CLOSED || request_is_a(self, OP_SEND))) {
        endpoint_note_seen(self->endpoint);
    }
    request_track(self);
    if (self->rare != NULL && self->rare->exception != NULL) {
        return Py_NewRef(self->rare->exception);
    }
    exc = request_error(self);
    if (exc != NULL) {
        request_set_exception(self, Py_NewRef(exc));
    }
    return exc;
}

PyObject *
request_new_cancelled_error(const RequestObject *self)
{
    PyObject *class   = self->worker->st->cancelled_error;
    PyObject *message = (self->rare != NULL) ? self->rare->cancel_message :
                                               NULL;

    return (message == NULL || message == Py_None) ?
               PyObject_CallNoArgs(class) :
               PyObject_CallOneArg(class, message);
}

PyObject *
request_raise_cancelled(const RequestObject *self)
{
    return errors_set(request_new_cancelled_error(self));
}
