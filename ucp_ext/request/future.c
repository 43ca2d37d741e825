/* SPDX-License-Identifier: BSD-3-Clause */
/* future.c: what asyncio asks of a future, and the type. */
#include "request/internal.h"

#include "base/args.h"
#include "object/unread.h"
#include "worker/worker.h"

/* ---- the future protocol -------------------------------------------------
 */

/* Is the request settled, and the callback that ucp._libs gave it called? A
 * program that loops until then makes the calls of progress() that this takes.
 */
static bool
is_reported(const RequestObject *self)
{
    return request_is_settled(self) && request_low_level(self) == NULL;
}

PyDoc_STRVAR(done_doc,
             "done($self, /)\n--\n\n"
             "True if the request has a result, has failed or is cancelled.");

static PyObject *
request_done(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RequestObject *self = (RequestObject *)op;

    if (!request_is_settled(self)) {
        worker_catch_up(self->worker);
    }
    return PyBool_FromLong(is_reported(self));
}

PyDoc_STRVAR(cancelled_doc, "cancelled($self, /)\n--\n\n"
                            "True if the request was cancelled.");

static PyObject *
request_cancelled(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(((RequestObject *)op)->state == REQUEST_CANCELLED);
}

PyDoc_STRVAR(
    cancel_doc,
    "cancel($self, msg=None)\n--\n\n"
    "End the awaitable; a task that awaits it gets CancelledError\n"
    "with msg. Return False if the request is done.\n\n"
    "The buffer is the caller's again when the request is done(),\n"
    "which it is when cancel() returns, with these exceptions: memory\n"
    "of a device or that a network card reads, and copies beyond\n"
    "Config.cancel_bytes. Then it is done when the operation is. A\n"
    "send whose bytes the peer has not asked for is withdrawn: the\n"
    "peer never receives it. Else the rest is sent from a copy. A\n"
    "receive loses no message: the message returns to its queue, also\n"
    "if it is complete and the result has not been handed out.");

int
request_set_cancel_message(RequestObject *self, PyObject *message)
{
    request_rare *rare;

    if (message == Py_None && self->rare == NULL) {
        return 0;
    }
    rare = request_get_rare(self);
    if (rare == NULL) {
        return -1;
    }
    request_track(self);
    Py_XSETREF(rare->cancel_message, Py_NewRef(message));
    return 0;
}

static PyObject *
request_cancel(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames)
{
    static const char *const keywords[] = {"msg"};
    RequestObject           *self       = (RequestObject *)op;
    PyObject                *msg;

    if (args_parse("cancel", args, nargs, kwnames, keywords, 1, 1, 0, &msg) <
        0) {
        return NULL;
    }
    if (self->state == REQUEST_CANCELLING) {
        Py_RETURN_TRUE; /* the first message counts: anyio knows its own */
    }
    if (!request_begin_cancelling(self) && !request_give_message_back(self)) {
        Py_RETURN_FALSE;
    }
    if (msg != NULL && request_set_cancel_message(self, msg) < 0) {
        return NULL;
    }
    Py_RETURN_TRUE;
}

static int
check_settled(RequestObject *self)
{
    if (!request_is_settled(self)) {
        PyErr_SetString(self->worker->st->invalid_state_error,
                        "Result is not set.");
        return -1;
    }
    return 0;
}

/* Hand out the result: its message does not return to a queue any more. */
static PyObject *
take_result(RequestObject *self)
{
    PyObject *value = NULL;

    if (self->state == REQUEST_CANCELLED || self->status != UMX_OK) {
        return request_value(self);
    }
    (void)request_hand_out(self, &value);
    return value;
}

/* Is a task that awaits it about to resume? Its wake-up asks for the result
 * first, and then the task gets that, or throws into the request. */
static inline bool
is_task_due(const RequestObject *self)
{
    return self->num_wakers != 0 && !self->is_handed_out;
}

/* Can its value be seen, and the message return to its queue still? */
static inline bool
can_show_value(const RequestObject *self)
{
    return self->message == NULL && !request_is_a(self, OP_DECODES);
}

