/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* bounce.h: messages to and from memory of devices, between processes of one
 * host, through bounce buffers.
 *
 * UCX moves such bytes by 8 KiB, and stands still at each. And it holds the
 * memory until the peer has received it. So UCX announces a message that a peer
 * may fetch, and has its bytes by a datatype only (worker/datatype.h). The
 * receiver decides as a receive matches, when both memories are known:
 *
 *   neither is a device's   UCX's rendezvous moves them
 *   both are of this process, and a device's copies move them
 *                           a device reads the other (direct.h)
 *   both are devices' that cuda_ipc reaches
 *                           UCX moves them (hand.c)
 *   else                    it fetches them:
 *
 *   receiver                                 sender
 *     FETCH (message, from which byte on) -->
 *                                              fills slots of its segment, in
 *                                              order: by its CPU, or a device
 *                                         <--  FILLED (slot, turn)
 *     drains the slot into its buffer,
 *     and looks at its turn again
 *     FREED (slot, turn)                  -->  fills it with what comes next
 *     after the last byte the announcement is released: UCX tells the sender
 *
 * A process writes into a buffer of its own by copies of its own only, and
 * reads from its own: so a buffer is the program's again as soon as those have
 * been settled (worker/dma.h), wherever the peer is. What has been fetched of
 * a message whose receive is cancelled means nothing: STOP, and the message is
 * announced again, as it was.
 *
 * The slots are one segment of the worker's (keys/segment.h), which its peers
 * map: made at first use, of SLOTS times SLOT bytes. One peer has at most half
 * of them. One that empties none for half a second, while others wait for slots,
 * loses what it has: the turns of the slots change, which it finds out behind the
 * bytes, and it is told TAKEN. It fetches again from the byte that it has got to.
 * So no peer that has stopped holds the others up, and none waits in a circle: to
 * drain a slot needs nothing.
 *
 * Copies of a device need no CPU: both map the segment, and pin it, where the
 * driver lets them. Thread: the worker's owner. */
/* clang-format on */
#ifndef UMI_BOUNCE_H
#define UMI_BOUNCE_H

#include "bounce/mapping.h"
#include "bounce/slots.h"
#include "ops/am.h"

/* What a worker has. */
typedef struct umi_bounce {
    umi_pool         objects; /* object.h's */
    umi_bounce_pools pools;
    void            *arriving; /* the message whose handler runs; or NULL */
} umi_bounce;

/* How the bytes of a message come that is fetched. */
typedef enum umi_bounce_route {
    UMI_BOUNCE_BY_READ,   /* direct.h */
    UMI_BOUNCE_BY_UCX,    /* hand.c */
    UMI_BOUNCE_BY_DEVICE, /* slots of a device, and of the host */
    UMI_BOUNCE_BY_HOST,
    UMI_BOUNCE_ROUTES
} umi_bounce_route;

typedef struct umi_bounce_route_text {
    const char *name;
    const char *how; /* messages such as this one are ... */
} umi_bounce_route_text;

extern const umi_bounce_route_text umi_bounce_texts[UMI_BOUNCE_ROUTES];

/* What an endpoint has. */
typedef struct umi_bounce_ep {
    umi_list fills;      /* fill.c: of our messages, by the peer's FETCH */
    umi_list fetches;    /* fetch.c: of the peer's */
    uint64_t last_fetch; /* number of our newest */
    uint64_t last_fill;  /* of the peer's */
    unsigned num_taken;  /* times that the peer's slots were taken back */
    uint64_t sent[UMI_BOUNCE_ROUTES]; /* messages */
    uint64_t received[UMI_BOUNCE_ROUTES];
} umi_bounce_ep;

/* Begin what a new worker or endpoint has, in `bounce`, and end it. What a
 * worker has ends once UCX's worker is gone. */
void umi_bounce_init(umx_worker *worker, umi_bounce *bounce);
void umi_bounce_fini(umi_bounce *bounce);
void umi_bounce_begin(umi_ep_base *ep, umi_bounce_ep *bounce);
void umi_bounce_end(umi_ep_base *ep, umx_status status);

/* Listen for messages that may be fetched, and notes. */
umx_status umi_bounce_listen(umx_worker *worker);

/* ---- sending -------------------------------------------------------------
 */

/* True if the peer may fetch messages of `ep`. */
bool umi_bounce_is_agreed(const umi_ep_base *ep);

/* Announce a message, as umi_am_send() does. */
umx_status umi_bounce_send(umx_request *req, const void *header,
                           size_t header_len);

/* True if the peer fetches the bytes of `req`. */
bool umi_bounce_is_filling(const umx_request *req);

/* Fill no more slots for `req`, which the peer hears of elsewhere. */
void umi_bounce_stop_filling(umx_request *req);

/* The bytes of `req` are elsewhere from now on: nobody reads where they were.
 */
void umi_bounce_move(umx_request *req);

/* `req` is over. */
void umi_bounce_forget(umx_request *req);

/* ---- receiving -----------------------------------------------------------
 */

/* How a message is taken that may be fetched. */
extern const umi_way umi_way_bounce;

/* Stop the fetch that lands by `req`, and give what the message was known by,
 * as it was announced. NULL: it is not fetched. */
void *umi_bounce_stop(umx_request *req);

#endif
