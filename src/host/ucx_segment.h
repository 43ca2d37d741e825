/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_segment.h: what an address of UCX names for it to map. UCX opens what it
 * is told, be it any file that any process has open, and writes to it. A
 * segment of another user is not mapped, not even by the superuser, who could:
 * its owner can shorten it, which ends the processes that use it. Thread: any.
 */
#ifndef UMI_UCX_SEGMENT_H
#define UMI_UCX_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

typedef enum umi_ucx_segment_state {
    UMI_UCX_SEGMENT_OPEN,    /* this process may map it */
    UMI_UCX_SEGMENT_CLOSED,  /* it may not, and UCX leaves it out */
    UMI_UCX_SEGMENT_FOREIGN, /* it is another user's */
    UMI_UCX_SEGMENT_GONE,    /* as it is once its process has ended */
    UMI_UCX_SEGMENT_NONE     /* it is no segment of UCX's */
} umi_ucx_segment_state;

/* Look at the segment that UCX's posix transport means by `id`, in a process
 * whose process namespace is `pid_ns` (0: the first of the system). `own_id` is
 * of a segment of this process: where UCX was told another directory, a peer's
 * must be in the same one. `*size_p` is written for one that is open. */
umi_ucx_segment_state umi_segments_look_posix(uint64_t id, uint64_t own_id,
                                              uint32_t pid_ns, size_t *size_p);

/* Look at a segment of UCX's sysv transport. */
umi_ucx_segment_state umi_segments_look_sysv(uint64_t id, size_t *size_p);

#endif
