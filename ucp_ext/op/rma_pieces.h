/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_pieces.h: pieces of one buffer and of a peer's memory, by arrays of
 * numbers. */
#ifndef UCP_EXT_OP_RMA_PIECES_H
#define UCP_EXT_OP_RMA_PIECES_H

#include "op/rma.h"

/* The pieces of (buffer, offsets, lengths, at); the last one may be NULL or
 * None. NULL with an exception. */
rma_list *rma_pieces_new(RemoteObject *self, PyObject *const *values,
                         bool is_writable);

#endif
