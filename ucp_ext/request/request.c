/* SPDX-License-Identifier: BSD-3-Clause */
/* request.c: the awaitable of one operation.
 *
 * It is a future to asyncio.isfuture(), so gather, as_completed, wait_for,
 * shield and ensure_future add their callbacks to it and make no task of it.
 * It has __await__, send, throw and close, too, so create_task, TaskGroup and
 * run_coroutine_threadsafe take it as a coroutine, and asyncio.wait() refuses
 * it as one. A task that awaits a pending request is given the request itself,
 * with _asyncio_future_blocking set, and adds its wake-up. A request starts
 * when it is made, but for one made in another thread, which starts in its own
 * loop, when it is awaited or given its first callback. It may be awaited
 * again: it gives its result again.
 *
 * Who gets the result has been handed it: by an await, result() or exception().
 * A task's wake-up calls result() just before the task resumes, which is no
 * handing out yet: the task may be cancelled in between. Until the result is
 * handed out cancel() undoes a receive, also one that is complete.
 *
 * The awaitable and the operation have separate lives. cancel() and throw() end
 * the awaitable at once; the operation goes on in libumx. libumx has no
 * reference to the awaitable: one that the program drops is deallocated, which
 * withdraws a receive, and what the operation needs of it, buffer and endpoint,
 * stays as its record until libumx is done with that. A receive whose message
 * has come but was not handed out gives it back to the queue. A request with
 * callbacks is held until they have run.
 *
 * Where completions go: event.h. The callbacks of a request run directly if the
 * event loop has called us, since no task is running then, else by
 * call_soon(). */
#include "request/request.h"

#include "args.h"
#include "op/am.h"
#include "op/frames.h"
#include "request/callback.h"
#include "types/endpoint.h"
#include "types/message.h"
#include "types/message_sender.h"
#include "types/rkey.h"
#include "types/tag_message.h"
#include "worker/worker.h"

#include <inttypes.h>
#include <string.h>

/* Look at the clock only every so many awaits that were done at once; those of
 * so many bytes, which were copied, count for two. */
enum {
    INLINE_PER_CLOCK = 16,
    INLINE_BYTES     = 4096
};
static const char *const kind_names[] = {
    [REQUEST_SEND]             = "send",
    [REQUEST_TAG_SEND]         = "send",
    [REQUEST_AM_SEND]          = "am_send",
    [REQUEST_STREAM_SEND]      = "stream_send",
    [REQUEST_STREAM_RECV]      = "stream_recv",
    [REQUEST_SEND_FRAMES]      = "send_frames",
    [REQUEST_RECV_FRAMES]      = "recv_frames",
    [REQUEST_SEND_MESSAGE]     = "MessageSender.send",
    [REQUEST_DRAIN_SENDER]     = "MessageSender.wait_sent",
    [REQUEST_RECV]             = "recv",
    [REQUEST_RECV_INTO]        = "recv_into",
    [REQUEST_TAG_RECV]         = "recv",
    [REQUEST_RECV_MESSAGE]     = "recv_message",
    [REQUEST_MESSAGE_RECV]     = "Message.recv",
    [REQUEST_AM_RECV]          = "am_recv",
    [REQUEST_AM_RECV_MESSAGE]  = "am_recv_message",
    [REQUEST_FLUSH]            = "flush",
    [REQUEST_DRAIN]            = "drain",
    [REQUEST_CLOSE]            = "close",
    [REQUEST_PING]             = "ping",
    [REQUEST_PEER_INFO]        = "peer_info",
    [REQUEST_CLOSE_LISTENER]   = "close_listener",
    [REQUEST_CONNECT]          = "connect",
    [REQUEST_CLOSE_ALL]        = "close_all",
    [REQUEST_SEND_MANY]        = "send_many",
    [REQUEST_RECV_MANY]        = "recv_many",
    [REQUEST_TAG_SEND_SYNC]    = "send",
    [REQUEST_TAG_RECV_INTO]    = "recv",
    [REQUEST_TAG_WAIT]         = "probe",
    [REQUEST_TAG_RECV_MESSAGE] = "recv_message",
    [REQUEST_TAG_MESSAGE_RECV] = "TagMessage.recv",
    [REQUEST_PUT]              = "put",
    [REQUEST_GET]              = "get",
    [REQUEST_PUT_MANY]         = "put_many",
    [REQUEST_GET_MANY]         = "get_many",
    [REQUEST_PUT_SIGNAL]       = "put_signal",
    [REQUEST_ATOMIC]           = "atomic",
    [REQUEST_FETCH]            = "fetch",
};

static const char *
op_name(const RequestObject *req)
{
    return (req->low_level != NULL) ? callback_name(req) :
                                      kind_names[req->kind];
}

static void settle_told(event *self);
static void call_program(event *self, bool is_direct);

static const event_type request_event = {settle_told, call_program};

/* ---- life ----------------------------------------------------------------
 */

static NOINLINE RequestObject *
request_alloc(mod_state *st)
{
    RequestObject *req = PyObject_GC_New(RequestObject, st->request_type);

    if (req != NULL) {
        memset((char *)req + offsetof(RequestObject, st), 0,
               sizeof(*req) - offsetof(RequestObject, st));
        req->st         = st;
        req->event.type = &request_event;
    }
    return req;
}

/* Not tracked by the collector before it is part of something: a request that
 * is done at once never is. */
RequestObject *
request_new(WorkerObject *worker, EndpointObject *endpoint, request_kind kind)
{
    mod_state     *st  = worker->st;
    RequestObject *req = st->free_requests;

    if (LIKELY(req != NULL)) {
        st->free_requests = req->next;
        st->num_free_requests--;
        req->next = NULL;
        compat_revive((PyObject *)req);
    } else {
        req = request_alloc(st);
        if (req == NULL) {
            return NULL;
        }
    }
    st->num_requests++;
    req->worker        = (WorkerObject *)Py_NewRef(worker);
    req->endpoint      = (EndpointObject *)Py_XNewRef(endpoint);
    req->kind          = kind;
    req->status        = UMX_INPROGRESS;
    req->is_told       = false;
    req->is_settled    = false;
    req->state         = REQUEST_PENDING;
    req->num_wakers    = 0;
    req->is_deferred   = false;
    req->is_refused    = false;
    req->has_yielded   = false;
    req->is_blocking   = false;
    req->is_taken      = false;
    req->has_listeners = false;
    req->has_let_loop  = false;
    req->is_handed_out = false;
    req->is_seen       = false;
    req->is_held       = false;
    req->can_unrecv    = false;
    req->is_into       = false;
    req->is_making     = false;
    req->has_odd_end   = 0;
    req->channel       = 0;
    return req;
}

static void
release_many(RequestObject *req)
{
    many *all = req->many;

    if (all == NULL) {
        return;
    }
    req->many = NULL;
    for (Py_ssize_t i = 0; i < all->count; i++) {
        buffer_release(&all->items[i].hold);
    }
    PyMem_Free(all);
}

static void
release_list(RequestObject *req)
{
    rma_list *list = req->list;

    if (list == NULL) {
        return;
    }
    req->list = NULL;
    for (Py_ssize_t i = 0; i < list->count; i++) {
        buffer_release(&list->holds[i]);
    }
    PyMem_Free(list);
}

/* Everything the operation was lent. */
static inline void
release_buffers(RequestObject *req)
{
    buffer_release(&req->hold);
    if (UNLIKELY(req->list != NULL)) {
        release_list(req);
    }
    if (UNLIKELY(req->frames != NULL)) {
        frames_release(req);
    }
}

static int
visit_hold(const buffer_hold *hold, visitproc visit, void *arg)
{
    Py_VISIT(hold->owner);
    Py_VISIT(hold->view.obj);
    return 0;
}

/* What was lent. */
static int
visit_buffers(const RequestObject *self, visitproc visit, void *arg)
{
    int rc = visit_hold(&self->hold, visit, arg);

    for (Py_ssize_t i = 0;
         rc == 0 && self->many != NULL && i < self->many->count; i++) {
        rc = visit_hold(&self->many->items[i].hold, visit, arg);
    }
    for (Py_ssize_t i = 0;
         rc == 0 && self->list != NULL && i < self->list->count; i++) {
        rc = visit_hold(&self->list->holds[i], visit, arg);
    }
    for (Py_ssize_t i = 0;
         rc == 0 && self->frames != NULL && i < self->frames->num_held; i++) {
        rc = visit_hold(&self->frames->holds[i], visit, arg);
    }
    for (size_t i = 0; self->sent != NULL && i < self->sent->count; i++) {
        Py_VISIT(self->sent->endpoints[i]);
    }
    return rc;
}

/* Until the operation is over its record is somebody else's, who is not seen
 * from here. */
static int
request_traverse(PyObject *op, visitproc visit, void *arg)
{
    RequestObject *self = (RequestObject *)op;

    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->worker);
    Py_VISIT(self->endpoint);
    Py_VISIT(self->remote);
    Py_VISIT(self->allocator);
    Py_VISIT(self->peer);
    Py_VISIT(self->result);
    Py_VISIT(self->exception);
    Py_VISIT(self->cancel_message);
    Py_VISIT(self->callback);
    Py_VISIT(self->context);
    Py_VISIT(self->more_callbacks);
    Py_VISIT(self->low_level);
    return request_is_in_flight(self) ? 0 : visit_buffers(self, visit, arg);
}

static void
clear_callbacks(RequestObject *self)
{
    Py_CLEAR(self->callback);
    Py_CLEAR(self->context);
    Py_CLEAR(self->more_callbacks);
    Py_CLEAR(self->low_level);
}

void
request_return_message(RequestObject *self)
{
    umx_message     *message     = self->message;
    umx_tag_message *tag_message = self->tag_message;

    self->message     = NULL;
    self->tag_message = NULL;
    if (message != NULL) {
        message_give_back(self->worker, message);
    }
    if (tag_message != NULL) {
        tag_message_give_back(self->worker, tag_message);
    }
}

