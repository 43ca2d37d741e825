/* SPDX-License-Identifier: BSD-3-Clause */
/* send_op.c: one message to its endpoints. */
#include "messenger/sender.h"

#include <stdlib.h>

/* ---- life ----------------------------------------------------------------
 */

umi_sending *
umi_sending_new(umx_message_sender *sender, uint64_t generation,
                size_t num_legs, size_t header_len, size_t num_buffers)
{
    size_t       size    = sizeof(umi_sending) + num_legs * sizeof(umi_leg);
    umi_sending *sending = malloc(size + num_buffers * sizeof(umx_buffer) +
                                  header_len);

    if (sending == NULL) {
        return NULL;
    }
    memset(sending, 0, size);
    umi_link_init(&sending->link);
    sending->sender      = sender;
    sending->generation  = generation;
    sending->num_legs    = num_legs;
    sending->num_left    = num_legs;
    sending->num_waiting = num_legs;
    sending->num_buffers = num_buffers;
    sending->buffers     = (umx_buffer *)(void *)((char *)sending + size);
    sending->header      = (uint8_t *)(sending->buffers + num_buffers);
    sending->header_len  = header_len;
    sender->refs++;
    umi_sender_begin(sender, sending->generation);
    return sending;
}

void
umi_sending_set_leg(umi_sending *sending, size_t i, umx_ep *ep)
{
    umi_leg *leg = &sending->legs[i];

    leg->sending = sending;
    leg->ep      = ep;
    leg->status  = UMX_INPROGRESS;
    umi_ep_hold(umi_ep_of(ep));
}

umi_sending *
umi_sending_from(umx_message_sender *sender, const umx_message_out *message,
                 size_t entry_size, uint64_t len, bool is_waiting)
{
    umi_sending *sending = umi_sending_new(
        sender, sender->generation, message->num_endpoints,
        1 + message->metadata.len, is_waiting ? message->num_buffers : 0);

    if (sending == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < message->num_endpoints; i++) {
        umi_sending_set_leg(sending, i, message->endpoints[i]);
    }
    sending->statuses    = message->statuses;
    sending->entry_size  = entry_size;
    sending->len         = len;
    sending->num_buffers = message->num_buffers;
    sending->header[0]   = UMI_MESSAGE_ONE;
    if (message->metadata.len != 0) {
        memcpy(sending->header + 1, message->metadata.data,
               message->metadata.len);
    }
    if (!is_waiting) {
        sending->buffers = (umx_buffer *)(uintptr_t)message->buffers;
    } else {
        sending->has_buffers = true;
        for (size_t i = 0; i < message->num_buffers; i++) {
            sending->buffers[i] = message->buffers[i];
            if (message->buffers[i].memh != NULL) {
                umi_memh_hold(message->buffers[i].memh);
            }
        }
    }
    return sending;
}

/* Nothing waits for it any more. */
static void
end_thing(umi_sending *sending)
{
    if (!sending->is_ended) {
        sending->is_ended = true;
        umi_sender_end(sending->sender, sending->generation);
    }
}

void
umi_sending_free(umi_sending *sending)
{
    umx_message_sender *sender = sending->sender;

    end_thing(sending);

    for (size_t i = 0; i < sending->num_buffers && sending->has_buffers; i++) {
        if (sending->buffers[i].memh != NULL) {
            umi_memh_put(sending->buffers[i].memh);
        }
    }
    umi_link_remove(&sending->link);
    free(sending);
    umi_sender_put(sender);
}

umx_status
umi_sending_status(const umi_sending *sending)
{
    for (size_t i = 0; i < sending->num_legs; i++) {
        if (sending->legs[i].status != UMX_OK) {
            return sending->legs[i].status;
        }
    }
    return UMX_OK;
}

/* ---- posting -------------------------------------------------------------
 */

static void
end_leg(umi_leg *leg, umx_status status)
{
    umi_sending *sending = leg->sending;
    umx_ep      *ep      = leg->ep;

    if (sending->statuses != NULL) {
        sending->statuses[leg - sending->legs] = status;
    }
    leg->status = status;
    leg->ep     = NULL;
    sending->num_left--;
    sending->num_lost -= leg->is_lost;
    umi_ep_release(umi_ep_of(ep));
}

/* A leg waits no longer. */
static void
end_waiting(umi_leg *leg)
{
    umi_sending *sending = leg->sending;
    umi_outlet  *outlet;

    leg->is_posted = true;
    if (--sending->num_waiting == 0 && umi_link_is_linked(&sending->link)) {
        umi_link_remove(&sending->link);
        sending->sender->stats.num_waiting--;
    }
    if ((size_t)(leg - sending->legs) >= sending->num_outlets) {
        return;
    }
    outlet = umi_outlet_find(sending->sender, leg->ep);
    if (outlet != NULL) {
        outlet->num_waiting--;
        umi_outlet_check(outlet);
    }
}

/* Only legs that are lost are left: nobody else waits for them. */
static void
check_lost(umi_sending *sending)
{
    if (sending->num_left == 0 || sending->num_lost != sending->num_left) {
        return;
    }
    end_thing(sending);
    if (sending->req != NULL) {
        umi_request_lose(sending->req, umi_sending_status(sending));
    }
}

