/* SPDX-License-Identifier: BSD-3-Clause */
/* slab.h: blocks of memory out of slabs, which are segments (segment.h) that
 * the owner of a set of them cuts up.
 *
 *   free --take--> used --put--> dirty --nobody has the slab mapped--> free
 *
 * A peer that has mapped a slab can write to all of it until it lets go. So
 * what was used is not used again before the kernel says that nobody but this
 * process has the slab mapped: who maps it later finds the memory of its key
 * closed. A header is dirty along with its block, since a peer looks there,
 * before each operation, whether its memory is closed.
 *
 * What is free and what is not is known to this process only, which must not
 * believe what peers can write. Thread: any, under the set's lock; in a forked
 * child nothing is done. */
#ifndef UMI_SLAB_H
#define UMI_SLAB_H

#include <pthread.h>

#include "host/pin.h"
#include "keys/segment.h"
#include "util/list.h"

struct umi_slab;

/* Of one slab, beside each other from the end of the table to that of the slab;
 * those that are free are by address, and no two of them are neighbours. */
typedef struct umi_block {
    umi_node         node; /* slab->free or slab->dirty */
    struct umi_slab *slab;
    size_t           offset; /* from the slab's start */
    size_t           len;
    uint32_t         place; /* of its header; 0: free */
} umi_block;

typedef struct umi_slab_set {
    pthread_mutex_t lock;
    unsigned        generation; /* umi_fork_generation() */
    uint64_t        context;
    size_t          slab_size;
    umi_list        slabs; /* that which served last is the first */
    size_t          num_slabs;
    size_t          num_empty; /* nothing in them is used */
    size_t          num_used;  /* blocks */
    bool            is_closed; /* goes with its last block */
} umi_slab_set;

typedef struct umi_slab {
    umi_node      node; /* set->slabs */
    umi_slab_set *set;
    void         *address;
    int           number; /* of the segment */
    umi_pin       pin;
    unsigned      num_used;
    umi_list      free;
    umi_list      dirty;
    unsigned      num_places; /* free headers */
    uint16_t      places[UMI_SLAB_CELLS - 1];
} umi_slab;

/* NULL when out of memory. */
umi_slab_set *umi_slab_set_create(uint64_t context, size_t slab_size);

/* Blocks stay: the set goes with the last one. */
void umi_slab_set_destroy(umi_slab_set *set);

/* A block of at least `len` bytes, which is at most a sixteenth of a slab: what
 * is in it is not cleared. As umi_segment_create() if there must be a new slab.
 */
umx_status umi_block_take(umi_slab_set *set, size_t len, umi_block **block_p);

/* Give back a block that nobody but peers uses any more, and whose header says
 * that it is closed, or nothing. */
void umi_block_put(umi_block *block);

/* Memory of the slab is moved to, or from, a device: have all of it pinned. */
static inline void
umi_slab_pin(umi_slab *slab)
{
    umi_pin_use(&slab->pin, slab->address, slab->set->slab_size);
}

static inline umi_segment *
umi_block_header(const umi_block *block)
{
    return umi_slab_cell(block->slab->address, block->place);
}

static inline void *
umi_block_data(const umi_block *block)
{
    return (char *)block->slab->address + block->offset;
}

#endif
