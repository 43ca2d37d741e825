/* SPDX-License-Identifier: BSD-3-Clause */
#include "worker/request.h"

#include "worker/dma.h"

#include "worker/link.h"

#include <string.h>
#include <umx/worker.h>

#include "worker/observe.h"
#include "worker/worker.h"

bool
umi_request_is_edge(umi_request_state from, umi_request_state to)
{
    enum {
        TO_OURS     = 1 << UMI_REQUEST_OURS,
        TO_COMPLETE = 1 << UMI_REQUEST_COMPLETE,
        TO_OVER     = 1 << UMI_REQUEST_OVER,
        TO_POSTED   = 1 << UMI_REQUEST_POSTED,
        TO_STUCK    = 1 << UMI_REQUEST_STUCK
    };
    static const unsigned edges[] = {
        [UMI_REQUEST_OURS]     = TO_POSTED | TO_COMPLETE,
        [UMI_REQUEST_POSTED]   = TO_OURS | TO_COMPLETE,
        [UMI_REQUEST_COMPLETE] = TO_OURS | TO_OVER | TO_STUCK,
        [UMI_REQUEST_STUCK]    = TO_COMPLETE | TO_OVER,
    };

    return (edges[from] >> to) & 1;
}

bool
umi_request_is_user_edge(umi_user_state from, umi_user_state to)
{
    return to > from && (to != UMI_USER_RELEASED || from == UMI_USER_DETACHED);
}

/* umi_request_new() where the pool has to grow. It is called last, so that the
 * usual case needs no stack frame. */
static __attribute__((noinline, cold)) umx_request *
new_of_larger_pool(umx_worker *worker, umi_ep_base *ep,
                   const umi_request_ops *ops, const umx_op_params *params)
{
    umx_request *req = umi_pool_get(&worker->requests);

    if (req == NULL) {
        return NULL;
    }
    umi_pool_put(&worker->requests, req);
    return umi_request_new(worker, ep, ops, params);
}

umx_request *
umi_request_new(umx_worker *worker, umi_ep_base *ep, const umi_request_ops *ops,
                const umx_op_params *params)
{
    umx_request *req;

    UMI_ASSERT_LOCKED(worker);
    if (umi_pool_is_empty(&worker->requests)) {
        return new_of_larger_pool(worker, ep, ops, params);
    }
    req = umi_pool_get(&worker->requests);
    umi_node_init(&req->node);
    req->status        = UMX_INPROGRESS;
    req->is_done       = false;
    req->is_kept       = true;
    req->is_cancelled  = false;
    req->state         = UMI_REQUEST_OURS;
    req->user          = UMI_USER_WAITS;
    req->is_internal   = false;
    req->is_lost       = false;
    req->is_movable    = false;
    req->is_void       = false;
    req->is_observed   = false;
    req->is_abandoned  = false;
    req->num_dmas      = 0;
    req->memory_status = UMX_OK;
    memset(&req->on_done, 0,
           offsetof(umx_request, ops) - offsetof(umx_request, on_done));
    req->buf.memh = NULL;
    req->ops      = ops;
    req->worker   = worker;
    req->ep       = ep;
    if (params != NULL && (params->field_mask & UMX_OP_FIELD_ON_DONE)) {
        req->on_done = params->on_done;
        req->arg     = params->arg;
        req->is_kept = false;
        if (params->field_mask & UMX_OP_FIELD_FLAGS) {
            req->is_kept     = (params->flags & UMX_OP_FLAG_KEEP) != 0;
            req->is_internal = (params->flags & UMI_OP_FLAG_INTERNAL) != 0;
        }
    }
    if (params != NULL && (params->field_mask & UMX_OP_FIELD_ON_LOST)) {
        req->on_lost = params->on_lost;
        req->arg     = params->arg;
    }
    if (ep != NULL) {
        umi_ep_base_hold(ep);
    }
    if (UMI_IS_OBSERVED()) {
        umi_observe_begin(req);
    }
    return req;
}

/* Do what few requests need before they are freed. */
static __attribute__((noinline)) void
free_odd(umx_request *req)
{
    umi_ep_base *ep = req->ep;

    if (req->is_observed) {
        umi_observe_end(req, req->status); /* in its posting call */
    }
    if (umi_request_is_detached(req) && req->state != UMI_REQUEST_OVER &&
        req->state != UMI_REQUEST_STUCK) {
        umi_request_set_user(req, UMI_USER_RELEASED);
        return; /* umi_request_end_detached() frees it */
    }
    if (umi_request_is_posted(req)) { /* reported; UCX has it till its end */
        umi_list_append(&req->worker->stuck, &req->node);
        return;
    }
    if (req->copy != NULL) {
        umi_spare_free(req->copy);
    }
    if (req->small != NULL) {
        umi_pool_put(&req->worker->smalls, req->small);
    }
    req->worker->stats->requests_lost -= req->is_lost;
    umi_request_drop_buffer(req);
    assert(!umi_node_is_linked(&req->node));
    umi_pool_put(&req->worker->requests, req);
    if (ep != NULL) {
        umi_ep_base_release(ep);
    }
}

