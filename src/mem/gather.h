/* SPDX-License-Identifier: BSD-3-Clause */
/* gather.h: several buffers as one run of bytes, in their order. Thread: any,
 * one at a time. */
#ifndef UMI_GATHER_H
#define UMI_GATHER_H

#include <umx/buffer.h>

typedef struct umi_gather {
    size_t len; /* bytes of all */
    size_t count;
    /* where the last move ended, as those of a message come in order */
    size_t     index; /* the piece */
    size_t     start; /* what its first byte's offset is */
    umx_buffer pieces[];
} umi_gather;

static inline size_t
umi_gather_size(size_t count)
{
    return sizeof(umi_gather) + count * sizeof(umx_buffer);
}

/* Begin a gather without pieces: umi_gather_add() as many as there is memory
 * for. */
static inline void
umi_gather_init(umi_gather *gather)
{
    *gather = (umi_gather){0};
}

static inline void
umi_gather_add(umi_gather *gather, const umx_buffer *buf)
{
    gather->pieces[gather->count++] = *buf;
    gather->len += buf->len;
}

/* `len` bytes from `offset` on, to or from `packed`. */
umx_status umi_gather_read(umi_gather *gather, size_t offset, void *packed,
                           size_t len);
umx_status umi_gather_write(umi_gather *gather, size_t offset,
                            const void *packed, size_t len);

#endif
