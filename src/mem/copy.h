/* SPDX-License-Identifier: BSD-3-Clause */
/* copy.h: memcpy() that goes past the caches for what does not fit into them,
 * and around what is slow in the processor. Thread: any.
 *
 * `rep movsb`, by which glibc copies some KiB and more, and the kernel what one
 * process reads of another, takes up to 20 times as long on AMD's Zen 3 and 4
 * if the destination lies in its page up to a line behind where the source lies
 * in its own. Two blocks of malloc() whose size is a power of two lie so, if
 * one was allocated after the other: 16 bytes of malloc() are between them. */
#ifndef UMI_COPY_H
#define UMI_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    /* Bytes. With two processes that copy, stores past the caches take three
     * quarters of the time from 4 MiB on, and longer up to 1 MiB. */
    UMI_STREAM_MIN = 8 * 1024 * 1024,
    UMI_COPY_PAGE  = 4096,
    UMI_COPY_LINE  = 64,
    /* glibc copies so many bytes without `rep movsb`, whatever the processor.
     */
    UMI_COPY_SHORT = 2048
};

/* UMI_STREAM_MIN bytes or more. */
void umi_copy_streaming(void *to, const void *from, size_t len);

/* Does `rep movsb` take long from there to there? */
static inline bool
umi_copy_is_slow(const void *to, const void *from)
{
    return ((uintptr_t)to - (uintptr_t)from - 1) % UMI_COPY_PAGE <
           UMI_COPY_LINE - 1;
}

/* Copy without `rep movsb`. */
void umi_copy_in_parts(void *to, const void *from, size_t len);

/* Copy `len` bytes between places that do not overlap, in the way that suits
 * the length and the places. */
static inline void
umi_copy(void *to, const void *from, size_t len)
{
    if (len >= UMI_STREAM_MIN) {
        umi_copy_streaming(to, from, len);
    } else if (len > UMI_COPY_SHORT && umi_copy_is_slow(to, from)) {
        umi_copy_in_parts(to, from, len);
    } else if (len != 0) {
        memcpy(to, from, len);
    }
}

#endif
