/* SPDX-License-Identifier: BSD-3-Clause */
#include "ops/tag.h"

#include "mem/memtype.h"
#include "ops/post.h"
#include "util/count.h"
#include "util/log.h"
#include "worker/link.h"
#include "worker/observe.h"

/* ---- sending -------------------------------------------------------------
 */

static void
on_sent(void *request, ucs_status_t status, void *arg)
{
    umx_request *req = arg;

    ucp_request_free(request);
    if (UMI_DECREMENT(req->ep->num_tag_sends) == 0 && req->ep->is_draining) {
        umi_ep_base_raise(req->ep,
                          UMI_EP_EVENT_LAYER); /* the close may go on */
    }
    umi_request_complete(req, umi_post_status(req, status));
}

static inline ucs_status_ptr_t
call_send(umx_request *req, const void *data, size_t count,
          const ucp_request_param_t *params, const void *arg)
{
    (void)arg;
    return ucp_tag_send_nbx(req->ep->handle, data, count,
                            umi_tag_op_of(req)->tag, params);
}

static ucs_status_ptr_t
send_memory(umx_request *req, ucp_request_param_t *params)
{
    size_t count;
    void  *data = umi_post_memory(req, params, &count,
                                  req->ep->link->has_hardware ||
                                      umi_post_is_for_ucx(req));

    return umi_tag_op_of(req)->is_sync ?
               ucp_tag_send_sync_nbx(req->ep->handle, data, count,
                                     umi_tag_op_of(req)->tag, params) :
               call_send(req, data, count, params, NULL);
}

static umx_status
post_send(umx_request *req)
{
    umi_ep_base        *ep = req->ep;
    ucp_request_param_t params;
    ucs_status_ptr_t    result;
    umx_status          status = umi_memory_enter(&req->buf);

    if (status != UMX_OK) {
        return status;
    }
    umi_post_params(&params, req);
    params.cb.send = on_sent;
    ep->num_tag_sends++;
    if (!umi_tag_op_of(req)->is_sync && umi_post_is_short(req)) {
        result = umi_post_short(req, &params, call_send, NULL);
    } else {
        result = send_memory(req, &params);
    }
    umi_memory_leave(&req->buf);
    status = umi_post_result(req, result, &ep->inflight);
    ep->num_tag_sends -= (status != UMX_INPROGRESS);
    ep->raw_tags += (status >= 0);
    return status;
}

/* UCX tells that something broke, the endpoint knows why. */
static bool
finish_send(umx_request *req)
{
    if (req->status < 0 && !req->is_cancelled &&
        req->ep->end_status != UMX_OK) {
        req->status = req->ep->end_status;
    }
    return true;
}

/* UCX cannot take a message back: what has not gone of it goes from a copy. */
static void
cancel_send(umx_request *req)
{
    umx_status status = UMX_OK;

    if (!umi_request_is_posted(req)) {
        umi_request_cancel_queued(req);
        return;
    }
    if (req->buf.len != 0) {
        status = umi_request_copy(req, req->buf.len, req->buf.len, false);
    }
    if (status == UMX_OK) {
        umi_request_detach(req);
        return;
    }
    if (status < 0) {
        req->worker->hooks->tell_ep(req->ep, UMI_NEWS_UNCOPIED, NULL);
    }
    req->worker->hooks->tell_ep(req->ep, UMI_NEWS_DEFERRED, NULL);
}

const umi_request_ops umi_tag_send_ops = {.name     = "tag_send",
                                          .finish   = finish_send,
                                          .cancel   = cancel_send,
                                          .describe = umi_observe_sent,
                                          .post     = post_send};

umx_status
umi_tag_check_buffer(const umx_worker *worker, const umx_buffer *buf)
{
    umx_status status = umi_must_stage(worker->context, buf) ?
                            UMX_ERR_UNSUPPORTED :
                            umi_check_buffer(buf);

    return (status == UMX_OK) ? umi_memh_check(buf) : status;
}

