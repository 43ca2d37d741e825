/* SPDX-License-Identifier: BSD-3-Clause */
/* extent.c: memory with bytes of blocks, and the blocks, which any thread gives
 * back. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "outputs/outputs.h"

static umi_outputs_extent *
extent_new(void *data, size_t len)
{
    umi_outputs_extent *extent = calloc(1, sizeof(*extent));

    if (extent != NULL) {
        umi_shared_refs_init(&extent->refs);
        extent->data = data;
        extent->len  = len;
    }
    return extent;
}

/* ---- memory that is used again -------------------------------------------
 */

enum {
    KEEP_MIN = 1 << 16, /* bytes; less is left to malloc() */
    KEEP_MAX = 64 << 20 /* of all that is kept */
};

/* The system clears memory that it gives, which takes longer than to copy to
 * it.
 */
struct umi_outputs_store {
    pthread_mutex_t     lock;
    unsigned            refs; /* the reader's, and of each extent in use */
    bool                is_over;
    umi_outputs_extent *unused;
    size_t              kept;
};

umi_outputs_store *
umi_outputs_store_new(void)
{
    umi_outputs_store *store = calloc(1, sizeof(*store));

    if (store != NULL) {
        (void)pthread_mutex_init(&store->lock, NULL);
        store->refs = 1;
    }
    return store;
}

static void
free_unused(umi_outputs_store *store)
{
    umi_outputs_extent *extent;

    while ((extent = store->unused) != NULL) {
        store->unused = extent->next;
        free(extent->data);
        free(extent);
    }
}

/* Give a reference back. The lock is held, and is not afterwards. */
static void
unlock_and_put(umi_outputs_store *store)
{
    bool is_last = --store->refs == 0;

    (void)pthread_mutex_unlock(&store->lock);
    if (is_last) {
        free_unused(store);
        (void)pthread_mutex_destroy(&store->lock);
        free(store);
    }
}

void
umi_outputs_store_end(umi_outputs_store *store)
{
    (void)pthread_mutex_lock(&store->lock);
    store->is_over = true;
    free_unused(store);
    store->kept = 0;
    unlock_and_put(store);
}

/* Take memory that is long enough, and not much longer; or NULL. */
static umi_outputs_extent *
take_unused(umi_outputs_store *store, size_t len)
{
    umi_outputs_extent **place = &store->unused;
    umi_outputs_extent  *extent;

    while ((extent = *place) != NULL) {
        if (extent->len >= len && extent->len / 2 <= len) {
            *place = extent->next;
            store->kept -= extent->len;
            return extent;
        }
        place = &extent->next;
    }
    return NULL;
}

/* Keep memory that is not in use any more, or free it. */
static void
give_to_store(umi_outputs_extent *extent)
{
    umi_outputs_store *store = extent->store;

    (void)pthread_mutex_lock(&store->lock);
    if (!store->is_over && store->kept + extent->len <= KEEP_MAX) {
        extent->next  = store->unused;
        store->unused = extent;
        store->kept += extent->len;
        extent = NULL;
    }
    unlock_and_put(store);
    if (extent != NULL) {
        free(extent->data);
        free(extent);
    }
}

/* Lengths that are nearly the same become the same, so that memory of one
 * serves for the other: at most an eighth is added. */
static size_t
round_up(size_t len)
{
    size_t step = (size_t)1 << (60 - __builtin_clzll(len));

    return (len > SIZE_MAX - step) ? len : (len + step - 1) / step * step;
}

umi_outputs_extent *
umi_outputs_extent_alloc(umi_outputs_store *store, size_t len)
{
    umi_outputs_extent *extent = NULL;
    void               *data;

    if (len < KEEP_MIN) {
        store = NULL;
    } else {
        len = round_up(len);
        (void)pthread_mutex_lock(&store->lock);
        extent = take_unused(store, len);
        store->refs += (extent != NULL) ? 1 : 0;
        (void)pthread_mutex_unlock(&store->lock);
    }
    if (extent != NULL) {
        umi_shared_refs_init(&extent->refs);
        return extent;
    }
    data   = malloc(len);
    extent = (data == NULL) ? NULL : extent_new(data, len);
    if (extent == NULL) {
        free(data);
    } else if (store != NULL) {
        (void)pthread_mutex_lock(&store->lock);
        store->refs++;
        (void)pthread_mutex_unlock(&store->lock);
        extent->store = store;
    }
    return extent;
}

/* ---- memory that is there already ----------------------------------------
 */

umi_outputs_extent *
umi_outputs_extent_of_memh(umx_memh *memh)
{
    const umx_buffer   *buf    = umx_memh_buffer(memh);
    umi_outputs_extent *extent = extent_new(buf->data, buf->len);

    if (extent != NULL) {
        umx_memh_hold(memh);
        extent->memh = memh;
    }
    return extent;
}

umi_outputs_extent *
umi_outputs_extent_of_rkey(umx_rkey *rkey)
{
    umi_outputs_extent *extent = extent_new(umx_rkey_pointer(rkey),
                                            (size_t)umx_rkey_length(rkey));

    if (extent != NULL) {
        extent->rkey = rkey;
    }
    return extent;
}

umi_outputs_extent *
umi_outputs_extent_map(int fd, uint64_t offset, size_t len, int *error)
{
    uint64_t            page   = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t            before = offset % page;
    umi_outputs_extent *extent;
    void               *data;

    *error = ENOMEM;
    if (len > SIZE_MAX - before) {
        return NULL;
    }
    data = mmap(NULL, len + (size_t)before, PROT_READ, MAP_SHARED, fd,
                (off_t)(offset - before));
    if (data == MAP_FAILED) {
        *error = errno;
        return NULL;
    }
    extent = extent_new(data, len + (size_t)before);
    if (extent == NULL) {
        (void)munmap(data, len + (size_t)before);
        return NULL;
    }
    extent->is_file = true;
    extent->offset  = offset - before;
    *error          = 0;
    return extent;
}

void
umi_outputs_extent_hold(umi_outputs_extent *extent)
{
    umi_shared_refs_get(&extent->refs);
}

void
umi_outputs_extent_put(umi_outputs_extent *extent)
{
    if (!umi_shared_refs_put(&extent->refs)) {
        return;
    }
    if (extent->store != NULL) {
        give_to_store(extent);
        return;
    }
    if (extent->rkey != NULL) {
        umx_rkey_retire(extent->rkey);
    } else if (extent->memh != NULL) {
        umx_memh_put(extent->memh);
    } else if (extent->is_file) {
        (void)munmap(extent->data, extent->len);
    } else {
        free(extent->data);
    }
    free(extent);
}

/* ---- blocks --------------------------------------------------------------
 */

void
umx_outputs_block_query(const umx_outputs_block *block,
                        umx_outputs_block_info  *info)
{
    *info = block->info;
}

void
umx_outputs_block_release(umx_outputs_block *block)
{
    umi_outputs_extent_put(block->extent);
    free(block);
}

umx_status
umx_outputs_block_get(umx_outputs_block *block, const umx_buffer *buf,
                      const umx_op_params *op, umx_request **req_p)
{
    umx_rma_item item = {.offset = block->offset, .buf = *buf};

    if (buf->len != block->info.len) {
        return UMX_ERR_LENGTH_MISMATCH;
    }
    if (block->info.place != UMX_OUTPUTS_AWAY) {
        return UMX_ERR_INVALID_PARAM;
    }
    return umx_rma_get(block->extent->rkey, &item, op, req_p);
}
