/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_segment.h: what an address of UCX names for it to map. UCX opens what it
 * is told, be it any file that any process has open, and writes to it. Thread:
 * any. */
#ifndef UMI_UCX_SEGMENT_H
#define UMI_UCX_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the segment that UCX's posix transport means by `id`; 0 if it is
 * none of UCX's, or not of this user's; SIZE_MAX if that cannot be known. */
size_t umi_ucx_posix_size(uint64_t id);

/* The same of its sysv transport. */
size_t umi_ucx_sysv_size(uint64_t id);

#endif