static umx_status
send_tagged(umx_ep *ep, uint64_t tag, const umx_buffer *buf, bool is_sync,
            const umx_op_params *params, umx_request **req_p)
{
    umi_ep_base *base   = umi_ep_base_of(ep);
    umx_status   status = umi_ep_base_post_status(base);
    umx_request *req;

    if (status != UMX_OK) {
        return status;
    }
    status = umi_tag_check_buffer(base->worker, buf);
    if (status != UMX_OK) {
        return status;
    }
    req = umi_request_new(base->worker, base, &umi_tag_send_ops, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_request_hold_buffer(req, buf);
    umi_tag_op_of(req)->tag     = tag;
    umi_tag_op_of(req)->is_sync = is_sync;
    umi_link_look_first(base);
    return umi_ep_base_post(base, req, req_p);
}

UMI_LOCKED(umx_status, umx_tag_send, umi_ep_base_of(ep)->worker,
           (umx_ep * ep, uint64_t tag, const umx_buffer *buf,
            const umx_op_params *params, umx_request **req_p),
           (ep, tag, buf, params, req_p))

umx_status
umx_tag_send(umx_ep *ep, uint64_t tag, const umx_buffer *buf,
             const umx_op_params *params, umx_request **req_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(umi_ep_base_of(ep)->worker)) {
        return umx_tag_send_locked(ep, tag, buf, params, req_p);
    }
    return send_tagged(ep, tag, buf, false, params, req_p);
}

umx_status
umx_tag_send_sync(umx_ep *ep, uint64_t tag, const umx_buffer *buf,
                  const umx_op_params *params, umx_request **req_p)
{
    UMI_GUARD_IF_ANY(umi_ep_base_of(ep)->worker);
    return send_tagged(ep, tag, buf, true, params, req_p);
}

/* ---- receiving -----------------------------------------------------------
 */

void
umi_tag_init_recv(umx_request *req, uint64_t tag, uint64_t mask)
{
    *umi_tag_op_of(req) = (umi_tag_op){
        .tag = tag, .mask = mask, .order = req->worker->tags->seq++};
}

/* ---- a receive that is cancelled -----------------------------------------
 */

/* True if `req` is a receive that a message could be for which is for one of
 * these tags. */
static bool
overlaps(const umx_request *req, uint64_t tag, uint64_t mask)
{
    return umi_tag_matches(umi_tag_op_of(req)->tag, tag,
                           mask & umi_tag_op_of(req)->mask);
}

/* True if a receive of these tags comes behind `req`. `found` is the first of
 * umi_tags.returned for it, or NULL. */
static bool
is_behind(const umx_request *req, uint64_t tag, uint64_t mask,
          const umx_tag_message *found)
{
    const umi_tag_op *op = umi_tag_op_of(req);

    return (op->is_behind ||
            (op->is_awaited &&
             (found == NULL || (int32_t)(op->order - found->info.seq) < 0))) &&
           overlaps(req, tag, mask);
}

/* A message that has landed is not on umi_tags.returned until finish_recv(). */
static bool
must_wait_for_done(const umx_worker *worker, uint64_t tag, uint64_t mask,
                   const umx_tag_message *found)
{
    UMI_LIST_FOREACH(node, &worker->done) {
        const umx_request *req = umi_container_of(node, umx_request, node);

        if (req->ops == &umi_tag_recv_ops && is_behind(req, tag, mask, found)) {
            return true;
        }
    }
    return false;
}

bool
umi_tag_must_wait(const umx_worker *worker, uint64_t tag, uint64_t mask,
                  const umx_tag_message *found, const umx_request *self)
{
    if (__builtin_expect(
            (worker->tags->num_awaited | worker->tags->num_behind) == 0, 1)) {
        return false;
    }
    UMI_LIST_FOREACH(node, &worker->inflight) {
        const umx_request *req = umi_container_of(node, umx_request, node);

        if (req == self) {
            break;
        }
        if (is_behind(req, tag, mask, found)) {
            return true;
        }
    }
    return must_wait_for_done(worker, tag, mask, found);
}

/* End the wait for the message of `req`. */
static void
end_awaited(umx_request *req)
{
    umx_worker *worker = req->worker;

    if (umi_tag_op_of(req)->is_awaited) {
        umi_tag_op_of(req)->is_awaited = false;
        UMI_DECREMENT(worker->tags->num_awaited);
        worker->has_events = true; /* umi_tag_run_behind() */
        worker->is_armed   = false;
    }
}

