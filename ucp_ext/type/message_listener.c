/* SPDX-License-Identifier: BSD-3-Clause */
/* message_listener.c: messages with metadata that come.
 *
 * libumx only tells that there is something to do. The program's functions are
 * called once it has returned, by _run(): for a while, then the loop has its
 * turn. While bytes come into the program's memory this object lives. */
#include "type/message_listener.h"

#include "base/metadata.h"
#include "buffer/buffer.h"
#include "object/endpoint.h"
#include "op/frames.h"
#include "type/event.h"
#include "type/message_receiver.h"
#include "type/type.h"
#include "worker/worker.h"

enum {
    RUN_STEP = 16 /* messages between looks at the clock */
};

/* ---- what libumx asks ----------------------------------------------------
 */

/* By run(), with the GIL. The exception that is set is reported. */
static void
report(MessageListenerObject *self)
{
    worker_report_exception(self->worker, "a function for messages failed");
}

bool
listener_route(MessageListenerObject *self, const umx_metadata *metadata)
{
    PyObject *dict = metadata_decode(metadata), *result = NULL;

    if (dict != NULL) {
        result = PyObject_CallOneArg(self->route, dict);
        Py_DECREF(dict);
    }
    if (result == NULL) {
        report(self);
        return false;
    }
    if (result == Py_None) {
        Py_DECREF(result);
        return false;
    }
    if (!PyObject_TypeCheck(result, self->worker->st->message_receiver_type)) {
        PyErr_Format(PyExc_TypeError,
                     "route must return a MessageReceiver or None, not %.200s",
                     Py_TYPE(result)->tp_name);
        Py_DECREF(result);
        report(self);
        return false;
    }
    Py_XSETREF(self->receiver, (MessageReceiverObject *)result);
    return true;
}

/* A bytearray that nobody else has need not be held. */
static int
hold_one(MessageListenerObject *self, PyObject *object, buffer_hold *hold)
{
    if (PyByteArray_CheckExact(object) && Py_REFCNT(object) == 1) {
        *hold     = (buffer_hold){0};
        hold->buf = umx_host_buffer(PyByteArray_AS_STRING(object),
                                    (size_t)PyByteArray_GET_SIZE(object));
        return 0;
    }
    return buffer_acquire(self->worker->st, object, true, hold);
}

/* Hold what allocate() gave: one buffer for each, as long. */
static int
hold_all(MessageListenerObject *self, const umx_frames_info *info,
         PyObject *objects)
{
    Py_ssize_t count = PyList_GET_SIZE(objects);

    if ((size_t)count != info->count) {
        PyErr_Format(PyExc_ValueError,
                     "allocate() was asked for %zu buffers and gave %zd",
                     info->count, count);
        return -1;
    }
    self->frames = frames_list_new(count);
    for (Py_ssize_t i = 0; self->frames != NULL && i < count; i++) {
        buffer_hold *hold = &self->frames->holds[i];

        if (hold_one(self, PyList_GET_ITEM(objects, i), hold) < 0) {
            return -1;
        }
        self->frames->num_held++;
        if (hold->buf.len != info->frames[i].len) {
            PyErr_Format(PyExc_ValueError,
                         "allocate() was asked for %zu bytes and gave %zu",
                         info->frames[i].len, hold->buf.len);
            return -1;
        }
    }
    return (self->frames != NULL) ? 0 : -1;
}

static int
allocate(MessageListenerObject *self, const umx_frames_info *info)
{
    self->buffers = receiver_allocate(self->worker->st, self->receiver, info);
    return (self->buffers == NULL) ? -1 : hold_all(self, info, self->buffers);
}

static void
release_memory(MessageListenerObject *self)
{
    if (self->frames != NULL) {
        frames_list_free(self->frames);
        self->frames = NULL;
    }
    Py_CLEAR(self->buffers);
}

umx_status
listener_alloc(MessageListenerObject *self, const umx_frames_info *info,
               umx_buffer *buffers)
{
    if (allocate(self, info) < 0) {
        self->exception = PyErr_GetRaisedException();
        release_memory(self);
        return UMX_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < info->count; i++) {
        buffers[i] = self->frames->holds[i].buf;
    }
    Py_INCREF(self); /* for listener_finish() */
    return UMX_OK;
}

/* The receiver's end: `exc`, or NULL with what raised that. Both, and the
 * receiver, are taken over. */
static void
tell_failure(MessageListenerObject *self, PyObject *exc)
{
    MessageReceiverObject *receiver = self->receiver;

    self->receiver = NULL;
    if (exc == NULL || receiver_fail(self->worker->st, receiver, exc) < 0) {
        report(self);
    }
    Py_XDECREF(exc);
    Py_DECREF(receiver);
}

/* Fail the receiver of a message whose bytes will not come. */
static void
fail_receiver(MessageListenerObject *self, umx_status status)
{
    if (self->receiver != NULL) {
        tell_failure(self, errors_new(self->worker->st, status,
                                      "MessageListener", NULL));
    }
}

