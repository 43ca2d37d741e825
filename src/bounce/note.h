/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* note.h: what the two sides of a fetch say to each other, as active messages
 * that are all header:
 *
 *   UMI_AM_BOUNCE  endpoint u64 | fetch u64 | kind u32 | status i32, and
 *     FETCH   offset u64 | length u64 | channel u32, sequence number u32
 *     STOP
 *     FILLED  offset u64 | length u64 | slot u32, turn u32 | context u64 |
 *             memory u64 | segment i32, 0 u32
 *     FREED   slot u32, turn u32
 *     UNABLE
 *
 * `endpoint` is the number of the reader's. The receiver of a message numbers
 * its fetches from 1 on. FETCH, STOP and FREED go to the sender of the message,
 * FILLED and UNABLE to its receiver. */
/* clang-format on */
#ifndef UMI_BOUNCE_NOTE_H
#define UMI_BOUNCE_NOTE_H

#include "core/worker.h"

typedef enum umi_bounce_kind {
    UMI_BOUNCE_FETCH = 1,
    UMI_BOUNCE_STOP,
    UMI_BOUNCE_FILLED,
    UMI_BOUNCE_FREED,
    UMI_BOUNCE_UNABLE
} umi_bounce_kind;

typedef struct umi_bounce_note {
    uint64_t endpoint;
    uint64_t fetch;
    uint32_t kind;
    int32_t  status; /* UNABLE: why */
    uint64_t offset;
    uint64_t len;
    uint32_t channel;
    uint32_t seq;
    uint32_t slot;
    uint32_t turn;
    uint64_t context;
    uint64_t memory;
    int32_t  segment;
    uint32_t zero;
} umi_bounce_note;

_Static_assert(sizeof(umi_bounce_note) == 80, "wire format");

/* Send a note to the peer's end of `ep`. UMX_OK, or it is lost: the connection
 * is as good as failed. */
umx_status umi_bounce_tell(const umi_ep_base *ep, const umi_bounce_note *note);

/* Notes for fill.c and for fetch.c, inside UCX's callback. */
void umi_fill_on_fetch(umi_ep_base *ep, const umi_bounce_note *note);
void umi_fill_on_stop(umi_ep_base *ep, const umi_bounce_note *note);
void umi_fill_on_freed(umi_ep_base *ep, const umi_bounce_note *note);
void umi_fetch_on_filled(umi_ep_base *ep, const umi_bounce_note *note);
void umi_fetch_on_unable(umi_ep_base *ep, const umi_bounce_note *note);

/* Begin and end what fill.c and fetch.c have of an endpoint. */
void umi_fills_end(umi_ep_base *ep);
void umi_fetches_end(umi_ep_base *ep, umx_status status);

/* The timer of the slots: take those back that are kept from others. */
void umi_fill_on_timer(umi_timer *timer);

/* A message that may be fetched arrives: fetch.c. */
int umi_fetch_on_offer(umx_worker                  *worker,
                       const struct umi_am_arrival *arrival);

#endif
