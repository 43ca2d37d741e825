/* SPDX-License-Identifier: BSD-3-Clause */
/* tag_message.c: messages with UCX's tags that have come and are not received:
 * looking at them, waiting for them, taking them and putting them back. */
#include <stdlib.h>
#include <string.h>

#include "mem/memtype.h"
#include "ops/post.h"
#include "ops/tag.h"

/* ---- those that were put back --------------------------------------------
 */

static umx_tag_message *
message_of(umi_node *node)
{
    return umi_container_of(node, umx_tag_message, node);
}

umx_tag_message *
umi_tag_find(umx_worker *worker, uint64_t tag, uint64_t mask)
{
    UMI_LIST_FOREACH(node, &worker->tags->returned) {
        umx_tag_message *message = message_of(node);

        if (umi_tag_matches(message->info.tag, tag, mask)) {
            return message;
        }
    }
    return NULL;
}

static bool
is_behind(umi_node *node, umi_node *other, const void *arg)
{
    (void)arg;
    return (int32_t)(message_of(node)->info.seq - message_of(other)->info.seq) >
           0;
}

void
umi_tag_return(umx_tag_message *message)
{
    umx_worker *worker = message->worker;

    umi_node_remove(&message->node);
    umi_list_insert_sorted(&worker->tags->returned, &message->node, is_behind,
                           NULL);
    worker->has_events = true; /* umi_tag_look() */
    worker->is_armed   = false;
}

umx_tag_message *
umi_tag_message_new(umx_worker *worker, size_t len)
{
    umx_tag_message *message = malloc(sizeof(*message) + len);

    if (message != NULL) {
        umi_node_init(&message->node);
        message->worker = worker;
        message->engine = NULL;
        message->handle = NULL;
        message->spare  = NULL;
    }
    return message;
}

static void
free_spare(umx_tag_message *message)
{
    if (message->spare != NULL) {
        umi_spare_free(message->spare);
        message->spare = NULL;
    }
}

void
umi_tag_message_free(umx_tag_message *message)
{
    umi_node_remove(&message->node);
    if (message->engine != NULL) {
        umi_engine_release(message->engine);
    }
    free_spare(message);
    free(message);
}