/* Is what has been received in memory that nobody else has? */
static bool
keeps_bytes(const RequestObject *self)
{
    return self->kind == REQUEST_AM_RECV ||
           (self->kind == REQUEST_RECV_FRAMES && !self->is_into);
}

/* What a request that sends or receives one buffer never had. */
static inline bool
has_extras(const RequestObject *self)
{
    return ((uintptr_t)self->peer | (uintptr_t)self->thread |
            (uintptr_t)self->exception | (uintptr_t)self->cancel_message |
            (uintptr_t)self->header | (uintptr_t)self->allocator |
            (uintptr_t)self->many | (uintptr_t)self->sent |
            (uintptr_t)self->more_callbacks | (uintptr_t)self->low_level |
            (uintptr_t)self->message | (uintptr_t)self->tag_message) != 0;
}

/* Memory that libumx has, or that a message is to be put back from, stays. */
static int
request_clear(PyObject *op)
{
    RequestObject *self = (RequestObject *)op;

    clear_callbacks(self);
    Py_CLEAR(self->peer);
    Py_CLEAR(self->thread);
    Py_CLEAR(self->exception);
    Py_CLEAR(self->cancel_message);
    if (request_is_in_flight(self) || (self->can_unrecv && keeps_bytes(self))) {
        return 0;
    }
    self->can_unrecv = false;
    Py_CLEAR(self->header);
    Py_CLEAR(self->allocator);
    Py_CLEAR(self->result);
    release_buffers(self);
    release_many(self);
    if (self->sent != NULL) {
        sender_release(self);
    }
    return 0;
}

/* request_clear() of most: the operation is over, and there is little. */
static inline void
clear_few(RequestObject *self)
{
    Py_CLEAR(self->callback);
    Py_CLEAR(self->context);
    Py_CLEAR(self->result);
    release_buffers(self);
}

static umx_status
unrecv_bytes(RequestObject *self)
{
    const char *header = NULL;
    Py_ssize_t  len    = 0;

    if (self->kind == REQUEST_STREAM_RECV) {
        return umx_stream_unrecv(self->endpoint->umx, &self->info,
                                 &self->hold.buf);
    }
    if (self->header != NULL) {
        header = PyBytes_AS_STRING(self->header);
        len    = PyBytes_GET_SIZE(self->header);
    }
    return umx_message_unrecv(self->endpoint->umx, &self->info, header,
                              (size_t)len, &self->hold.buf);
}

/* What was received returns to its queue. Without memory it is lost, which ends
 * the endpoint: the next receive must not get what is behind it. */
static void
unrecv(RequestObject *self)
{
    if (self->kind == REQUEST_RECV_FRAMES) {
        frames_unrecv(self);
    } else if (self->endpoint->umx != NULL &&
               unrecv_bytes(self) == UMX_ERR_NO_MEMORY) {
        umx_ep_abort(self->endpoint->umx);
    }
}

/* ---- what the program has dropped ----------------------------------------
 */

static bool
is_recv(const RequestObject *self)
{
    return (self->kind >= REQUEST_RECV && self->kind < REQUEST_FLUSH) ||
           self->kind == REQUEST_RECV_MANY;
}

static bool
is_send(const RequestObject *self)
{
    return self->kind < REQUEST_RECV || self->kind == REQUEST_SEND_MANY;
}

/* An exception that the warning has become goes where those of __del__ go. */
static void
warn(const char *text)
{
    if (PyErr_WarnEx(PyExc_RuntimeWarning, text, 1) < 0) {
        PyErr_WriteUnraisable(NULL);
    }
}

static void
warn_not_started(const RequestObject *self)
{
    const char *thread = self->thread != NULL ? PyUnicode_AsUTF8(self->thread) :
                                                NULL;
    char        text[320];

    PyErr_Clear();
    PyOS_snprintf(
        text, sizeof(text),
        "ucp: %s() was called in the thread %.100s, which is not that "
        "of its event loop, and never started: use "
        "worker.submit(ep.%s, ...), or await it in its loop",
        kind_names[self->kind], thread != NULL ? thread : "?",
        kind_names[self->kind]);
    warn(text);
}

static void
warn_withdrawn(const RequestObject *self)
{
    char text[160];

    PyOS_snprintf(text, sizeof(text),
                  "ucp: the Request of %s() was dropped while it waited; it is "
                  "withdrawn. Keep or await it",
                  kind_names[self->kind]);
    warn(text);
}

/* A failure that nobody has asked for. What the program itself has ended is
 * none, and neither is the end of a connection for who only listens. */
static bool
has_unseen_failure(const RequestObject *self)
{
    if (self->state != REQUEST_DONE || self->status == UMX_OK ||
        self->is_seen || self->status == UMX_ERR_CANCELED ||
        self->status == UMX_ERR_FORKED) {
        return false;
    }
    if (self->kind == REQUEST_CLOSE || self->kind == REQUEST_CLOSE_ALL) {
        return false; /* it is closed, whatever happened */
    }
    return is_send(self) || self->status != UMX_ERR_PEER_CLOSED;
}

static PyObject *make_error(RequestObject *self);

/* As asyncio does with its futures. */
static void
report_unseen(RequestObject *self)
{
    PyObject *exc = (self->exception != NULL) ? Py_NewRef(self->exception) :
                                                make_error(self);
    char      text[96];

    if (exc == NULL) {
        PyErr_WriteUnraisable(NULL);
        return;
    }
    PyErr_SetRaisedException(exc);
    PyOS_snprintf(text, sizeof(text),
                  "the exception of a ucp %s() was never retrieved",
                  op_name(self));
    worker_report_exception(self->worker, text);
}

static void cancel_operation(RequestObject *self);

/* Could it have got a message, that now goes to another one? */
static bool
could_receive(const RequestObject *self)
{
    return self->worker->umx != NULL && !compat_is_finalizing() &&
           (self->worker->loop == NULL ||
            !worker_loop_is_closed(self->worker)) &&
           (self->endpoint == NULL || !endpoint_is_closed(self->endpoint));
}

/* Nobody can get what it would give. */
static void
withdraw(RequestObject *self)
{
    bool is_loss = could_receive(self);

    self->state      = REQUEST_CANCELLED;
    self->is_settled = true;
    if (worker_is_mine(self->worker)) {
        cancel_operation(self);
    } else {
        self->is_withdrawn = true; /* settle() does it */
        Py_INCREF(self);
        if (!event_submit_request(self->worker, self)) {
            self->is_withdrawn = false;
            Py_DECREF(self);
        }
    }
    if (is_loss) {
        warn_withdrawn(self);
    }
}

/* A short message that nobody has seen returns to its queue, as one that is no
 * short one does; by the worker's thread. */
static void
return_unseen(RequestObject *self)
{
    WorkerObject *worker = self->worker;

    if (!keeps_bytes(self) || worker->umx == NULL || worker_is_forked(worker)) {
        self->can_unrecv = false;
    } else if (worker_is_mine(worker)) {
        self->can_unrecv = false;
        unrecv(self);
        worker_drain_if_due(worker); /* somebody may wait for it */
    } else {
        self->can_unrecv   = false;
        self->is_returning = true; /* settle() does it */
        Py_INCREF(self);
        if (!event_submit_request(worker, self)) {
            self->is_returning = false;
            Py_DECREF(self);
        }
    }
}

/* One that was not made for wrong arguments waits for nothing. */
static bool
is_waiting_receive(const RequestObject *self)
{
    return self->state == REQUEST_PENDING && !worker_is_forked(self->worker) &&
           (request_is_in_flight(self) || self->message != NULL) &&
           (is_recv(self) || self->kind == REQUEST_CONNECT);
}

static void settle(RequestObject *req);

/* The last of it is said, and done. True: `self` lives on. */
static NOINLINE bool
outlive(RequestObject *self)
{
    PyObject *exc = PyErr_GetRaisedException();

    compat_revive((PyObject *)self); /* ours: the program runs in this */
    event_unlink(&self->event);
    if (self->is_settled) {
        settle(self); /* of callbacks there are none */
    }
    if (request_is_in_flight(self) && !self->is_orphan) {
        self->is_orphan = true;
        Py_INCREF(self);
    }
    if (self->state == REQUEST_PENDING && self->is_deferred) {
        self->state = REQUEST_CANCELLED;
        if (!self->is_refused) {
            warn_not_started(self);
        }
    } else if (is_waiting_receive(self)) {
        withdraw(self);
    } else if (has_unseen_failure(self) && !compat_is_finalizing()) {
        self->is_seen = true;
        report_unseen(self);
    }
    if (self->can_unrecv) {
        return_unseen(self);
    }
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
    if (self->is_orphan && !request_is_in_flight(self) &&
        !event_is_listed(&self->event)) {
        self->is_orphan = false;
        Py_DECREF(self); /* it could be withdrawn at once */
    }
    Py_SET_REFCNT((PyObject *)self, Py_REFCNT(self) - 1);
    return Py_REFCNT(self) != 0;
}

/* The callbacks of weak references run while nothing holds it: its event waits
 * on a list of its own for outlive(), where nobody who settles finds it. */
static NOINLINE void
clear_weakrefs(RequestObject *self)
{
    event_list apart;

    event_list_init(&apart);
    event_unlink(&self->event);
    event_append(&apart, &self->event);
    PyObject_ClearWeakRefs((PyObject *)self);
    event_unlink(&self->event);
}

static inline bool
is_plain(const RequestObject *self)
{
    return self->state == REQUEST_DONE && self->status == UMX_OK &&
           self->op == NULL && !self->can_unrecv && self->many == NULL &&
           !event_is_listed(&self->event);
}

