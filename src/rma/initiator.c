/* SPDX-License-Identifier: BSD-3-Clause */
/* initiator.c: the asking side of rma.h.
 *
 * An operation is a request of the user's with parts, a message to the owner
 * each. A part is complete when its reply has come and UCX has done with the
 * user's buffer: it may still be read after the reply to a put has come, and
 * written after the reply to a get. */
#include <stdlib.h>

#include "channel/am.h"
#include "endpoint/endpoint.h"
#include "mem/memtype.h"
#include "rma/rma.h"
#include "util/count.h"
#include "worker/observe.h"

typedef struct part {
    umi_node        node;   /* rma->parts */
    umi_node        unsent; /* rma->unsent */
    uint64_t        number; /* grows */
    uint64_t        id;     /* in rma->ids; 0: has its reply, or gets none */
    umx_request    *req;    /* whose part it is */
    umx_request    *sending;
    umx_request    *receiving;
    umx_buffer      buf;     /* of a get */
    uint64_t       *old;     /* of an atomic operation, or NULL */
    umx_buffer      payload; /* to be sent */
    umi_rma_request request;
    bool            is_in_reach; /* UCX's put could reach the memory */
    bool            is_asked;    /* by the cancel that is being done */
} part;

/* A flush, the first part it does not cover, and the first waiting message,
 * where messages count. */
typedef struct waiting_flush {
    umi_node     node; /* rma->flushes */
    umx_request *req;
    uint64_t     number;
    uint32_t     queued;
    bool         has_messages;
} waiting_flush;

/* ---- parts ---------------------------------------------------------------
 */

static void
note_status(umx_request *req, umx_status status)
{
    if (status < 0 && umi_rma_op_of(req)->status == UMX_OK) {
        umi_rma_op_of(req)->status = status;
    }
}

/* Count a part as done, or the last one as added. */
static void
count_down(umx_request *req)
{
    if (UMI_DECREMENT(umi_rma_op_of(req)->num_parts) == 0) {
        umi_request_complete(req, umi_rma_op_of(req)->status);
    }
}

/* Go on with what has waited until nothing is under way. */
static void
become_idle(umx_ep *ep)
{
    ep->rma->is_fenced    = false;
    ep->rma->is_fence_due = false;
    if (ep->state == UMX_EP_DRAINING) {
        umi_endpoint_due(ep, UMI_DUE_SEND); /* the close may go on */
    }
}

static void
end_if_over(part *p)
{
    umx_request *req = p->req;
    umx_ep      *ep  = umi_endpoint_of(req->ep);

    if (p->id != 0 || p->sending != NULL || p->receiving != NULL ||
        umi_node_is_linked(&p->unsent)) {
        return;
    }
    umi_node_remove(&p->node);
    free(p);
    if (!umi_initiator_is_busy(ep)) {
        become_idle(ep);
    }
    umi_initiator_run_flushes(ep);
    count_down(req);
}

/* Forget a part's id: no reply is to come any more. */
static void
forget_reply(part *p)
{
    umi_slots_remove(&umi_endpoint_of(p->req->ep)->rma->ids, p->id);
    p->id = 0;
}

static void
fail_part(part *p, umx_status status)
{
    note_status(p->req, status);
    forget_reply(p);
    umi_node_remove(&p->unsent);
    end_if_over(p);
}

static void
on_sent(umx_request *sending, umx_status status, void *arg)
{
    part *p = arg;

    (void)sending;
    p->sending = NULL;
    if (status == UMX_OK ||
        (status == UMX_ERR_CANCELED && p->req->is_cancelled)) {
        end_if_over(p); /* what is cancelled goes on by itself */
    } else {
        fail_part(p, status);
    }
}

/* UCX keeps a buffer of a part: that ends the operation for the user, and the
 * flushes that wait for it. */
static void
on_lost(umx_request *op, umx_status status, void *arg)
{
    part    *p   = arg;
    umi_rma *rma = umi_endpoint_of(p->req->ep)->rma;

    (void)op;
    umi_request_lose(p->req, status);
    UMI_LIST_FOREACH(node, &rma->flushes) {
        waiting_flush *flush = umi_container_of(node, waiting_flush, node);

        if (p->number < flush->number) {
            umi_request_lose(flush->req, status);
        }
    }
}

