/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c: every callback that libumx has from this extension, and nothing
 * else: see event.h. No function here counts a reference, allocates an object
 * or calls Python; test_layers.py keeps both rules. Those that libumx
 * calls without the GIL say so. */
#include "base/event.h"

#include "base/log.h"
#include "op/am.h"
#include "op/many.h"
#include "request/request.h"
#include "object/endpoint.h"
#include "type/listener.h"
#include "buffer/memh.h"
#include "type/message_listener.h"
#include "worker/worker.h"

#include <stdatomic.h>
#include <string.h>

static void
tell(WorkerObject *worker, event *self)
{
    if (!event_is_listed(self)) {
        event_append(&worker->told, self);
    }
}

/* ---- requests ------------------------------------------------------------
 */

void
event_mark_done(RequestObject *req, umx_status status)
{
    unsigned flags = req->type->flags;

    if (UNLIKELY(status == UMX_ERR_WITHDRAWN) && (flags & OP_FETCH) != 0 &&
        req->state == REQUEST_PENDING && !req->is_cancelling) {
        req->is_again = true; /* the next message is as good */
        return;
    }
    if (UNLIKELY(req->is_cancelling) && req->state == REQUEST_PENDING) {
        req->state      = REQUEST_CANCELLED;
        req->is_settled = true;
    }
    if (UNLIKELY(req->state != REQUEST_PENDING)) { /* cancelled, or lost */
        req->is_landed = request_has_bytes(req, status);
        return;
    }
    if (UNLIKELY(flags & OP_EXACT) && status == UMX_OK &&
        req->info.length < req->hold.buf.len) {
        status = UMX_ERR_LENGTH_MISMATCH; /* UCX takes any that fits */
    }
    req->status     = status;
    req->state      = REQUEST_DONE;
    req->is_settled = true;
    req->can_unrecv = (flags & OP_UNRECV) != 0 &&
                      request_has_bytes(req, status) &&
                      request_holds_bytes(req);
}

/* Does libumx give a message instead of bytes, in this step? */
static bool
wants_message(const RequestObject *req)
{
    unsigned flags = req->type->flags;

    return (flags & OP_MESSAGE) != 0 ||
           ((flags & OP_MESSAGE_FIRST) != 0 && req->result == NULL);
}

void
event_mark_message(RequestObject *req, umx_message *message)
{
    req->message = message;
    if ((req->type->flags & OP_MESSAGE_FIRST) != 0 && message != NULL) {
        req->info = *umx_message_info(message);
    }
}

void
event_mark_comm_status(RequestObject *req, const umx_comm_status *got)
{
    req->info.tag     = got->tag;
    req->info.length  = got->length;
    req->info.channel = (uint32_t)got->source;
    req->info.seq     = got->seq;
}

static NOINLINE void
mark_other(RequestObject *req, umx_request *op, umx_status status)
{
    if (req->type->flags & (OP_SEND | OP_RECV)) {
        req->info = *umx_request_info(op);
    }
    if (req->type->flags & OP_RANK) {
        event_mark_comm_status(req, umx_comm_result(op));
    }
    if (req->type->flags & OP_PARTITION) {
        req->info.tag = umx_shuffler_result(op);
    }
    if (req->type->flags & OP_TIMED) {
        req->ns = umx_request_time_ns(op);
    }
    if (wants_message(req) && status == UMX_OK) {
        if (req->type->flags & OP_TAG_MESSAGE) {
            req->tag_message = umx_request_tag_message(op);
        } else {
            event_mark_message(req, umx_request_message(op));
        }
    }
    /* What has a second step is settled by its first look at the message. */
    if (!request_has_second_step(req, status)) {
        event_mark_done(req, status);
    }
}

/* The awaitable may have been cancelled, and its callbacks be due: what is told
 * of the operation is settled before them. */
static void
tell_request(RequestObject *req)
{
    if (req->is_held) { /* else nothing but its dealloc has moved the event */
        event_unlink(&req->event);
    }
    tell(req->worker, &req->event);
}

static void
on_done(umx_request *op, umx_status status, void *arg)
{
    RequestObject *req = arg;

    req->op      = NULL;
    req->is_told = true;
    if (req->type->flags & OP_PLAIN) {
        req->info = *umx_request_info(op);
        event_mark_done(req, status);
    } else {
        mark_other(req, op, status);
    }
    tell_request(req);
}

/* End the awaitable; on_done() ends the operation and the loan of the buffer.
 */
static void
on_lost(umx_request *op, umx_status status, void *arg)
{
    RequestObject *req = arg;

    (void)op;
    if (req->state == REQUEST_PENDING) {
        req->status     = status;
        req->state      = req->is_cancelling ? REQUEST_CANCELLED : REQUEST_DONE;
        req->is_settled = true;
        req->is_told    = true;
        tell_request(req);
    }
}

umx_op_params
event_op_params(RequestObject *req)
{
    return (umx_op_params){.field_mask = UMX_OP_FIELD_ON_DONE |
                                         UMX_OP_FIELD_ON_LOST,
                           .on_done = on_done,
                           .arg     = req,
                           .on_lost = on_lost};
}

