/* SPDX-License-Identifier: BSD-3-Clause */
/* segment.h: memory that processes of one host share: System V's, so that a
 * number is all that another process needs, it lives as long as anyone has it
 * mapped, whatever becomes of its owner, and its size can be asked for before
 * it is mapped. It is the owner's user's alone (mode 0600).
 *
 *   a memory:  | header, half a page | data ...
 *   a slab:    | its header | headers of memories ... | data of memories ...
 *
 * Half: memcpy() of some KiB to an address that is less than 64 bytes ahead of
 * the source, but for multiples of 4 KiB, takes ten times as long (stores look
 * like what is loaded next), and most large arrays begin 16 bytes into a page.
 * A header says whose the memory is: numbers of segments are used again. The
 * headers of a slab lie in a table, where no peer that the owner executes
 * operations for can write one. Thread: any. */
#ifndef UMI_SEGMENT_H
#define UMI_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <umx/status.h>

#include "keys/key.h"

#define UMI_SEGMENT_MAGIC UINT64_C(0x32544e454d474553) /* "SEGMENT2" */
#define UMI_SLAB_MAGIC UINT64_C(0x3130303042414c53)    /* "SLAB0001" */

enum {
    UMI_SEGMENT_HEADER = 2048, /* bytes */
    UMI_SLAB_CELL      = 64,   /* bytes of a header in a slab's table */
    UMI_SLAB_CELLS     = 1024, /* the first is the slab's own */
    UMI_SLAB_TABLE     = UMI_SLAB_CELL * UMI_SLAB_CELLS
};

/* Who waits for a memory: waiters.h says what is in it. */
typedef _Atomic(uint64_t) umi_waiters;

/* The header of a memory. */
typedef struct umi_segment {
    uint64_t    magic;
    uint64_t    context; /* as in the key */
    uint64_t    memory;
    uint64_t    length; /* bytes of data */
    uint64_t    offset; /* of the data, from the segment's start */
    atomic_uint is_closed;
    atomic_uint is_ordered; /* waits begin with a membarrier: worker/wait.h */
    umi_waiters waiters;    /* beside what every operation reads */
} umi_segment;

_Static_assert(sizeof(umi_segment) <= UMI_SLAB_CELL, "room");

/* Of a slab. */
typedef struct umi_slab_header {
    uint64_t magic;
    uint64_t context;
} umi_slab_header;

/* A new segment, mapped.
 * UMX_ERR_SEGMENT_LIMIT: the system allows no more, or none of that size;
 * UMX_ERR_UNSUPPORTED: the system has none for this process. */
umx_status umi_segment_create(size_t len, umi_segment **segment_p,
                              int *number_p);

/* Let nobody map the segment for writing any more: this process has it mapped.
 * Processes of the superuser could, but libumx maps what a key calls read-only
 * for reading. */
umx_status umi_segment_protect(int number);

/* Create a segment of `size` bytes in all, mapped, for a slab of that context.
 * Returns what umi_segment_create() does. */
umx_status umi_segment_create_slab(size_t size, uint64_t context, void **slab_p,
                                   int *number_p);

/* Say what the memory is whose data begin at `offset`; others can map it from
 * now on. */
void umi_segment_publish(umi_segment *segment, uint64_t context,
                         uint64_t memory, size_t offset, size_t len);

/* Map the memory of a key; NULL if it is not, or no longer, there. */
umi_segment *umi_segment_map(const umi_key *key, char **data_p);

/* `place`: of the key, 0 for a segment or a slab of this process's own. */
void umi_segment_unmap(void *segment, uint32_t place);

/* May anybody but this process's one mapping have it mapped? Whoever maps it
 * later sees what was stored before this call: the system orders the two. Those
 * who have died have not got it mapped, and a forked child has. */
bool umi_segment_is_shared(int number);

/* The header at `place` of a slab. */
static inline umi_segment *
umi_slab_cell(void *slab, uint32_t place)
{
    return (umi_segment *)(void *)((char *)slab +
                                   (size_t)place * UMI_SLAB_CELL);
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
