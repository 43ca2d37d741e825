/* SPDX-License-Identifier: BSD-3-Clause */
/* slots.h: numbers for pointers that travel over the wire and come back. A
 * number is an index and a nonce, so that one that has been given back, or
 * made up, finds nothing. 0 is no number. Thread: the owner. */
#ifndef UMI_SLOTS_H
#define UMI_SLOTS_H

#include <stddef.h>
#include <stdint.h>

typedef struct umi_slot {
    uint64_t id; /* 0: free */
    void    *value;
    uint32_t next_free; /* index + 1; 0: none */
} umi_slot;

typedef struct umi_slots {
    umi_slot *slots;
    uint32_t  size;
    uint32_t  count;
    uint32_t  first_free; /* index + 1; 0: none */
} umi_slots;

void umi_slots_init(umi_slots *slots);
void umi_slots_fini(umi_slots *slots);

/* A number for `value`; 0 when out of memory. `nonce` should be random. */
uint64_t umi_slots_add(umi_slots *slots, void *value, uint32_t nonce);
void     umi_slots_remove(umi_slots *slots, uint64_t id);

/* Find what has the number `id`; NULL if that is not, or no longer, a number.
 */
static inline void *
umi_slots_get(const umi_slots *slots, uint64_t id)
{
    uint32_t i = (uint32_t)id - 1;

    if (i >= slots->size || slots->slots[i].id != id) {
        return NULL;
    }
    return slots->slots[i].value;
}

#endif
