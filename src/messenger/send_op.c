/* SPDX-License-Identifier: BSD-3-Clause */
/* send_op.c: one message to its endpoints. */
#include "messenger/sender.h"
#include "util/count.h"

#include <stdlib.h>

/* ---- life ----------------------------------------------------------------
 */

umi_send_op *
umi_send_op_new(umx_message_sender *sender, uint64_t generation,
                size_t num_destinations, size_t header_len, size_t num_buffers)
{
    size_t size = sizeof(umi_send_op) +
                  num_destinations * sizeof(umi_destination);
    umi_send_op *send_op = malloc(size + num_buffers * sizeof(umx_buffer) +
                                  header_len);

    if (send_op == NULL) {
        return NULL;
    }
    memset(send_op, 0, size);
    umi_node_init(&send_op->node);
    send_op->sender           = sender;
    send_op->generation       = generation;
    send_op->num_destinations = num_destinations;
    send_op->num_left         = num_destinations;
    send_op->num_waiting      = num_destinations;
    send_op->num_buffers      = num_buffers;
    send_op->buffers          = (umx_buffer *)(void *)((char *)send_op + size);
    send_op->header           = (uint8_t *)(send_op->buffers + num_buffers);
    send_op->header_len       = header_len;
    umi_refs_get(&sender->refs);
    umi_sender_begin(sender, send_op->generation);
    return send_op;
}

void
umi_send_op_set_destination(umi_send_op *send_op, size_t i, umx_ep *ep)
{
    umi_destination *destination = &send_op->destinations[i];

    destination->send_op = send_op;
    destination->ep      = ep;
    destination->status  = UMX_INPROGRESS;
    umi_ep_base_hold(umi_ep_base_of(ep));
}

umi_send_op *
umi_send_op_from(umx_message_sender *sender, const umx_message_out *message,
                 size_t entry_size, uint64_t len, bool is_waiting)
{
    umi_send_op *send_op = umi_send_op_new(
        sender, sender->generation, message->num_endpoints,
        1 + message->metadata.len, is_waiting ? message->num_buffers : 0);

    if (send_op == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < message->num_endpoints; i++) {
        umi_send_op_set_destination(send_op, i, message->endpoints[i]);
    }
    send_op->statuses    = message->statuses;
    send_op->entry_size  = entry_size;
    send_op->len         = len;
    send_op->num_buffers = message->num_buffers;
    send_op->header[0]   = UMI_MESSAGE_ONE;
    if (message->metadata.len != 0) {
        memcpy(send_op->header + 1, message->metadata.data,
               message->metadata.len);
    }
    if (!is_waiting) {
        send_op->buffers = (umx_buffer *)(uintptr_t)message->buffers;
    } else {
        send_op->has_buffers = true;
        for (size_t i = 0; i < message->num_buffers; i++) {
            send_op->buffers[i] = message->buffers[i];
            if (message->buffers[i].memh != NULL) {
                umi_memh_hold(message->buffers[i].memh);
            }
        }
    }
    return send_op;
}

/* End an operation that nothing waits for any more. */
static void
end_thing(umi_send_op *send_op)
{
    if (!send_op->is_ended) {
        send_op->is_ended = true;
        umi_sender_end(send_op->sender, send_op->generation);
    }
}

/* Give up the references to registrations. */
static void
drop_buffers(umi_send_op *send_op)
{
    for (size_t i = 0; i < send_op->num_buffers && send_op->has_buffers; i++) {
        if (send_op->buffers[i].memh != NULL) {
            umi_memh_put(send_op->buffers[i].memh);
        }
    }
    send_op->has_buffers = false;
}

void
umi_send_op_free(umi_send_op *send_op)
{
    umx_message_sender *sender = send_op->sender;

    end_thing(send_op);
    drop_buffers(send_op);
    umi_node_remove(&send_op->node);
    free(send_op);
    umi_sender_put(sender);
}

