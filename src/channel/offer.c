/* SPDX-License-Identifier: BSD-3-Clause */
/* offer.c: the way of a message, as its sender decides it. What a message of a
 * device's memory, or for it, does when a receive matches is decided in
 * bounce/fetch.c. */
#include "channel/offer.h"

#include <stdio.h>

#include "bounce/bounce.h"
#include "channel/channel.h"
#include "lend/lend.h"
#include "ops/follow.h"
#include "ops/transfer.h"

enum {
    BYTES_PER_US = 1250 /* of a quick network: 10 Gbit/s */
};

static const umi_lengths none = {.min = SIZE_MAX, .max = SIZE_MAX};

static umx_ep *
ep_of(const umx_request *req)
{
    return umi_endpoint_of(req->ep);
}

static const umi_lengths *
lengths_of(const umx_ep *ep, umi_offer_id id)
{
    return &umi_channels_of(ep)->lengths[id];
}

/* ---- pieces: ops/transfer.h ----------------------------------------------
 */

/* True where UCX sends messages through the kernel's sockets only: not where
 * hardware reads the memory by itself, nor where UCX divides a message among
 * several lanes. */
static bool
is_by_sockets(const umi_link *link)
{
    return link != NULL && link->has_tcp && !link->has_shm &&
           !link->has_hardware && link->num_lanes == 1;
}

/* Long messages go in pieces of ours over a network, where one of UCX's own
 * would hold up all others. A peer that is in this network namespace is reached
 * by no network. */
static umi_lengths
pieces_lengths(const umx_ep *ep)
{
    return (is_by_sockets(ep->base.link) && !ep->socket.is_local) ?
               (umi_lengths){.min = UMI_TRANSFER_MIN, .max = SIZE_MAX} :
               none;
}

static bool
is_in_pieces(const umx_request *req)
{
    return req->buf.len >= lengths_of(ep_of(req), UMI_OFFER_PIECES)->min;
}

/* Memory of a device always goes so: UCX would stand still at each 8 KiB of it,
 * and does not survive a copy that fails. */
static bool
pieces_may(const umx_request *req)
{
    return (is_in_pieces(req) ||
            (umi_channel_is_of_device(req) && is_by_sockets(req->ep->link))) &&
           umi_transfer_may_send(req, umi_send_of(req)->header_len);
}

static bool
pieces_have_room(const umx_request *req)
{
    return !is_in_pieces(req) || umi_transfer_has_room(req->ep);
}

static umx_status
pieces_send(umx_request *req, const void *header, size_t header_len,
            bool is_announced)
{
    return umi_transfer_send(req, header, header_len, is_announced,
                             umi_channel_place(req));
}

/* ---- loans: lend/lend.h --------------------------------------------------
 */

static umi_lengths
loan_lengths(const umx_ep *ep)
{
    const umx_config *config = &umi_endpoint_worker(ep)->context->config;

    return ep->base.link->has_shm ?
               (umi_lengths){.min = config->cma_min, .max = config->cma_max} :
               none;
}

static bool
loan_must_announce(const umx_request *req)
{
    bool is_asked_for = umi_send_of(req)->is_lent;

    return (is_asked_for ||
            req->buf.len >= lengths_of(ep_of(req), UMI_OFFER_LOAN)->min) &&
           umi_lend_is_agreed(req->ep, req->buf.len, is_asked_for);
}

static bool
loan_may(const umx_request *req)
{
    return umi_lend_may_send(req, umi_send_of(req)->header_len,
                             umi_send_of(req)->is_lent);
}

static umx_status
loan_send(umx_request *req, const void *header, size_t header_len,
          bool is_announced)
{
    (void)is_announced; /* it always is */
    return umi_lend_send(req, header, header_len);
}

/* ---- bytes that follow: ops/follow.h -------------------------------------
 */

/* Where UCX has another lane it may hear by that of the peer's end while
 * messages of the peer lie in the queue: their headers still arrive, and bytes
 * of streams do not. */
