/* SPDX-License-Identifier: BSD-3-Clause */
/* slots.h: the bounce buffers of a worker. Thread: the worker's owner; peers
 * read the segment. */
#ifndef UMI_BOUNCE_SLOTS_H
#define UMI_BOUNCE_SLOTS_H

#include "core/dma.h"
#include "core/segment.h"
#include "core/worker.h"

enum {
    UMI_BOUNCE_SLOTS    = 8,
    UMI_BOUNCE_SLOT     = 1024 * 1024,          /* bytes */
    UMI_BOUNCE_PEER_MAX = UMI_BOUNCE_SLOTS / 2, /* slots of one peer */
    UMI_BOUNCE_TABLE    = 4096, /* bytes in front of the first */
    UMI_BOUNCE_SIZE     = UMI_BOUNCE_TABLE + UMI_BOUNCE_SLOTS * UMI_BOUNCE_SLOT
};

/* What peers read: a slot is lent for one turn. */
typedef struct umi_bounce_table {
    _Atomic uint32_t turns[UMI_BOUNCE_SLOTS];
} umi_bounce_table;

_Static_assert(sizeof(umi_bounce_table) <= UMI_BOUNCE_TABLE, "room");

typedef enum umi_bounce_state {
    UMI_BOUNCE_FREE,
    UMI_BOUNCE_FILLING, /* a copy writes it */
    UMI_BOUNCE_LENT     /* the peer reads it */
} umi_bounce_state;

struct umi_fill;

typedef struct umi_bounce_slot {
    umi_dma          copy; /* FILLING */
    umx_worker      *worker;
    struct umi_fill *fill; /* NULL: nobody wants it any more */
    umi_bounce_state state;
    uint32_t         index;
    uint32_t         turn;
    size_t           offset; /* of the message */
    size_t           len;
    uint64_t         since; /* LENT: umi_clock_ns() */
} umi_bounce_slot;

typedef struct umi_bounce_slots {
    umi_segment    *segment; /* NULL: not made yet */
    char           *data;
    int             number; /* the system's */
    uint64_t        memory; /* its name */
    bool            is_pinned;
    int             device;  /* in whose context */
    umi_list        waiting; /* fills that have too few slots, in order */
    umi_timer       timer;
    umi_bounce_slot slots[UMI_BOUNCE_SLOTS];
} umi_bounce_slots;

void umi_bounce_slots_begin(umx_worker *worker, umi_bounce_slots *slots);
void umi_bounce_slots_end(umi_bounce_slots *slots);

/* Make the segment, if there is none. */
umx_status umi_bounce_slots_make(umx_worker *worker, umi_bounce_slots *slots);

/* Let copies of a device write the slots without the CPU. */
void umi_bounce_slots_pin(umi_bounce_slots *slots, int device);

/* Take a slot that is free; NULL: none is. */
umi_bounce_slot *umi_bounce_slots_take(umi_bounce_slots *slots);

/* Whoever reads the slot finds out that it means nothing any more. */
void umi_bounce_slot_turn(umi_bounce_slot *slot);

/* The bytes of a slot. */
char *umi_bounce_slot_data(const umi_bounce_slot *slot);

/* ---- the peer's ----------------------------------------------------------
 */

/* Map the segment of that name; NULL: it cannot be mapped. */
umi_segment *umi_bounce_slots_map(int number, uint64_t context, uint64_t memory,
                                  char **data_p);

/* The bytes of a slot in mapped data, and whether what has been read of it
 * counts: it is still that turn's. */
static inline const char *
umi_bounce_slots_at(const char *data, uint32_t index)
{
    return data + UMI_BOUNCE_TABLE + (size_t)index * UMI_BOUNCE_SLOT;
}

bool umi_bounce_slots_is_turn(const char *data, uint32_t index, uint32_t turn);

#endif
