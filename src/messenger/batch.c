/* SPDX-License-Identifier: BSD-3-Clause */
/* batch.c: small messages, one after another in a pack. It is handed over when
 * it is full, and when the endpoint or the worker asks for it. */
#include <stdlib.h>

#include "messenger/sender.h"

umx_status
umi_outlet_status(const umx_ep *ep)
{
    switch (umx_ep_get_state(ep)) {
    case UMX_EP_CONNECTING:
    case UMX_EP_OPEN:
        if (umi_ep_of(ep)->is_draining) {
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
    umi_outlet_flush(umi_container_of(gathered, umi_outlet, base));
}

/* The endpoint will take no more. */
static void
close_outlet(umi_gathered *gathered)
{
    umi_outlet         *outlet = umi_container_of(gathered, umi_outlet, base);
    umx_message_sender *sender = outlet->sender;
    const umx_ep       *ep     = (const umx_ep *)(void *)outlet->base.ep;
    bool                was_advancing = sender->is_advancing;

    sender->refs++;
    outlet->refs++;
    sender->is_advancing = true;
    UMI_LIST_FOREACH_SAFE(link, &sender->waiting) {
        umi_sending *sending = umi_container_of(link, umi_sending, link);

        umi_sending_post(sending, ep);
        if (sending->num_left == 0) {
            umi_sending_finish(sending);
        }
    }
    umi_outlet_flush(outlet);
    outlet->refs--;
    umi_outlet_check(outlet);
    sender->is_advancing = was_advancing;
    umi_sender_advance(sender);
    umi_sender_put(sender);
}

umi_outlet *
umi_outlet_find(const umx_message_sender *sender, umx_ep *ep)
{
    UMI_LIST_FOREACH(link, &umi_ep_of(ep)->gathered) {
        umi_gathered *gathered = umi_container_of(link, umi_gathered, ep_link);
        umi_outlet   *outlet   = umi_container_of(gathered, umi_outlet, base);

        if (gathered->flush == flush && outlet->sender == sender) {
            return outlet;
        }
    }
    return NULL;
}

umi_outlet *
umi_outlet_get(umx_message_sender *sender, umx_ep *ep)
{
    umi_outlet *outlet = umi_outlet_find(sender, ep);

    if (outlet != NULL) {
        return outlet;
    }
    outlet = calloc(1, sizeof(*outlet));
    if (outlet == NULL) {
        return NULL;
    }
    outlet->base.ep    = umi_ep_of(ep);
    outlet->base.flush = flush;
    outlet->base.close = close_outlet;
    outlet->sender     = sender;
    umi_link_init(&outlet->base.worker_link);
    umi_list_append(&outlet->base.ep->gathered, &outlet->base.ep_link);
    umi_list_append(&sender->outlets, &outlet->link);
    umi_ep_hold(outlet->base.ep);
    sender->refs++;
    return outlet;
}

void
umi_outlet_check(umi_outlet *outlet)
{
    umx_message_sender *sender = outlet->sender;

    if (outlet->pack != NULL || outlet->num_waiting != 0 || outlet->refs != 0) {
        return;
    }
    umi_link_remove(&outlet->base.ep_link);
    umi_link_remove(&outlet->base.worker_link);
    umi_link_remove(&outlet->link);
    umi_ep_release(outlet->base.ep);
    free(outlet);
    umi_sender_put(sender);
}

/* ---- packs ---------------------------------------------------------------
 */

static bool
open_pack(umi_outlet *outlet, uint64_t generation)
{
    umx_message_sender *sender = outlet->sender;
    umx_worker         *worker = sender->worker;

    outlet->pack  = (sender->spare != NULL) ? sender->spare :
                                              malloc(UMI_PACK_MAX);
    sender->spare = NULL;
    if (outlet->pack == NULL) {
        return false;
    }
    outlet->pack[0]    = UMI_MESSAGE_PACK;
    outlet->len        = 1;
    outlet->generation = generation;
    umi_sender_begin(sender, generation);
    umi_list_append(&worker->gathered, &outlet->base.worker_link);
    worker->has_events = true;
    worker->is_armed   = false;
    return true;
}

static void
close_pack(umi_outlet *outlet)
{
    umx_message_sender *sender = outlet->sender;

    sender->stats.bytes_pending -= outlet->len - 1;
    if (sender->spare == NULL) {
        sender->spare = outlet->pack;
    } else {
        free(outlet->pack);
    }
    outlet->pack = NULL;
    umi_link_remove(&outlet->base.worker_link);
    umi_sender_end(sender, outlet->generation);
}

/* Without memory for it the endpoint ends: messages would be missing. */
static void
post_pack(umi_outlet *outlet)
{
    umx_message_sender *sender = outlet->sender;
    umx_ep             *ep     = (umx_ep *)(void *)outlet->base.ep;
    umi_sending *sending = umi_sending_new(sender, outlet->generation, 1, 0, 0);

    if (sending == NULL) {
        umx_ep_abort(ep);
        return;
    }
    umi_sending_set_leg(sending, 0, ep);
    sending->header     = outlet->pack;
    sending->header_len = outlet->len;
    sending->len        = outlet->len - 1;
    sender->stats.num_packs++;
    sender->stats.bytes_pending -= sending->len; /* not twice, for the peak */
    outlet->pack = NULL; /* nothing is to be handed over before it */
    umi_sending_post(sending, NULL);
    outlet->pack = sending->header;
    sender->stats.bytes_pending += sending->len;
    if (sending->num_left != 0) {
        return;
    }
    if (umi_sending_status(sending) == UMX_ERR_NO_MEMORY) {
        umx_ep_abort(ep);
    }
    umi_sending_free(sending);
}

void
umi_outlet_flush(umi_outlet *outlet)
{
    if (outlet->pack == NULL) {
        return;
    }
    outlet->refs++;
    post_pack(outlet);
    close_pack(outlet);
    outlet->refs--;
    umi_outlet_check(outlet);
}

void
umi_outlet_drop(umi_outlet *outlet)
{
    if (outlet->pack != NULL) {
        close_pack(outlet);
        umi_outlet_check(outlet);
    }
}

static umx_status
add_entry(umi_outlet *outlet, const umx_message_out *message, size_t size,
          uint64_t generation)
{
    umx_message_sender *sender = outlet->sender;
    umx_status          status;

    if (outlet->pack != NULL && outlet->len + size > UMI_PACK_MAX) {
        umi_outlet_flush(outlet);
    }
    if (outlet->pack == NULL && !open_pack(outlet, generation)) {
        return UMX_ERR_NO_MEMORY;
    }
    status = umi_pack_write(message, outlet->pack + outlet->len, size);
    if (status != UMX_OK) {
        if (outlet->len == 1) {
            close_pack(outlet);
        }
        return status;
    }
    if (generation < outlet->generation) {
        umi_sender_begin(sender, generation);
        umi_sender_end(sender, outlet->generation);
        outlet->generation = generation;
    }
    outlet->len += size;
    umi_sender_count(sender, size);
    sender->stats.num_packed++;
    return UMX_OK;
}

umx_status
umi_outlet_add(umx_message_sender *sender, umx_ep *ep,
               const umx_message_out *message, size_t entry_size,
               uint64_t generation)
{
    umx_status  status = umi_outlet_status(ep);
    umi_outlet *outlet;

    if (status != UMX_OK) {
        return status;
    }
    outlet = umi_outlet_get(sender, ep);
    if (outlet == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    outlet->refs++;
    status = add_entry(outlet, message, entry_size, generation);
    outlet->refs--;
    umi_outlet_check(outlet);
    return status;
}