static void
on_item_done(umx_request *op, umx_status status, void *arg)
{
    many_item     *item = arg;
    RequestObject *req  = item->parent;

    item->op     = NULL;
    item->status = status;
    item->info   = *umx_request_info(op);
    if (--req->num_pending == 0) {
        req->is_told = true;
        event_mark_done(req, many_status(many_of(req)));
        tell_request(req);
    }
}

/* Count a lost item; the items of an endpoint are all lost at once. */
static void
on_item_lost(umx_request *op, umx_status status, void *arg)
{
    many_item     *item = arg;
    RequestObject *req  = item->parent;

    item->status = status;
    if (++many_of(req)->lost == req->num_pending) {
        on_lost(op, status, req);
    }
}

umx_op_params
event_item_params(many_item *item)
{
    return (umx_op_params){.field_mask = UMX_OP_FIELD_ON_DONE |
                                         UMX_OP_FIELD_ON_LOST,
                           .on_done = on_item_done,
                           .arg     = item,
                           .on_lost = on_item_lost};
}

/* ---- endpoints and listeners ----------------------------------------------
 */

/* Tell a request to connect once of success or failure; later states are told
 * to the endpoint's object. */
static void
on_connect_state(umx_ep *ep, umx_ep_state state, umx_status status, void *arg)
{
    RequestObject *req = arg;

    (void)ep;
    if (!req->is_told) {
        req->is_told     = true;
        req->info.length = (state == UMX_EP_OPEN);
        req->status      = status;
        tell_request(req);
    }
}

void
event_watch_connect(umx_connect_params *params, RequestObject *req)
{
    params->field_mask |= UMX_CONNECT_FIELD_ON_STATE;
    params->on_state = on_connect_state;
    params->arg      = req;
}

static void
on_state(umx_ep *ep, umx_ep_state state, umx_status status, void *arg)
{
    EndpointObject *self = arg;

    (void)status;
    if (state == UMX_EP_OPEN && !umx_ep_is_peer_closed(ep)) {
        self->has_opened = true;
    } else {
        self->has_ended = true;
    }
    tell(self->worker, &self->event);
}

void
event_watch_endpoint(umx_ep *ep, EndpointObject *endpoint)
{
    umx_ep_set_on_state(ep, endpoint != NULL ? on_state : NULL, endpoint);
}

static void
on_accept_ready(umx_listener *listener, void *arg)
{
    ListenerObject *self = arg;

    (void)listener;
    tell(self->worker, &self->event);
}

static void
on_remote_close(umx_listener *listener, void *arg)
{
    ListenerObject *self = arg;

    (void)listener;
    self->is_remote_closed = true;
    tell(self->worker, &self->event);
}

void
event_watch_listener(umx_listener_params *params, ListenerObject *listener,
                     bool is_closable)
{
    params->field_mask |= UMX_LISTENER_FIELD_ON_READY;
    params->on_ready = on_accept_ready;
    params->arg      = listener;
    if (is_closable) {
        params->field_mask |= UMX_LISTENER_FIELD_ON_REMOTE_CLOSE;
        params->on_remote_close = on_remote_close;
    }
}

/* Refuse the connections that come before the listener is destroyed. */
void
event_forget_listener(umx_listener *umx)
{
    umx_listener_set_on_accept(umx, NULL, NULL);
}

/* ---- workers -------------------------------------------------------------
 */

static void
on_am_ready(umx_worker *umx, uint16_t id, void *arg)
{
    am_handler *handler = arg;

    (void)umx;
    (void)id;
    tell(handler->worker, &handler->event);
}

umx_status
event_watch_am(WorkerObject *worker, uint16_t id, am_handler *handler)
{
    return umx_worker_set_am_ready(
        worker->umx, id, handler != NULL ? on_am_ready : NULL, handler);
}

static void
on_addressed(umx_worker *umx, void *arg)
{
    WorkerObject *self = arg;

    (void)umx;
    tell(self, &self->addressed);
}

umx_status
event_watch_addressed(WorkerObject *worker)
{
    return umx_worker_set_on_addressed(worker->umx, on_addressed, worker);
}

static void
on_submitted_call(umx_worker *umx, umx_status status, void *arg)
{
    call *self = arg;

    (void)umx;
    (void)status; /* once closed: the loop calls it, if there is one still */
    tell(self->worker, &self->event);
}

static void
on_submitted_request(umx_worker *umx, umx_status status, void *arg)
{
    RequestObject *req = arg;

    (void)umx;
    (void)status;
    tell_request(req);
}

static bool
submit(WorkerObject *worker, umx_call_fn fn, void *arg)
{
    return worker->umx != NULL && !worker->is_shutting &&
           umx_worker_submit(worker->umx, fn, arg) == UMX_OK;
}

bool
event_submit_call(WorkerObject *worker, call *self)
{
    return submit(worker, on_submitted_call, self);
}

bool
event_submit_request(WorkerObject *worker, RequestObject *req)
{
    return submit(worker, on_submitted_request, req);
}

/* ---- what another thread has dropped --------------------------------------
 */