static void
request_dealloc(PyObject *op)
{
    RequestObject *self = (RequestObject *)op;
    PyTypeObject  *type = Py_TYPE(op);
    mod_state     *st   = self->st;

    if (UNLIKELY(PyObject_GC_IsTracked(op))) {
        PyObject_GC_UnTrack(op);
    }
    if (UNLIKELY(self->weakrefs != NULL)) {
        clear_weakrefs(self);
    }
    if (LIKELY(is_plain(self) && !has_extras(self))) {
        clear_few(self);
    } else {
        if (!is_plain(self) && outlive(self)) {
            return;
        }
        request_return_message(self);
        (void)request_clear(op);
    }
    Py_CLEAR(self->remote);
    Py_CLEAR(self->endpoint);
    Py_CLEAR(self->worker);
    st->num_requests--;
    if (LIKELY(st->num_free_requests < MAX_FREE_REQUESTS &&
               st->request_type != NULL)) {
        self->next        = st->free_requests;
        st->free_requests = self;
        st->num_free_requests++;
        return; /* keeps its reference to the type */
    }
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

void
request_clear_free(mod_state *st)
{
    RequestObject *req = st->free_requests;

    st->free_requests     = NULL;
    st->num_free_requests = 0;
    while (req != NULL) {
        RequestObject *next = req->next;
        PyTypeObject  *type = Py_TYPE(req);

        PyObject_GC_Del(req);
        Py_DECREF(type);
        req = next;
    }
}

/* ---- wake-ups ------------------------------------------------------------
 */

static bool
has_callbacks(const RequestObject *self)
{
    return ((uintptr_t)self->callback | (uintptr_t)self->more_callbacks |
            (uintptr_t)self->low_level) != 0;
}

void
request_link_wake(RequestObject *req)
{
    if (has_callbacks(req) && !event_is_listed(&req->event)) {
        event_append(&req->worker->wakes, &req->event);
    }
}

void
request_hold(RequestObject *req)
{
    if (!req->is_held) {
        req->is_held = true;
        Py_INCREF(req);
    }
}

/* The end of that, if no callbacks are left. The caller has a reference. */
static void
let_go(RequestObject *req)
{
    if (req->is_held && !has_callbacks(req)) {
        req->is_held = false;
        Py_DECREF(req);
    }
}

static void
run_callback(RequestObject *req, PyObject *callback, PyObject *context,
             bool is_direct)
{
    WorkerObject *worker = req->worker;

    if (worker->call_soon == NULL) {
        return; /* no loop, or closed: nobody is left to hear */
    }
    if (is_direct && context != NULL && PyContext_Enter(context) == 0) {
        PyObject *result = PyObject_CallOneArg(callback, (PyObject *)req);
        PyObject *exc    = (result == NULL) ? PyErr_GetRaisedException() : NULL;

        (void)!PyContext_Exit(context);
        if (exc != NULL) {
            PyErr_SetRaisedException(exc);
        }
        Py_XDECREF(result);
    } else {
        PyErr_Clear(); /* the context is entered already: the slow way */
        (void)!worker_call_soon(worker, callback, (PyObject *)req, context);
    }
    if (PyErr_Occurred()) {
        worker_report_exception(worker, "a callback of a Request failed");
    }
}

static void
run_callbacks(RequestObject *req, bool is_direct)
{
    PyObject *callback = req->callback;
    PyObject *context  = req->context;
    PyObject *more     = req->more_callbacks;

    req->callback       = NULL;
    req->context        = NULL;
    req->more_callbacks = NULL;
    if (callback != NULL) {
        run_callback(req, callback, context, is_direct);
        Py_DECREF(callback);
        Py_XDECREF(context);
    }
    if (more != NULL) {
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(more); i++) {
            PyObject *pair = PyList_GET_ITEM(more, i); /* borrowed */
            PyObject *ctx  = PyTuple_GET_ITEM(pair, 1);

            run_callback(req, PyTuple_GET_ITEM(pair, 0),
                         ctx == Py_None ? NULL : ctx, is_direct);
        }
        Py_DECREF(more);
    }
}

static void fetch(RequestObject *req);

/* Settled: its callbacks; or it has a second step, in which the program is
 * asked for memory. */
static void
call_program(event *self, bool is_direct)
{
    RequestObject *req = EVENT_OF(self, RequestObject, event);

    Py_INCREF(req);
    if (req->state == REQUEST_PENDING) {
        fetch(req);
    }
    if (req->is_settled) {
        event_unlink(self);
        if (req->low_level != NULL) {
            callback_run(req);
        }
        run_callbacks(req, is_direct);
        let_go(req);
    }
    Py_DECREF(req);
}

/* ---- completion ----------------------------------------------------------
 */

/* Memory for a message that has come, and its bytes into that. */
static void
fetch(RequestObject *req)
{
    WorkerObject *worker = req->worker;

    if (worker->umx == NULL) {
        request_return_message(req);
        request_settle(req, UMX_ERR_CLOSED);
    } else if (req->kind == REQUEST_RECV_FRAMES) {
        frames_fetch(req);
    } else {
        am_fetch(req);
    }
    worker_schedule_drain(worker);
}

/* A message has come, without its bytes. */
static void
begin_second_step(RequestObject *req)
{
    WorkerObject *worker = req->worker;

    if (req->kind == REQUEST_RECV_FRAMES && frames_start(req)) {
        if (!req->is_settled) {
            request_settle(req, UMX_OK);
        }
    } else if (req->kind == REQUEST_AM_RECV || frames_have_allocator(req)) {
        event_append(&worker->calls, &req->event);
    } else {
        fetch(req);
    }
}

/* The end of a loan, if it is over: the program may run in this. */
static void
release_told(RequestObject *req)
{
    if (request_is_in_flight(req)) {
        return;
    }
    if (UNLIKELY(req->is_landed)) {
        req->is_landed = false;
        if (req->worker->umx != NULL && request_is_channel_recv(req)) {
            unrecv(req); /* the cancellation came too late for libumx */
        }
        request_return_message(req);
    }
    if (UNLIKELY(req->state == REQUEST_CANCELLED)) {
        release_many(req);
    }
    if (!req->can_unrecv) {
        release_buffers(req);
    }
}

/* Is nothing left but to say so? */
static inline bool
is_just_done(const RequestObject *req)
{
    return req->state == REQUEST_DONE && req->has_odd_end == 0 &&
           !request_is_in_flight(req);
}

static inline void
release_done(RequestObject *req)
{
    if (!req->can_unrecv) {
        release_buffers(req);
    }
    request_link_wake(req);
}

static void
settle(RequestObject *req)
{
    if (UNLIKELY(req->is_withdrawn)) {
        req->is_withdrawn = false;
        cancel_operation(req);
        Py_DECREF(req); /* withdraw()'s */
    }
    if (UNLIKELY(req->is_returning)) {
        req->is_returning = false;
        if (req->worker->umx != NULL) {
            unrecv(req);
        }
        Py_DECREF(req); /* return_unseen()'s */
    }
    if (req->kind == REQUEST_CONNECT && req->ep != NULL && req->is_told) {
        request_connected(req);
    } else if (request_has_second_step(req, UMX_OK)) {
        begin_second_step(req);
    } else {
        release_told(req);
        request_link_wake(req);
    }
}

/* Code of the program's may run in this. */
static NOINLINE void
settle_held(RequestObject *req)
{
    Py_INCREF(req);
    if (LIKELY(is_just_done(req))) {
        release_done(req);
        Py_DECREF(req);
        return;
    }
    settle(req);
    if (UNLIKELY(req->is_orphan) && !request_is_in_flight(req)) {
        req->is_orphan = false;
        Py_DECREF(req); /* the operation's */
    }
    Py_DECREF(req);
}

/* event_type.settle() */
static void
settle_told(event *self)
{
    RequestObject *req = EVENT_OF(self, RequestObject, event);

    if (is_just_done(req) && req->can_unrecv) {
        request_link_wake(req); /* its buffer stays held: nothing else runs */
        return;
    }
    settle_held(req);
}

void
request_settle(RequestObject *req, umx_status status)
{
    event_mark_done(req, status);
    if (LIKELY(is_just_done(req))) {
        release_done(req);
        return;
    }
    release_told(req);
    request_link_wake(req);
}

/* ---- posting -------------------------------------------------------------
 */

/* Moving this many bytes takes longer than giving the GIL away. */
enum {
    MIN_UNLOCKED = 65536
};

static umx_status
post_transfer(RequestObject *req, const umx_op_params *params)
{
    umx_rkey    *rkey = ((RemoteObject *)req->remote)->umx;
    umx_rma_item item = {.offset = req->offset, .buf = req->hold.buf};

    switch ((request_kind)req->kind) {
    case REQUEST_PUT:
        return umx_rma_put(rkey, &item, params, &req->op);
    case REQUEST_GET:
        return umx_rma_get(rkey, &item, params, &req->op);
    case REQUEST_PUT_SIGNAL:
        return umx_rma_put_signal(rkey, &item, &req->atomic, params, &req->op);
    case REQUEST_PUT_MANY:
        return umx_rma_put_many(rkey, req->list->items,
                                (size_t)req->list->count, params, &req->op);
    case REQUEST_GET_MANY:
        return umx_rma_get_many(rkey, req->list->items,
                                (size_t)req->list->count, params, &req->op);
    default:
        return UMX_ERR_INVALID_PARAM;
    }
}

static NOINLINE umx_status
post_transfer_unlocked(RequestObject *req, const umx_op_params *params)
{
    PyThreadState *thread = PyEval_SaveThread();
    umx_status     status = post_transfer(req, params);

    PyEval_RestoreThread(thread);
    return status;
}

/* Not while a second thread progresses the worker: the GIL is their lock. */
static inline bool
is_unlocked(const RequestObject *req, size_t len)
{
    return UNLIKELY(len >= MIN_UNLOCKED) && req->worker->wake_fd < 0;
}

