/* SPDX-License-Identifier: BSD-3-Clause */
/* life.c: the awaitable of one operation.
 *
 * It is a future to asyncio.isfuture(), so gather, as_completed, wait_for,
 * shield and ensure_future add their callbacks to it and make no task of it.
 * Until somebody asks that, it has __await__, send, throw and close, so
 * create_task, TaskGroup and run_coroutine_threadsafe take it as a coroutine:
 * kind.c. A task that awaits a pending request is given the request itself,
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
 * the awaitable at once, and libumx gives the buffer back in the call; what is
 * left of the operation goes on in libumx. Where libumx cannot give the buffer
 * back, the awaitable ends when the operation does: it is REQUEST_CANCELLING
 * until then. close(), and throw() of anything but CancelledError, cannot wait:
 * where no copy helps, the connection ends.
 *
 * libumx has no
 * reference to the awaitable: one that the program drops is deallocated, which
 * withdraws a receive, and what the operation needs of it, buffer and endpoint,
 * stays as its record until libumx is done with that. A receive whose message
 * has come but was not handed out gives it back to the queue. A request with
 * callbacks is held until they have run.
 *
 * Where completions go: event.h. The callbacks of a request run directly if the
 * event loop has called us, since no task is running then, else by
 * call_soon(). */
#include "request/internal.h"

#include "object/endpoint.h"
#include "object/message.h"
#include "object/unseen.h"
#include "request/event.h"
#include "worker/worker.h"

/* ---- life ----------------------------------------------------------------
 */

static NOINLINE RequestObject *
request_alloc(mod_state *st)
{
    RequestObject *req = PyObject_GC_New(RequestObject, st->request_type);

    if (req != NULL) {
        memset((char *)req + offsetof(RequestObject, worker), 0,
               sizeof(*req) - offsetof(RequestObject, worker));
        req->event.type = &request_event;
    }
    return req;
}

/* What is false or 0 in a new request; a few stores clear it. */
enum {
    FLAGS_BEGIN = offsetof(RequestObject, is_told),
    FLAGS_END   = offsetof(RequestObject, status)
};

/* Not tracked by the collector before it is part of something: a request that
 * is done at once never is. */
RequestObject *
request_new(WorkerObject *worker, EndpointObject *endpoint, const op_type *type)
{
    mod_state     *st  = worker->st;
    RequestObject *req = st->free_requests;

    if (LIKELY(req != NULL)) {
        st->free_requests = req->next;
        st->num_free_requests--;
        compat_revive((PyObject *)req);
    } else {
        req = request_alloc(st);
        if (req == NULL) {
            return NULL;
        }
    }
    st->num_requests++;
    req->worker   = (WorkerObject *)Py_NewRef(worker);
    req->endpoint = (EndpointObject *)Py_XNewRef(endpoint);
    req->type     = type;
    req->status   = UMX_INPROGRESS;
    memset((char *)req + FLAGS_BEGIN, 0, FLAGS_END - FLAGS_BEGIN);
    req->state       = REQUEST_PENDING;
    req->info.length = 0;
    memset(req->tail, 0, sizeof(req->tail));
    return req;
}

void
request_forget(RequestObject *req)
{
    if (req->type->forget != NULL) {
        req->type->forget(req);
    }
}

request_rare *
request_get_rare(RequestObject *self)
{
    if (self->rare == NULL) {
        self->rare = block_get(self->worker->st);
        if (self->rare != NULL) {
            *self->rare = (request_rare){NULL};
        }
    }
    return self->rare;
}

int
request_set_function(RequestObject *req, PyObject *function)
{
    request_rare *rare = request_get_rare(req);

    if (rare == NULL) {
        return -1;
    }
    Py_XSETREF(rare->function, Py_NewRef(function));
    request_track(req);
    return 0;
}

int
request_set_stream(RequestObject *req, const buffer_stream *after)
{
    request_rare *rare = request_get_rare(req);

    if (rare == NULL) {
        return -1;
    }
    rare->after = *after;
    return 0;
}