#define DEFINE_DROP(name, type, function)                           \
    static void on_##name(umx_worker *umx, umx_status s, void *arg) \
    {                                                               \
        (void)umx;                                                  \
        (void)s;                                                    \
        function(arg);                                              \
    }                                                               \
                                                                    \
    bool event_##name(WorkerObject *worker, type *dropped)          \
    {                                                               \
        return submit(worker, on_##name, dropped);                  \
    }

DEFINE_DROP(drop_message, umx_message, umx_message_drop)
DEFINE_DROP(return_message, umx_message, umx_message_return)
DEFINE_DROP(return_tag_message, umx_tag_message, umx_tag_message_return)
DEFINE_DROP(drop_sender, umx_message_sender, umx_message_sender_destroy)
DEFINE_DROP(drop_comm, umx_comm, umx_comm_destroy)
DEFINE_DROP(drop_shuffler, umx_shuffler, umx_shuffler_destroy)
DEFINE_DROP(return_comm_message, umx_comm_message, umx_comm_message_return)
DEFINE_DROP(drop_listener, umx_message_listener, umx_message_listener_destroy)

/* ---- messages with metadata ------------------------------------------------
 */

static void
on_messages_ready(umx_message_listener *umx, void *arg)
{
    MessageListenerObject *self = arg;

    (void)umx;
    tell(self->worker, &self->event);
}

/* umx_message_listener_run() calls this and on_alloc(), on_end(), on_finish():
 * the extension calls it after libumx has returned, so that the program's
 * functions may run in them. */
static bool
on_route(const umx_metadata *metadata, umx_message_receiver *receiver,
         void *arg)
{
    MessageListenerObject *self = arg;

    if (!listener_route(self, metadata)) {
        return false;
    }
    event_receive_message(receiver, self);
    return true;
}

static umx_status
on_alloc(const umx_frames_info *info, umx_buffer *buffers, void *arg)
{
    return listener_alloc(arg, info, buffers);
}

static void
on_end(umx_message_listener *umx, umx_status status, void *arg)
{
    (void)umx;
    listener_end(arg, status);
}

/* Called as on_route() is, or when bytes land that nobody waits for any more.
 */
static void
on_finish(const umx_buffer *buffers, size_t count, umx_status status, void *arg)
{
    MessageListenerObject *self = arg;

    (void)buffers;
    (void)count;
    if (self->is_running) {
        listener_finish(self, status);
    } else {
        self->is_landed = true;
        tell(self->worker, &self->event);
    }
}

void
event_receive_message(umx_message_receiver  *receiver,
                      MessageListenerObject *listener)
{
    *receiver = (umx_message_receiver){on_alloc, on_finish, listener};
}

void
event_watch_messages(umx_message_listener_params *params,
                     MessageListenerObject       *listener)
{
    params->field_mask |= UMX_MESSAGE_LISTENER_FIELD_ON_END |
                          UMX_MESSAGE_LISTENER_FIELD_ON_READY;
    params->route    = on_route;
    params->arg      = listener;
    params->on_end   = on_end;
    params->on_ready = on_messages_ready;
}

/* ---- memory and log lines: in any thread, without the GIL -------------------
 */

static _Atomic(memory_loan *) freed;

static void
on_free(void *arg)
{
    memory_loan *loan = arg;

    loan->next = atomic_load_explicit(&freed, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&freed, &loan->next, loan,
                                                  memory_order_release,
                                                  memory_order_relaxed)) {
    }
}

void
event_watch_memory(umx_memh_params *params, memory_loan *loan)
{
    params->field_mask |= UMX_MEMH_FIELD_ON_FREE;
    params->on_free = on_free;
    params->arg     = loan;
}

bool
event_has_freed(void)
{
    return atomic_load_explicit(&freed, memory_order_relaxed) != NULL;
}

/* Take the whole list: with the GIL nobody else takes from it. */
memory_loan *
event_take_freed(void)
{
    return atomic_exchange_explicit(&freed, NULL, memory_order_acquire);
}

static void
on_log(int level, const char *text, void *arg)
{
    (void)arg;
    log_put(level, text);
}

void
event_watch_log(bool is_wanted)
{
    umx_log_set(is_wanted ? on_log : NULL, NULL);
}

/* ---- walks ---------------------------------------------------------------
 */

static void
add_pair(const char *first, const char *second, void *arg)
{
    text_pairs *pairs      = arg;
    size_t      first_len  = strlen(first) + 1;
    size_t      second_len = strlen(second) + 1;
    char       *texts;

    texts = realloc(pairs->texts, pairs->len + first_len + second_len);
    if (texts == NULL) {
        pairs->is_cut = true;
        return;
    }
    memcpy(texts + pairs->len, first, first_len);
    memcpy(texts + pairs->len + first_len, second, second_len);
    pairs->texts = texts;
    pairs->len += first_len + second_len;
    pairs->count++;
}

umx_status
event_list_transports(const umx_ep *ep, text_pairs *pairs)
{
    return umx_ep_transports(ep, add_pair, pairs);
}

umx_status
event_list_options(const umx_context_params *params, text_pairs *pairs,
                   int *bad_option_p)
{
    return umx_context_options(params, add_pair, pairs, bad_option_p);
}
