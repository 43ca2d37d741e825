/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.c: memory that is allocated and freed in the order of a stream, and that
 * other processes cannot open. */
#include <stdlib.h>
#include <string.h>

#include "standin/internal.h"

struct standin_pool {
    int  device;
    bool is_default;
};

/* The start of what describes a new pool. */
typedef struct properties {
    int alloc_type, handle_types, location_type, device;
} properties;

static cu_pool defaults[STANDIN_MAX_DEVICES];

static int
get_default(cu_pool **pool_p, int device)
{
    if (!standin_is_device(device)) {
        return INVALID_DEVICE;
    }
    defaults[device] = (cu_pool){device, true};
    *pool_p          = &defaults[device];
    return OK;
}

int
cuDeviceGetDefaultMemPool(cu_pool **pool_p, int device)
{
    ENTER(0);
    LEAVE(get_default(pool_p, device));
}

int
cuDeviceGetMemPool(cu_pool **pool_p, int device)
{
    ENTER(0);
    LEAVE(get_default(pool_p, device));
}

int
cuMemPoolCreate(cu_pool **pool_p, const void *description)
{
    properties p;

    ENTER(0);
    memcpy(&p, description, sizeof(p));
    if (!standin_is_device(p.device)) {
        LEAVE(INVALID_VALUE);
    }
    *pool_p = malloc(sizeof(**pool_p));
    if (*pool_p == NULL) {
        LEAVE(OUT_OF_MEMORY);
    }
    **pool_p = (cu_pool){p.device, false};
    LEAVE(OK);
}

int
cuMemPoolDestroy(cu_pool *pool)
{
    ENTER(0);
    if (pool->is_default) {
        LEAVE(INVALID_VALUE);
    }
    for (range *r = standin_ranges(); r != NULL; r = r->next) {
        if (r->pool == pool) {
            r->pool = &defaults[r->device];
        }
    }
    free(pool);
    LEAVE(OK);
}

int
cuMemPoolTrimTo(cu_pool *pool, size_t len)
{
    (void)pool;
    (void)len;
    ENTER(0);
    LEAVE(OK);
}

int
cuMemPoolSetAttribute(cu_pool *pool, int attribute, void *value)
{
    (void)pool;
    (void)attribute;
    (void)value;
    ENTER(0);
    LEAVE(OK);
}

static int
allocate(cu_pointer *pointer_p, size_t len, cu_pool *pool, cu_stream *handle)
{
    cu_stream *stream;
    range     *r;
    int        result = standin_stream_of(handle, &stream);

    if (result == OK && pool == NULL) {
        result = get_default(&pool, stream->context->device);
    }
    if (result == OK) {
        result = standin_allocate(pool->device, len, pool, &r);
    }
    if (result == OK) {
        *pointer_p = (uintptr_t)r->at;
    }
    return result;
}

int
cuMemAllocAsync(cu_pointer *pointer_p, size_t len, cu_stream *stream)
{
    ENTER(CONTEXT);
    LEAVE(allocate(pointer_p, len, NULL, stream));
}

int
cuMemAllocFromPoolAsync(cu_pointer *pointer_p, size_t len, cu_pool *pool,
                        cu_stream *stream)
{
    ENTER(CONTEXT);
    LEAVE(allocate(pointer_p, len, pool, stream));
}

int
cuMemFreeAsync(cu_pointer pointer, cu_stream *stream)
{
    const range *r;

    ENTER(CONTEXT);
    r = standin_find(pointer);
    if (r == NULL || r->kind != KIND_DEVICE ||
        r->at != (char *)(uintptr_t)pointer) {
        LEAVE(INVALID_VALUE);
    }
    LEAVE(standin_queue(stream, (op){.what = OP_FREE, .dst = r->at}));
}