static umi_lengths
follow_lengths(const umx_ep *ep)
{
    const umi_link *link = ep->base.link;

    return (link->has_shm && link->num_lanes <= 1) ?
               (umi_lengths){.min = UMI_FOLLOW_MIN, .max = SIZE_MAX} :
               none;
}

static bool
follow_may(const umx_request *req)
{
    return req->buf.len >= lengths_of(ep_of(req), UMI_OFFER_FOLLOW)->min &&
           umi_send_of(req)->channel->id >> 16 == UMI_KIND_MESSAGE &&
           umi_follow_may_move(req);
}

static umx_status
follow_send(umx_request *req, const void *header, size_t header_len,
            bool is_announced)
{
    (void)is_announced; /* it never is */
    return umi_follow_send(req, header, header_len);
}

/* ---- UCX's own: ops/am.h -------------------------------------------------
 */

/* A message waits for its receiver from that length on. That costs a round
 * trip: less than that time are the bytes that a quick network moves in it. How
 * many bytes go unasked for, the credit says. */
static umi_lengths
rndv_lengths(const umx_ep *ep)
{
    const umx_config *config = &umi_endpoint_worker(ep)->context->config;
    const umi_link   *link   = ep->base.link;
    uint64_t    moved   = umi_channels_of(ep)->trip_ns * BYTES_PER_US / 1000;
    umi_lengths lengths = {.min = config->rndv_thresh_net, .max = SIZE_MAX};

    if (moved > config->credit_bytes_max) {
        moved = config->credit_bytes_max;
    }
    if (link->has_shm) {
        lengths.min = config->rndv_thresh_shm;
    } else if (link->has_tcp && !link->has_hardware && moved > lengths.min) {
        lengths.min = (size_t)moved;
    }
    return lengths;
}

/* ---- copies in memory of the host ----------------------------------------
 */

/* True for active messages of programs, whose receiver allocates memory of the
 * sender's kind first. */
static bool
is_user_am(uint32_t id)
{
    return id >> 16 == UMI_KIND_AM && !umi_channel_is_of_library(id);
}

/* Few bytes of a device: to copy them takes less time than the notes of a
 * fetch. */
static bool
copied_may(const umx_request *req)
{
    return umi_bounce_is_agreed(req->ep) && req->gather == NULL &&
           req->buf.len <= UMI_COPIED_MAX && umi_channel_is_of_device(req) &&
           !is_user_am(umi_send_of(req)->channel->id);
}

static umx_status
copied_send(umx_request *req, const void *header, size_t header_len,
            bool is_announced)
{
    size_t     len    = req->buf.len;
    umx_status status = umi_request_copy(req, len, len, true);

    (void)is_announced; /* it never is */
    if (status != UMX_OK) {
        umi_send_of(req)->is_withdrawn = true; /* nothing has been sent */
        return status;
    }
    return umi_am_send(req, UMI_AM_DATA, header, header_len, false);
}

/* ---- bounce buffers: bounce/bounce.h -------------------------------------
 */

/* Any announced message: what the receiver's memory is decides. */
static umi_lengths
bounce_lengths(const umx_ep *ep)
{
    return umi_bounce_is_agreed(&ep->base) ?
               (umi_lengths){.min = rndv_lengths(ep).min, .max = SIZE_MAX} :
               none;
}

static bool
bounce_may(const umx_request *req)
{
    return lengths_of(ep_of(req), UMI_OFFER_BOUNCE)->min != SIZE_MAX;
}

static umx_status
bounce_send(umx_request *req, const void *header, size_t header_len,
            bool is_announced)
{
    (void)is_announced; /* it always is */
    return umi_bounce_send(req, header, header_len);
}

/* ---- UCX's own: ops/am.h -------------------------------------------------
 */

/* Device memory: the receiver allocates its own before it takes the bytes. */
static bool
rndv_must_announce(const umx_request *req)
{
    return umi_channel_is_long(ep_of(req), req->buf.len) ||
           (req->buf.len != 0 && umi_channel_is_of_device(req) &&
            !copied_may(req));
}