umx_op_params
request_params_after(const RequestObject *req, const umx_op_params *params)
{
    umx_op_params after = *params;

    if (req->rare->after.handle != 0) {
        after.field_mask |= UMX_OP_FIELD_STREAM;
        after.stream = req->rare->after.handle;
        after.device = req->rare->after.device;
    }
    return after;
}

PyObject *
request_function(const RequestObject *req)
{
    return (req->rare != NULL) ? req->rare->function : NULL;
}

static int
visit_rare(const request_rare *rare, visitproc visit, void *arg)
{
    Py_VISIT(rare->exception);
    Py_VISIT(rare->cancel_message);
    Py_VISIT(rare->more_callbacks);
    Py_VISIT(rare->low_level);
    Py_VISIT(rare->function);
    return 0;
}

/* Until the operation is over its record is somebody else's, who is not seen
 * from here. */
int
request_traverse(PyObject *op, visitproc visit, void *arg)
{
    RequestObject *self = (RequestObject *)op;
    int            rc   = 0;

    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->worker);
    Py_VISIT(self->endpoint);
    Py_VISIT(self->result);
    Py_VISIT(self->callback);
    Py_VISIT(self->context);
    if (self->rare != NULL) {
        rc = visit_rare(self->rare, visit, arg);
    }
    if (rc == 0 && self->type->traverse != NULL) {
        rc = self->type->traverse(self, visit, arg);
    }
    return (rc != 0) ? rc : request_visit_lent(self, &self->hold, visit, arg);
}

static void
clear_callbacks(RequestObject *self)
{
    Py_CLEAR(self->callback);
    Py_CLEAR(self->context);
}

static void
clear_rare(RequestObject *self)
{
    request_rare *rare = self->rare;

    if (rare == NULL) {
        return;
    }
    self->rare = NULL; /* code of the program's may run in this */
    Py_XDECREF(rare->exception);
    Py_XDECREF(rare->cancel_message);
    Py_XDECREF(rare->thread);
    Py_XDECREF(rare->more_callbacks);
    Py_XDECREF(rare->low_level);
    Py_XDECREF(rare->function);
    block_put(self->worker->st, rare);
}

/* Release what the operation keeps in the tail. */
static inline void
clear_tail(RequestObject *self)
{
    if (self->type->clear != NULL) {
        self->type->clear(self);
    }
}

void
request_return_message(RequestObject *self)
{
    umx_message *message = self->message;

    if (message == NULL) {
        return;
    }
    if (self->type->return_message != NULL) {
        self->type->return_message(self);
    } else {
        self->message = NULL;
        message_give_back(self->worker, message);
    }
}

/* Release what the request has, but for its tail: results and errors are made
 * of that, and the program may still ask for them when the collector has
 * cleared this request before another one, whose failure it is told of. Of the
 * cycles that the tail is in others break each. Memory that libumx has, or that
 * a message is to be put back from, stays. */
static void
clear_all(RequestObject *self)
{
    clear_callbacks(self);
    clear_rare(self);
    if (request_is_in_flight(self) ||
        (self->can_unrecv && request_is_a(self, OP_OWN))) {
        return;
    }
    self->can_unrecv = false;
    Py_CLEAR(self->result);
    request_release_buffers(self);
    request_forget(self);
}

/* Return the bytes received to their queue. Without memory they are lost, which
 * ends the endpoint: the next receive must not get the message behind them. */
void
request_unrecv(RequestObject *self)
{
    if (self->type->unrecv(self) == UMX_ERR_NO_MEMORY &&
        self->endpoint != NULL && self->endpoint->umx != NULL) {
        umx_ep_abort(self->endpoint->umx);
    }
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

/* ---- what the program has dropped ----------------------------------------
 */

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
    PyObject   *name   = (self->rare != NULL) ? self->rare->thread : NULL;
    const char *thread = (name != NULL) ? PyUnicode_AsUTF8(name) : NULL;
    char        text[320];

    PyErr_Clear();
    PyOS_snprintf(
        text, sizeof(text),
        "ucp: %s() was called in the thread %.100s, which is not that "
        "of its event loop, and never started: use "
        "worker.submit(ep.%s, ...), or await it in its loop",
        self->type->name, thread != NULL ? thread : "?", self->type->name);
    warn(text);
}

