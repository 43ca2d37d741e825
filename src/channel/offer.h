/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* offer.h: the ways in which the bytes of a message go, in one table.
 *
 * A way has two halves. What a sender knows decides once what it offers: the
 * length, the lanes, the memory, what the peer has agreed to, and whether credit
 * lets the bytes go unasked or the message is announced. A row of the table is
 * such an offer. What a receiver does about it is in ops/way.h, and a row names
 * that, too. The first row that a message may take is its way; the last two
 * take any message.
 *
 * A new way is a row here, an own file with both halves, and a test. The log,
 * umx_worker_describe() and docs/design.md say what the rows say.
 * Thread: the worker's owner. */
/* clang-format on */
#ifndef UMI_CHANNEL_OFFER_H
#define UMI_CHANNEL_OFFER_H

#include "ops/am.h"
#include "util/lines.h"

/* The rows, in the order in which they are tried. */
typedef enum umi_offer_id {
    UMI_OFFER_PIECES,
    UMI_OFFER_LOAN,
    UMI_OFFER_COPIED,
    UMI_OFFER_FOLLOW,
    UMI_OFFER_BOUNCE,
    UMI_OFFER_RNDV,
    UMI_OFFER_EAGER,
    UMI_NUM_OFFERS
} umi_offer_id;

enum {
    UMI_OFFERS_TEXT = 512,     /* bytes: umi_offer_text() */
    UMI_COPIED_MAX = 16 * 1024 /* bytes: longer ones of devices are announced */
};

/* Lengths of messages, in bytes. */
typedef struct umi_lengths {
    size_t min; /* SIZE_MAX: none on this connection */
    size_t max;
} umi_lengths;

typedef struct umi_offer {
    const char *name;
    const char *how; /* messages such as this one are ... */
    /* Give the lengths on an open connection. NULL: any. */
    umi_lengths (*lengths)(const umx_ep *ep);
    /* True if a message is announced to go so, whatever credit there is. NULL:
     * none is. */
    bool (*must_announce)(const umx_request *req);
    /* False if too many messages that go so, unasked, wait for their turns, and
     * this would be one. NULL: none waits. */
    bool (*has_room)(const umx_request *req);
    /* True if a message may go so. NULL: any may. */
    bool (*may)(const umx_request *req);
    /* Send as umi_am_send() does. */
    umx_status (*send)(umx_request *req, const void *header, size_t header_len,
                       bool is_announced);
    /* What the peer takes it by: bytes that come unasked, and bytes that are
     * announced. NULL: they do not go so. */
    const umi_way *unasked;
    const umi_way *announced;
} umi_offer;

extern const umi_offer umi_offers[UMI_NUM_OFFERS];

/* Begin the offers of a new endpoint: none but the last two. */
void umi_offer_init(umx_ep *ep);

/* Find out the offers of a connection that is open. */
void umi_offer_open(umx_ep *ep);

/* Set the lengths of the messages of `ep` that may go by a way. */
void umi_offer_limit(umx_ep *ep, umi_offer_id id, umi_lengths lengths);

/* True if a message has to be announced, whatever credit there is. */
bool umi_offer_must_announce(const umx_request *req);

/* False if a message cannot go unasked now, as too many wait for their turns.
 */
bool umi_offer_has_room(const umx_request *req);

/* Choose the way of a message, which is announced or goes unasked. */
umi_offer_id umi_offer_choose(const umx_request *req, bool is_announced);

/* Note that a message of the peer's comes by a way. */
void umi_offer_note_received(umx_ep *ep, const umi_way *way);

/* Write which messages of `ep` go by which way: "rendezvous from 65536 bytes,
 * else eager". */
void umi_offer_text(const umx_ep *ep, char text[UMI_OFFERS_TEXT]);

#endif