static umx_op_params
part_params(part *p, umx_done_fn on_done)
{
    return (umx_op_params){.flags      = UMI_OP_FLAG_INTERNAL,
                           .field_mask = UMX_OP_FIELD_FLAGS |
                                         UMX_OP_FIELD_ON_DONE |
                                         UMX_OP_FIELD_ON_LOST,
                           .on_done = on_done,
                           .arg     = p,
                           .on_lost = on_lost};
}

static part *
part_new(umx_request *req)
{
    umi_rma *rma = umi_endpoint_of(req->ep)->rma;
    part    *p   = calloc(1, sizeof(*p));

    if (p == NULL) {
        return NULL;
    }
    umi_node_init(&p->unsent);
    p->number = rma->num_posted++;
    p->req    = req;
    p->id     = umi_slots_add(&rma->ids, p, (uint32_t)p->number);
    if (p->id == 0) {
        free(p);
        return NULL;
    }
    umi_list_append(&rma->parts, &p->node);
    umi_rma_op_of(req)->num_parts++;
    return p;
}

/* The owner lets the bytes land in its memory: once they are announced they
 * must come, also if the operation is cancelled. */
static void
send_part(part *p)
{
    umi_outgoing what = {
        .channel    = umi_header_channel_id(UMI_KIND_AM, UMI_AM_ID_RMA_REQUEST),
        .flags      = UMI_FLAG_UNTAGGED,
        .is_part    = true,
        .header     = &p->request,
        .header_len = sizeof(p->request),
    };
    umx_op_params params = part_params(p, on_sent);
    umx_status    status;

    status = umi_channel_send(umi_endpoint_of(p->req->ep), &what, &p->payload,
                              &params, &p->sending);
    if (status == UMX_INPROGRESS) {
        return;
    }
    p->sending = NULL;
    if (status != UMX_OK) {
        fail_part(p, status);
    } else {
        end_if_over(p); /* cancelled before it was sent */
    }
}

static void
post_part(part *p)
{
    umi_rma *rma = umi_endpoint_of(p->req->ep)->rma;

    p->request.id = p->id;
    if (rma->is_fence_due) {
        p->request.flags |= UMI_RMA_FENCE;
        rma->is_fence_due = false;
    }
    if (rma->is_fenced && rma->num_ucx != 0) {
        umi_list_append(&rma->unsent, &p->unsent);
    } else {
        send_part(p);
    }
}

void
umi_initiator_ucx_done(umx_ep *ep)
{
    umi_node *node;

    if (ep->rma->num_ucx != 0) {
        return;
    }
    while ((node = umi_list_pop(&ep->rma->unsent)) != NULL) {
        send_part(umi_container_of(node, part, unsent));
    }
    if (!umi_initiator_is_busy(ep)) {
        become_idle(ep);
    }
}

/* ---- operations ----------------------------------------------------------
 */

/* True if others rely on the fence that the part carries: it must be sent. A
 * signal's is its own. */
static bool
carries_fence(const part *p)
{
    return (p->request.flags & UMI_RMA_FENCE) &&
           !(p->request.flags & UMI_RMA_SIGNAL);
}

/* Withdraw a part that UCX has not got yet. A signal comes behind its put: it
 * is withdrawn, too, if the put is. */
static bool
withdraw(part *p)
{
    umx_request *sending = p->sending;

    if (carries_fence(p)) {
        return false;
    }
    if (umi_node_is_linked(&p->unsent)) {
        umi_node_remove(&p->unsent);
        return true;
    }
    if (sending == NULL || umi_request_is_posted(sending) ||
        sending->status != UMX_INPROGRESS) {
        return false;
    }
    sending->is_cancelled = true;
    umi_request_complete(sending, UMX_ERR_CANCELED);
    return true;
}

static bool
cancel_half(const part *p, umx_request *half)
{
    umx_status status = p->req->is_abandoned ? umx_request_abandon(half) :
                                               umx_request_cancel(half);

    return status == UMX_OK;
}

/* Have the bytes of a put sent from memory of the library's. One that was not
 * sent yet loses its bytes, and brings its fence. */
static bool
give_back_payload(part *p)
{
    if (umi_node_is_linked(&p->unsent)) {
        p->request.length = 0;
        p->payload        = (umx_buffer){0};
        p->buf            = (umx_buffer){0};
        return true;
    }
    return p->sending == NULL || p->payload.len == 0 ||
           cancel_half(p, p->sending);
}