static void
warn_withdrawn(const RequestObject *self)
{
    char text[160];

    PyOS_snprintf(text, sizeof(text),
                  "ucp: the Request of %s() was dropped while it waited; it is "
                  "withdrawn. Keep or await it",
                  self->type->name);
    warn(text);
}

/* Is there a failure that nobody has asked for? What the program itself has
 * ended is no failure, and neither is the end of a connection for a receive. */
static bool
has_unseen_failure(const RequestObject *self)
{
    if (self->state != REQUEST_DONE || self->status == UMX_OK ||
        self->is_seen || self->status == UMX_ERR_CANCELED ||
        self->status == UMX_ERR_FORKED) {
        return false;
    }
    if (request_is_a(self, OP_END)) {
        return false; /* it is closed, whatever happened */
    }
    if (request_is_a(self, OP_PART) && (self->status == UMX_ERR_CLOSED ||
                                        self->status == UMX_ERR_RANK_FAILED)) {
        return false;
    }
    return request_is_a(self, OP_SEND) || self->status != UMX_ERR_PEER_CLOSED;
}

/* Report a failure that nobody has asked for, as asyncio does for futures. */
static NOINLINE void
report_unseen(RequestObject *self)
{
    PyObject *exc = (self->rare != NULL && self->rare->exception != NULL) ?
                        Py_NewRef(self->rare->exception) :
                        request_error(self);
    char      text[96];

    if (exc == NULL) {
        PyErr_WriteUnraisable(NULL);
        return;
    }
    if (self->endpoint != NULL &&
        endpoint_has_ended_by(self->endpoint, self->status) &&
        endpoint_keep_unseen(self->endpoint, exc, request_op_name(self))) {
        Py_DECREF(exc);
        return;
    }
    PyErr_SetRaisedException(exc);
    PyOS_snprintf(text, sizeof(text),
                  "the exception of a ucp %s() was never retrieved",
                  request_op_name(self));
    worker_report_exception(self->worker, text);
}

/* Break cycles. A failure that nobody will ask for is reported first: its
 * exception is made of what goes here. */
int
request_clear(PyObject *op)
{
    RequestObject *self = (RequestObject *)op;

    if (has_unseen_failure(self) && !compat_is_finalizing()) {
        self->is_seen = true;
        report_unseen(self);
    }
    clear_all(self);
    return 0;
}

/* Could the receive have got a message that now goes to another receive? */
static bool
could_receive(const RequestObject *self)
{
    return self->worker->umx != NULL && !compat_is_finalizing() &&
           (self->worker->loop == NULL ||
            !worker_loop_is_closed(self->worker)) &&
           (self->endpoint == NULL || !endpoint_is_closed(self->endpoint));
}

/* End an operation whose result nobody can get any more. */
static void
withdraw(RequestObject *self)
{
    request_set_state(self, REQUEST_CANCELLED);
    if (worker_is_mine(self->worker)) {
        request_cancel_at_once(self);
    } else {
        self->is_withdrawn = true; /* request_settle_told() does it */
        Py_INCREF(self);
        if (!event_submit_request(self->worker, self)) {
            self->is_withdrawn = false;
            Py_DECREF(self);
        }
    }
}

static void
withdraw_receive(RequestObject *self)
{
    bool is_loss = could_receive(self);

    withdraw(self);
    if (is_loss) {
        warn_withdrawn(self);
    }
}