static NOINLINE umx_status
post_rma(RequestObject *req, const umx_op_params *params)
{
    size_t len = req->hold.buf.len;

    if (req->kind == REQUEST_ATOMIC || req->kind == REQUEST_FETCH) {
        return umx_rma_atomic(((RemoteObject *)req->remote)->umx, &req->atomic,
                              req->kind == REQUEST_FETCH ? &req->old : NULL,
                              params, &req->op);
    }
    if (req->list != NULL) {
        len = req->list->len;
    }
    return is_unlocked(req, len) ? post_transfer_unlocked(req, params) :
                                   post_transfer(req, params);
}

/* UCX's own tags. */
static NOINLINE umx_status
post_tag(RequestObject *req, const umx_op_params *params)
{
    umx_ep     *ep  = req->endpoint != NULL ? req->endpoint->umx : NULL;
    umx_worker *umx = req->worker->umx;
    uint64_t    tag = req->match.tag, mask = req->match.mask;

    switch ((request_kind)req->kind) {
    case REQUEST_TAG_SEND:
        return umx_tag_send(ep, tag, &req->hold.buf, params, &req->op);
    case REQUEST_TAG_SEND_SYNC:
        return umx_tag_send_sync(ep, tag, &req->hold.buf, params, &req->op);
    case REQUEST_TAG_RECV:
    case REQUEST_TAG_RECV_INTO:
        return umx_tag_recv(umx, ep, tag, mask, &req->hold.buf, params,
                            &req->op, &req->info);
    case REQUEST_TAG_WAIT:
        return umx_tag_wait(umx, tag, mask, params, &req->op, &req->info);
    case REQUEST_TAG_RECV_MESSAGE:
        return umx_tag_recv_message(umx, tag, mask, params, &req->op,
                                    &req->tag_message);
    default: /* REQUEST_TAG_MESSAGE_RECV */
        return umx_tag_message_recv(&req->tag_message, &req->hold.buf, params,
                                    &req->op);
    }
}

static umx_status
post_one(RequestObject *req, const umx_op_params *params)
{
    umx_ep     *ep  = req->endpoint != NULL ? req->endpoint->umx : NULL;
    umx_worker *umx = req->worker->umx;

    switch ((request_kind)req->kind) {
    case REQUEST_SEND:
        return umx_channel_send(ep, req->channel, &req->match, &req->hold.buf,
                                params, &req->op);
    case REQUEST_RECV:
    case REQUEST_RECV_INTO:
        return umx_channel_recv(ep, req->channel, &req->match, &req->hold.buf,
                                params, &req->op, &req->info);
    case REQUEST_AM_SEND:
        return umx_am_send(
            ep, req->channel,
            req->header != NULL ? PyBytes_AS_STRING(req->header) : NULL,
            req->header != NULL ? (size_t)PyBytes_GET_SIZE(req->header) : 0,
            &req->hold.buf, params, &req->op);
    case REQUEST_STREAM_SEND:
        return umx_stream_send(ep, &req->hold.buf, params, &req->op);
    case REQUEST_STREAM_RECV:
        return umx_stream_recv(ep, &req->hold.buf, req->match.flags, params,
                               &req->op, &req->info);
    case REQUEST_SEND_FRAMES:
        return frames_post_send(req, params);
    case REQUEST_RECV_FRAMES:
        return umx_frames_recv_message(ep, req->channel, params, &req->op,
                                       &req->message);
    case REQUEST_AM_RECV:
        req->hold.buf = umx_host_buffer(req->small, sizeof(req->small));
        return umx_am_recv(ep, req->channel, &req->hold.buf, params, &req->op,
                           &req->message);
    case REQUEST_AM_RECV_MESSAGE:
        return umx_am_recv(ep, req->channel, NULL, params, &req->op,
                           &req->message);
    case REQUEST_RECV_MESSAGE:
        return umx_channel_recv_message(ep, req->channel, &req->match, params,
                                        &req->op, &req->message);
    case REQUEST_MESSAGE_RECV:
        return umx_message_recv(&req->message, &req->hold.buf, params,
                                &req->op);
    case REQUEST_PUT:
    case REQUEST_GET:
    case REQUEST_PUT_MANY:
    case REQUEST_GET_MANY:
    case REQUEST_PUT_SIGNAL:
    case REQUEST_ATOMIC:
    case REQUEST_FETCH:
        return post_rma(req, params);
    case REQUEST_FLUSH:
        return (req->endpoint != NULL) ?
                   umx_ep_flush(ep, params, &req->op) :
                   umx_worker_flush(umx, params, &req->op);
    case REQUEST_DRAIN:
        return umx_ep_drain(ep, req->endpoint->low, params, &req->op);
    case REQUEST_CLOSE:
        return umx_ep_close(ep, req->ns, params, &req->op);
    case REQUEST_PING:
        return umx_ep_ping(ep, params, &req->op);
    case REQUEST_PEER_INFO:
        return umx_ep_peer_info(ep, params, &req->op);
    case REQUEST_CLOSE_LISTENER:
        return umx_ep_close_listener(ep, params, &req->op);
    case REQUEST_TAG_SEND:
    case REQUEST_TAG_SEND_SYNC:
    case REQUEST_TAG_RECV:
    case REQUEST_TAG_RECV_INTO:
    case REQUEST_TAG_WAIT:
    case REQUEST_TAG_RECV_MESSAGE:
    case REQUEST_TAG_MESSAGE_RECV:
        return post_tag(req, params);
    case REQUEST_CONNECT:
    case REQUEST_CLOSE_ALL:
    case REQUEST_SEND_MANY:
    case REQUEST_RECV_MANY:
    case REQUEST_SEND_MESSAGE:
    case REQUEST_DRAIN_SENDER:
        break;
    }
    return UMX_ERR_INVALID_PARAM;
}

static inline umx_status
post_item(RequestObject *req, many_item *item, const umx_op_params *params)
{
    umx_ep *ep = req->endpoint->umx;

    if (req->kind == REQUEST_SEND_MANY) {
        return umx_channel_send(ep, req->channel, &req->match, &item->hold.buf,
                                params, &item->op);
    }
    return umx_channel_recv(ep, req->channel, &req->match, &item->hold.buf,
                            params, &item->op, &item->info);
}

static NOINLINE void
post_many(RequestObject *req)
{
    many         *all    = req->many;
    umx_op_params params = event_item_params(all->items);

    for (Py_ssize_t i = 0; i < all->count; i++) {
        many_item *item = &all->items[i];

        params.arg   = item;
        item->status = post_item(req, item, &params);
        if (item->status == UMX_INPROGRESS) {
            all->pending++;
        } else if (item->status == UMX_ERR_PEER_CLOSED) {
            item->status = UMX_ERR_CLOSED;
        }
    }
    if (all->pending == 0) {
        event_mark_many(req);
        release_told(req);
        request_link_wake(req);
    }
}

/* What a posting call returned. */
static inline void
note_posted(RequestObject *req, umx_status status)
{
    if (status == UMX_INPROGRESS) {
        return;
    }
    if (UNLIKELY(status < 0)) {
        request_return_message(req); /* a message that was not taken over */
    } else if (UNLIKELY(req->message != NULL)) {
        event_mark_message(req, req->message);
        if (request_has_second_step(req, status)) {
            begin_second_step(req);
            return;
        }
    }
    /* Pending when the peer closed: UCXPeerClosed. Called after it: closed. */
    request_settle(req,
                   status == UMX_ERR_PEER_CLOSED ? UMX_ERR_CLOSED : status);
}

/* There is nothing to post it to; to close that is done. */
static NOINLINE void
end_unposted(RequestObject *req, umx_status status)
{
    release_many(req);
    request_settle(req, req->kind == REQUEST_CLOSE ? UMX_OK : status);
}

static void
post_now(RequestObject *req)
{
    umx_op_params params = event_op_params(req);

    if (UNLIKELY(req->worker->umx == NULL ||
                 (req->endpoint != NULL && req->endpoint->umx == NULL))) {
        end_unposted(req, UMX_ERR_CLOSED);
        return;
    }
    if (UNLIKELY(req->many != NULL)) {
        post_many(req);
        return;
    }
    note_posted(req, post_one(req, &params));
}

void
request_post_message(RequestObject *req, umx_message *message)
{
    umx_op_params params = event_op_params(req);
    umx_status    status;

    req->is_told = false;
    if (req->kind == REQUEST_RECV_FRAMES) {
        status = umx_message_recv_frames(&message, req->frames->buffers,
                                         (size_t)req->frames->count, &params,
                                         &req->op);
    } else {
        status = umx_message_recv(&message, &req->hold.buf, &params, &req->op);
    }
    req->message = message;
    if (status == UMX_INPROGRESS) {
        return;
    }
    if (status < 0) {
        request_return_message(req);
    }
    request_settle(req, status);
}

/* The name of the current thread, as its Thread object has it; NULL: unknown.
 */
static PyObject *
thread_name(void)
{
    PyObject *module = PyImport_ImportModule("threading");
    PyObject *thread = NULL, *name = NULL;

    if (module != NULL) {
        thread = PyObject_CallMethod(module, "current_thread", NULL);
        Py_DECREF(module);
    }
    if (thread != NULL) {
        name = PyObject_GetAttrString(thread, "name");
        Py_DECREF(thread);
    }
    if (name != NULL && !PyUnicode_Check(name)) {
        Py_CLEAR(name);
    }
    PyErr_Clear();
    return name;
}

/* What is due after posting is done in the loop's next turn. */
static inline void
drain_soon(RequestObject *req)
{
    if (req->is_settled) {
        worker_drain_if_due(req->worker);
    } else {
        worker_schedule_drain(req->worker);
    }
}

/* What it was lent may refer to it; that of most has no references. */
static inline void
track_if_due(RequestObject *req)
{
    const buffer_hold *hold = &req->hold;

    if ((hold->owner != NULL && PyType_IS_GC(Py_TYPE(hold->owner))) ||
        (hold->view.obj != NULL && PyType_IS_GC(Py_TYPE(hold->view.obj))) ||
        ((uintptr_t)req->many | (uintptr_t)req->frames |
         (uintptr_t)req->list) != 0) {
        request_track(req);
    }
}

