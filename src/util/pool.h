/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.h: equal-sized objects that grow with what is in flight.
 *
 * chunk: [header | object | object | ...], chunks double up to 256 objects and
 * are freed with the pool. A free object's first word links the free list; get
 * and put are a few instructions. An object that never was in use is given out
 * only when all others are in use: so there are as many of those that were as
 * there ever were in use at a time. Thread: the pool's owner. */
#ifndef UMI_POOL_H
#define UMI_POOL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct umi_pool {
    void    *free_list; /* of objects that were in use */
    void    *chunks;
    char    *fresh;       /* the next object of the newest chunk */
    unsigned num_fresh;   /* objects that are left of it */
    unsigned next_count;  /* objects in the next chunk */
    size_t   object_size; /* rounded up to 16 */
    uint64_t in_use;
    uint64_t peak;
} umi_pool;

void umi_pool_init(umi_pool *pool, size_t object_size);

/* Frees the chunks. Objects still in use die with it. */
void umi_pool_fini(umi_pool *pool);

/* Take an object that never was in use, of a new chunk if need be; or NULL. */
void *umi_pool_get_slow(umi_pool *pool);

/* True if the next get may fail. */
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
    pool->in_use++;
    return object;
}

static inline void
umi_pool_put(umi_pool *pool, void *object)
{
    assert(object != pool->free_list && pool->in_use != 0);
    *(void **)object = pool->free_list;
    pool->free_list  = object;
    pool->in_use--;
}

#endif
