/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_segment.h: what an address of UCX names for it to map. UCX opens what it
 * is told, be it any file that any process has open, and writes to it. Thread:
 * any. */
#ifndef UMI_UCX_SEGMENT_H
#define UMI_UCX_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#include <umx/status.h>

/* Bytes of the segment that UCX's posix transport means by `id`, in a process
 * whose process namespace is `pid_ns` (0: the first of the system). SIZE_MAX if
 * this UCX will not map it. `own_id` is of a segment of this process: where UCX
 * was told another directory, a peer's must be in the same one.
 * UMX_ERR_PROTOCOL: it is no segment of UCX's, or not of this user's. */
umx_status umi_segment_ucx_posix_size(uint64_t id, uint64_t own_id,
                                      uint32_t pid_ns, size_t *size_p);

/* Find the size of a segment of UCX's sysv transport. UMX_ERR_CONNECTION_RESET:
 * the segment is gone, as it is once its process has ended. */
umx_status umi_segment_ucx_sysv_size(uint64_t id, size_t *size_p);

#endif