PyObject *
request_posted(RequestObject *req, umx_status status)
{
    note_posted(req, status);
    track_if_due(req);
    drain_soon(req);
    return (PyObject *)req;
}

/* It starts when its own loop takes it. */
static NOINLINE void
defer(RequestObject *req)
{
    req->is_deferred = true;
    req->thread      = thread_name();
    track_if_due(req);
}

static NOINLINE void
post_elsewhere(RequestObject *req)
{
    if (worker_is_forked(req->worker)) {
        end_unposted(req, UMX_ERR_FORKED);
    } else {
        defer(req);
    }
}

PyObject *
request_post(RequestObject *req)
{
    if (LIKELY(worker_is_mine(req->worker))) {
        post_now(req);
        track_if_due(req);
        drain_soon(req);
    } else {
        post_elsewhere(req);
    }
    return (PyObject *)req;
}

/* Room for `count` items; there are none yet. */
static many *
alloc_many(Py_ssize_t count)
{
    many *all = PyMem_Malloc(sizeof(*all) + (size_t)count * sizeof(many_item));

    if (all == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    all->count      = 0;
    all->pending    = 0;
    all->lost       = 0;
    all->has_failed = false;
    return all;
}

/* Add an item that holds `buffer`. -1 with an exception: it holds nothing. */
static inline int
add_item(many *all, RequestObject *req, PyObject *buffer, bool is_writable)
{
    many_item *item = &all->items[all->count++];

    item->parent          = req;
    item->op              = NULL;
    item->status          = UMX_OK;
    item->info.length     = 0;
    item->hold.buf.layout = NULL;
    return buffer_acquire(req->st, buffer, is_writable, &item->hold);
}

rma_list *
request_new_list(Py_ssize_t count)
{
    size_t    size = sizeof(rma_list) + (size_t)count * sizeof(buffer_hold);
    rma_list *list = PyMem_Malloc(size + (size_t)count * sizeof(umx_rma_item));

    if (list == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    list->count = 0;
    list->len   = 0;
    list->items = (umx_rma_item *)(void *)((char *)list + size);
    return list;
}

/* To hold bytes or a bytearray runs no code of the program's and allocates no
 * object, which could run the collector: a list of them stays as it is while
 * they are held, one after the other, and needs no copy. Where one is refused,
 * nothing more is read from the list. */
static bool
is_list_of_bytes(PyObject *buffers)
{
    if (!PyList_CheckExact(buffers)) {
        return false;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(buffers); i++) {
        PyObject *item = PyList_GET_ITEM(buffers, i); /* borrowed */

        if (!PyByteArray_CheckExact(item) && !PyBytes_CheckExact(item)) {
            return false;
        }
    }
    return true;
}

int
request_hold_many(RequestObject *req, PyObject *buffers)
{
    bool       is_writable = (req->kind == REQUEST_RECV_MANY);
    PyObject **objects; /* borrowed from `items` */
    Py_ssize_t count;
    int        rc    = 0;
    PyObject  *items = is_list_of_bytes(buffers) ?
                           Py_NewRef(buffers) :
                           args_items(buffers, "expected a sequence of buffers");

    if (items == NULL) {
        return -1;
    }
    objects   = PySequence_Fast_ITEMS(items);
    count     = PySequence_Fast_GET_SIZE(items);
    req->many = alloc_many(count);
    if (req->many == NULL) {
        Py_DECREF(items);
        return -1;
    }
    for (Py_ssize_t i = 0; rc == 0 && i < count; i++) {
        rc = add_item(req->many, req, objects[i], is_writable);
    }
    Py_DECREF(items);
    return rc;
}

/* ---- results -------------------------------------------------------------
 */

static int
set_size_attr(PyObject *exc, PyObject *name, uint64_t value)
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
                  const umx_recv_info *info, size_t capacity)
{
    char      text[96];
    PyObject *exc;

    if (self->kind == REQUEST_RECV_FRAMES) {
        snprintf(text, sizeof(text),
                 "the buffers are too few or too short for the frames, which "
                 "have %zu bytes",
                 info->length);
    } else {
        snprintf(text, sizeof(text),
                 "length mismatch: %zu (got) != %zu (expected)", info->length,
                 capacity);
    }
    exc = errors_new(self->st, status, op_name(self), text);
    if (exc != NULL &&
        set_size_attr(exc, NAME(self->st, length), info->length) < 0) {
        Py_CLEAR(exc);
    }
    return exc;
}

/* What programs of ucx-py look for in the text of an error; "" for what is no
 * message. */
static void
describe(const RequestObject *self, size_t capacity, char *text, size_t size)
{
    bool        is_untagged = (self->match.flags & UMX_MATCH_UNTAGGED) != 0;
    const char *word;
    uint64_t    id = 0;

    text[0] = '\0';
    switch (self->kind) {
    case REQUEST_TAG_SEND:
    case REQUEST_TAG_SEND_SYNC:
        is_untagged = false;
        /* fallthrough */
    case REQUEST_SEND:
        word = "Send";
        break;
    case REQUEST_TAG_RECV:
    case REQUEST_TAG_RECV_INTO:
        is_untagged = false;
        /* fallthrough */
    case REQUEST_RECV:
    case REQUEST_RECV_INTO:
        word = "Recv";
        break;
    default:
        return;
    }
    if (self->endpoint != NULL && self->endpoint->umx != NULL) {
        id = umx_ep_id(self->endpoint->umx);
    }
    if (is_untagged) {
        snprintf(text, size, "<[%s] ep: %" PRIu64 ", tag: None, nbytes: %zu>",
                 word, id, capacity);
    } else {
        snprintf(text, size,
                 "<[%s] ep: %" PRIu64 ", tag: %#" PRIx64 ", nbytes: %zu>", word,
                 id, self->match.tag, capacity);
    }
}

/* Which channel, and how many the peer lets us use. */
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
             (self->kind == REQUEST_AM_SEND) ? "id" : "channel", self->channel,
             limit);
}

/* Why its endpoint has failed, if more is known than the status says. */
static void
describe_end(const RequestObject *self, umx_status status, char *text,
             size_t size)
{
    const umx_ep *ep = (self->endpoint != NULL) ? self->endpoint->umx : NULL;

    if (ep != NULL && umx_ep_error(ep) == status) {
        snprintf(text, size, "%s", umx_ep_reason(ep));
    }
}

static PyObject *
make_timeout(RequestObject *self, const char *op, PyObject *peer)
{
    errors_place place = {.preposition = "of the endpoint to", .address = peer};

    return errors_new_at(self->st, UMX_ERR_TIMED_OUT, op, &place, NULL);
}

static PyObject *
make_status_error(RequestObject *self, umx_status status,
                  const umx_recv_info *info, size_t capacity)
{
    const char *op = op_name(self);
    PyObject   *exc, *peer = self->peer;
    char        text[128];

    if (status == UMX_ERR_MESSAGE_TRUNCATED ||
        status == UMX_ERR_LENGTH_MISMATCH) {
        return make_length_error(self, status, info, capacity);
    }
    describe(self, capacity, text, sizeof(text));
    if (status == UMX_ERR_EXCEEDS_LIMIT && self->kind == REQUEST_SEND_FRAMES) {
        snprintf(text, sizeof(text),
                 "more than Config.frames_max or frames_bytes_max allows");
    }
    if (status == UMX_ERR_CHANNEL_LIMIT) {
        describe_channel(self, text, sizeof(text));
    }
    if (text[0] == '\0') {
        describe_end(self, status, text, sizeof(text));
    }
    if (self->endpoint != NULL && peer == NULL) {
        peer = self->endpoint->peer;
    }
    exc = (status == UMX_ERR_TIMED_OUT && peer != NULL && text[0] == '\0') ?
              make_timeout(self, op, peer) :
              errors_new(self->st, status, op, text[0] != '\0' ? text : NULL);
    if (exc == NULL) {
        return NULL;
    }
    if (peer != NULL && PyObject_SetAttr(exc, NAME(self->st, peer), peer) < 0) {
        Py_CLEAR(exc);
    }
    if (exc != NULL && self->kind == REQUEST_CLOSE &&
        self->endpoint->umx != NULL &&
        set_size_attr(exc, NAME(self->st, unsent_bytes),
                      umx_ep_unsent_bytes(self->endpoint->umx)) < 0) {
        Py_CLEAR(exc);
    }
    return exc;
}

static PyObject *
make_results(RequestObject *self)
{
    many     *all  = self->many;
    PyObject *list = PyList_New(all->count);

    for (Py_ssize_t i = 0; list != NULL && i < all->count; i++) {
        many_item *item   = &all->items[i];
        PyObject  *result = Py_NewRef(Py_None);

        if (item->status != UMX_OK) {
            Py_SETREF(result, make_status_error(self, item->status, &item->info,
                                                item->hold.buf.len));
        }
        if (result == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, i, result);
        }
    }
    return list;
}

/* `exc`, or NULL, with `results`, whose reference it takes over. */
static PyObject *
with_results(RequestObject *self, PyObject *exc, PyObject *results)
{
    if (exc != NULL &&
        PyObject_SetAttr(exc, NAME(self->st, results), results) < 0) {
        Py_CLEAR(exc);
    }
    Py_DECREF(results);
    return exc;
}

static PyObject *
make_many_error(RequestObject *self)
{
    PyObject *results = make_results(self);
    PyObject *exc     = NULL;

    if (results == NULL) {
        return NULL;
    }
    exc = PyObject_CallFunction(self->st->exceptions[EXC_UCXError], "s",
                                "some of the messages failed; see .results");
    return with_results(self, exc, results);
}

