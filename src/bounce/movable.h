/* SPDX-License-Identifier: BSD-3-Clause */
/* movable.h: the memory of a request that copies of a device can move: a
 * device's, or memory of the host that is pinned. A request may get other
 * memory under way, as it is cancelled: it is asked each time. Thread: the
 * worker's owner. */
#ifndef UMI_BOUNCE_MOVABLE_H
#define UMI_BOUNCE_MOVABLE_H

#include "core/request.h"

/* Find the one piece of memory of a device that `req` has now; NULL: it has
 * none. */
const umx_buffer *umi_bounce_run(const umx_request *req);

/* Find the device of such memory, which `device_p` has if it is known. */
umx_status umi_bounce_device(const umx_buffer *buf, int *device_p);

/* Find the pinned memory that all bytes of `req` are in now, and the device
 * whose copies move it. NULL: it has none, though memory of the library's may
 * get it (core/pin.h), or a copy by the CPU takes less time than to hear of
 * a device's. */
const void *umi_bounce_pinned(const umx_request *req, int *device_p);

/* Find what copies of a device move: `pinned`, if that is not NULL, and `req`
 * has it still. NULL: there is nothing. */
const umx_buffer *umi_bounce_movable(const umx_request *req,
                                     const void        *pinned);

#endif
