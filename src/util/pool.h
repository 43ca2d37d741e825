/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.h: equal-sized objects that grow with what is in flight.
 *
 * chunk: [header | object | object | ...], chunks double up to 256 objects and
 * are freed with the pool. A free object's first word links the free list; get
 * and put are a few instructions. Thread: the pool's owner. */
#ifndef UMI_POOL_H
#define UMI_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct umi_pool {
    void    *free_list;
    void    *chunks;
    size_t   object_size; /* rounded up to 16 */
    unsigned next_count;  /* objects in the next chunk */
    uint64_t in_use;
    uint64_t peak;
} umi_pool;

void umi_pool_init(umi_pool *pool, size_t object_size);

/* Frees the chunks. Objects still in use die with it. */
void umi_pool_fini(umi_pool *pool);

/* Make a chunk, out of line. Returns an object or NULL. */
void *umi_pool_get_slow(umi_pool *pool);

/* True if the next get makes a chunk. */
static inline bool
umi_pool_is_empty(const umi_pool *pool)
{
    return pool->free_list == NULL;
}

/* Contents undefined; NULL when out of memory. */
static inline void *
umi_pool_get(umi_pool *pool)
{
    void *object = pool->free_list;

    if (object == NULL) {
        object = umi_pool_get_slow(pool);
        if (object == NULL) {
            return NULL;
        }
    } else {
        pool->free_list = *(void **)object;
    }
    if (++pool->in_use > pool->peak) {
        pool->peak = pool->in_use;
    }
    return object;
}

static inline void
umi_pool_put(umi_pool *pool, void *object)
{
    *(void **)object = pool->free_list;
    pool->free_list  = object;
    pool->in_use--;
}

#endif
