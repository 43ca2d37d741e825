/* SPDX-License-Identifier: BSD-3-Clause */
/* slots.h: the bounce buffers of a worker: a pool in memory of the host, and
 * one in memory of each device that has needed it. Thread: the worker's owner;
 * peers read the slots, and the table of turns. */
#ifndef UMI_BOUNCE_SLOTS_H
#define UMI_BOUNCE_SLOTS_H

#include "keys/segment.h"
#include "worker/dma.h"
#include "worker/worker.h"

enum {
    UMI_BOUNCE_SLOTS       = 8,                    /* of a pool */
    UMI_BOUNCE_PEER_MAX    = UMI_BOUNCE_SLOTS / 2, /* slots of one peer */
    UMI_BOUNCE_SLOT        = 1024 * 1024,          /* bytes; of the host */
    UMI_BOUNCE_DEVICE_SLOT = 4 * 1024 * 1024,
    UMI_BOUNCE_TABLE       = 4096, /* bytes in front of the host's first */
    UMI_BOUNCE_SIZE    = UMI_BOUNCE_TABLE + UMI_BOUNCE_SLOTS * UMI_BOUNCE_SLOT,
    UMI_BOUNCE_DEVICES = 32 /* that can have a pool */
};

/* What peers read: a slot is lent for one turn. Those of the host come first.
 */
typedef struct umi_bounce_table {
    _Atomic uint32_t turns[UMI_BOUNCE_SLOTS * (1 + UMI_BOUNCE_DEVICES)];
} umi_bounce_table;

_Static_assert(sizeof(umi_bounce_table) <= UMI_BOUNCE_TABLE, "room");

typedef enum umi_bounce_state {
    UMI_BOUNCE_FREE,
    UMI_BOUNCE_FILLING, /* a copy writes it */
    UMI_BOUNCE_LENT     /* the peer reads it */
} umi_bounce_state;

struct umi_fill;
struct umi_bounce_pool;

typedef struct umi_bounce_slot {
    umi_dma                 copy; /* FILLING */
    struct umi_bounce_pool *pool;
    struct umi_fill        *fill; /* NULL: nobody wants it any more */
    umi_bounce_state        state;
    uint32_t                index; /* in the table of turns */
    uint32_t                turn;
    size_t                  offset; /* of the message */
    size_t                  len;
} umi_bounce_slot;

typedef struct umi_bounce_pool {
    umx_worker     *worker;
    int             device;  /* UMX_DEVICE_NONE: of the host */
    size_t          size;    /* bytes of a slot */
    char           *first;   /* NULL: there is no memory yet */
    umi_cuda_handle handle;  /* by which peers map a device's */
    umi_list        waiting; /* fills that have too few slots, in order */
    umi_timer       timer;
    umi_bounce_slot slots[UMI_BOUNCE_SLOTS];
} umi_bounce_pool;

/* The pools of a worker. */
typedef struct umi_bounce_pools {
    umi_bounce_pool  host;
    umi_bounce_pool *devices[UMI_BOUNCE_DEVICES]; /* NULL: not needed yet */
    umi_segment     *segment; /* the table, and the host's; NULL: likewise */
    int              number;  /* the system's */
    uint64_t         memory;  /* its name */
    bool             is_pinned;
    int          pinned_by; /* in whose context; UMX_DEVICE_NONE: not tried */
    umi_timer_fn on_timer;  /* of the pools */
} umi_bounce_pools;

void umi_bounce_pools_begin(umx_worker *worker, umi_bounce_pools *pools,
                            umi_timer_fn on_timer);
void umi_bounce_pools_end(umi_bounce_pools *pools);

/* Give the host's pool, or a device's; made if need be. */
umx_status umi_bounce_pool_of_host(umi_bounce_pools *pools,
                                   umi_bounce_pool **pool_p);
umx_status umi_bounce_pool_of(umi_bounce_pools *pools, int device,
                              umi_bounce_pool **pool_p);

/* Let copies of a device write the host's slots without the CPU. */
void umi_bounce_pools_pin(umi_bounce_pools *pools, int device);

/* Take a slot that is free; NULL: none is. */
umi_bounce_slot *umi_bounce_pool_take(umi_bounce_pool *pool);

/* Whoever reads the slot finds out that it means nothing any more. */
void umi_bounce_slot_turn(umi_bounce_slot *slot);

/* The bytes of a slot. */
char *umi_bounce_slot_data(const umi_bounce_slot *slot);

/* ---- the peer's ----------------------------------------------------------
 */

/* Map the segment of that name; NULL: it cannot be mapped. */
umi_segment *umi_bounce_slots_map(int number, uint64_t context, uint64_t memory,
                                  char **data_p);

/* True for the number of a slot of the host. */
static inline bool
umi_bounce_is_of_host(uint32_t index)
{
    return index < UMI_BOUNCE_SLOTS;
}

/* Give the length of such a slot, or of a device's. */
static inline size_t
umi_bounce_slot_size(uint32_t index)
{
    return umi_bounce_is_of_host(index) ? UMI_BOUNCE_SLOT :
                                          UMI_BOUNCE_DEVICE_SLOT;
}

/* True for a number that a slot may have. */
static inline bool
umi_bounce_is_index(uint32_t index)
{
    return index < UMI_BOUNCE_SLOTS * (1 + UMI_BOUNCE_DEVICES);
}

/* The bytes of one of the host's, in mapped data. */
static inline const char *
umi_bounce_slots_at(const char *data, uint32_t index)
{
    return data + UMI_BOUNCE_TABLE + (size_t)index * UMI_BOUNCE_SLOT;
}

/* True if what has been read of a slot counts: it is still that turn's. */
bool umi_bounce_slots_is_turn(const char *data, uint32_t index, uint32_t turn);

#endif
