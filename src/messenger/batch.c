/* SPDX-License-Identifier: BSD-3-Clause */
/* batch.c: small messages, one after another in a pack. It is handed over when
 * it is full, and when the endpoint or the worker asks for it. */
#include <stdlib.h>

#include "messenger/sender.h"

umx_status
umi_batch_status(const umx_ep *ep)
{
    switch (umx_ep_get_state(ep)) {
    case UMX_EP_CONNECTING:
    case UMX_EP_OPEN:
        if (umi_ep_base_of(ep)->is_draining) {
            return UMX_ERR_CLOSED;
        }
        return umx_ep_is_peer_closed(ep) ? UMX_ERR_PEER_CLOSED : UMX_OK;
    case UMX_EP_FAILED:
        return umx_ep_error(ep);
    default:
        return UMX_ERR_CLOSED;
    }
}

/* ---- life ----------------------------------------------------------------
 */

static void
flush(umi_gathered *gathered)
{
    umi_batch_flush(umi_container_of(gathered, umi_batch, base));
}

/* The endpoint will take no more. */
static void
close_outlet(umi_gathered *gathered)
{
    umi_batch          *batch  = umi_container_of(gathered, umi_batch, base);
    umx_message_sender *sender = batch->sender;
    const umx_ep       *ep     = (const umx_ep *)(void *)batch->base.ep;
    bool                was_advancing = sender->is_advancing;
    size_t              left          = umi_list_count(&sender->waiting);
    umi_node           *node;

    umi_refs_get(&sender->refs);
    batch->refs++;
    sender->is_advancing = true;
    while ((node = umi_list_turn(&sender->waiting, &left)) != NULL) {
        umi_send_op *send_op = umi_container_of(node, umi_send_op, node);

        umi_send_op_post(send_op, ep);
        if (send_op->num_left == 0) {
            umi_send_op_finish(send_op);
        }
    }
    umi_batch_flush(batch);
    batch->refs--;
    umi_batch_check(batch);
    sender->is_advancing = was_advancing;
    umi_sender_advance(sender);
    umi_sender_put(sender);
}

umi_batch *
umi_batch_find(const umx_message_sender *sender, umx_ep *ep)
{
    UMI_LIST_FOREACH(node, &umi_ep_base_of(ep)->gathered) {
        umi_gathered *gathered = umi_container_of(node, umi_gathered, ep_node);
        umi_batch    *batch    = umi_container_of(gathered, umi_batch, base);

        if (gathered->flush == flush && batch->sender == sender) {
            return batch;
        }
    }
    return NULL;
}

umi_batch *
umi_batch_get(umx_message_sender *sender, umx_ep *ep)
{
    umi_batch *batch = umi_batch_find(sender, ep);

    if (batch != NULL) {
        return batch;
    }
    batch = calloc(1, sizeof(*batch));
    if (batch == NULL) {
        return NULL;
    }
    batch->base.ep    = umi_ep_base_of(ep);
    batch->base.flush = flush;
    batch->base.close = close_outlet;
    batch->sender     = sender;
    umi_node_init(&batch->base.worker_node);
    umi_list_append(&batch->base.ep->gathered, &batch->base.ep_node);
    umi_list_append(&sender->batches, &batch->node);
    umi_ep_base_hold(batch->base.ep);
    umi_refs_get(&sender->refs);
    return batch;
}

void
umi_batch_check(umi_batch *batch)
{
    umx_message_sender *sender = batch->sender;

    if (batch->pack != NULL || batch->num_waiting != 0 || batch->refs != 0) {
        return;
    }
    umi_node_remove(&batch->base.ep_node);
    umi_node_remove(&batch->base.worker_node);
    umi_node_remove(&batch->node);
    umi_ep_base_release(batch->base.ep);
    free(batch);
    umi_sender_put(sender);
}

/* ---- packs ---------------------------------------------------------------
 */

