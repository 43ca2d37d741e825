/* SPDX-License-Identifier: BSD-3-Clause */
/* movable.h: the memory of a request that copies of a device can move: a
 * device's, in one piece or in several, or memory of the host that is pinned. A
 * request may get other memory under way, as it is cancelled: it is asked each
 * time. Thread: the worker's owner. */
#ifndef UMI_BOUNCE_MOVABLE_H
#define UMI_BOUNCE_MOVABLE_H

#include "mem/cuda_kernel.h"
#include "worker/dma.h"
#include "worker/request.h"

enum {
    /* A copy of few bytes is waited for: that takes less than to hear of it. */
    UMI_BOUNCE_SHORT = 32 * 1024
};

/* What copies move; `count` 0: nothing. */
typedef struct umi_movable {
    const umx_buffer *pieces;
    size_t            count;
} umi_movable;

/* Find the one piece of memory of a device that `req` has now; NULL: it has
 * several, or none. */
const umx_buffer *umi_bounce_run(const umx_request *req);

/* Find the memory of devices that all bytes of `req` are in now. */
umi_movable umi_bounce_pieces(const umx_request *req);

/* Find the device of such memory, which `device_p` has if it is known.
 * UMX_ERR_UNSUPPORTED: the pieces are of several, or of foreign contexts. */
umx_status umi_bounce_device(const umi_movable *it, int *device_p);

/* Find the pinned memory that all bytes of `req` are in now, and the device
 * whose copies move it. NULL: it has none, though memory of the library's may
 * get it (host/pin.h), or a copy by the CPU takes less time than to hear of
 * a device's. */
const void *umi_bounce_pinned(const umx_request *req, int *device_p);

/* Find what copies of a device move: `pinned`, if that is not NULL, and `req`
 * has it still. Several pieces are moved by one device, which `device_p` has
 * then, or by none. */
umi_movable umi_bounce_movable(const umx_request *req, const void *pinned,
                               int *device_p);

/* True if the CPU moves `len` bytes in less time than it takes to hear of a
 * device's copies. So many pieces that a kernel moves them are never short. */
static inline bool
umi_bounce_is_short(const umi_movable *it, size_t len)
{
    return len <= UMI_BOUNCE_SHORT && !umi_cuda_kernel_is_for(it->count);
}

/* Bytes between a slot and what copies move. */
typedef struct umi_shift {
    umi_cuda_direction direction;
    bool               is_out; /* into the slot */
    void              *slot;
    size_t             offset; /* of the request's bytes */
    size_t             len;
} umi_shift;

/* Begin to copy the bytes of `shift` between its slot and the memory `it`.
 * `done` is called as umi_dma_begin() calls it. */
void umi_bounce_shift(umi_dma *copy, umx_request *req, const umi_movable *it,
                      int device, const umi_shift *shift, umi_dma_fn done);

#endif
