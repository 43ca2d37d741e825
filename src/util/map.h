/* SPDX-License-Identifier: BSD-3-Clause */
/* map.h: things found by a number of 64 bits, in constant time. The things have
 * the node in themselves, so adding one needs no memory; the map asks for some
 * as it grows, and is slower without. Thread: the owner. */
#ifndef UMI_MAP_H
#define UMI_MAP_H

#include <stddef.h>
#include <stdint.h>

typedef struct umi_map_node umi_map_node;

struct umi_map_node {
    umi_map_node *next; /* with the same place */
    uint64_t      key;
};

typedef struct umi_map {
    umi_map_node **places; /* of malloc, or `first` */
    umi_map_node  *first;
    unsigned       bits; /* there are 1 << bits places */
    size_t         count;
} umi_map;

void umi_map_init(umi_map *map);

/* Give the memory of the map back; what is in it is the caller's. */
void umi_map_fini(umi_map *map);

/* `key` must not be in the map. */
void umi_map_add(umi_map *map, umi_map_node *node, uint64_t key);

/* The node must be in the map. */
void umi_map_remove(umi_map *map, umi_map_node *node);

/* Find the node with that key; or NULL. */
umi_map_node *umi_map_find(const umi_map *map, uint64_t key);

#endif