/* What became of a message to several endpoints, one for each. */
static PyObject *
make_sent_error(RequestObject *self)
{
    sent     *what    = self->sent;
    PyObject *results = PyList_New((Py_ssize_t)what->count);
    PyObject *exc;

    for (size_t i = 0; results != NULL && i < what->count; i++) {
        umx_status status = (what->statuses[i] == UMX_INPROGRESS) ?
                                self->status :
                                what->statuses[i];
        PyObject  *result = (status == UMX_OK) ? Py_NewRef(Py_None) :
                                                 errors_new(self->st, status,
                                                            op_name(self), NULL);

        if (result == NULL) {
            Py_CLEAR(results);
        } else {
            PyList_SET_ITEM(results, (Py_ssize_t)i, result);
        }
    }
    if (results == NULL) {
        return NULL;
    }
    exc = make_status_error(self, self->status, &self->info, 0);
    return with_results(self, exc, results);
}

static PyObject *
make_error(RequestObject *self)
{
    if (self->many != NULL) {
        return make_many_error(self);
    }
    return (self->sent != NULL) ?
               make_sent_error(self) :
               make_status_error(self, self->status, &self->info,
                                 self->hold.buf.len);
}

/* The collector must see what can be part of a cycle: callbacks, and an
 * exception, whose traceback leads to frames that hold this request. */
void
request_track(RequestObject *self)
{
    if (!PyObject_GC_IsTracked((PyObject *)self)) {
        PyObject_GC_Track(self);
    }
}

/* The exception of a failed request; new reference. */
static PyObject *
request_exception_object(RequestObject *self)
{
    self->is_seen = true;
    request_track(self);
    if (self->exception == NULL) {
        self->exception = make_error(self);
    }
    return Py_XNewRef(self->exception);
}

static PyObject *
make_result(RequestObject *self)
{
    switch (self->kind) {
    case REQUEST_RECV_INTO:
    case REQUEST_MESSAGE_RECV:
    case REQUEST_TAG_RECV_INTO:
    case REQUEST_TAG_MESSAGE_RECV:
    case REQUEST_STREAM_RECV:
        return PyLong_FromSize_t(self->info.length);
    case REQUEST_FETCH:
        return PyLong_FromUnsignedLongLong(self->old);
    case REQUEST_TAG_WAIT:
        return Py_BuildValue("(nK)", (Py_ssize_t)self->info.length,
                             self->info.tag);
    case REQUEST_TAG_RECV_MESSAGE: {
        PyObject *object = tag_message_new(self->worker, self->tag_message);

        if (object != NULL) {
            self->tag_message = NULL;
        }
        return object;
    }
    case REQUEST_RECV_MESSAGE:
    case REQUEST_AM_RECV_MESSAGE: {
        PyObject *object = message_new(self->endpoint, self->message);

        if (object != NULL) {
            self->message = NULL;
        }
        return object;
    }
    case REQUEST_PING:
        return PyFloat_FromDouble((double)self->ns * 1e-9);
    case REQUEST_PEER_INFO: {
        const char *text = umx_ep_peer_info_text(self->endpoint->umx);

        return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    }
    case REQUEST_AM_RECV:
        return am_result(self);
    case REQUEST_RECV_FRAMES:
        return frames_result(self);
    case REQUEST_CONNECT:
        PyErr_SetString(PyExc_RuntimeError, "the endpoint was handed out");
        return NULL;
    default:
        return Py_NewRef(Py_None);
    }
}

/* asyncio's, with the message of cancel(): whoever has cancelled knows by it
 * that the exception is its own, as anyio's scopes do. */
static PyObject *
new_cancelled_error(const RequestObject *self)
{
    PyObject *class   = self->st->cancelled_error;
    PyObject *message = self->cancel_message;

    return (message == NULL || message == Py_None) ?
               PyObject_CallNoArgs(class) :
               PyObject_CallOneArg(class, message);
}

/* Returns NULL. */
static PyObject *
raise_cancelled(const RequestObject *self)
{
    PyObject *exc = new_cancelled_error(self);

    if (exc != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(exc), exc);
        Py_DECREF(exc);
    }
    return NULL;
}

/* The value of a settled request as a new reference, or its exception. */
static PyObject *
request_value(RequestObject *self)
{
    if (UNLIKELY(self->state == REQUEST_CANCELLED)) {
        return raise_cancelled(self);
    }
    if (LIKELY(self->status == UMX_OK)) {
        if (self->result != NULL) {
            return Py_NewRef(self->result);
        }
        if (LIKELY(self->kind <= REQUEST_RECV)) {
            return Py_NewRef(Py_None);
        }
        if (self->is_making) { /* code of an allocator, or the collector */
            PyErr_SetString(PyExc_RuntimeError, "the result is being made");
            return NULL;
        }
        self->is_making = true;
        self->result    = make_result(self);
        self->is_making = false;
        if (self->result != NULL && PyObject_IS_GC(self->result)) {
            request_track(self);
        }
        return Py_XNewRef(self->result);
    }
    {
        PyObject *exc = request_exception_object(self);

        if (exc != NULL) {
            PyErr_SetObject((PyObject *)Py_TYPE(exc), exc);
            Py_DECREF(exc);
        }
        return NULL;
    }
}

static void
mark_handed_out(RequestObject *self)
{
    self->is_handed_out = true;
    if (self->can_unrecv) {
        self->can_unrecv = false;
        release_buffers(self);
        if (self->kind == REQUEST_RECV_FRAMES) {
            umx_message *message = self->message;

            self->message = NULL;
            message_drop(self->worker, message);
        }
    }
}

void
request_keep_unseen(RequestObject *req)
{
    req->is_handed_out = false;
    req->can_unrecv    = (req->message == NULL);
}

static PySendResult
hand_out(RequestObject *self, PyObject **out)
{
    mark_handed_out(self);
    if (UNLIKELY(self->many != NULL) && self->status == UMX_OK) {
        release_many(self);
    }
    *out = request_value(self);
    if (self->kind == REQUEST_CONNECT) {
        Py_CLEAR(self->result); /* dropping the endpoint closes it: at once */
    }
    return (*out == NULL) ? PYGEN_ERROR : PYGEN_RETURN;
}

PyObject *
request_take(RequestObject *self, PyObject **exc_p)
{
    PyObject *value = NULL;

    *exc_p = NULL;
    if (self->status != UMX_OK) {
        mark_handed_out(self);
        *exc_p = request_exception_object(self);
    } else if (hand_out(self, &value) == PYGEN_ERROR) {
        *exc_p = PyErr_GetRaisedException();
    }
    return value;
}

/* ---- giving up -----------------------------------------------------------
 */

static void
unrecv_items(RequestObject *self)
{
    many *all = self->many;

    for (Py_ssize_t i = 0; i < all->count; i++) {
        many_item *item = &all->items[i];

        if (item->op == NULL && request_has_bytes(item->status)) {
            item->status = UMX_ERR_CANCELED;
            (void)!umx_channel_unrecv(self->endpoint->umx, self->channel,
                                      &item->info, &item->hold.buf);
        }
    }
}

static bool
has_received_item(const many *all)
{
    for (Py_ssize_t i = 0; i < all->count; i++) {
        if (all->items[i].op == NULL &&
            request_has_bytes(all->items[i].status)) {
            return true;
        }
    }
    return false;
}

/* Nobody will take the result: messages go back to their queue, and of a
 * failure nobody needs to hear, as who waited for it has another reason to end.
 */
static void
undo_result(RequestObject *self)
{
    WorkerObject *worker = self->worker;

    self->is_seen = true;
    if (self->is_handed_out || self->is_making || worker->umx == NULL ||
        !worker_is_mine(worker)) {
        return;
    }
    if (self->can_unrecv) {
        self->can_unrecv = false;
        if (request_is_tag_recv(self)) {
            (void)!umx_tag_unrecv(worker->umx, &self->info, &self->hold.buf);
        } else {
            unrecv(self);
        }
        release_buffers(self);
    }
    request_return_message(self);
    if (self->kind == REQUEST_RECV_MANY && self->many != NULL &&
        self->endpoint->umx != NULL) {
        unrecv_items(self);
    }
    if (is_recv(self) && request_has_bytes(self->status)) {
        self->state = REQUEST_CANCELLED; /* it has nothing to give any more */
    }
    worker_after_call(worker);
    worker_schedule_drain(worker); /* another receive may have got it */
}

static void
cancel_operation(RequestObject *self)
{
    if (self->is_deferred) {
        release_buffers(self);
        release_many(self);
        return;
    }
    if (self->worker->umx == NULL || !worker_is_mine(self->worker)) {
        return; /* it completes by itself; the buffer stays held */
    }
    if (self->ep != NULL) {
        umx_ep *ep = self->ep;

        self->ep = NULL;
        event_watch_endpoint(ep, NULL);
        umx_ep_destroy(ep);
    } else if (self->op != NULL) {
        umx_request_cancel(self->op);
    } else if (self->many != NULL) {
        for (Py_ssize_t i = 0; i < self->many->count; i++) {
            if (self->many->items[i].op != NULL) {
                umx_request_cancel(self->many->items[i].op);
            }
        }
        if (self->kind == REQUEST_RECV_MANY) {
            unrecv_items(self); /* no item of its own waits for them now */
        }
    }
    if (self->op == NULL) {
        request_return_message(self); /* of what has a second step */
    }
    worker_schedule_drain(self->worker);
}

/* False if there was nothing to cancel. */
static bool
request_abandon(RequestObject *self)
{
    if (self->state != REQUEST_PENDING) {
        return false;
    }
    if (self->low_level != NULL) {
        cancel_operation(self); /* its callback tells when the buffer is free */
        return true;
    }
    self->state      = REQUEST_CANCELLED;
    self->is_settled = true;
    Py_INCREF(self);
    cancel_operation(self);
    self->is_deferred = false;
    if (has_callbacks(self)) {
        request_hold(self);
    }
    request_link_wake(self);
    worker_after_call(self->worker);
    Py_DECREF(self);
    return true;
}