/* Tell the receiver why there is no memory for its message. */
static void
tell_no_memory(MessageListenerObject *self, umx_status status)
{
    PyObject *exc = self->exception;

    self->exception = NULL;
    if (exc == NULL) {
        fail_receiver(self, status);
        return;
    }
    PyErr_SetRaisedException(Py_NewRef(exc));
    report(self);
    tell_failure(self, exc);
}

static void
tell_success(MessageListenerObject *self, PyObject *objects)
{
    MessageReceiverObject *receiver = self->receiver;

    self->receiver = NULL;
    if (receiver_land(self->worker->st, receiver, objects) < 0) {
        report(self);
    }
    Py_DECREF(receiver);
}

/* The bytes are there, or will not come; not inside run(): nobody waits for
 * them any more. */
void
listener_finish(MessageListenerObject *self, umx_status status)
{
    PyObject *objects;

    if (self->frames == NULL) {
        tell_no_memory(self, status);
        return;
    }
    objects = Py_NewRef(self->buffers);
    release_memory(self);
    if (self->receiver == NULL || !self->is_running) {
        /* told already; or nobody is left to tell */
    } else if (status == UMX_OK) {
        tell_success(self, objects);
    } else {
        fail_receiver(self, status);
    }
    Py_DECREF(objects);
    Py_DECREF(self); /* listener_alloc()'s */
}

/* Nothing to report: it was asked for, or the peer has closed. */
static bool
is_clean(umx_status status)
{
    return status == UMX_ERR_CANCELED || status == UMX_ERR_CLOSED ||
           status == UMX_ERR_PEER_CLOSED;
}

void
listener_end(MessageListenerObject *self, umx_status status)
{
    PyObject *exc = Py_NewRef(Py_None), *result = NULL;

    self->is_ended = true;
    fail_receiver(self, status);
    if (!is_clean(status)) {
        Py_SETREF(exc, errors_new(self->worker->st, status, "MessageListener",
                                  self->umx != NULL ?
                                      umx_message_listener_reason(self->umx) :
                                      NULL));
    }
    if (exc != NULL) {
        result = PyObject_CallOneArg(self->on_end, exc);
        Py_DECREF(exc);
    }
    if (result == NULL) {
        report(self);
    }
    Py_XDECREF(result);
}

/* ---- running -------------------------------------------------------------
 */

/* event_type.settle(): there is something to do for _run(), or bytes have
 * landed for nobody. */
static void
settle_ready(event *self)
{
    MessageListenerObject *listener = EVENT_OF(self, MessageListenerObject,
                                               event);

    Py_INCREF(listener);
    if (listener->is_landed) {
        listener->is_landed = false;
        listener_finish(listener, UMX_ERR_CANCELED);
    }
    if (listener->umx != NULL && !listener->is_scheduled) {
        listener->is_scheduled = true;
        event_append(&listener->worker->calls, self);
    }
    Py_DECREF(listener);
}

static void
call_run(event *self, bool is_direct)
{
    MessageListenerObject *listener = EVENT_OF(self, MessageListenerObject,
                                               event);
    WorkerObject          *worker   = listener->worker;
    PyObject              *run;

    Py_INCREF(listener);
    run = PyObject_GetAttr((PyObject *)listener, NAME(worker->st, _run));
    if (run == NULL) {
        PyErr_WriteUnraisable((PyObject *)listener);
    } else {
        worker_call(worker, run, NULL, is_direct);
        Py_DECREF(run);
    }
    Py_DECREF(listener);
}

static const event_type listener_event = {settle_ready, call_run};

/* Be done with libumx's. */
static void
release(MessageListenerObject *self)
{
    umx_message_listener *umx = self->umx;

    self->umx = NULL;
    if (!self->is_landed) {
        event_unlink(&self->event);
    }
    if (umx != NULL && event_drop_listener(self->worker, umx)) {
        worker_drain_if_due(self->worker);
    }
}

/* Let the loop have its turn. False: there is none. */
static bool
run_later(MessageListenerObject *self)
{
    PyObject *run, *handle;

    if (self->worker->call_soon == NULL) {
        return false;
    }
    run    = PyObject_GetAttr((PyObject *)self, NAME(self->worker->st, _run));
    handle = (run != NULL) ? PyObject_CallOneArg(self->worker->call_soon, run) :
                             NULL;
    Py_XDECREF(run);
    if (handle == NULL) {
        PyErr_Clear();
        return false;
    }
    Py_DECREF(handle);
    self->is_scheduled = true;
    return true;
}

static void
run_for_a_while(MessageListenerObject *self)
{
    while (umx_message_listener_run(self->umx, RUN_STEP) == UMX_INPROGRESS) {
        if (worker_turn_is_over(self->worker) && run_later(self)) {
            return;
        }
    }
}

static PyObject *
listener_run(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    MessageListenerObject *self   = (MessageListenerObject *)op;
    WorkerObject          *worker = self->worker;

    self->is_scheduled = false;
    if (self->umx == NULL || self->is_running || !worker_is_mine(worker)) {
        Py_RETURN_NONE;
    }
    Py_INCREF(self);
    self->is_running = true;
    if (worker->umx == NULL) {
        umx_message_listener_stop(self->umx);
    }
    run_for_a_while(self);
    self->is_running = false;
    if (self->is_ended) {
        release(self);
    }
    if (worker->umx != NULL) {
        worker_after_call(worker);
        worker_drain_if_due(worker);
    }
    Py_DECREF(self);
    return (worker_raise_kept(worker) < 0) ? NULL : Py_NewRef(Py_None);
}