void
umi_tag_doubt(umx_worker *worker)
{
    if (worker->tags->num_awaited == 0) {
        return;
    }
    UMI_LIST_FOREACH(node, &worker->inflight) {
        end_awaited(umi_container_of(node, umx_request, node));
    }
}

static void
end_behind(umx_request *req)
{
    umi_tag_op_of(req)->is_behind = false;
    UMI_DECREMENT(req->worker->tags->num_behind);
    umi_node_remove(&req->node);
}

/* Let those that could get the message of `req` wait for it. What was posted
 * before `req` cannot: UCX would have given it the message. */
static void
hold_others(umx_request *req)
{
    umi_list *list = &req->worker->inflight;
    umi_node *next;

    for (umi_node *node = req->node.next; node != list; node = next) {
        umx_request *other = umi_container_of(node, umx_request, node);
        umi_tag_op  *op    = umi_tag_op_of(other);

        next = node->next;
        if (umi_tag_is_open(other) && overlaps(req, op->tag, op->mask)) {
            op->is_moving = true;
            ucp_request_cancel(op->engine->ucp, op->handle);
        }
    }
}

/* Let what lands for `req` land in memory of ours, with what has come. */
static umx_status
land_elsewhere(umx_request *req)
{
    umi_tag_op *op  = umi_tag_op_of(req);
    size_t      len = op->is_probed ? req->info.length : req->buf.len;

    if (op->kept == NULL) {
        op->kept = umi_tag_message_new(req->worker, 0);
    }
    if (op->kept == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    return umi_request_copy(req, len, umi_request_num_moved(req, len), false);
}

/* The message of `req` lands: it is the next receive's. */
static void
leave_message(umx_request *req)
{
    umi_tag_op *op = umi_tag_op_of(req);

    if (op->message != NULL) { /* which waited for that to be over */
        umi_tag_return(op->message);
        op->message = NULL;
    }
    if (!op->is_awaited) {
        op->is_awaited = true;
        req->worker->tags->num_awaited++;
        hold_others(req);
    }
    if (land_elsewhere(req) == UMX_OK) {
        umi_request_detach(req);
    } else if (req->ep != NULL) {
        req->worker->hooks->tell_ep(req->ep, UMI_NEWS_DEFERRED, NULL);
    }
}

static void
cancel_recv(umx_request *req)
{
    if (umi_tag_op_of(req)->is_behind) {
        end_behind(req);
        umi_request_complete(req, UMX_ERR_CANCELED);
        return;
    }
    /* UCX calls the callback, which only queues, before this returns. */
    ucp_request_cancel(umi_tag_op_of(req)->engine->ucp,
                       umi_tag_op_of(req)->handle);
    if (req->status == UMX_INPROGRESS && req->is_cancelled) {
        leave_message(req);
    }
}

/* The message has landed: it goes back, for the next receive. */
static umx_status
give_back(umx_request *req)
{
    umx_tag_message *kept = umi_tag_op_of(req)->kept;

    if (req->copy == NULL) {
        return umi_tag_keep(req->worker, &req->info, &req->buf);
    }
    umi_tag_op_of(req)->kept = NULL;
    kept->info               = req->info;
    kept->spare              = umi_request_take_spare(req);
    umi_tag_return(kept);
    return UMX_OK;
}

static void
cancel_complete(umx_request *req)
{
    if (req->status != UMX_OK) {
        return;
    }
    if (give_back(req) != UMX_OK) {
        umi_log(UMI_LOG_WARN,
                "out of memory: a message of %zu bytes with the "
                "tag %#llx is lost, whose receive was cancelled",
                req->info.length, (unsigned long long)req->info.tag);
    }
    req->status = UMX_ERR_CANCELED;
}

static bool
finish_recv(umx_request *req)
{
    umi_tag_op *op = umi_tag_op_of(req);

    end_awaited(req);
    if (req->is_cancelled) {
        if (req->status == UMX_OK && give_back(req) == UMX_OK) {
            req->status = UMX_ERR_CANCELED;
        }
        if (op->kept != NULL) {
            umi_tag_message_free(op->kept);
            op->kept = NULL;
        }
    } else if (req->status == UMX_ERR_CANCELED && req->ep != NULL &&
               req->ep->end_status != UMX_OK) {
        /* The end of its endpoint cancelled the receive, not the user: say why.
         */
        req->status = req->ep->end_status;
    }
    return true;
}

const umi_request_ops umi_tag_recv_ops = {.name            = "tag_recv",
                                          .finish          = finish_recv,
                                          .cancel          = cancel_recv,
                                          .cancel_complete = cancel_complete,
                                          .describe = umi_observe_received};

/* ---- UCX's receives ------------------------------------------------------
 */

umx_status
umi_tag_post_result(umx_request *req, umi_engine *engine,
                    ucs_status_ptr_t result)
{
    umx_status status = umi_post_result(req, result, &req->worker->inflight);

    if (umi_request_is_posted(req)) {
        umi_tag_op_of(req)->handle = result;
        umi_tag_op_of(req)->engine = engine;
        umi_engine_hold(engine);
    }
    return status;
}

void
umi_tag_end_post(umx_request *req, void *request)
{
    ucp_request_free(request);
    if (umi_request_is_posted(req)) {
        umi_engine_release(umi_tag_op_of(req)->engine);
    }
}

/* Taken back from UCX for `message`, unless that was too late. */
static void
settle_redirected(umx_request *req, umx_tag_message *message,
                  ucs_status_t ucs_status)
{
    umx_status status;

    if (ucs_status != UCS_ERR_CANCELED || req->is_cancelled) {
        umi_tag_return(message);
        umi_request_complete(req, umi_ep_status(ucs_status));
        return;
    }
    umi_request_restart(req);
    umi_node_remove(&req->node);
    status = umi_tag_deliver(req, message);
    if (status != UMX_INPROGRESS) {
        umi_request_complete(req, status);
    }
}

static umx_status start_recv(umx_request *req);

/* Taken back from UCX. */
static void
post_again(umx_request *req)
{
    umx_status status;

    umi_tag_op_of(req)->is_moving = false;
    umi_request_restart(req);
    umi_node_remove(&req->node);
    status = start_recv(req);
    if (status != UMX_INPROGRESS) {
        umi_request_complete(req, status);
    }
}

void
umi_tag_move(umx_worker *worker, const umi_engine *old)
{
    UMI_LIST_FOREACH_SAFE(node, &worker->inflight) {
        umx_request *req = umi_container_of(node, umx_request, node);

        /* A receive whose message lands stays where it is: UCX does not cancel
         * it. */
        if (umi_tag_is_open(req) && umi_tag_op_of(req)->engine == old) {
            umi_tag_op_of(req)->is_moving = true;
            ucp_request_cancel(old->ucp, umi_tag_op_of(req)->handle);
        }
    }
}

static void
on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
            void *arg)
{
    umx_request     *req     = arg;
    umx_tag_message *message = umi_tag_op_of(req)->message;

    if (status == UCS_OK || status == UCS_ERR_MESSAGE_TRUNCATED) {
        req->info.tag    = info->sender_tag;
        req->info.length = info->length;
        req->info.seq    = req->is_cancelled ? umi_tag_op_of(req)->order :
                                               req->worker->tags->seq++;
    }
    umi_tag_end_post(req, request);
    if (umi_tag_op_of(req)->is_moving && status == UCS_ERR_CANCELED &&
        !req->is_cancelled) {
        post_again(req);
    } else if (message != NULL) {
        umi_tag_op_of(req)->message = NULL;
        settle_redirected(req, message, status);
    } else {
        umi_request_complete(req, umi_ep_status(status));
    }
}