umx_status
umi_send_op_status(const umi_send_op *send_op)
{
    for (size_t i = 0; i < send_op->num_destinations; i++) {
        if (send_op->destinations[i].status != UMX_OK) {
            return send_op->destinations[i].status;
        }
    }
    return UMX_OK;
}

/* ---- posting -------------------------------------------------------------
 */

static void
end_destination(umi_destination *destination, umx_status status)
{
    umi_send_op *send_op = destination->send_op;
    umx_ep      *ep      = destination->ep;

    if (send_op->statuses != NULL) {
        send_op->statuses[destination - send_op->destinations] = status;
    }
    destination->status = status;
    destination->ep     = NULL;
    UMI_DECREMENT(send_op->num_left);
    send_op->num_lost -= destination->is_lost;
    umi_ep_base_release(umi_ep_base_of(ep));
}

/* A destination waits no longer. */
static void
end_waiting(umi_destination *destination)
{
    umi_send_op *send_op = destination->send_op;
    umi_batch   *batch;

    destination->is_posted = true;
    if (UMI_DECREMENT(send_op->num_waiting) == 0 &&
        umi_node_is_linked(&send_op->node)) {
        umi_node_remove(&send_op->node);
        UMI_DECREMENT(send_op->sender->stats.num_waiting);
    }
    if ((size_t)(destination - send_op->destinations) >= send_op->num_batches) {
        return;
    }
    batch = umi_batch_find(send_op->sender, destination->ep);
    if (batch != NULL) {
        UMI_DECREMENT(batch->num_waiting);
        umi_batch_check(batch);
    }
}

/* Check whether only destinations that are lost are left, for which nobody else
 * waits. */
static void
check_lost(umi_send_op *send_op)
{
    if (send_op->num_left == 0 || send_op->num_lost != send_op->num_left) {
        return;
    }
    end_thing(send_op);
    if (send_op->req != NULL) {
        umi_request_lose(send_op->req, umi_send_op_status(send_op));
    }
}

static void
on_leg_done(umx_request *op, umx_status status, void *arg)
{
    umi_destination    *destination = arg;
    umi_send_op        *send_op     = destination->send_op;
    umx_message_sender *sender      = send_op->sender;

    (void)op;
    destination->op = NULL;
    if (!destination->is_lost) {
        sender->stats.bytes_pending -= send_op->len;
    }
    end_destination(destination, status);
    umi_refs_get(&sender->refs);
    if (send_op->num_left == 0) {
        umi_send_op_finish(send_op);
    } else {
        check_lost(send_op);
    }
    umi_sender_advance(sender);
    umi_sender_put(sender);
}

/* Note that UCX keeps an operation for good. */
static void
on_leg_lost(umx_request *op, umx_status status, void *arg)
{
    umi_destination    *destination = arg;
    umi_send_op        *send_op     = destination->send_op;
    umx_message_sender *sender      = send_op->sender;

    (void)op;
    destination->is_lost = true;
    destination->status  = status; /* until it is done */
    sender->stats.bytes_pending -= send_op->len;
    umi_refs_get(&sender->refs);
    send_op->num_lost++;
    check_lost(send_op);
    umi_sender_advance(sender);
    umi_sender_put(sender);
}

static void
post_frames(umi_destination *destination)
{
    umi_send_op        *send_op = destination->send_op;
    umx_message_sender *sender  = send_op->sender;
    umi_batch          *batch   = umi_batch_find(sender, destination->ep);
    umx_op_params       params  = {.field_mask = UMX_OP_FIELD_ON_DONE |
                                                 UMX_OP_FIELD_ON_LOST,
                                   .on_done = on_leg_done,
                                   .on_lost = on_leg_lost,
                                   .arg     = destination};
    umx_status          status;

    if (batch != NULL) {
        umi_batch_flush(batch); /* what was sent before */
    }
    umi_sender_count(sender, send_op->len);
    status = umx_frames_send(destination->ep, sender->channel, send_op->header,
                             send_op->header_len, send_op->buffers,
                             send_op->num_buffers, &params, &destination->op);
    if (status != UMX_INPROGRESS) {
        destination->op = NULL;
        sender->stats.bytes_pending -= send_op->len;
        end_destination(destination, status);
    }
}