/* Have nothing written into the buffer of a get. */
static bool
give_back_buffer(part *p)
{
    if (p->request.op == UMI_RMA_GET) {
        forget_reply(p);
    }
    return p->receiving == NULL || umi_request_void(p->receiving) ||
           cancel_half(p, p->receiving);
}

/* Let a part go on, or end, without the user's memory. False: it has that
 * still. `p` may be gone. */
static bool
cancel_part(part *p)
{
    bool is_free;

    p->old = NULL;
    if (withdraw(p)) {
        forget_reply(p);
        end_if_over(p);
        return true;
    }
    is_free = give_back_payload(p);
    is_free = give_back_buffer(p) && is_free;
    end_if_over(p);
    return is_free;
}

/* The first part of `req` that the cancel has not come to; or NULL. */
static part *
next_to_cancel(const umx_request *req)
{
    UMI_LIST_FOREACH(node, &umi_endpoint_of(req->ep)->rma->parts) {
        part *p = umi_container_of(node, part, node);

        if (p->req == req && !p->is_asked) {
            return p;
        }
    }
    return NULL;
}

/* What of `req`, which is cancelled, will write to the owner's memory does so
 * before what is posted later. */
static void
order_later(const umx_request *req)
{
    umi_rma *rma = umi_endpoint_of(req->ep)->rma;

    UMI_LIST_FOREACH(node, &rma->parts) {
        const part *p = umi_container_of(node, part, node);

        if (p->req == req && p->request.op != UMI_RMA_GET) {
            rma->is_fence_due = true;
            rma->is_fenced |= p->is_in_reach;
        }
    }
}

/* Cancel an operation. What was sent is executed all the same, and flushes and
 * fences count it. UCX may run meanwhile, and other parts be gone then. */
static void
cancel_ask(umx_request *req)
{
    umi_rma *rma     = umi_endpoint_of(req->ep)->rma;
    bool     is_free = true;
    part    *p;

    umi_rma_op_of(req)->num_parts++; /* not to complete in here */
    note_status(req, UMX_ERR_CANCELED);
    UMI_LIST_FOREACH(node, &rma->parts) {
        umi_container_of(node, part, node)->is_asked = false;
    }
    while ((p = next_to_cancel(req)) != NULL) {
        p->is_asked = true;
        is_free     = cancel_part(p) && is_free;
    }
    if (is_free && umi_rma_op_of(req)->num_parts != 1) {
        umi_request_detach(req);
    }
    order_later(req);
    count_down(req);
}

static const umi_request_ops ask_ops = {.name = "rma", .cancel = cancel_ask};

umx_request *
umi_initiator_begin(umx_rkey *rkey, const umx_op_params *params)
{
    umx_ep      *ep = umi_endpoint_of(rkey->ep);
    umx_request *req;

    if (umi_rma_get_state(ep) == NULL) {
        return NULL;
    }
    req = umi_request_new(ep->base.worker, &ep->base, &ask_ops, params);
    if (req != NULL) {
        req->buf  = (umx_buffer){0};
        req->info = (umx_recv_info){0};
        umi_rma_op_of(req)->num_parts =
            1; /* umi_initiator_end() takes it off */
        umi_rma_op_of(req)->status = UMX_OK;
    }
    return req;
}

void
umi_initiator_transfer(umx_request *req, umx_rkey *rkey,
                       const umx_rma_item *item, bool is_write)
{
    umi_rma_request request = {.op      = is_write ? UMI_RMA_PUT : UMI_RMA_GET,
                               .context = rkey->key.context,
                               .memory  = rkey->key.memory,
                               .offset  = item->offset,
                               .length  = item->buf.len};
    part           *p       = part_new(req);
    umx_buffer     *buf;

    if (UMI_IS_OBSERVED()) {
        umx_request_describe(req, is_write ? "put" : "get", item->buf.len, 0,
                             -1);
    }
    if (p == NULL) {
        note_status(req, UMX_ERR_NO_MEMORY);
        return;
    }
    p->request     = request;
    p->is_in_reach = (rkey->ucp != NULL);
    buf            = is_write ? &p->payload : &p->buf;
    *buf           = item->buf;
    umi_request_hold_part(req, buf);
    post_part(p);
}