/* ---- life ----------------------------------------------------------------
 */

static PyObject *
start(MessageListenerObject *self, int channel)
{
    umx_message_listener_params params = {
        .field_mask = UMX_MESSAGE_LISTENER_FIELD_CHANNEL,
        .channel    = (uint16_t)channel};
    umx_status status;

    event_watch_messages(&params, self);
    status = (self->endpoint->umx != NULL) ?
                 umx_message_listener_create(self->endpoint->umx, &params,
                                             &self->umx) :
                 UMX_ERR_CLOSED;
    if (status != UMX_OK) {
        errors_raise(self->worker->st, status, "MessageListener", NULL);
        Py_DECREF(self);
        return NULL;
    }
    worker_drain_if_due(self->worker);
    return (PyObject *)self;
}

static PyObject *
listener_new_object(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"endpoint", "route", "on_end", "channel", NULL};

    mod_state             *st      = state_of_type(type);
    int                    channel = UMX_MESSAGE_CHANNEL;
    PyObject              *endpoint, *route, *end;
    MessageListenerObject *self;

    if (st == NULL ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|i:MessageListener",
                                     keywords, st->endpoint_type, &endpoint,
                                     &route, &end, &channel)) {
        return NULL;
    }
    if (!PyCallable_Check(route)) {
        PyErr_Format(PyExc_TypeError, "route must be callable, not %.200s",
                     Py_TYPE(route)->tp_name);
        return NULL;
    }
    if (channel < 0 || channel > UINT16_MAX) {
        PyErr_Format(PyExc_ValueError, "channel must be 0 to 65535, not %d",
                     channel);
        return NULL;
    }
    self = (MessageListenerObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->event.type = &listener_event;
    self->endpoint   = (EndpointObject *)Py_NewRef(endpoint);
    self->worker     = (WorkerObject *)Py_NewRef(self->endpoint->worker);
    self->route      = Py_NewRef(route);
    self->on_end     = Py_NewRef(end);
    if (worker_check(self->worker) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return start(self, channel);
}

static int
listener_traverse(PyObject *op, visitproc visit, void *arg)
{
    MessageListenerObject *self = (MessageListenerObject *)op;

    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->endpoint);
    Py_VISIT(self->worker);
    Py_VISIT(self->route);
    Py_VISIT(self->on_end);
    Py_VISIT(self->receiver);
    Py_VISIT(self->exception);
    Py_VISIT(self->buffers);
    return 0;
}

/* The collector: nobody will call these any more. */
static int
listener_clear(PyObject *op)
{
    MessageListenerObject *self = (MessageListenerObject *)op;

    release(self);
    Py_CLEAR(self->route);
    Py_CLEAR(self->on_end);
    Py_CLEAR(self->receiver);
    Py_CLEAR(self->exception);
    return 0;
}

static void
listener_dealloc(PyObject *op)
{
    MessageListenerObject *self = (MessageListenerObject *)op;
    PyTypeObject          *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    if (self->worker != NULL) {
        (void)listener_clear(op);
    }
    event_unlink(&self->event);
    release_memory(self);
    Py_CLEAR(self->endpoint);
    Py_CLEAR(self->worker);
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(close_doc, "close($self, /)\n--\n\n"
                        "Hand out no more messages; on_end(None) follows.");

static PyObject *
listener_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    MessageListenerObject *self   = (MessageListenerObject *)op;
    WorkerObject          *worker = self->worker;

    if (self->umx == NULL || worker->umx == NULL) {
        Py_RETURN_NONE;
    }
    if (worker_check(worker) < 0) {
        return NULL;
    }
    umx_message_listener_stop(self->umx);
    worker_drain_if_due(worker);
    Py_RETURN_NONE;
}

static PyObject *
get_endpoint(PyObject *op, void *Py_UNUSED(closure))
{
    return Py_NewRef(((MessageListenerObject *)op)->endpoint);
}

static PyMethodDef listener_methods[] = {
    {"close", listener_close, METH_NOARGS, close_doc},
    {"_run", listener_run, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef listener_getset[] = {
    {"endpoint", get_endpoint, NULL, "Where messages come from.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(listener_doc,
             "MessageListener(endpoint, route, on_end, channel=65535)\n--\n\n"
             "Hands out the messages that a peer's MessageSender sends.");

static PyType_Slot listener_slots[] = {
    {Py_tp_doc, (void *)listener_doc}, {Py_tp_new, listener_new_object},
    {Py_tp_dealloc, listener_dealloc}, {Py_tp_traverse, listener_traverse},
    {Py_tp_clear, listener_clear},     {Py_tp_methods, listener_methods},
    {Py_tp_getset, listener_getset},   {0, NULL},
};

PyType_Spec message_listener_spec = {
    .name      = "ucp._ext.MessageListener",
    .basicsize = sizeof(MessageListenerObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = listener_slots,
};
