/* ptr_map.h: pointer to pointer, open addressing, no tombstones. Keys are not
 * NULL. Thread: the map's owner. */
#ifndef UMI_PTR_MAP_H
#define UMI_PTR_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct umi_ptr_slot {
    const void *key;
    void       *value;
} umi_ptr_slot;

typedef struct umi_ptr_map {
    umi_ptr_slot *slots; /* NULL while empty */
    size_t        mask;  /* number of slots - 1, a power of two - 1 */
    size_t        count;
} umi_ptr_map;

void umi_ptr_map_init(umi_ptr_map *map);
void umi_ptr_map_fini(umi_ptr_map *map);

/* Insert or replace; false when out of memory. */
bool  umi_ptr_map_put(umi_ptr_map *map, const void *key, void *value);
void *umi_ptr_map_get(const umi_ptr_map *map, const void *key);
void  umi_ptr_map_remove(umi_ptr_map *map, const void *key);

#endif