static umx_status
am_send(umx_request *req, const void *header, size_t header_len,
        bool is_announced)
{
    return umi_am_send(req, UMI_AM_DATA, header, header_len, is_announced);
}

/* ---- the table -----------------------------------------------------------
 */

const umi_offer umi_offers[UMI_NUM_OFFERS] = {
    [UMI_OFFER_PIECES] =
        {
            .name      = "pieces",
            .how       = "sent in pieces, which take turns with others",
            .lengths   = pieces_lengths,
            .has_room  = pieces_have_room,
            .may       = pieces_may,
            .send      = pieces_send,
            .unasked   = &umi_way_pieces_unasked,
            .announced = &umi_way_pieces,
        },
    [UMI_OFFER_LOAN] =
        {
            .name          = "loan",
            .how           = "lent to the peer, which reads them here",
            .lengths       = loan_lengths,
            .must_announce = loan_must_announce,
            .may           = loan_may,
            .send          = loan_send,
            .announced     = &umi_way_loan,
        },
    [UMI_OFFER_COPIED] =
        {
            .name    = "copied",
            .how     = "copied to the host, and sent with their header",
            .may     = copied_may,
            .send    = copied_send,
            .unasked = &umi_way_eager,
        },
    [UMI_OFFER_FOLLOW] =
        {
            .name    = "follow",
            .how     = "sent behind their header, by UCX's stream",
            .lengths = follow_lengths,
            .may     = follow_may,
            .send    = follow_send,
            .unasked = &umi_way_follow,
        },
    [UMI_OFFER_BOUNCE] =
        {
            .name = "bounce",
            .how  = "announced; that of devices is fetched, other moved by UCX",
            .lengths   = bounce_lengths,
            .may       = bounce_may,
            .send      = bounce_send,
            .announced = &umi_way_bounce,
        },
    [UMI_OFFER_RNDV] =
        {
            .name          = "rendezvous",
            .how           = "announced, and moved by UCX's rendezvous",
            .lengths       = rndv_lengths,
            .must_announce = rndv_must_announce,
            .send          = am_send,
            .announced     = &umi_way_rndv,
        },
    [UMI_OFFER_EAGER] =
        {
            .name    = "eager",
            .how     = "sent with their header, and copied by UCX",
            .send    = am_send,
            .unasked = &umi_way_eager,
        },
};

/* ---- choosing ------------------------------------------------------------
 */

bool
umi_offer_must_announce(const umx_request *req)
{
    for (int id = 0; id < UMI_NUM_OFFERS; id++) {
        if (umi_offers[id].must_announce != NULL &&
            umi_offers[id].must_announce(req)) {
            return true;
        }
    }
    return false;
}

bool
umi_offer_has_room(const umx_request *req)
{
    for (int id = 0; id < UMI_NUM_OFFERS; id++) {
        if (umi_offers[id].has_room != NULL && !umi_offers[id].has_room(req)) {
            return false;
        }
    }
    return true;
}

umi_offer_id
umi_offer_choose(const umx_request *req, bool is_announced)
{
    int id = 0;

    for (; id < UMI_NUM_OFFERS - 1; id++) {
        const umi_offer *offer = &umi_offers[id];

        if ((is_announced ? offer->announced : offer->unasked) != NULL &&
            (offer->may == NULL || offer->may(req))) {
            break;
        }
    }
    return (umi_offer_id)id;
}

/* ---- limits --------------------------------------------------------------
 */

/* Messages shorter than that go eagerly, unless their memory, or credit, says
 * otherwise. */
static size_t
first_of(const umi_channels *channels)
{
    size_t first = SIZE_MAX;

    for (int id = 0; id < UMI_NUM_OFFERS; id++) {
        size_t min = channels->lengths[id].min;

        if (id != UMI_OFFER_EAGER && min < first) {
            first = min;
        }
    }
    return first;
}

void
umi_offer_limit(umx_ep *ep, umi_offer_id id, umi_lengths lengths)
{
    umi_channels *channels = umi_channels_of(ep);

    channels->lengths[id] = lengths;
    channels->plain_below = first_of(channels);
}

