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

static bool
add_chunk(umi_pool *pool)
{
    pool_chunk *chunk = malloc(sizeof(*chunk) +
                               pool->next_count * pool->object_size);

    if (chunk == NULL) {
        return false;
    }
    chunk->next     = (pool_chunk *)pool->chunks;
    pool->chunks    = chunk;
    pool->fresh     = (char *)(chunk + 1);
    pool->num_fresh = pool->next_count;
    if (pool->next_count < MAX_COUNT) {
        pool->next_count *= 2;
    }
    return true;
}

void *
umi_pool_get_slow(umi_pool *pool)
{
    void *object;

    if (pool->num_fresh == 0 && !add_chunk(pool)) {
        return NULL;
    }
    object = pool->fresh;
    pool->fresh += pool->object_size;
    pool->num_fresh--;
    pool->peak++;
    return object;
}