static void
on_leg_done(umx_request *op, umx_status status, void *arg)
{
    umi_leg            *leg     = arg;
    umi_sending        *sending = leg->sending;
    umx_message_sender *sender  = sending->sender;

    (void)op;
    leg->op = NULL;
    if (!leg->is_lost) {
        sender->stats.bytes_pending -= sending->len;
    }
    end_leg(leg, status);
    sender->refs++;
    if (sending->num_left == 0) {
        umi_sending_finish(sending);
    } else {
        check_lost(sending);
    }
    umi_sender_advance(sender);
    umi_sender_put(sender);
}

/* UCX keeps it for good. */
static void
on_leg_lost(umx_request *op, umx_status status, void *arg)
{
    umi_leg            *leg     = arg;
    umi_sending        *sending = leg->sending;
    umx_message_sender *sender  = sending->sender;

    (void)op;
    leg->is_lost = true;
    leg->status  = status; /* until it is done */
    sender->stats.bytes_pending -= sending->len;
    sender->refs++;
    sending->num_lost++;
    check_lost(sending);
    umi_sender_advance(sender);
    umi_sender_put(sender);
}

static void
post_frames(umi_leg *leg)
{
    umi_sending        *sending = leg->sending;
    umx_message_sender *sender  = sending->sender;
    umi_outlet         *outlet  = umi_outlet_find(sender, leg->ep);
    umx_op_params       params  = {.field_mask = UMX_OP_FIELD_ON_DONE |
                                                 UMX_OP_FIELD_ON_LOST,
                                   .on_done = on_leg_done,
                                   .on_lost = on_leg_lost,
                                   .arg     = leg};
    umx_status          status;

    if (outlet != NULL) {
        umi_outlet_flush(outlet); /* what was sent before */
    }
    umi_sender_count(sender, sending->len);
    status = umx_frames_send(leg->ep, sender->channel, sending->header,
                             sending->header_len, sending->buffers,
                             sending->num_buffers, &params, &leg->op);
    if (status != UMX_INPROGRESS) {
        leg->op = NULL;
        sender->stats.bytes_pending -= sending->len;
        end_leg(leg, status);
    }
}

static void
post_leg(umi_leg *leg)
{
    umi_sending    *sending = leg->sending;
    umx_message_out message = {
        .metadata    = {sending->header + 1, sending->header_len - 1},
        .buffers     = sending->buffers,
        .num_buffers = sending->num_buffers,
    };

    end_waiting(leg);
    if (sending->entry_size == 0) {
        post_frames(leg);
    } else {
        end_leg(leg, umi_outlet_add(sending->sender, leg->ep, &message,
                                    sending->entry_size, sending->generation));
    }
}

void
umi_sending_post(umi_sending *sending, const umx_ep *ep)
{
    for (size_t i = 0; i < sending->num_legs; i++) {
        umi_leg *leg = &sending->legs[i];

        if (leg->ep != NULL && !leg->is_posted &&
            (ep == NULL || leg->ep == ep)) {
            post_leg(leg);
        }
    }
}

void
umi_sending_finish(umi_sending *sending)
{
    if (sending->req != NULL) {
        umi_request_complete(sending->req, umi_sending_status(sending));
    }
    umi_sending_free(sending);
}

/* ---- waiting -------------------------------------------------------------
 */

umx_status
umi_sending_wait(umi_sending *sending)
{
    umx_message_sender *sender = sending->sender;

    for (size_t i = 0; i < sending->num_legs; i++) {
        umi_outlet *outlet = umi_outlet_get(sender, sending->legs[i].ep);

        if (outlet == NULL) {
            return UMX_ERR_NO_MEMORY;
        }
        outlet->num_waiting++;
        sending->num_outlets++;
    }
    umi_list_append(&sender->waiting, &sending->link);
    sender->stats.num_waiting++;
    return UMX_OK;
}

void
umi_sending_withdraw(umi_sending *sending, umx_status status)
{
    for (size_t i = 0; i < sending->num_legs; i++) {
        umi_leg *leg = &sending->legs[i];

        if (!leg->is_posted) {
            end_waiting(leg);
            end_leg(leg, status);
        }
    }
}

static void
cancel(umx_request *req)
{
    umi_sending        *sending = umi_message_op_of(req)->sending;
    umx_message_sender *sender  = sending->sender;

    sender->refs++;
    umi_sending_withdraw(sending, UMX_ERR_CANCELED);
    for (size_t i = 0; i < sending->num_legs; i++) {
        if (sending->legs[i].op != NULL) {
            umx_request_cancel(sending->legs[i].op);
        }
    }
    if (sending->num_left == 0) {
        umi_sending_finish(sending);
    } else {
        check_lost(sending);
    }
    umi_sender_advance(sender);
    umi_sender_put(sender);
}

const umi_request_ops umi_sending_ops = {
    .name   = "message_send",
    .cancel = cancel,
};