void
umi_request_free(umx_request *req)
{
    umi_ep_base *ep = req->ep;

    UMI_ASSERT_LOCKED(req->worker);
    if (umi_request_is_odd(req) || req->copy != NULL || req->small != NULL ||
        req->buf.memh != NULL || ep == NULL) {
        free_odd(req);
        return;
    }
    assert(!umi_node_is_linked(&req->node));
    umi_pool_put(&req->worker->requests, req);
    umi_ep_base_release(ep);
}

void
umi_request_complete(umx_request *req, umx_status status)
{
    UMI_ASSERT_LOCKED(req->worker);
    assert(status != UMX_INPROGRESS);
    umi_dma_settle(req);
    umi_request_set_state(req, UMI_REQUEST_COMPLETE);
    req->status = status;
    umi_node_remove(&req->node);
    umi_list_append(&req->worker->done, &req->node);
    req->worker->is_armed = false;
}

void
umi_request_lose(umx_request *req, umx_status status)
{
    if (req->is_lost) {
        return;
    }
    req->is_lost = true;
    req->worker->stats->requests_lost++;
    if (!req->ops->has_own_memory &&
        (req->ep == NULL || !req->ep->is_outlived ||
         umi_request_copy(req, req->buf.len, req->buf.len, true) != UMX_OK)) {
        (void)umi_request_void(req);
    }
    if (req->on_lost != NULL && !umi_request_is_detached(req)) {
        req->on_lost(req, status, req->arg);
    }
}

void
umi_request_lose_whole(umx_request *part, umx_status status, void *arg)
{
    (void)part;
    umi_request_lose(arg, status);
}

void
umi_request_complete_all(umi_list *list, umx_status status)
{
    UMI_LIST_FOREACH_SAFE(node, list) {
        umi_request_complete(umi_container_of(node, umx_request, node), status);
    }
}

void
umi_request_cancel_queued(umx_request *req)
{
    umi_request_complete(req, UMX_ERR_CANCELED);
}

/* True if nothing but the report of its end is left of `req` for the user. */
static bool
has_ended(const umx_request *req)
{
    return req->is_done || umi_request_is_detached(req) ||
           req->status != UMX_INPROGRESS;
}

static umx_status
cancel(umx_request *req)
{
    bool is_first = !req->is_cancelled;

    if (!has_ended(req) && req->ep != NULL) {
        umi_link_look_first(req->ep); /* the peer may be told of it */
    }
    if (req->is_done || umi_request_is_detached(req)) {
        return UMX_OK;
    }
    req->is_cancelled = true;
    if (req->status == UMX_INPROGRESS) {
        if (req->ops->cancel != NULL &&
            (is_first ||
             (req->user == UMI_USER_DEFERRED && req->is_abandoned))) {
            req->ops->cancel(req);
        }
    } else if (is_first && req->ops->cancel_complete != NULL) {
        req->ops->cancel_complete(req);
    }
    if (has_ended(req)) {
        return UMX_OK;
    }
    umi_request_defer(req);
    return UMX_INPROGRESS;
}

umx_status
umx_request_cancel(umx_request *req)
{
    if (req == NULL) {
        return UMX_ERR_INVALID_PARAM;
    }
    UMI_GUARD(req->worker);
    return cancel(req);
}

umx_status
umx_request_abandon(umx_request *req)
{
    if (req == NULL) {
        return UMX_ERR_INVALID_PARAM;
    }
    UMI_GUARD(req->worker);
    req->is_abandoned = true;
    return cancel(req);
}

umx_status
umx_request_status(const umx_request *req)
{
    if (req == NULL) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (!req->is_done) {
        return UMX_INPROGRESS;
    }
    return umi_request_is_detached(req) ? (umx_status)req->user_status :
                                          req->status;
}

const umx_recv_info *
umx_request_info(const umx_request *req)
{
    return (req != NULL) ? &req->info : NULL;
}

void
umx_request_release(umx_request *req)
{
    if (req == NULL) {
        return;
    }
    UMI_GUARD(req->worker);
    umi_request_free(req);
}