void
request_return_unseen(RequestObject *self)
{
    WorkerObject *worker = self->worker;

    if (!request_is_a(self, OP_OWN) || worker->umx == NULL ||
        worker_is_forked(worker)) {
        self->can_unrecv = false;
    } else if (worker_is_mine(worker)) {
        self->can_unrecv = false;
        request_unrecv(self);
        worker_drain_if_due(worker); /* somebody may wait for it */
    } else {
        self->can_unrecv   = false;
        self->is_returning = true; /* request_settle_told() does it */
        Py_INCREF(self);
        if (!event_submit_request(worker, self)) {
            self->is_returning = false;
            Py_DECREF(self);
        }
    }
}

/* Does a receive wait for a message? One that failed for wrong arguments does
 * not. */
static bool
is_waiting_receive(const RequestObject *self)
{
    return !request_is_settled(self) && !worker_is_forked(self->worker) &&
           (request_is_in_flight(self) || self->message != NULL) &&
           request_is_a(self, OP_RECV | OP_CONNECT);
}

/* Has the program met an error when it had posted some of the operations? */
static bool
is_half_posted(const RequestObject *self)
{
    return !request_is_settled(self) && request_is_in_flight(self) &&
           !worker_is_forked(self->worker) && self->type->is_open != NULL &&
           self->type->is_open(self);
}

/* Do what is left when the program has dropped the request: settle it, withdraw
 * a receive, report a failure. True: `self` lives on. */
static NOINLINE bool
outlive(RequestObject *self)
{
    PyObject *exc = PyErr_GetRaisedException();

    compat_revive((PyObject *)self); /* ours: the program runs in this */
    event_unlink(&self->event);
    if (request_is_settled(self)) {
        request_settle_told(self); /* of callbacks there are none */
    }
    if (request_is_in_flight(self) && !self->is_orphan) {
        self->is_orphan = true;
        Py_INCREF(self);
    }
    if (self->state == REQUEST_DEFERRED) {
        request_set_state(self, REQUEST_CANCELLED);
        if (!self->is_refused) {
            warn_not_started(self);
        }
    } else if (is_waiting_receive(self)) {
        withdraw_receive(self);
    } else if (is_half_posted(self)) {
        withdraw(self);
    } else if (has_unseen_failure(self) && !compat_is_finalizing()) {
        self->is_seen = true;
        report_unseen(self);
    }
    if (self->can_unrecv) {
        request_return_unseen(self);
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

/* Has it succeeded, with nothing left to do for libumx or for the program? */
static inline bool
is_plain(const RequestObject *self)
{
    return self->state == REQUEST_DONE && self->status == UMX_OK &&
           self->op == NULL && !self->can_unrecv &&
           !event_is_listed(&self->event);
}

/* Is there nothing to release but the references of every request? So it is of
 * nearly all short messages. */
static inline bool
is_bare(const RequestObject *self)
{
    return is_plain(self) && request_is_a(self, OP_BARE) &&
           ((uintptr_t)self->hold.owner | (uintptr_t)self->callback |
            (uintptr_t)self->context | (uintptr_t)self->result |
            (uintptr_t)self->rare | (uintptr_t)self->message |
            (uintptr_t)self->weakrefs) == 0;
}

/* Release what the request has beside those. False: it lives on. */
static NOINLINE bool
release_all(RequestObject *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL) {
        clear_weakrefs(self);
    }
    if (!is_plain(self) && outlive(self)) {
        return false;
    }
    request_return_message(self);
    clear_all(self);
    clear_tail(self);
    return true;
}

void
request_dealloc(PyObject *op)
{
    RequestObject *self = (RequestObject *)op;
    PyTypeObject  *type = Py_TYPE(op);
    mod_state     *st   = self->worker->st;

    if (UNLIKELY(!is_bare(self) || PyObject_GC_IsTracked(op)) &&
        !release_all(self)) {
        return;
    }
    Py_CLEAR(self->endpoint);
    Py_CLEAR(self->worker);
    st->num_requests--;
    if (LIKELY(st->num_free_requests < MAX_FREE_REQUESTS &&
               st->request_type != NULL)) {
        request_become_coroutine(self, st);
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
