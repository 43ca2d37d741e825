/* SPDX-License-Identifier: BSD-3-Clause */
/* inbox_out.h: what a rank writes into the inbox of another one: cells, and
 * bytes of the ring. Thread: the worker's owner. */
#ifndef UMI_COMM_INBOX_OUT_H
#define UMI_COMM_INBOX_OUT_H

#include <stdbool.h>

#include <umx/rma.h>

#include "comm/inbox_cell.h"

typedef struct umi_comm_out {
    umx_rkey *rkey;                 /* of the inbox; NULL: not mapped */
    char     *area;                 /* this rank's area there */
    size_t    ring;                 /* bytes of the ring */
    uint64_t  sent;                 /* cells */
    uint64_t  consumed;             /* of them, when it was last looked */
    uint64_t  used;                 /* bytes of the ring, ever */
    uint64_t  ends[UMI_COMM_CELLS]; /* `used` behind each cell */
} umi_comm_out;

/* Is this rank far ahead of the other one? */
bool umi_comm_out_is_ahead(umi_comm_out *out);

/* Is there room for a cell and so many bytes? */
bool umi_comm_out_has_room(umi_comm_out *out, size_t len);

/* Write a cell, and the bytes, which are of this host, into the ring: `step` at
 * a time, so that the rank takes those that are there while the next are
 * copied. False: there is no room. */
bool umi_comm_out_put(umi_comm_out *out, umi_comm_cell *c,
                      const umx_buffer *bytes, size_t step);

#endif
