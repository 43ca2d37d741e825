/* SPDX-License-Identifier: BSD-3-Clause */
/* region.c: memory with bytes of blocks, and the blocks, which any thread gives
 * back. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "outputs/outputs.h"

static umi_outputs_region *
region_new(void *data, size_t len)
{
    umi_outputs_region *region = calloc(1, sizeof(*region));

    if (region != NULL) {
        umi_shared_refs_init(&region->refs);
        region->data = data;
        region->len  = len;
    }
    return region;
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
    unsigned            refs; /* the reader's, and of each region in use */
    bool                is_over;
    umi_outputs_region *unused;
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
    umi_outputs_region *region;

    while ((region = store->unused) != NULL) {
        store->unused = region->next;
        free(region->data);
        free(region);
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
static umi_outputs_region *
take_unused(umi_outputs_store *store, size_t len)
{
    umi_outputs_region **place = &store->unused;
    umi_outputs_region  *region;

    while ((region = *place) != NULL) {
        if (region->len >= len && region->len / 2 <= len) {
            *place = region->next;
            store->kept -= region->len;
            return region;
        }
        place = &region->next;
    }
    return NULL;
}

/* Keep memory that is not in use any more, or free it. */
static void
give_to_store(umi_outputs_region *region)
{
    umi_outputs_store *store = region->store;

    (void)pthread_mutex_lock(&store->lock);
    if (!store->is_over && store->kept + region->len <= KEEP_MAX) {
        region->next  = store->unused;
        store->unused = region;
        store->kept += region->len;
        region = NULL;
    }
    unlock_and_put(store);
    if (region != NULL) {
        free(region->data);
        free(region);
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

umi_outputs_region *
umi_outputs_region_alloc(umi_outputs_store *store, size_t len)
{
    umi_outputs_region *region = NULL;
    void               *data;

    if (len < KEEP_MIN) {
        store = NULL;
    } else {
        len = round_up(len);
        (void)pthread_mutex_lock(&store->lock);
        region = take_unused(store, len);
        store->refs += (region != NULL) ? 1 : 0;
        (void)pthread_mutex_unlock(&store->lock);
    }
    if (region != NULL) {
        umi_shared_refs_init(&region->refs);
        return region;
    }
    data   = malloc(len);
    region = (data == NULL) ? NULL : region_new(data, len);
    if (region == NULL) {
        free(data);
    } else if (store != NULL) {
        (void)pthread_mutex_lock(&store->lock);
        store->refs++;
        (void)pthread_mutex_unlock(&store->lock);
        region->store = store;
    }
    return region;
}

/* ---- memory that is there already ----------------------------------------
 */

umi_outputs_region *
umi_outputs_region_of_memh(umx_memh *memh)
{
    const umx_buffer   *buf    = umx_memh_buffer(memh);
    umi_outputs_region *region = region_new(buf->data, buf->len);

    if (region != NULL) {
        umx_memh_hold(memh);
        region->memh = memh;
    }
    return region;
}

umi_outputs_region *
umi_outputs_region_of_rkey(umx_rkey *rkey)
{
    umi_outputs_region *region = region_new(umx_rkey_pointer(rkey),
                                            (size_t)umx_rkey_length(rkey));

    if (region != NULL) {
        region->rkey = rkey;
    }
    return region;
}

umi_outputs_region *
umi_outputs_region_map(int fd, uint64_t offset, size_t len, int *error)
{
    uint64_t            page   = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t            before = offset % page;
    umi_outputs_region *region;
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
    region = region_new(data, len + (size_t)before);
    if (region == NULL) {
        (void)munmap(data, len + (size_t)before);
        return NULL;
    }
    region->is_file = true;
    region->offset  = offset - before;
    *error          = 0;
    return region;
}

void
umi_outputs_region_hold(umi_outputs_region *region)
{
    umi_shared_refs_get(&region->refs);
}

void
umi_outputs_region_put(umi_outputs_region *region)
{
    if (!umi_shared_refs_put(&region->refs)) {
        return;
    }
    if (region->store != NULL) {
        give_to_store(region);
        return;
    }
    if (region->rkey != NULL) {
        umx_rkey_retire(region->rkey);
    } else if (region->memh != NULL) {
        umx_memh_put(region->memh);
    } else if (region->is_file) {
        (void)munmap(region->data, region->len);
    } else {
        free(region->data);
    }
    free(region);
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
    umi_outputs_region_put(block->region);
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
    return umx_rma_get(block->region->rkey, &item, op, req_p);
}