/* Is the result made when it is handed out, which may fail? */
static inline bool
is_made_late(const RequestObject *self)
{
    return self->status == UMX_OK &&
           (self->message != NULL || request_is_a(self, OP_OWN | OP_DECODES));
}

/* Make the result now: who asks for the exception first, as gather() does, is
 * to hear of that failure. */
static NOINLINE PyObject *
exception_of_making(RequestObject *self)
{
    PyObject *value = NULL;

    if (request_hand_out(self, &value) == PYGEN_ERROR) {
        return PyErr_GetRaisedException();
    }
    Py_DECREF(value);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(result_doc,
             "result($self, /)\n--\n\n"
             "Return the result, or raise the exception of the request.\n"
             "InvalidStateError: the request is not done.");

static PyObject *
request_result(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RequestObject *self = (RequestObject *)op;

    if (check_settled(self) < 0) {
        return NULL;
    }
    if (is_task_due(self) && (can_show_value(self) || !self->has_listeners)) {
        self->num_wakers--;
        return can_show_value(self) ? request_value(self) : Py_NewRef(Py_None);
    }
    return take_result(self);
}

PyDoc_STRVAR(exception_doc,
             "exception($self, /)\n--\n\n"
             "Return the exception of the request, or None if it has\n"
             "succeeded. InvalidStateError: the request is not done.");

static PyObject *
request_exception(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RequestObject *self = (RequestObject *)op;

    if (check_settled(self) < 0) {
        return NULL;
    }
    if (self->state == REQUEST_CANCELLED) {
        return request_raise_cancelled(self);
    }
    if (!is_task_due(self)) {
        request_mark_handed_out(self);
    }
    if (UNLIKELY(is_made_late(self))) {
        return exception_of_making(self);
    }
    if (self->status == UMX_OK) {
        Py_RETURN_NONE;
    }
    return request_exception_object(self);
}

static int
add_more_callbacks(RequestObject *self, PyObject *callback, PyObject *context)
{
    request_rare *rare = request_get_rare(self);
    PyObject     *pair;
    int           rc;

    if (rare == NULL) {
        return -1;
    }
    if (rare->more_callbacks == NULL) {
        rare->more_callbacks = PyList_New(0);
        if (rare->more_callbacks == NULL) {
            return -1;
        }
    }
    pair = PyTuple_Pack(2, callback, context != NULL ? context : Py_None);
    if (pair == NULL) {
        return -1;
    }
    rc = PyList_Append(self->rare->more_callbacks, pair);
    Py_DECREF(pair);
    return rc;
}

/* A task adds its wake-up right after it has taken what was yielded to it. */
static void
count_callback(RequestObject *self)
{
    if (self->is_taken) {
        self->is_taken = false;
        self->num_wakers += (self->num_wakers != UINT8_MAX);
    } else {
        self->has_listeners = true;
    }
}

/* Keep a callback with its context; NULL: the current one. */
static int
add_callback(RequestObject *self, PyObject *fn, PyObject *context)
{
    int rc = 0;

    context = (context != NULL) ? Py_NewRef(context) : PyContext_CopyCurrent();
    if (context == NULL) {
        return -1;
    }
    request_track(self);
    if (self->callback == NULL) {
        self->callback = Py_NewRef(fn);
        self->context  = Py_NewRef(context);
    } else {
        rc = add_more_callbacks(self, fn, context);
    }
    Py_DECREF(context);
    if (rc == 0) {
        request_hold(self);
    }
    return rc;
}

/* Have the loop call what is added to a settled request; its worker may be
 * closed. */
static int
call_at_once(RequestObject *self, PyObject *fn, PyObject *context)
{
    WorkerObject *worker = self->worker;
    PyObject     *args[] = {worker->loop, fn, (PyObject *)self, context};
    PyObject     *handle;

    if (LIKELY(worker->call_soon != NULL)) {
        return worker_call_soon(worker, fn, (PyObject *)self, context);
    }
    if (worker->is_shared) {
        handle = PyObject_CallOneArg(fn, (PyObject *)self);
        Py_XDECREF(handle);
        return (handle == NULL) ? -1 : 0;
    }
    handle = PyObject_VectorcallMethod(
        NAME(worker->st, call_soon), args, 3,
        context != NULL ? worker->st->context_kwname : NULL);
    Py_XDECREF(handle);
    return (handle == NULL) ? -1 : 0;
}

/* May what is added to a settled request be called with the callbacks of others
 * that the worker has to run? A handle of the loop for each would cost more
 * than all that the library does for a short message. */
static bool
may_join(const WorkerObject *worker)
{
    return worker->call_soon != NULL && worker->umx != NULL &&
           !worker->is_shared;
}

/* Check that callbacks can run in the worker's loop, and start a request that
 * was made in another thread. -1 with an exception. */
static int
check_loop(RequestObject *self)
{
    if (UNLIKELY(self->worker->loop == NULL) && !self->worker->is_shared) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this worker has no event loop to call callbacks");
        return -1;
    }
    if (UNLIKELY(self->state == REQUEST_DEFERRED)) {
        if (!worker_is_mine(self->worker)) {
            (void)request_refuse_foreign_thread(self);
            return -1;
        }
        request_start(self);
        request_drain_soon(self);
    }
    return 0;
}