/* Has it received anything that nobody has been handed? */
static bool
has_unseen_message(const RequestObject *self)
{
    if (self->state != REQUEST_DONE || self->is_handed_out || self->is_making ||
        self->low_level != NULL) {
        return false;
    }
    if (self->can_unrecv || self->message != NULL ||
        self->tag_message != NULL) {
        return true;
    }
    return self->kind == REQUEST_RECV_MANY && self->many != NULL &&
           has_received_item(self->many);
}

/* The message of a receive that is complete returns to its queue. False if it
 * was handed out, or there is none. */
static bool
give_message_back(RequestObject *self)
{
    if (!has_unseen_message(self) || self->worker->umx == NULL ||
        !worker_is_mine(self->worker)) {
        return false;
    }
    Py_INCREF(self);
    self->state = REQUEST_CANCELLED;
    undo_result(self);
    Py_DECREF(self);
    return true;
}

/* ---- awaiting ------------------------------------------------------------
 */

/* The running loop, or None. */
static PyObject *
running_loop(void)
{
    PyObject *module = PyImport_ImportModule("asyncio.events");
    PyObject *loop   = NULL;

    if (module != NULL) {
        loop = PyObject_CallMethod(module, "_get_running_loop", NULL);
        Py_DECREF(module);
    }
    return loop;
}

static NOINLINE PySendResult
refuse_foreign_thread(RequestObject *self)
{
    WorkerObject *worker = self->worker;
    PyObject     *loop;

    self->is_refused = true;
    if (worker_is_forked(worker)) {
        (void)errors_raise(self->st, UMX_ERR_FORKED, kind_names[self->kind],
                           NULL);
        return PYGEN_ERROR;
    }
    loop = running_loop();
    if (loop != NULL) {
        PyErr_Format(PyExc_RuntimeError,
                     "%R of the loop %R is awaited in another thread, in the "
                     "loop %R",
                     self, worker->loop != NULL ? worker->loop : Py_None, loop);
        Py_DECREF(loop);
    }
    return PYGEN_ERROR;
}

/* Poll, then drain and arm. UMX_INPROGRESS: not settled by that. */
static umx_status
wait_inline(RequestObject *self)
{
    WorkerObject *worker = self->worker;
    umx_status    status = UMX_INPROGRESS;

    while (worker->umx != NULL &&
           umx_worker_spin(worker->umx, &self->is_told)) {
        worker_after_call(worker);
        if (self->is_settled || self->is_told) {
            break; /* done, or the program is asked for memory */
        }
    }
    if (!self->is_settled && worker->umx != NULL) {
        status = umx_worker_drain(worker->umx);
        worker_after_call(worker);
    }
    if (self->is_settled || status < 0) {
        return status < 0 ? status : UMX_OK;
    }
    if (status != UMX_OK) {
        worker_schedule_drain(worker);
    }
    worker_update_timer(worker);
    return UMX_INPROGRESS;
}

/* Has the loop been kept waiting for too long? */
static inline bool
loop_is_due(const WorkerObject *worker)
{
    return worker->loop != NULL && worker_turn_is_over(worker);
}

static NOINLINE PySendResult
let_loop(RequestObject *self, PyObject **out)
{
    WorkerObject *worker = self->worker;

    self->has_let_loop  = true;
    worker->is_turn_due = true;
    worker_schedule_drain(worker); /* before the task: it begins the turn */
    *out = Py_NewRef(Py_None);
    return PYGEN_NEXT;
}

static PySendResult
yield_itself(RequestObject *self, PyObject **out)
{
    if (self->worker->loop == NULL) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this worker has no event loop: a pending Request "
                        "cannot be awaited");
        return PYGEN_ERROR;
    }
    request_track(self);
    self->has_yielded = true;
    self->is_blocking = true;
    *out              = Py_NewRef(self);
    return PYGEN_NEXT;
}

/* The await ends with the exception that is set. */
static NOINLINE PySendResult
end_await(RequestObject *self)
{
    PyObject *exc = PyErr_GetRaisedException();

    if (!request_abandon(self)) {
        undo_result(self);
    }
    PyErr_SetRaisedException(exc);
    return PYGEN_ERROR;
}

/* In its own loop: it was made in another thread. */
static NOINLINE void
start(RequestObject *self)
{
    self->is_deferred = false;
    post_now(self);
}

static NOINLINE PySendResult
step_pending(RequestObject *self, PyObject **out)
{
    WorkerObject *worker = self->worker;
    umx_status    status = UMX_INPROGRESS;

    if (!worker_is_mine(worker)) {
        return refuse_foreign_thread(self);
    }
    if (self->is_deferred) {
        start(self);
    }
    if (!self->is_settled && !self->has_yielded) {
        if (!self->has_let_loop && loop_is_due(worker)) {
            return let_loop(self, out);
        }
        status = wait_inline(self);
    }
    if (status < 0) {
        (void)errors_raise(self->st, status, kind_names[self->kind], NULL);
        return end_await(self);
    }
    if (worker_raise_kept(worker) < 0) {
        return end_await(self);
    }
    if (!self->is_settled) {
        return yield_itself(self, out);
    }
    if (!self->has_let_loop && loop_is_due(worker)) {
        return let_loop(self, out);
    }
    worker_drain_if_due(worker);
    return hand_out(self, out);
}

static inline PySendResult
request_step(RequestObject *self, PyObject **out)
{
    WorkerObject *worker = self->worker;

    if (UNLIKELY(!self->is_settled)) {
        return step_pending(self, out);
    }
    worker->inline_count += 1 + self->info.length / INLINE_BYTES;
    if (UNLIKELY(worker->inline_count >= INLINE_PER_CLOCK)) {
        worker->inline_count = 0;
        if (loop_is_due(worker) && !self->has_yielded && !self->has_let_loop) {
            return let_loop(self, out);
        }
    }
    return hand_out(self, out);
}

static PySendResult
request_am_send(PyObject *op, PyObject *value, PyObject **out)
{
    (void)value;
    return request_step((RequestObject *)op, out);
}

static PyObject *
request_await(PyObject *op)
{
    return Py_NewRef(op);
}

/* A cached StopIteration while nobody else has it: to build one costs more than
 * the rest of the await. NULL with an exception. */
static PyObject *
cached_stop_iteration(mod_state *st)
{
    if (st->stop_iteration == NULL || Py_REFCNT(st->stop_iteration) != 1) {
        Py_XSETREF(st->stop_iteration,
                   PyObject_CallNoArgs(PyExc_StopIteration));
    }
    return Py_XNewRef(st->stop_iteration);
}

/* StopIteration(value). The cached one lives on with its value, so it is for
 * numbers only: another object would stay alive until the next await. */
static void
set_stop_iteration(mod_state *st, PyObject *value)
{
    PyObject *stop;

    if (!PyLong_CheckExact(value)) {
        stop = PyObject_CallNoArgs(PyExc_StopIteration);
    } else {
        stop = cached_stop_iteration(st);
    }
    if (stop != NULL) {
        Py_XSETREF(((PyStopIterationObject *)stop)->value, Py_NewRef(value));
        PyErr_SetRaisedException(stop);
    }
}

static PyObject *
request_iternext(PyObject *op)
{
    PyObject *out;

    switch (request_step((RequestObject *)op, &out)) {
    case PYGEN_NEXT:
        return out;
    case PYGEN_RETURN:
        if (out != Py_None) {
            set_stop_iteration(((RequestObject *)op)->st, out);
        }
        Py_DECREF(out);
        break;
    case PYGEN_ERROR:
        break;
    }
    return NULL;
}

PyDoc_STRVAR(send_doc, "send($self, value, /)\n--\n\n"
                       "One step of the awaitable, as a coroutine's.");

static PyObject *
request_send(PyObject *op, PyObject *value)
{
    PyObject *out;

    (void)value;
    switch (request_step((RequestObject *)op, &out)) {
    case PYGEN_NEXT:
        return out;
    case PYGEN_RETURN:
        set_stop_iteration(((RequestObject *)op)->st, out);
        Py_DECREF(out);
        break;
    case PYGEN_ERROR:
        break;
    }
    return NULL;
}

/* Raise what throw() was given. */
static void
raise_thrown(PyObject *type, PyObject *value, PyObject *traceback)
{
    if (PyExceptionInstance_Check(type)) {
        PyErr_SetObject((PyObject *)Py_TYPE(type), type);
    } else if (PyExceptionClass_Check(type)) {
        PyErr_Restore(Py_NewRef(type),
                      value == Py_None ? NULL : Py_XNewRef(value),
                      traceback == Py_None ? NULL : Py_XNewRef(traceback));
    } else {
        PyErr_SetString(PyExc_TypeError,
                        "exceptions must be classes or instances deriving "
                        "from BaseException");
    }
}

PyDoc_STRVAR(throw_doc,
             "throw($self, type, value=None, traceback=None, /)\n--\n\n"
             "End the awaitable with an exception. The operation goes on; a\n"
             "message received but not handed out returns to its queue.");

static PyObject *
request_throw(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    RequestObject *self = (RequestObject *)op;

    if (nargs < 1 || nargs > 3) {
        PyErr_Format(PyExc_TypeError,
                     "throw() takes 1 to 3 arguments but %zd were given",
                     nargs);
        return NULL;
    }
    /* A task's wake-up takes our exception from result() and throws it in. */
    if (self->exception != NULL && args[0] == self->exception) {
        mark_handed_out(self);
    } else if (!request_abandon(self)) {
        undo_result(self);
    }
    raise_thrown(args[0], nargs > 1 ? args[1] : NULL,
                 nargs > 2 ? args[2] : NULL);
    return NULL;
}

PyDoc_STRVAR(close_doc, "close($self, /)\n--\n\n"
                        "End the awaitable, as a coroutine's close().");

