/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* land.h: bytes that are with their sender come into a receive's buffer.
 * Thread: the worker's owner.
 *
 *   init --umi_land()--> landing --finish: umi_land_end()
 *
 * A receive of one message lands by itself. One that takes its bytes from
 * several messages (umi_assembly) has a request for each, a piece. If it is
 * cancelled while bytes land, the pieces go on in memory of ours, and the
 * receive's own part goes on until the last of them has ended. Nobody may read on
 * in a stream before they are back, nor in frames if the cancelled receive is
 * deferred; else frames are back at once (give_back.c). */
/* clang-format on */
#ifndef UMI_CHANNEL_LAND_H
#define UMI_CHANNEL_LAND_H

#include "mem/memtype.h"
#include "ops/way.h"
#include "worker/request.h"
#include "worker/worker.h"

struct umi_channel;

/* A landing: the tail of a request begins with it into whose buffer bytes land.
 * `req->info` says of which message. */
typedef struct umi_landing {
    struct umi_channel *channel;
    uint32_t            order; /* of a receive, among those of its channel; of
                                  a part, among those of its message */
    bool is_landing;
    bool is_withdrawn; /* the message: what lands means nothing */
    bool is_expecting; /* a WITHDRAW: withdraw.c */
} umi_landing;

UMI_REQUEST_TAIL(umi_landing, umi_landing_of);

/* Begin the landing of a new request. */
static inline void
umi_landing_init(umx_request *req, struct umi_channel *channel)
{
    umi_landing *landing = umi_landing_of(req);

    landing->channel      = channel;
    landing->is_landing   = false;
    landing->is_withdrawn = false;
    landing->is_expecting = false;
}

/* Have `len` bytes that are elsewhere written into `req->buf`, by the way in
 * which they come. As umi_way.recv(); umi_land_end() follows, also after a
 * failure. */
umx_status umi_land(umx_request *req, const umi_way *way, void *desc,
                    size_t len);

/* End a landing: the bytes are there, or will not come. */
void umi_land_end(umx_request *req);

/* True if bytes land by `req` for a receive that wants them. */
bool umi_land_is_awaited(const umx_request *req);

/* True if a message of `channel` lands by `req`. */
bool umi_land_is_of(const umx_request *req, const struct umi_channel *channel);

/* ---- several pieces ------------------------------------------------------
 */

/* An assembly: the tail of a receive begins with it whose bytes come by several
 * messages. */
typedef struct umi_assembly {
    struct umi_channel *channel;
    unsigned            num_landing; /* pieces */
    umx_status          status;
    uint8_t             phase;         /* the kind's own, like the next */
    bool                wants_message; /* and no bytes */
    bool                is_ended;
    bool                is_returning; /* counted in channel->num_returning */
} umi_assembly;

UMI_REQUEST_TAIL(umi_assembly, umi_assembly_of);

/* A request of `ops` by which bytes land for `req`, which is its `arg`; its
 * tail begins with an umi_landing, not yet set. NULL when out of memory. */
umx_request *umi_piece_new(umx_request *req, const umi_request_ops *ops);

/* Land a piece by umi_land(); the piece completes in any case. */
void umi_piece_land(umx_request *piece, const umi_way *way, void *desc,
                    size_t len);

/* End the landing of a piece. */
void umi_piece_end(umx_request *piece);

/* Call `fn` for every piece of `req` that lands, or has landed and is not
 * reported yet. */
typedef void (*umi_piece_fn)(umx_request *piece, void *arg);
void umi_pieces_each(umx_request *req, umi_piece_fn fn, void *arg);

/* True if other memory can be given to each piece of `req`. */
bool umi_pieces_can_move(umx_request *req);

/* Let the bytes of the pieces of `req` go nowhere; the pieces can move. */
void umi_pieces_void(umx_request *req);

/* Cancel a receive: the bytes that land go back to the channel, which gives no
 * bytes to other receives until umi_assembly_settle(). */
void umi_assembly_cancel(umx_request *req);

/* Note that the last bytes of a cancelled receive have landed. Nothing happens
 * if none were landing. */
void umi_assembly_settle(umx_request *req);

/* Note that the buffer of a cancelled receive stays lent to its pieces. */
void umi_assembly_defer(umx_request *req);

#endif