static void
post_destination(umi_destination *destination)
{
    umi_send_op    *send_op = destination->send_op;
    umx_message_out message = {
        .metadata    = {send_op->header + 1, send_op->header_len - 1},
        .buffers     = send_op->buffers,
        .num_buffers = send_op->num_buffers,
    };

    end_waiting(destination);
    if (send_op->entry_size == 0) {
        post_frames(destination);
    } else {
        end_destination(destination,
                        umi_batch_add(send_op->sender, destination->ep,
                                      &message, send_op->entry_size,
                                      send_op->generation));
    }
}

void
umi_send_op_post(umi_send_op *send_op, const umx_ep *ep)
{
    for (size_t i = 0; i < send_op->num_destinations; i++) {
        umi_destination *destination = &send_op->destinations[i];

        if (destination->ep != NULL && !destination->is_posted &&
            (ep == NULL || destination->ep == ep)) {
            post_destination(destination);
        }
    }
}

void
umi_send_op_finish(umi_send_op *send_op)
{
    if (send_op->req != NULL) {
        umi_request_complete(send_op->req, umi_send_op_status(send_op));
    }
    umi_send_op_free(send_op);
}

/* ---- waiting -------------------------------------------------------------
 */

umx_status
umi_send_op_wait(umi_send_op *send_op)
{
    umx_message_sender *sender = send_op->sender;

    for (size_t i = 0; i < send_op->num_destinations; i++) {
        umi_batch *batch = umi_batch_get(sender, send_op->destinations[i].ep);

        if (batch == NULL) {
            return UMX_ERR_NO_MEMORY;
        }
        batch->num_waiting++;
        send_op->num_batches++;
    }
    umi_list_append(&sender->waiting, &send_op->node);
    sender->stats.num_waiting++;
    return UMX_OK;
}

void
umi_send_op_withdraw(umi_send_op *send_op, umx_status status)
{
    for (size_t i = 0; i < send_op->num_destinations; i++) {
        umi_destination *destination = &send_op->destinations[i];

        if (!destination->is_posted) {
            end_waiting(destination);
            end_destination(destination, status);
        }
    }
}

/* Cancel what is posted. False: the buffers stay lent to some of it. */
static bool
cancel_legs(umi_send_op *send_op, bool is_abandoned)
{
    bool is_free = true;

    for (size_t i = 0; i < send_op->num_destinations; i++) {
        umx_request *op     = send_op->destinations[i].op;
        umx_status   status = UMX_OK;

        if (op != NULL) {
            status = is_abandoned ? umx_request_abandon(op) :
                                    umx_request_cancel(op);
        }
        is_free = is_free && status == UMX_OK;
    }
    return is_free;
}

/* End the user's part of an operation whose legs go on without the buffers. */
static void
detach(umi_send_op *send_op)
{
    for (size_t i = 0; i < send_op->num_destinations; i++) {
        if (send_op->statuses != NULL && send_op->destinations[i].ep != NULL) {
            send_op->statuses[i] = UMX_ERR_CANCELED;
        }
    }
    send_op->statuses = NULL;
    drop_buffers(send_op);
    umi_request_detach(send_op->req);
}

static void
cancel(umx_request *req)
{
    umi_send_op        *send_op = umi_message_op_of(req)->send_op;
    umx_message_sender *sender  = send_op->sender;
    bool                is_free;

    umi_refs_get(&sender->refs);
    umi_send_op_withdraw(send_op, UMX_ERR_CANCELED);
    is_free = cancel_legs(send_op, req->is_abandoned);
    if (send_op->num_left == 0) {
        umi_send_op_finish(send_op);
    } else if (is_free) {
        detach(send_op);
    } else {
        check_lost(send_op);
    }
    umi_sender_advance(sender);
    umi_sender_put(sender);
}

const umi_request_ops umi_send_op_ops = {
    .name   = "message_send",
    .cancel = cancel,
};
