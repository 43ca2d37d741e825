/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/map.h"

#include <assert.h>
#include <stdlib.h>

/* Find the place of a key: the upper bits of its product with 2^64 divided by
 * the golden ratio, which spreads neighbours. */
static umi_map_node **
place_of(const umi_map *map, uint64_t key)
{
    uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15);

    return &map->places[(map->bits == 0) ? 0 : hash >> (64 - map->bits)];
}

void
umi_map_init(umi_map *map)
{
    map->first  = NULL;
    map->places = &map->first;
    map->bits   = 0;
    map->count  = 0;
}

void
umi_map_fini(umi_map *map)
{
    if (map->places != &map->first) {
        free(map->places);
    }
    umi_map_init(map);
}

static void
put(umi_map *map, umi_map_node *node)
{
    umi_map_node **place = place_of(map, node->key);

    node->next = *place;
    *place     = node;
}

/* Double the places. Without memory the map stays as it is. */
static void
grow(umi_map *map)
{
    umi_map        old    = *map;
    umi_map_node **places = calloc((size_t)2 << map->bits, sizeof(*places));

    if (places == NULL) {
        return;
    }
    map->places = places;
    map->bits++;
    for (size_t i = 0; i < (size_t)1 << old.bits; i++) {
        umi_map_node *node = (old.bits == 0) ? old.first : old.places[i];

        while (node != NULL) {
            umi_map_node *next = node->next;

            put(map, node);
            node = next;
        }
    }
    if (old.bits != 0) {
        free(old.places);
    }
}

void
umi_map_add(umi_map *map, umi_map_node *node, uint64_t key)
{
    assert(umi_map_find(map, key) != node);
    if (map->count >= (size_t)1 << map->bits) {
        grow(map);
    }
    node->key = key;
    put(map, node);
    map->count++;
}

void
umi_map_remove(umi_map *map, umi_map_node *node)
{
    umi_map_node **link = place_of(map, node->key);

    while (*link != node) {
        assert(*link != NULL);
        link = &(*link)->next;
    }
    *link = node->next;
    map->count--;
}

umi_map_node *
umi_map_find(const umi_map *map, uint64_t key)
{
    umi_map_node *node = *place_of(map, key);

    while (node != NULL && node->key != key) {
        node = node->next;
    }
    return node;
}