static PyObject *
request_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RequestObject *self = (RequestObject *)op;

    Py_CLEAR(self->low_level);
    let_go(self);
    if (!request_abandon(self)) {
        undo_result(self);
    }
    Py_RETURN_NONE;
}

/* ---- the future protocol -------------------------------------------------
 */

/* Settled, and its callback, if ucp._libs gave it one, has been called: who
 * loops until then makes the calls of progress() that this takes. */
static bool
is_reported(const RequestObject *self)
{
    return self->is_settled && self->low_level == NULL;
}

PyDoc_STRVAR(done_doc, "done($self, /)\n--\n\nTrue if settled.");

static PyObject *
request_done(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(is_reported((RequestObject *)op));
}

PyDoc_STRVAR(cancelled_doc,
             "cancelled($self, /)\n--\n\nTrue if cancel() ended it.");

static PyObject *
request_cancelled(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(((RequestObject *)op)->state == REQUEST_CANCELLED);
}

PyDoc_STRVAR(cancel_doc,
             "cancel($self, msg=None)\n--\n\n"
             "End the awaitable at once; False if it is done. The operation\n"
             "lives on until UCX is done with the buffer. A send that was not\n"
             "posted is withdrawn; a receive loses no message: one that is\n"
             "complete, but whose result nobody has been given, returns its\n"
             "message to the queue, and this is True. Who awaits it gets\n"
             "CancelledError, with `msg` if there is one.");

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
    if (!request_abandon(self) && !give_message_back(self)) {
        Py_RETURN_FALSE;
    }
    if (msg != NULL) {
        request_track(self);
        Py_XSETREF(self->cancel_message, Py_NewRef(msg));
    }
    Py_RETURN_TRUE;
}

static int
check_settled(RequestObject *self)
{
    if (!self->is_settled) {
        PyErr_SetString(self->st->invalid_state_error, "Result is not set.");
        return -1;
    }
    return 0;
}

/* Handed out: it is not given back to a queue any more. */
static PyObject *
take_result(RequestObject *self)
{
    PyObject *value = NULL;

    if (self->state == REQUEST_CANCELLED || self->status != UMX_OK) {
        return request_value(self);
    }
    (void)hand_out(self, &value);
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
    return self->message == NULL && self->tag_message == NULL;
}

PyDoc_STRVAR(result_doc, "result($self, /)\n--\n\nThe result, or raises.");

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
             "exception($self, /)\n--\n\nThe exception, or None.");

static PyObject *
request_exception(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RequestObject *self = (RequestObject *)op;

    if (check_settled(self) < 0) {
        return NULL;
    }
    if (self->state == REQUEST_CANCELLED) {
        return raise_cancelled(self);
    }
    if (!is_task_due(self)) {
        mark_handed_out(self);
    }
    if (self->status == UMX_OK) {
        Py_RETURN_NONE;
    }
    return request_exception_object(self);
}

static int
add_more_callbacks(RequestObject *self, PyObject *callback, PyObject *context)
{
    PyObject *pair;
    int       rc;

    if (self->more_callbacks == NULL) {
        self->more_callbacks = PyList_New(0);
        if (self->more_callbacks == NULL) {
            return -1;
        }
    }
    pair = PyTuple_Pack(2, callback, context != NULL ? context : Py_None);
    if (pair == NULL) {
        return -1;
    }
    rc = PyList_Append(self->more_callbacks, pair);
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

/* As asyncio's futures keep it: the current context, if none is given. */
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

/* The loop calls what is added to a request that is over; its worker may be
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
    handle = PyObject_VectorcallMethod(
        NAME(self->st, call_soon), args, 3,
        context != NULL ? self->st->context_kwname : NULL);
    Py_XDECREF(handle);
    return (handle == NULL) ? -1 : 0;
}

/* Callbacks run in the worker's loop, where a request of another thread starts.
 * -1 with an exception. */
static int
check_loop(RequestObject *self)
{
    if (UNLIKELY(self->worker->loop == NULL)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this worker has no event loop to call callbacks");
        return -1;
    }
    if (UNLIKELY(self->is_deferred)) {
        if (!worker_is_mine(self->worker)) {
            (void)refuse_foreign_thread(self);
            return -1;
        }
        start(self);
        drain_soon(self);
    }
    return 0;
}

PyDoc_STRVAR(add_done_callback_doc,
             "add_done_callback($self, fn, /, *, context=None)\n--\n\n"
             "Have the loop call fn(request) once it is settled.");

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
    if (check_loop(self) < 0) {
        return NULL;
    }
    context = (values[1] == Py_None) ? NULL : values[1];
    count_callback(self);
    rc = self->is_settled ? call_at_once(self, values[0], context) :
                            add_callback(self, values[0], context);
    if (rc < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(remove_done_callback_doc,
             "remove_done_callback($self, fn, /)\n--\n\n"
             "Remove all instances of fn; returns how many.");

/* Comparing it may have run code that has added or removed callbacks. */
static bool
is_callback_at(const RequestObject *self, Py_ssize_t i, const PyObject *pair)
{
    return self->more_callbacks != NULL &&
           i < PyList_GET_SIZE(self->more_callbacks) &&
           PyList_GET_ITEM(self->more_callbacks, i) == pair;
}

static PyObject *
request_remove_done_callback(PyObject *op, PyObject *fn)
{
    RequestObject *self    = (RequestObject *)op;
    Py_ssize_t     removed = 0;
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
    for (Py_ssize_t i = 0; self->more_callbacks != NULL &&
                           i < PyList_GET_SIZE(self->more_callbacks);) {
        PyObject *pair = Py_NewRef(PyList_GET_ITEM(self->more_callbacks, i));

        equal = PyObject_RichCompareBool(PyTuple_GET_ITEM(pair, 0), fn, Py_EQ);
        Py_DECREF(pair);
        if (equal < 0) {
            return NULL;
        }
        if (!equal || !is_callback_at(self, i, pair)) {
            i++;
        } else if (PySequence_DelItem(self->more_callbacks, i) < 0) {
            return NULL;
        } else {
            removed++;
        }
    }
    if (self->more_callbacks != NULL &&
        PyList_GET_SIZE(self->more_callbacks) == 0) {
        Py_CLEAR(self->more_callbacks);
    }
    let_go(self);
    return PyLong_FromSsize_t(removed);
}

PyDoc_STRVAR(get_loop_doc, "get_loop($self, /)\n--\n\n"
                           "The event loop of the worker, or None.");

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
    return new_cancelled_error((RequestObject *)op);
}

/* True from a yield until the task has taken what it was given. */
static PyObject *
get_blocking(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((RequestObject *)op)->is_blocking);
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
    PyObject *message = ((RequestObject *)op)->cancel_message;

    return Py_NewRef(message != NULL ? message : Py_None);
}

static int
set_cancel_message(PyObject *op, PyObject *value, void *Py_UNUSED(closure))
{
    if (value == NULL) {
        PyErr_SetString(PyExc_AttributeError, "cannot delete attribute");
        return -1;
    }
    request_track((RequestObject *)op);
    Py_XSETREF(((RequestObject *)op)->cancel_message, Py_NewRef(value));
    return 0;
}

static PyObject *
request_repr(PyObject *op)
{
    RequestObject *self = (RequestObject *)op;
    const char    *state;
    char           bytes[32] = "";

    if (self->hold.owner != NULL || self->hold.view.obj != NULL) {
        snprintf(bytes, sizeof(bytes), " of %zu bytes", self->hold.buf.len);
    }
    if (self->state == REQUEST_CANCELLED) {
        state = "cancelled";
    } else if (!self->is_settled) {
        state = "pending";
    } else {
        state = (self->status == UMX_OK) ? "done" :
                                           umx_status_string(self->status);
    }
    if (self->endpoint == NULL) {
        return PyUnicode_FromFormat("<ucp.Request %s%s, %s>",
                                    kind_names[self->kind], bytes, state);
    }
    return PyUnicode_FromFormat("<ucp.Request %s%s on %R, %s>",
                                kind_names[self->kind], bytes,
                                (PyObject *)self->endpoint, state);
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
                         op_name(self));
}

static PyObject *
get_handle(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromVoidPtr(((RequestObject *)op)->op);
}

/* For loop.call_later() of close_all(). */
static PyObject *
request_expire(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RequestObject *self = (RequestObject *)op;

    if (!self->is_settled) {
        request_settle(self, UMX_OK);
        worker_after_call(self->worker);
    }
    Py_RETURN_NONE;
}

#define KEYWORDS (METH_FASTCALL | METH_KEYWORDS)
#define KEYWORDS_FUNC(f) ((PyCFunction)(void (*)(void))(f))

static PyMethodDef request_methods[] = {
    {"send", request_send, METH_O, send_doc},
    {"throw", KEYWORDS_FUNC(request_throw), METH_FASTCALL, throw_doc},
    {"close", request_close, METH_NOARGS, close_doc},
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
    {"_expire", request_expire, METH_NOARGS, NULL},
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
             "One operation of an endpoint; awaitable.\n\n"
             "It has started when it is made. Cancelling ends the await, not\n"
             "the operation; the buffer is held until UCX is done with it.");

static PyType_Slot request_slots[] = {
    {Py_tp_doc, (void *)request_doc},
    {Py_tp_dealloc, request_dealloc},
    {Py_tp_traverse, request_traverse},
    {Py_tp_clear, request_clear},
    {Py_tp_repr, request_repr},
    {Py_am_await, request_await},
    {Py_am_send, request_am_send},
    {Py_tp_iter, request_await},
    {Py_tp_iternext, request_iternext},
    {Py_tp_methods, request_methods},
    {Py_tp_getset, request_getset},
    {Py_tp_members, request_members},
    {0, NULL},
};

PyType_Spec request_spec = {
    .name      = "ucp._ext.Request",
    .basicsize = sizeof(RequestObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = request_slots,
};