umx_status
umi_tag_keep(umx_worker *worker, const umx_recv_info *info,
             const umx_buffer *buf)
{
    umx_tag_message *message;
    umx_status       status;

    if (info->length > buf->len) {
        return UMX_ERR_INVALID_PARAM;
    }
    message = umi_tag_message_new(worker, info->length);
    if (message == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = umi_copy_out(buf, message->data, info->length);
    if (status != UMX_OK) {
        umi_tag_message_free(message);
        return status;
    }
    message->info = *info;
    umi_tag_return(message);
    return UMX_OK;
}

umx_status
umx_tag_unrecv(umx_worker *worker, const umx_recv_info *info,
               const umx_buffer *buf)
{
    UMI_GUARD(worker);
    umx_status status = umi_worker_check(worker);

    return (status == UMX_OK) ? umi_tag_keep(worker, info, buf) : status;
}

/* ---- receiving one -------------------------------------------------------
 */

static void
on_delivered(void *request, ucs_status_t status,
             const ucp_tag_recv_info_t *info, void *arg)
{
    (void)info;
    umi_tag_end_post(arg, request);
    umi_request_complete(arg, umi_ep_status(status));
}

/* The bytes are UCX's still. */
static umx_status
deliver_handle(umx_request *req, umi_engine *engine, ucp_tag_message_h handle)
{
    ucp_request_param_t params;
    ucs_status_ptr_t    result;
    umx_status          status = umi_memory_enter(&req->buf);
    void               *data;
    size_t              count;

    if (status != UMX_OK) {
        return status;
    }
    umi_post_params(&params, req);
    data = umi_post_memory(req, &params, &count,
                           req->worker->has_hardware ||
                               umi_post_is_for_ucx(req));
    params.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    params.cb.recv                = on_delivered;
    umi_tag_op_of(req)->is_probed = true;
    umi_tag_op_of(req)->order     = req->info.seq;
    result = ucp_tag_msg_recv_nbx(engine->ucp, data, count, handle, &params);
    umi_memory_leave(&req->buf);
    return umi_tag_post_result(req, engine, result);
}

static const void *
bytes_of(const umx_tag_message *message)
{
    return (message->spare != NULL) ? message->spare->bytes : message->data;
}

umx_status
umi_tag_deliver(umx_request *req, umx_tag_message *message)
{
    umx_status status;

    req->info = message->info;
    if (message->handle != NULL) {
        status = deliver_handle(req, message->engine, message->handle);
        umi_tag_message_free(message);
        return status;
    }
    if (message->info.length > req->buf.len) {
        status = UMX_ERR_MESSAGE_TRUNCATED;
    } else {
        status = umi_copy_in(&req->buf, bytes_of(message),
                             message->info.length);
    }
    umi_tag_message_free(message);
    return status;
}

umx_status
umx_tag_message_recv(umx_tag_message **message_p, const umx_buffer *buf,
                     const umx_op_params *params, umx_request **req_p)
{
    UMI_GUARD_IF_ANY((*message_p)->worker);
    umx_tag_message *message = *message_p;
    umx_worker      *worker  = message->worker;
    umx_request     *req;
    umx_status       status;

    if (worker == NULL) {
        *message_p = NULL;
        umi_tag_message_free(message);
        return UMX_ERR_CLOSED;
    }
    status = umi_worker_check(worker);
    if (status != UMX_OK) {
        return status;
    }
    status = umi_tag_check_buffer(worker, buf);
    if (status != UMX_OK) {
        return status;
    }
    if (buf->len < message->info.length) {
        return UMX_ERR_BUFFER_TOO_SMALL;
    }
    req = umi_request_new(worker, NULL, &umi_tag_recv_ops, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    *message_p = NULL;
    umi_request_hold_buffer(req, buf);
    umi_tag_init_recv(req, message->info.tag, UINT64_MAX);
    status = umi_tag_deliver(req, message);
    if (status == UMX_INPROGRESS) {
        *req_p = req;
    } else {
        umi_request_free(req);
    }
    return status;
}

const umx_recv_info *
umx_tag_message_info(const umx_tag_message *message)
{
    return &message->info;
}

void
umx_tag_message_return(umx_tag_message *message)
{
    UMI_GUARD_IF_ANY(message->worker);
    if (message->worker == NULL) {
        umi_tag_message_free(message);
    } else if (umi_worker_check(message->worker) == UMX_OK) {
        umi_tag_return(message);
    }
}

/* ---- looking, waiting, taking --------------------------------------------
 */

/* Look for a message, as umx_tag_probe() does. */
static umx_status
look(umx_worker *worker, uint64_t tag, uint64_t mask, umx_recv_info *info)
{
    const umx_tag_message *message = umi_tag_find(worker, tag, mask);
    ucp_tag_recv_info_t    found;

    if (umi_tag_must_wait(worker, tag, mask, message, NULL)) {
        return UMX_ERR_NO_MESSAGE;
    }
    if (message != NULL) {
        *info = message->info;
        return UMX_OK;
    }
    if (ucp_tag_probe_nb(worker->engine->ucp, tag, mask, 0, &found) == NULL) {
        return UMX_ERR_NO_MESSAGE;
    }
    *info = (umx_recv_info){.tag = found.sender_tag, .length = found.length};
    return UMX_OK;
}

/* Take from UCX the first message that matches. The first probe only looks, and
 * the second removes the message from UCX's queue: then there is memory for it.
 */
static umx_status
take_of_engine(umi_engine *engine, uint64_t tag, uint64_t mask,
               umx_tag_message **message_p)
{
    umx_worker         *worker = engine->worker;
    umx_tag_message    *message;
    ucp_tag_recv_info_t found;

    if (ucp_tag_probe_nb(engine->ucp, tag, mask, 0, &found) == NULL) {
        return UMX_ERR_NO_MESSAGE;
    }
    message = umi_tag_message_new(worker, 0);
    if (message == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_engine_hold(engine);
    message->engine = engine;
    message->handle = ucp_tag_probe_nb(engine->ucp, tag, mask, 1, &found);
    message->info   = (umx_recv_info){.tag    = found.sender_tag,
                                      .length = found.length,
                                      .seq    = worker->tags->seq++};
    *message_p      = message;
    return UMX_OK;
}

/* Look for a message, and take it. */
static umx_status
take(umx_worker *worker, uint64_t tag, uint64_t mask,
     umx_tag_message **message_p)
{
    umx_tag_message *message = umi_tag_find(worker, tag, mask);

    if (umi_tag_must_wait(worker, tag, mask, message, NULL)) {
        return UMX_ERR_NO_MESSAGE;
    }
    if (message == NULL) {
        umx_status status = take_of_engine(worker->engine, tag, mask, &message);

        if (status != UMX_OK) {
            return status;
        }
    }
    umi_node_remove(&message->node);
    umi_list_append(&worker->tags->taken, &message->node);
    *message_p = message;
    return UMX_OK;
}

umx_status
umx_tag_probe(umx_worker *worker, uint64_t tag, uint64_t mask,
              umx_recv_info *info)
{
    UMI_GUARD(worker);
    umx_status status = umi_worker_check(worker);

    return (status == UMX_OK) ? look(worker, tag, mask, info) : status;
}

/* Given up after the message was taken: back with it. */
static bool
finish_take(umx_request *req)
{
    if (req->is_cancelled && req->status == UMX_OK) {
        umi_tag_return(umi_tag_op_of(req)->message);
        umi_tag_op_of(req)->message = NULL;
        req->status                 = UMX_ERR_CANCELED;
    }
    return true;
}

static const umi_request_ops wait_ops = {.name   = "tag_wait",
                                         .cancel = umi_request_cancel_queued};
static const umi_request_ops take_ops = {.name   = "tag_recv_message",
                                         .finish = finish_take,
                                         .cancel = umi_request_cancel_queued};

/* Look for what `req` waits for; UMX_ERR_NO_MESSAGE: not yet. */
static umx_status
try_waiter(umx_request *req)
{
    umx_status status;

    if (req->ops == &wait_ops) {
        return look(req->worker, umi_tag_op_of(req)->tag,
                    umi_tag_op_of(req)->mask, &req->info);
    }
    status = take(req->worker, umi_tag_op_of(req)->tag,
                  umi_tag_op_of(req)->mask, &umi_tag_op_of(req)->message);
    if (status == UMX_OK) {
        req->info = umi_tag_op_of(req)->message->info;
    }
    return status;
}

/* UMX_INPROGRESS: `*req_p` waits. Else `*req_p` is the caller's to free, if
 * there is one. */
static umx_status
post_waiter(umx_worker *worker, uint64_t tag, uint64_t mask,
            const umi_request_ops *ops, const umx_op_params *params,
            umx_request **req_p)
{
    umx_request *req = umi_request_new(worker, NULL, ops, params);
    umx_status   status;

    *req_p = req;
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    req->buf                    = (umx_buffer){0};
    req->info                   = (umx_recv_info){0};
    umi_tag_op_of(req)->tag     = tag;
    umi_tag_op_of(req)->mask    = mask;
    umi_tag_op_of(req)->message = NULL;
    status                      = try_waiter(req);
    if (status == UMX_ERR_NO_MESSAGE) {
        umi_list_append(&worker->waiting, &req->node);
        status = UMX_INPROGRESS;
    }
    return status;
}

umx_status
umx_tag_wait(umx_worker *worker, uint64_t tag, uint64_t mask,
             const umx_op_params *params, umx_request **req_p,
             umx_recv_info *info)
{
    UMI_GUARD(worker);
    umx_status   status = umi_worker_check_begin(worker);
    umx_request *req    = NULL;

    if (status == UMX_OK) {
        status = post_waiter(worker, tag, mask, &wait_ops, params, &req);
    }
    if (status == UMX_INPROGRESS) {
        *req_p = req;
    } else if (req != NULL) {
        *info = req->info;
        umi_request_free(req);
    }
    return status;
}

umx_status
umx_tag_recv_message(umx_worker *worker, uint64_t tag, uint64_t mask,
                     const umx_op_params *params, umx_request **req_p,
                     umx_tag_message **message_p)
{
    UMI_GUARD(worker);
    umx_status   status = umi_worker_check_begin(worker);
    umx_request *req    = NULL;

    if (status == UMX_OK) {
        status = post_waiter(worker, tag, mask, &take_ops, params, &req);
    }
    if (status == UMX_INPROGRESS) {
        *req_p = req;
    } else if (req != NULL) {
        *message_p = umi_tag_op_of(req)->message;
        umi_request_free(req);
    }
    return status;
}

umx_tag_message *
umx_request_tag_message(const umx_request *req)
{
    return (req != NULL) ? umi_tag_op_of(req)->message : NULL;
}

/* ---- the worker's calls --------------------------------------------------
 */

/* The first posted receive that `message` is for; NULL: none. */
static umx_request *
find_recv(const umx_worker *worker, const umx_tag_message *message)
{
    UMI_LIST_FOREACH(node, &worker->inflight) {
        umx_request *req = umi_container_of(node, umx_request, node);

        if (umi_tag_is_open(req) &&
            umi_tag_matches(message->info.tag, umi_tag_op_of(req)->tag,
                            umi_tag_op_of(req)->mask)) {
            return req;
        }
    }
    return NULL;
}

/* Take the messages that come to an old engine, where nothing is posted. */
static void
empty_engine(umi_engine *engine)
{
    umx_tag_message *message;

    while (take_of_engine(engine, 0, 0, &message) == UMX_OK) {
        umi_tag_return(message);
    }
}

void
umi_tag_init(umx_worker *worker, umi_tags *tags)
{
    umi_list_init(&tags->returned);
    umi_list_init(&tags->taken);
    worker->tags = tags;
}

void
umi_tag_look(umx_worker *worker)
{
    UMI_LIST_FOREACH(node, &worker->other_engines) {
        empty_engine(umi_container_of(node, umi_engine, node));
    }
    umi_tag_run_behind(worker);
    UMI_LIST_FOREACH_SAFE(node, &worker->tags->returned) {
        umx_request *req = find_recv(worker, message_of(node));

        if (req != NULL) {
            umi_tag_redirect(req, message_of(node));
        }
    }
    UMI_LIST_FOREACH_SAFE(node, &worker->waiting) {
        umx_request *req    = umi_container_of(node, umx_request, node);
        umx_status   status = try_waiter(req);

        if (status != UMX_ERR_NO_MESSAGE) {
            umi_request_complete(req, status);
        }
    }
}

static void
on_dropped(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
           void *arg)
{
    (void)status;
    (void)info;
    (void)arg;
    ucp_request_free(request);
}

/* UCX must have its descriptor back: receive nothing of it. */
static void
drop_handle(umx_tag_message *message)
{
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK,
        .cb.recv      = on_dropped,
    };

    if (message->handle != NULL && message->engine->ucp != NULL) {
        (void)ucp_tag_msg_recv_nbx(message->engine->ucp, NULL, 0,
                                   message->handle, &params);
    }
}

void
umi_tag_abort(umx_worker *worker)
{
    umi_request_complete_all(&worker->waiting, UMX_ERR_CANCELED);
    UMI_LIST_FOREACH_SAFE(node, &worker->tags->returned) {
        drop_handle(message_of(node));
        umi_tag_message_free(message_of(node));
    }
    UMI_LIST_FOREACH_SAFE(node, &worker->tags->taken) {
        umx_tag_message *message = message_of(node);

        drop_handle(message);
        umi_node_remove(node);
        free_spare(message);
        message->worker = NULL; /* the user gives it back */
        message->engine = NULL;
    }
}