static part *
new_atomic(umx_request *req, umx_rkey *rkey, const umx_atomic *atomic)
{
    umi_rma_request request = {.op      = UMI_RMA_ATOMIC,
                               .atomic  = (uint8_t)atomic->op,
                               .size    = (uint8_t)atomic->size,
                               .context = rkey->key.context,
                               .memory  = rkey->key.memory,
                               .offset  = atomic->offset,
                               .length  = atomic->size,
                               .value   = atomic->value,
                               .compare = atomic->compare};
    part           *p       = part_new(req);

    if (p == NULL) {
        note_status(req, UMX_ERR_NO_MEMORY);
    } else {
        p->request = request;
    }
    return p;
}

void
umi_initiator_atomic(umx_request *req, umx_rkey *rkey, const umx_atomic *atomic,
                     uint64_t *old)
{
    part *p = new_atomic(req, rkey, atomic);

    if (UMI_IS_OBSERVED()) {
        umx_request_describe(req, "atomic", atomic->size, 0, -1);
    }
    if (p != NULL) {
        p->old = old;
        post_part(p);
    }
}

void
umi_initiator_signal(umx_request *req, umx_rkey *rkey, const umx_atomic *signal)
{
    part *p = new_atomic(req, rkey, signal);

    if (p != NULL) {
        p->request.flags = UMI_RMA_FENCE | UMI_RMA_SIGNAL;
        post_part(p);
    }
}

void
umi_initiator_late_signal(umx_request *req, umx_rkey *rkey,
                          const umx_atomic *signal)
{
    part *p = new_atomic(req, rkey, signal);

    if (p != NULL) {
        p->request.id = p->id;
        send_part(p);
    }
}

void
umi_initiator_end(umx_request *req)
{
    count_down(req);
}

/* ---- replies -------------------------------------------------------------
 */

static void
on_received(umx_request *receiving, umx_status status, void *arg)
{
    part *p = arg;

    (void)receiving;
    if (status ==
        UMX_ERR_WITHDRAWN) { /* its memory, a device's, is unreadable */
        status = UMX_ERR_IO_ERROR;
    }
    p->receiving = NULL;
    note_status(p->req, status);
    end_if_over(p);
}

/* Receive what was got into the user's buffer. */
static void
receive(part *p, umx_message *message)
{
    umx_op_params params = part_params(p, on_received);
    umx_status    status = umx_message_recv(&message, &p->buf, &params,
                                            &p->receiving);

    if (message != NULL) {
        umx_message_drop(message); /* its operation fails */
    }
    if (status != UMX_INPROGRESS) {
        p->receiving = NULL;
        note_status(p->req, status);
    }
}

void
umi_initiator_on_reply(umx_ep *ep, umx_message *message, void *arg)
{
    size_t        len, payload_len = umx_message_info(message)->length;
    const void   *header = umx_message_header(message, &len);
    umi_rma_reply reply;
    part         *p;

    (void)arg;
    if (!umi_codec_rma_reply_decode(&reply, header, len)) {
        umi_endpoint_protocol_error(ep, "malformed reply about memory");
        umx_message_drop(message);
        return;
    }
    p = (ep->rma == NULL) ? NULL : umi_slots_get(&ep->rma->ids, reply.id);
    if (p == NULL) {
        umx_message_drop(message); /* cancelled */
        return;
    }
    if (payload_len != ((reply.status == UMX_OK) ? p->buf.len : 0)) {
        umi_endpoint_protocol_error(ep, "a reply of a wrong length");
        umx_message_drop(message);
        return;
    }
    note_status(p->req, (umx_status)reply.status);
    if (p->old != NULL) {
        *p->old = reply.value;
    }
    forget_reply(p);
    if (payload_len != 0) {
        receive(p, message);
    } else {
        umx_message_drop(message);
    }
    end_if_over(p);
}

/* ---- the end -------------------------------------------------------------
 */

void
umi_initiator_fail(umx_ep *ep, umx_status status)
{
    if (ep->rma == NULL) {
        return;
    }
    UMI_LIST_FOREACH_SAFE(node, &ep->rma->parts) {
        part *p = umi_container_of(node, part, node);

        if (p->id != 0 || umi_node_is_linked(&p->unsent)) {
            fail_part(p, status);
        }
    }
    umi_initiator_run_flushes(ep);
}

bool
umi_initiator_is_busy(const umx_ep *ep)
{
    return ep->rma != NULL &&
           (!umi_list_is_empty(&ep->rma->parts) || ep->rma->num_ucx != 0);
}