PyDoc_STRVAR(add_done_callback_doc,
             "add_done_callback($self, fn, /, *, context=None)\n--\n\n"
             "Call fn(request) in the event loop once the request is done.");

static PyObject *
request_add_done_callback(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames)
{
    static const char *const keywords[] = {"fn", "context"};
    RequestObject           *self       = (RequestObject *)op;
    PyObject                *values[2]  = {NULL}, *context;
    int                      rc;

    if (LIKELY(nargs == 1 && kwnames == NULL)) {
        values[0] = args[0];
    } else if (args_parse("add_done_callback", args, nargs, kwnames, keywords,
                          2, 1, 1, values) < 0) {
        return NULL;
    }
    if (check_loop(self) < 0 || request_check_posted(self) < 0) {
        return NULL;
    }
    context = (values[1] == Py_None) ? NULL : values[1];
    count_callback(self);
    /* Those that were added before are called first. */
    if (request_is_settled(self) && !request_has_callbacks(self) &&
        !may_join(self->worker)) {
        rc = call_at_once(self, values[0], context);
    } else {
        rc = add_callback(self, values[0], context);
        if (rc == 0 && request_is_settled(self)) {
            request_link_wake(self);
            worker_schedule_drain(self->worker);
        }
    }
    if (rc < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(remove_done_callback_doc,
             "remove_done_callback($self, fn, /)\n--\n\n"
             "Remove all instances of fn; return their number.");

/* Get the list of further callbacks; borrowed, or NULL. */
static inline PyObject *
more_callbacks(const RequestObject *self)
{
    return (self->rare != NULL) ? self->rare->more_callbacks : NULL;
}

/* Is `pair` still there? Comparing runs code that may add or remove callbacks.
 */
static bool
is_callback_at(const RequestObject *self, Py_ssize_t i, const PyObject *pair)
{
    PyObject *more = more_callbacks(self);

    return more != NULL && i < PyList_GET_SIZE(more) &&
           PyList_GET_ITEM(more, i) == pair;
}

static PyObject *
request_remove_done_callback(PyObject *op, PyObject *fn)
{
    RequestObject *self    = (RequestObject *)op;
    Py_ssize_t     removed = 0;
    PyObject      *more;
    int            equal;

    if (self->callback != NULL) {
        PyObject *callback = Py_NewRef(self->callback);

        equal = PyObject_RichCompareBool(callback, fn, Py_EQ);
        Py_DECREF(callback);
        if (equal < 0) {
            return NULL;
        }
        if (equal && self->callback == callback) {
            Py_CLEAR(self->callback);
            Py_CLEAR(self->context);
            removed++;
        }
    }
    for (Py_ssize_t i = 0;
         (more = more_callbacks(self)) != NULL && i < PyList_GET_SIZE(more);) {
        PyObject *pair = Py_NewRef(PyList_GET_ITEM(more, i));

        equal = PyObject_RichCompareBool(PyTuple_GET_ITEM(pair, 0), fn, Py_EQ);
        Py_DECREF(pair);
        if (equal < 0) {
            return NULL;
        }
        if (!equal || !is_callback_at(self, i, pair)) {
            i++;
        } else if (PySequence_DelItem(more_callbacks(self), i) < 0) {
            return NULL;
        } else {
            removed++;
        }
    }
    if (more != NULL && PyList_GET_SIZE(more) == 0) {
        Py_CLEAR(self->rare->more_callbacks);
    }
    request_let_go(self);
    return PyLong_FromSsize_t(removed);
}

PyDoc_STRVAR(get_loop_doc, "get_loop($self, /)\n--\n\n"
                           "Return the event loop of the worker, or None.");

static PyObject *
request_get_loop(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    PyObject *loop = ((RequestObject *)op)->worker->loop;

    return Py_NewRef(loop != NULL ? loop : Py_None);
}

PyDoc_STRVAR(make_cancelled_error_doc,
             "_make_cancelled_error($self, /)\n--\n\nFor asyncio.");

static PyObject *
request_make_cancelled_error(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return request_new_cancelled_error((RequestObject *)op);
}

/* _asyncio_future_blocking: true from a yield until the task has taken it.
 * isfuture() reads it, and so does a task of what it is given. */
static PyObject *
get_blocking(PyObject *op, void *Py_UNUSED(closure))
{
    RequestObject *self = (RequestObject *)op;

    request_become_future(self);
    return PyBool_FromLong(self->is_blocking);
}

static int
set_blocking(PyObject *op, PyObject *value, void *Py_UNUSED(closure))
{
    RequestObject *self = (RequestObject *)op;
    int            is_true;

    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "cannot delete attribute");
        return -1;
    }
    is_true = PyObject_IsTrue(value);
    if (is_true < 0) {
        return -1;
    }
    self->is_taken    = self->is_blocking && is_true == 0;
    self->is_blocking = (is_true != 0);
    return 0;
}