void
umi_offer_init(umx_ep *ep)
{
    const umx_config *config = &umi_endpoint_worker(ep)->context->config;

    for (int id = 0; id < UMI_NUM_OFFERS; id++) {
        umi_channels_of(ep)->lengths[id] = none;
    }
    umi_channels_of(ep)->lengths[UMI_OFFER_EAGER].min = 0;
    umi_offer_limit(
        ep, UMI_OFFER_RNDV,
        (umi_lengths){.min = config->rndv_thresh_net, .max = SIZE_MAX});
}

void
umi_offer_open(umx_ep *ep)
{
    for (int id = 0; id < UMI_NUM_OFFERS; id++) {
        if (umi_offers[id].lengths != NULL) {
            umi_offer_limit(ep, (umi_offer_id)id, umi_offers[id].lengths(ep));
        }
    }
}

/* ---- counts --------------------------------------------------------------
 */

void
umi_offer_note_received(umx_ep *ep, const umi_way *way)
{
    for (int id = 0; id < UMI_NUM_OFFERS; id++) {
        if (umi_offers[id].unasked == way || umi_offers[id].announced == way) {
            umi_channels_of(ep)->received_by[id]++;
        }
    }
}

/* Messages that went eagerly are those that went by no other way. */
static void
count_eager(const umx_ep *ep, umx_way *eager, const umx_way *others,
            size_t count)
{
    eager->sent     = ep->stats.sent_messages;
    eager->received = ep->stats.received_messages;
    for (size_t i = 0; i < count; i++) {
        eager->sent -= others[i].sent;
        eager->received -= (others[i].received < eager->received) ?
                               others[i].received :
                               eager->received;
    }
}

_Static_assert(UMI_NUM_OFFERS + UMI_BOUNCE_ROUTES <= UMX_WAYS_MAX, "room");

size_t
umx_ep_ways(const umx_ep *ep, umx_way ways[UMX_WAYS_MAX])
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    const umi_channels *channels = umi_channels_of(ep);
    size_t              count    = 0;

    for (; count < UMI_NUM_OFFERS; count++) {
        ways[count] = (umx_way){.name     = umi_offers[count].name,
                                .how      = umi_offers[count].how,
                                .sent     = channels->sent_by[count],
                                .received = channels->received_by[count]};
    }
    /* UMI_OFFER_EAGER is the last row. */
    count_eager(ep, &ways[UMI_OFFER_EAGER], ways, UMI_OFFER_EAGER);
    for (int route = 0; route < UMI_BOUNCE_ROUTES; route++, count++) {
        ways[count] = (umx_way){.name     = umi_bounce_texts[route].name,
                                .how      = umi_bounce_texts[route].how,
                                .sent     = ep->bounce.sent[route],
                                .received = ep->bounce.received[route]};
    }
    return count;
}

/* ---- for people ----------------------------------------------------------
 */

/* Write the lengths of one way; the room is enough. */
static size_t
write_lengths(const umi_offer *offer, const umi_lengths *lengths, char *text,
              size_t size)
{
    char to[32] = "";

    if (lengths->max != SIZE_MAX) {
        snprintf(to, sizeof(to), " to %zu", lengths->max);
    }
    return (size_t)snprintf(text, size, "%s from %zu%s bytes, ", offer->name,
                            lengths->min, to);
}

void
umi_offer_text(const umx_ep *ep, char text[UMI_OFFERS_TEXT])
{
    size_t len = 0;

    for (int id = 0; id < UMI_OFFER_EAGER; id++) {
        const umi_lengths *lengths = lengths_of(ep, (umi_offer_id)id);

        if (lengths->min <= lengths->max && lengths->min != SIZE_MAX) {
            len += write_lengths(&umi_offers[id], lengths, text + len,
                                 UMI_OFFERS_TEXT - len);
        }
    }
    snprintf(text + len, UMI_OFFERS_TEXT - len, "%s%s",
             (len != 0) ? "else " : "", umi_offers[UMI_OFFER_EAGER].name);
}