void
umi_tag_redirect(umx_request *req, umx_tag_message *message)
{
    umi_node_remove(&message->node);
    umi_tag_op_of(req)->message = message;
    /* UCX does not cancel a receive whose message lands: then `message` waits
     * for the end of that. */
    ucp_request_cancel(umi_tag_op_of(req)->engine->ucp,
                       umi_tag_op_of(req)->handle);
}

/* A message may come from any peer, but for what the user knows. */
static bool
has_hardware(const umx_request *req)
{
    return (req->ep != NULL && req->ep->link != NULL) ?
               req->ep->link->has_hardware :
               req->worker->has_hardware;
}

static umx_status
post_recv(umx_request *req)
{
    umi_engine         *engine = req->worker->engine;
    void               *data;
    size_t              count;
    ucp_request_param_t params;
    ucs_status_ptr_t    result;
    umx_status          status = umi_memory_enter(&req->buf);

    if (status != UMX_OK) {
        return status;
    }
    umi_post_params(&params, req);
    data = umi_post_memory(req, &params, &count,
                           has_hardware(req) || umi_post_is_for_ucx(req));
    /* UCX 1.13 tells tag and length to the callback only. */
    params.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    params.cb.recv = on_received;
    result = ucp_tag_recv_nbx(engine->ucp, data, count, umi_tag_op_of(req)->tag,
                              umi_tag_op_of(req)->mask, &params);
    umi_memory_leave(&req->buf);
    return umi_tag_post_result(req, engine, result);
}

