/* SPDX-License-Identifier: BSD-3-Clause */
/* copy.h: memcpy() that goes past the caches for what does not fit into them.
 * Thread: any. */
#ifndef UMI_COPY_H
#define UMI_COPY_H

#include <stddef.h>
#include <string.h>

enum {
    /* Bytes. With two processes that copy, stores past the caches take three
     * quarters of the time from 4 MiB on, and longer up to 1 MiB. */
    UMI_STREAM_MIN = 8 * 1024 * 1024
};

/* UMI_STREAM_MIN bytes or more. */
void umi_copy_streaming(void *to, const void *from, size_t len);

/* Not overlapping. */
static inline void
umi_copy(void *to, const void *from, size_t len)
{
    if (len >= UMI_STREAM_MIN) {
        umi_copy_streaming(to, from, len);
    } else if (len != 0) {
        memcpy(to, from, len);
    }
}

#endif
