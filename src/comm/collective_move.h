/* SPDX-License-Identifier: BSD-3-Clause */
/* collective_move.h: collective operations that move bytes between buffers. */
#ifndef UMI_COMM_COLLECTIVE_MOVE_H
#define UMI_COMM_COLLECTIVE_MOVE_H

#include "comm/collective.h"

/* What is sent, or received: a buffer, and the piece of it that each rank gets
 * or gives. */
typedef struct umi_comm_side {
    umx_buffer buf;
    size_t    *counts; /* of malloc; NULL: all of it */
    size_t    *displs; /* behind them */
} umi_comm_side;

/* An operation on buffers. */
typedef struct umi_comm_move {
    umi_comm_coll     base;
    umi_comm_side     send; /* nothing if it is in place */
    umi_comm_side     recv;
    bool              is_in_place;
    umx_comm         *made;   /* split: held; or NULL */
    int32_t          *pairs;  /* split: color and key of each rank */
    umi_comm_member **chosen; /* split: room for the members of the new one */
} umi_comm_move;

static inline umi_comm_move *
umi_comm_move_of(umi_comm_coll *coll)
{
    return (umi_comm_move *)(void *)coll;
}

/* umi_comm_coll_new() of a `type` whose size is that of umi_comm_move. */
umx_status umi_comm_move_new(umx_comm *comm, const umi_comm_coll_type *type,
                             size_t max_xfers, umi_comm_move **move_p);

/* umi_comm_coll_type.fini() */
void umi_comm_move_fini(umi_comm_coll *coll, umx_status status);

/* Take `buf` for a side of `move` and copies of its pieces: counts, and
 * displacements from them if there are none. Every piece lies in `buf`; that of
 * this rank is as long as `own`, if that is given. */
umx_status umi_comm_side_set(umi_comm_move *move, umi_comm_side *side,
                             const umx_buffer *buf, const umx_pieces *pieces,
                             const umx_buffer *own);

/* The piece of a rank. */
static inline umx_buffer
umi_comm_side_piece(const umi_comm_side *side, int rank)
{
    size_t     count = side->counts[rank];
    umx_buffer piece = side->buf;

    piece.data = (count == 0) ? NULL :
                                (char *)side->buf.data + side->displs[rank];
    piece.len  = count;
    return piece;
}

#endif
