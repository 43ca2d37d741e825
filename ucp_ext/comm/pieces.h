/* SPDX-License-Identifier: BSD-3-Clause */
/* pieces.h: the pieces of a buffer that go to the ranks, or come from them. */
#ifndef UCP_EXT_COMM_PIECES_H
#define UCP_EXT_COMM_PIECES_H

#include "comm/collective.h"

/* Pieces of a buffer, as they are given: for each rank. */
typedef struct piece_args {
    PyObject         *obj; /* the buffer */
    const umx_buffer *buf;
    PyObject         *counts; /* in items; NULL, None: equal parts */
    PyObject         *displs; /* in items; NULL, None: one after the other */
    const char       *what;   /* "send" or "recv", for errors */
} piece_args;

/* Allocate the counts and displacements of all ranks. -1 with an exception. */
int pieces_alloc(collective_call *call);

/* Read the counts and displacements of all ranks, in bytes. -1 with an
 * exception. */
int pieces_parse(const CommObject *self, const piece_args *args, size_t *counts,
                 size_t *displs);

/* Pieces that are received must not overlap: some bytes would come twice. -1
 * with an exception. */
int pieces_check_no_overlap(const collective_call *call);

umx_pieces pieces_sent(const collective_call *call);
umx_pieces pieces_received(const collective_call *call);

#endif
