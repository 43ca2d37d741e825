/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/slots.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    MIN_SLOTS = 16
};

void
umi_slots_init(umi_slots *slots)
{
    memset(slots, 0, sizeof(*slots));
}

void
umi_slots_fini(umi_slots *slots)
{
    free(slots->slots);
    umi_slots_init(slots);
}

/* Twice the size; the new ones are free. */
static int
grow(umi_slots *slots)
{
    uint32_t  size = (slots->size == 0) ? MIN_SLOTS : 2 * slots->size;
    umi_slot *grown;

    if (size < slots->size) {
        return 0;
    }
    grown = realloc(slots->slots, size * sizeof(*grown));
    if (grown == NULL) {
        return 0;
    }
    for (uint32_t i = slots->size; i < size; i++) {
        grown[i].id        = 0;
        grown[i].value     = NULL;
        grown[i].next_free = (i + 1 < size) ? i + 2 : 0;
    }
    slots->first_free = slots->size + 1;
    slots->slots      = grown;
    slots->size       = size;
    return 1;
}

uint64_t
umi_slots_add(umi_slots *slots, void *value, uint32_t nonce)
{
    umi_slot *slot;
    uint32_t  number;

    assert(value != NULL);
    if (slots->first_free == 0 && !grow(slots)) {
        return 0;
    }
    number            = slots->first_free;
    slot              = &slots->slots[number - 1];
    slots->first_free = slot->next_free;
    slots->count++;
    slot->id    = (uint64_t)nonce << 32 | number;
    slot->value = value;
    return slot->id;
}

void
umi_slots_remove(umi_slots *slots, uint64_t id)
{
    umi_slot *slot;

    if (umi_slots_get(slots, id) == NULL) {
        return;
    }
    slot              = &slots->slots[(uint32_t)id - 1];
    slot->id          = 0;
    slot->value       = NULL;
    slot->next_free   = slots->first_free;
    slots->first_free = (uint32_t)id;
    slots->count--;
}
