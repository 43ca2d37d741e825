/* SPDX-License-Identifier: BSD-3-Clause */
/* segment.h: memory that processes of one host share: System V's, so that a
 * number is all that another process needs, it lives as long as anyone has it
 * mapped, whatever becomes of its owner, and its size can be asked for before
 * it is mapped. It is the owner's user's alone (mode 0600).
 *
 *   | header, half a page | data ...
 *
 * Half: memcpy() of some KiB to an address that is less than 64 bytes ahead of
 * the source, but for multiples of 4 KiB, takes ten times as long (stores look
 * like what is loaded next), and most large arrays begin 16 bytes into a page.
 * The header says whose it is: numbers of segments are used again. Thread:
 * any. */
#ifndef UMI_SEGMENT_H
#define UMI_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <umx/status.h>

#define UMI_SEGMENT_MAGIC UINT64_C(0x32544e454d474553) /* "SEGMENT2" */
#define UMI_SEGMENT_HEADER 2048                        /* bytes */

/* Who waits for a memory: wait.h says what is in it. */
typedef _Atomic(uint64_t) umi_waiters;

typedef struct umi_segment {
    uint64_t    magic;
    uint64_t    context; /* as in the key */
    uint64_t    memory;
    uint64_t    length; /* bytes of data */
    atomic_uint is_closed;
    umi_waiters waiters; /* beside what every operation reads */
} umi_segment;

_Static_assert(sizeof(umi_segment) <= UMI_SEGMENT_HEADER, "room");

/* A new segment, mapped. */
umx_status umi_segment_create(size_t len, umi_segment **segment_p,
                              int *number_p);

/* Say what the segment is; others can map it from now on. */
void umi_segment_publish(umi_segment *segment, uint64_t context,
                         uint64_t memory, size_t len);

/* Map somebody's segment; NULL if it is not, or no longer, this one. */
umi_segment *umi_segment_map(int number, uint64_t context, uint64_t memory,
                             size_t len);

void umi_segment_unmap(umi_segment *segment);

static inline char *
umi_segment_data(umi_segment *segment)
{
    return (char *)segment + UMI_SEGMENT_HEADER;
}

/* The owner's: nobody is to use it any more. */
static inline void
umi_segment_close(umi_segment *segment)
{
    atomic_store_explicit(&segment->is_closed, 1, memory_order_release);
}

static inline bool
umi_segment_is_closed(const umi_segment *segment)
{
    return atomic_load_explicit(&segment->is_closed, memory_order_acquire) != 0;
}

#endif
