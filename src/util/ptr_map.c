#include "util/ptr_map.h"

#include <stdlib.h>

enum {
    MIN_SLOTS = 16
};

static size_t
slot_of(const umi_ptr_map *map, const void *key)
{
    uint64_t hash = (uint64_t)(uintptr_t)key * 0x9e3779b97f4a7c15u;

    return (size_t)(hash >> 32) & map->mask;
}

void
umi_ptr_map_init(umi_ptr_map *map)
{
    map->slots = NULL;
    map->mask  = 0;
    map->count = 0;
}

void
umi_ptr_map_fini(umi_ptr_map *map)
{
    free(map->slots);
    umi_ptr_map_init(map);
}

/* The slot that has `key` or where it would go. */
static umi_ptr_slot *
find(const umi_ptr_map *map, const void *key)
{
    size_t i = slot_of(map, key);

    while (map->slots[i].key != NULL && map->slots[i].key != key) {
        i = (i + 1) & map->mask;
    }
    return &map->slots[i];
}

static bool
grow(umi_ptr_map *map)
{
    umi_ptr_map bigger;
    size_t      nslots = (map->slots == NULL) ? MIN_SLOTS : (map->mask + 1) * 2;

    bigger.slots = calloc(nslots, sizeof(*bigger.slots));
    if (bigger.slots == NULL) {
        return false;
    }
    bigger.mask  = nslots - 1;
    bigger.count = map->count;
    for (size_t i = 0; map->slots != NULL && i <= map->mask; i++) {
        if (map->slots[i].key != NULL) {
            *find(&bigger, map->slots[i].key) = map->slots[i];
        }
    }
    free(map->slots);
    *map = bigger;
    return true;
}

bool
umi_ptr_map_put(umi_ptr_map *map, const void *key, void *value)
{
    umi_ptr_slot *slot;

    if (map->slots == NULL || map->count * 4 >= (map->mask + 1) * 3) {
        if (!grow(map)) {
            return false;
        }
    }
    slot = find(map, key);
    if (slot->key == NULL) {
        slot->key = key;
        map->count++;
    }
    slot->value = value;
    return true;
}

void *
umi_ptr_map_get(const umi_ptr_map *map, const void *key)
{
    return (map->slots == NULL) ? NULL : find(map, key)->value;
}

void
umi_ptr_map_remove(umi_ptr_map *map, const void *key)
{
    umi_ptr_slot *slot;
    size_t        hole, i;

    if (map->slots == NULL) {
        return;
    }
    slot = find(map, key);
    if (slot->key == NULL) {
        return;
    }
    hole = (size_t)(slot - map->slots);
    /* Shift back what the probe sequence would no longer reach. */
    for (i = (hole + 1) & map->mask; map->slots[i].key != NULL;
         i = (i + 1) & map->mask) {
        size_t home = slot_of(map, map->slots[i].key);

        if (((i - home) & map->mask) >= ((i - hole) & map->mask)) {
            map->slots[hole] = map->slots[i];
            hole             = i;
        }
    }
    map->slots[hole].key   = NULL;
    map->slots[hole].value = NULL;
    map->count--;
}
