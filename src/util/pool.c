/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/pool.h"

#include <stddef.h>
#include <stdlib.h>

#define POOL_ALIGN 16
#define FIRST_COUNT 16
#define MAX_COUNT 256

/* malloc's alignment is what objects get: the header keeps it. */
_Static_assert(_Alignof(max_align_t) >= POOL_ALIGN, "malloc aligns to less");

typedef struct pool_chunk {
    _Alignas(POOL_ALIGN) struct pool_chunk *next;
} pool_chunk;

void
umi_pool_init(umi_pool *pool, size_t object_size)
{
    if (object_size == 0) {
        object_size = 1;
    }
    *pool = (umi_pool){
        .object_size = (object_size + POOL_ALIGN - 1) &
                       ~(size_t)(POOL_ALIGN - 1),
        .next_count = FIRST_COUNT,
    };
}

void
umi_pool_fini(umi_pool *pool)
{
    pool_chunk *chunk = (pool_chunk *)pool->chunks;

    while (chunk != NULL) {
        pool_chunk *next = chunk->next;

        free(chunk);
        chunk = next;
    }
    umi_pool_init(pool, pool->object_size);
}

void *
umi_pool_get_slow(umi_pool *pool)
{
    size_t      size  = pool->object_size;
    pool_chunk *chunk = malloc(sizeof(*chunk) + pool->next_count * size);
    char       *objects;

    if (chunk == NULL) {
        return NULL;
    }
    chunk->next  = (pool_chunk *)pool->chunks;
    pool->chunks = chunk;

    /* The first object is the caller's; the others are linked backwards, so
     * that they are handed out in the order of their addresses. */
    objects = (char *)(chunk + 1);
    for (size_t i = pool->next_count - 1; i > 0; i--) {
        void *object = objects + i * size;

        *(void **)object = pool->free_list;
        pool->free_list  = object;
    }
    if (pool->next_count < MAX_COUNT) {
        pool->next_count *= 2;
    }
    return objects;
}