/* ---- flushes -------------------------------------------------------------
 */

/* Post a flush. Returns why it cannot be posted, or what came of it. */
static umx_status
post_flush(umx_request *req)
{
    umi_ep_base *ep = req->ep;

    if (req->is_cancelled) {
        return UMX_ERR_CANCELED;
    }
    umi_request_restart(req);
    if (ep != NULL && !ep->is_bound) {
        umi_list_append(&ep->waiting, &req->node);
        return UMX_INPROGRESS;
    }
    if (ep != NULL &&
        (ep->handle == NULL || umi_endpoint_of(ep)->is_peer_closed)) {
        return umi_endpoint_end_status(umi_endpoint_of(ep), UMX_ERR_CLOSED);
    }
    return req->ops->post(req);
}

/* Count an endpoint's flush as done. */
static void
count_flush(umx_request *req)
{
    umx_status status;

    if (UMI_DECREMENT(umi_rma_op_of(req)->num_parts) != 0) {
        return;
    }
    status = post_flush(req);
    if (status != UMX_INPROGRESS) {
        umi_request_complete(req, status);
    }
}

/* True if all that `flush` covers is done. */
static bool
is_due(const umx_ep *ep, const waiting_flush *flush)
{
    const umi_list *parts = &ep->rma->parts;

    return (umi_list_is_empty(parts) ||
            umi_container_of(parts->next, part, node)->number >=
                flush->number) &&
           (!flush->has_messages || umi_channels_have_sent(ep, flush->queued));
}

void
umi_initiator_run_flushes(umx_ep *ep)
{
    while (ep->rma != NULL && !umi_list_is_empty(&ep->rma->flushes)) {
        waiting_flush *flush = umi_container_of(ep->rma->flushes.next,
                                                waiting_flush, node);
        umx_request   *req   = flush->req;

        if (!is_due(ep, flush)) {
            return;
        }
        umi_node_remove(&flush->node);
        free(flush);
        count_flush(req);
    }
}

/* Let `req` wait for the operations on `ep`, and for messages if it is to.
 * False when out of memory. */
static bool
wait_for(umx_ep *ep, umx_request *req, bool has_messages)
{
    uint32_t       queued = umi_channels_of(ep)->num_queued;
    waiting_flush *flush;

    if ((ep->rma == NULL || umi_list_is_empty(&ep->rma->parts)) &&
        (!has_messages || umi_channels_have_sent(ep, queued))) {
        return true; /* UCX's own flush covers its operations */
    }
    flush = (umi_rma_get_state(ep) != NULL) ? malloc(sizeof(*flush)) : NULL;
    if (flush == NULL) {
        return false;
    }
    flush->req          = req;
    flush->number       = ep->rma->num_posted;
    flush->queued       = queued;
    flush->has_messages = has_messages;
    umi_list_append(&ep->rma->flushes, &flush->node);
    umi_rma_op_of(req)->num_parts++;
    return true;
}

static void
forget_flush(umx_ep *ep, umx_request *req)
{
    if (ep->rma == NULL) {
        return;
    }
    UMI_LIST_FOREACH_SAFE(node, &ep->rma->flushes) {
        waiting_flush *flush = umi_container_of(node, waiting_flush, node);

        if (flush->req == req) {
            umi_node_remove(node);
            free(flush);
        }
    }
}

umx_status
umi_initiator_hold_flush(umx_request *req, bool has_messages)
{
    bool is_ok = true;

    umi_rma_op_of(req)->num_parts = 0;
    UMI_LIST_FOREACH(node, &req->worker->eps) {
        umi_ep_base *ep = umi_container_of(node, umi_ep_base, node);

        if (req->ep == NULL || req->ep == ep) {
            is_ok = is_ok && wait_for(umi_endpoint_of(ep), req, has_messages);
        }
    }
    if (!is_ok) {
        UMI_LIST_FOREACH(node, &req->worker->eps) {
            forget_flush(
                umi_endpoint_of(umi_container_of(node, umi_ep_base, node)),
                req);
        }
        return UMX_ERR_NO_MEMORY;
    }
    /* A posted flush cannot be taken back. */
    if (umi_rma_op_of(req)->num_parts == 0) {
        return UMX_OK;
    }
    umi_request_posted(req);
    return UMX_INPROGRESS;
}
