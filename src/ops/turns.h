/* SPDX-License-Identifier: BSD-3-Clause */
/* turns.h: the endpoints of a link take turns to send pieces (transfer.h).
 *
 * UCX has few pieces of a link at a time, so that a short message has few bytes
 * in front of it; and the kernel takes no more than the link needs
 * (host/unsent.h). When UCX has sent a piece, the next one follows, after the
 * progress call: what UCX could not send meanwhile goes first. An endpoint
 * sends a number of bytes in its turn, in the order of its transfers; what it
 * does not use is for its next turn. Thread: the worker's owner. */
#ifndef UMI_TURNS_H
#define UMI_TURNS_H

#include "ops/transfer.h"
#include "worker/link.h"

typedef struct umi_turns umi_turns;

/* A piece. UCX reads it until it has sent it. */
typedef struct umi_piece_block {
    umi_node         node;  /* umi_turns.pieces */
    umi_turns       *turns; /* NULL: ended */
    umx_worker      *worker;
    size_t           len; /* bytes of the message's */
    umi_piece_header header;
    uint8_t          bytes[UMI_WHOLE_BYTES]; /* the header is in front */
} umi_piece_block;

struct umi_turns {
    umi_link *link;
    umi_list  eps;      /* umi_transfer_ep.turn_node: with something to send */
    umi_list  pieces;   /* in UCX's hands */
    size_t    in_hand;  /* bytes of those */
    size_t    max_len;  /* of the next one: it follows the link's rate */
    umi_node  due_node; /* umi_transfers.due */
    bool      is_tuned; /* it is not new to umi_engine_tune() */
};

/* Begin the turns of a new link, which lie in `turns`; end them. */
void umi_turns_init(umi_link *link, umi_turns *turns);
void umi_turns_fini(umi_link *link);

/* `ep` has something to send, from now on; or nothing any more. */
void umi_turns_enter(umi_ep_base *ep);
void umi_turns_leave(umi_ep_base *ep);

/* umi_worker_hooks.take_turns */
unsigned umi_turns_take(umx_worker *worker);

#endif