static PyObject *
get_cancel_message(PyObject *op, void *Py_UNUSED(closure))
{
    RequestObject *self    = (RequestObject *)op;
    PyObject      *message = (self->rare != NULL) ? self->rare->cancel_message :
                                                    NULL;

    return Py_NewRef(message != NULL ? message : Py_None);
}

static int
set_cancel_message(PyObject *op, PyObject *value, void *Py_UNUSED(closure))
{
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "cannot delete attribute");
        return -1;
    }
    return request_set_cancel_message((RequestObject *)op, value);
}

static PyObject *
request_repr(PyObject *op)
{
    RequestObject *self = (RequestObject *)op;
    const char    *state;
    char           bytes[32] = "", unread[UNREAD_TEXT] = "";
    bool           has_unread = false;

    if (self->hold.owner != NULL) {
        snprintf(bytes, sizeof(bytes), " of %zu bytes", self->hold.buf.len);
    }
    if (self->state == REQUEST_CANCELLED) {
        state = "cancelled";
    } else if (!request_is_settled(self)) {
        state      = "pending";
        has_unread = request_is_a(self, OP_RECV) && self->endpoint != NULL &&
                     endpoint_describe_unread(self->endpoint, unread,
                                              sizeof(unread));
    } else {
        state = (self->status == UMX_OK) ? "done" :
                                           umx_status_string(self->status);
    }
    if (self->endpoint == NULL) {
        return PyUnicode_FromFormat("<ucp.Request %s%s, %s>", self->type->name,
                                    bytes, state);
    }
    return PyUnicode_FromFormat(
        "<ucp.Request %s%s on %R, %s%s%s>", self->type->name, bytes,
        (PyObject *)self->endpoint, state, has_unread ? "; " : "", unread);
}

/* ---- for ucp._libs -------------------------------------------------------
 */