static bool
open_pack(umi_batch *batch, uint64_t generation)
{
    umx_message_sender *sender = batch->sender;
    umx_worker         *worker = sender->worker;

    batch->pack   = (sender->spare != NULL) ? sender->spare :
                                              malloc(UMI_PACK_MAX);
    sender->spare = NULL;
    if (batch->pack == NULL) {
        return false;
    }
    batch->pack[0]    = UMI_MESSAGE_PACK;
    batch->len        = 1;
    batch->generation = generation;
    umi_sender_begin(sender, generation);
    umi_list_append(&worker->gathered, &batch->base.worker_node);
    worker->has_events = true;
    worker->is_armed   = false;
    return true;
}

static void
close_pack(umi_batch *batch)
{
    umx_message_sender *sender = batch->sender;

    sender->stats.bytes_pending -= batch->len - 1;
    if (sender->spare == NULL) {
        sender->spare = batch->pack;
    } else {
        free(batch->pack);
    }
    batch->pack = NULL;
    umi_node_remove(&batch->base.worker_node);
    umi_sender_end(sender, batch->generation);
}

/* Post the batch. Without memory for that the endpoint ends: messages would be
 * missing. */
static void
post_pack(umi_batch *batch)
{
    umx_message_sender *sender = batch->sender;
    umx_ep             *ep     = (umx_ep *)(void *)batch->base.ep;
    umi_send_op *send_op = umi_send_op_new(sender, batch->generation, 1, 0, 0);

    if (send_op == NULL) {
        umx_ep_abort(ep);
        return;
    }
    umi_send_op_set_destination(send_op, 0, ep);
    send_op->header     = batch->pack;
    send_op->header_len = batch->len;
    send_op->len        = batch->len - 1;
    sender->stats.num_packs++;
    sender->stats.bytes_pending -= send_op->len; /* not twice, for the peak */
    batch->pack = NULL; /* nothing is to be handed over before it */
    umi_send_op_post(send_op, NULL);
    batch->pack = send_op->header;
    sender->stats.bytes_pending += send_op->len;
    if (send_op->num_left != 0) {
        return;
    }
    if (umi_send_op_status(send_op) == UMX_ERR_NO_MEMORY) {
        umx_ep_abort(ep);
    }
    umi_send_op_free(send_op);
}

void
umi_batch_flush(umi_batch *batch)
{
    if (batch->pack == NULL) {
        return;
    }
    batch->refs++;
    post_pack(batch);
    close_pack(batch);
    batch->refs--;
    umi_batch_check(batch);
}

void
umi_batch_drop(umi_batch *batch)
{
    if (batch->pack != NULL) {
        close_pack(batch);
        umi_batch_check(batch);
    }
}

static umx_status
add_entry(umi_batch *batch, const umx_message_out *message, size_t size,
          uint64_t generation)
{
    umx_message_sender *sender = batch->sender;
    umx_status          status;

    if (batch->pack != NULL && batch->len + size > UMI_PACK_MAX) {
        umi_batch_flush(batch);
    }
    if (batch->pack == NULL && !open_pack(batch, generation)) {
        return UMX_ERR_NO_MEMORY;
    }
    status = umi_batch_write(message, batch->pack + batch->len, size);
    if (status != UMX_OK) {
        if (batch->len == 1) {
            close_pack(batch);
        }
        return status;
    }
    if (generation < batch->generation) {
        umi_sender_begin(sender, generation);
        umi_sender_end(sender, batch->generation);
        batch->generation = generation;
    }
    batch->len += size;
    umi_sender_count(sender, size);
    sender->stats.num_packed++;
    return UMX_OK;
}

umx_status
umi_batch_add(umx_message_sender *sender, umx_ep *ep,
              const umx_message_out *message, size_t entry_size,
              uint64_t generation)
{
    umx_status status = umi_batch_status(ep);
    umi_batch *batch;

    if (status != UMX_OK) {
        return status;
    }
    batch = umi_batch_get(sender, ep);
    if (batch == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    batch->refs++;
    status = add_entry(batch, message, entry_size, generation);
    batch->refs--;
    umi_batch_check(batch);
    return status;
}
