/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* note.h: what the two sides of a fetch say to each other, as active messages
 * that are all header:
 *
 *   UMI_AM_BOUNCE  endpoint u64 | fetch u64 | kind u32 | status i32, and
 *     FETCH   offset u64 | length u64 | channel u32, sequence number u32 |
 *             flags u32
 *     STOP
 *     FILLED  offset u64 | length u64 | slot u32, turn u32 | context u64 |
 *             memory u64 | segment i32, 0 u32 | handle of a device's slots
 *     FREED   slot u32, turn u32
 *     UNABLE
 *     TAKEN
 *     DIRECT  memory u64: the number of a loan, to a peer of this process
 *
 * `endpoint` is the number of the reader's. The receiver of a message numbers
 * its fetches from 1 on. FETCH, STOP and FREED go to the sender of the message,
 * FILLED and UNABLE to its receiver. */
/* clang-format on */
#ifndef UMI_BOUNCE_NOTE_H
#define UMI_BOUNCE_NOTE_H

#include "mem/cuda_memory.h"
#include "worker/worker.h"

typedef enum umi_bounce_kind {
    UMI_BOUNCE_FETCH = 1,
    UMI_BOUNCE_STOP,
    UMI_BOUNCE_FILLED,
    UMI_BOUNCE_FREED,
    UMI_BOUNCE_UNABLE,
    UMI_BOUNCE_DIRECT,
    UMI_BOUNCE_TAKEN
} umi_bounce_kind;

/* What the receiver of a message can do. */
typedef enum umi_fetch_flag {
    UMI_FETCH_BY_UCX = 1u << 0, /* its memory is a device's, as UCX knows it */
    UMI_FETCH_DIRECT = 1u << 1, /* a device writes it; `context` is a process */
    UMI_FETCH_BY_DEVICE = 1u << 2, /* a device can map slots of a device */
    UMI_FETCH_TO_HOST   = 1u << 3  /* its memory is the host's, and pinned */
} umi_fetch_flag;

typedef struct umi_bounce_note {
    uint64_t        endpoint;
    uint64_t        fetch;
    uint32_t        kind;
    int32_t         status; /* UNABLE: why */
    uint64_t        offset;
    uint64_t        len;
    uint32_t        channel;
    uint32_t        seq;
    uint32_t        slot;
    uint32_t        turn;
    uint64_t        context;
    uint64_t        memory;
    int32_t         segment;
    uint32_t        flags; /* umi_fetch_flag */
    umi_cuda_handle handle;
} umi_bounce_note;

_Static_assert(sizeof(umi_bounce_note) == 144, "wire format");

struct umi_fill;
struct umi_fetch;

/* Send a note to the peer's end of `ep`. UMX_OK, or it is lost: the connection
 * is as good as failed. */
umx_status umi_bounce_tell(const umi_ep_base *ep, const umi_bounce_note *note);

/* Notes for fill.c and for fetch.c, inside UCX's callback. */
void umi_fill_on_fetch(umi_ep_base *ep, const umi_bounce_note *note);
void umi_fill_on_stop(umi_ep_base *ep, const umi_bounce_note *note);
void umi_fill_on_freed(umi_ep_base *ep, const umi_bounce_note *note);
void umi_fetch_on_filled(umi_ep_base *ep, const umi_bounce_note *note);
void umi_fetch_on_direct(umi_ep_base *ep, const umi_bounce_note *note);
void umi_fetch_on_taken(umi_ep_base *ep, const umi_bounce_note *note);
void umi_fetch_on_unable(umi_ep_base *ep, const umi_bounce_note *note);

/* hand.c: hand a message over that its peer fetches. False: it cannot be. */
bool umi_hand_over(struct umi_fill *fill);

/* True if UCX may move the memory of `req` to, or from, the peer's. */
bool umi_hand_may(const umx_request *req);

umx_status umi_hand_listen(umx_worker *worker);

/* End a fetch: fetch.c. The announcement is released, so that the sender's part
 * ends, too. */
void umi_fetch_finish(struct umi_fetch *fetch, umx_status status);
/* Ask anew for a message: the slots cannot be mapped, or the memory of the
 * fetch is another one now. */
void umi_fetch_otherwise(struct umi_fetch *fetch);

/* End a fetch later, outside UCX: its bytes cannot be received. */
void umi_fetch_fail(struct umi_fetch *fetch, umx_status status);

struct umi_fetch *umi_fetch_find(const umi_ep_base *ep, uint64_t id);

/* fill.c, for hand.c: UCX has given the memory back. */
void umi_fill_moved(struct umi_fill *fill);

/* Begin and end what fill.c and fetch.c have of an endpoint. */
void umi_fills_end(umi_ep_base *ep);
void umi_fetches_end(umi_ep_base *ep, umx_status status);

/* The timer of the slots: take those back that are kept from others. */
void umi_fill_on_timer(umi_timer *timer);

/* Listen for messages that may be fetched: fetch.c. */
umx_status umi_fetch_listen(umx_worker *worker);

#endif