PyDoc_STRVAR(closed_doc, "closed($self, /)\n--\n\nAs done().");

static PyObject *
get_info(PyObject *op, void *Py_UNUSED(closure))
{
    RequestObject *self = (RequestObject *)op;

    return Py_BuildValue("{s:s,s:s}", "status",
                         is_reported(self) ? "finished" : "pending", "name",
                         request_op_name(self));
}

static PyObject *
get_handle(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromVoidPtr(((RequestObject *)op)->op);
}

/* End close_all() by time: loop.call_later() calls this. */
static PyObject *
request_expire(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RequestObject *self = (RequestObject *)op;

    if (!request_is_settled(self)) {
        request_settle(self, UMX_OK);
        worker_after_call(self->worker);
    }
    Py_RETURN_NONE;
}

#define KEYWORDS (METH_FASTCALL | METH_KEYWORDS)
#define KEYWORDS_FUNC(f) ((PyCFunction)(void (*)(void))(f))

PyDoc_STRVAR(
    timeout_doc,
    "_timeout($self, timeout, name=None, /)\n--\n\n"
    "The UCXTimeout of a call that has waited so many seconds for it.");

static PyObject *
request_make_timeout(PyObject *op, PyObject *args)
{
    PyObject   *timeout;
    const char *name = NULL;

    if (!PyArg_ParseTuple(args, "O|z:_timeout", &timeout, &name)) {
        return NULL;
    }
    return request_timeout((RequestObject *)op, name, timeout);
}

static PyMethodDef request_methods[] = {
    {"done", request_done, METH_NOARGS, done_doc},
    {"closed", request_done, METH_NOARGS, closed_doc},
    {"cancelled", request_cancelled, METH_NOARGS, cancelled_doc},
    {"cancel", KEYWORDS_FUNC(request_cancel), KEYWORDS, cancel_doc},
    {"result", request_result, METH_NOARGS, result_doc},
    {"exception", request_exception, METH_NOARGS, exception_doc},
    {"add_done_callback", KEYWORDS_FUNC(request_add_done_callback), KEYWORDS,
     add_done_callback_doc},
    {"remove_done_callback", request_remove_done_callback, METH_O,
     remove_done_callback_doc},
    {"get_loop", request_get_loop, METH_NOARGS, get_loop_doc},
    {"_make_cancelled_error", request_make_cancelled_error, METH_NOARGS,
     make_cancelled_error_doc},
    {"_look", request_look, METH_NOARGS, request_look_doc},
    {"_expire", request_expire, METH_NOARGS, NULL},
    {"_timeout", request_make_timeout, METH_VARARGS, timeout_doc},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef request_getset[] = {
    {"_asyncio_future_blocking", get_blocking, set_blocking, NULL, NULL},
    {"_cancel_message", get_cancel_message, set_cancel_message, NULL, NULL},
    {"info", get_info, NULL, "{'status': 'pending' or 'finished', 'name': ...}",
     NULL},
    {"handle", get_handle, NULL, "A number while it is pending, then 0.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef request_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(RequestObject, weakrefs),
     READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(request_doc,
             "One operation; awaitable, and a future of asyncio.\n\n"
             "The operation has started when the request is made. When an\n"
             "await of it has ended, by a result, an exception or a\n"
             "cancellation, the library neither reads nor writes its buffer.");

static PyType_Slot request_slots[] = {
    {Py_tp_doc, (void *)request_doc},
    {Py_tp_dealloc, request_dealloc},
    {Py_tp_traverse, request_traverse},
    {Py_tp_clear, request_clear},
    {Py_tp_repr, request_repr},
    {Py_am_await, request_await_future},
    {Py_tp_iter, request_await_future},
    {Py_tp_methods, request_methods},
    {Py_tp_getset, request_getset},
    {Py_tp_members, request_members},
    {0, NULL},
};

PyType_Spec request_spec = {
    .name      = "ucp._ext.Request",
    .basicsize = sizeof(RequestObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = request_slots,
};