/* Give `req` the next message, or let it wait. */
static umx_status
start_recv(umx_request *req)
{
    umx_worker      *worker  = req->worker;
    umi_tag_op      *op      = umi_tag_op_of(req);
    umx_tag_message *message = umi_tag_find(worker, op->tag, op->mask);

    if (umi_tag_must_wait(worker, op->tag, op->mask, message, NULL)) {
        op->is_behind = true;
        worker->tags->num_behind++;
        umi_list_append(&worker->inflight, &req->node);
        return UMX_INPROGRESS;
    }
    return (message != NULL) ? umi_tag_deliver(req, message) : post_recv(req);
}

void
umi_tag_run_behind(umx_worker *worker)
{
    if (worker->tags->num_behind == 0) {
        return;
    }
    UMI_LIST_FOREACH_SAFE(node, &worker->inflight) {
        umx_request     *req = umi_container_of(node, umx_request, node);
        umi_tag_op      *op  = umi_tag_op_of(req);
        umx_tag_message *message;
        umx_status       status;

        if (!op->is_behind) {
            continue;
        }
        message = umi_tag_find(worker, op->tag, op->mask);
        if (umi_tag_must_wait(worker, op->tag, op->mask, message, req)) {
            continue;
        }
        end_behind(req);
        status = (message != NULL) ? umi_tag_deliver(req, message) :
                                     post_recv(req);
        if (status != UMX_INPROGRESS) {
            umi_request_complete(req, status);
        }
    }
}

/* Check a receive. Messages that have arrived are the worker's: after the peer
 * has ended the endpoint, a receive still gets them, as on channels. */
static umx_status
check_recv(umx_worker *worker, const umi_ep_base *ep, uint64_t tag,
           uint64_t mask, const umx_buffer *buf)
{
    umx_status    status = umi_worker_check_begin(worker);
    umx_recv_info info;

    if (status == UMX_OK && ep != NULL) {
        status = umi_ep_base_post_status(ep);
        if (status != UMX_OK && status != UMX_ERR_CLOSED &&
            umx_tag_probe(worker, tag, mask, &info) == UMX_OK) {
            status = UMX_OK;
        }
    }
    return (status == UMX_OK) ? umi_tag_check_buffer(worker, buf) : status;
}

UMI_LOCKED(umx_status, umx_tag_recv, worker,
           (umx_worker * worker, umx_ep *ep, uint64_t tag, uint64_t mask,
            const umx_buffer *buf, const umx_op_params *params,
            umx_request **req_p, umx_recv_info *info),
           (worker, ep, tag, mask, buf, params, req_p, info))

umx_status
umx_tag_recv(umx_worker *worker, umx_ep *ep, uint64_t tag, uint64_t mask,
             const umx_buffer *buf, const umx_op_params *params,
             umx_request **req_p, umx_recv_info *info)
{
    if (UMI_IS_UNLOCKED(worker)) {
        return umx_tag_recv_locked(worker, ep, tag, mask, buf, params, req_p,
                                   info);
    }
    umi_ep_base *base   = (ep != NULL) ? umi_ep_base_of(ep) : NULL;
    umx_status   status = check_recv(worker, base, tag, mask, buf);
    umx_request *req;

    if (status != UMX_OK) {
        return status;
    }
    req = umi_request_new(worker, base, &umi_tag_recv_ops, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_request_hold_buffer(req, buf);
    req->info = (umx_recv_info){0};
    umi_tag_init_recv(req, tag, mask);
    status = start_recv(req);
    if (status == UMX_INPROGRESS) {
        *req_p = req;
    } else {
        *info = req->info;
        umi_request_free(req);
    }
    return status;
}
