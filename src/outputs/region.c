/* SPDX-License-Identifier: BSD-3-Clause */
/* region.c: memory with bytes of blocks, and the blocks, which any thread gives
 * back. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "outputs/outputs.h"

static umi_outputs_region *
region_new(void *data, size_t len)
{
    umi_outputs_region *region = calloc(1, sizeof(*region));

    if (region != NULL) {
        atomic_init(&region->refs, 1);
        region->data = data;
        region->len  = len;
    }
    return region;
}

umi_outputs_region *
umi_outputs_region_alloc(size_t len)
{
    void               *data   = malloc(len);
    umi_outputs_region *region = (data == NULL) ? NULL : region_new(data, len);

    if (region == NULL) {
        free(data);
    }
    return region;
}

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
    atomic_fetch_add_explicit(&region->refs, 1, memory_order_relaxed);
}

void
umi_outputs_region_put(umi_outputs_region *region)
{
    if (atomic_fetch_sub_explicit(&region->refs, 1, memory_order_acq_rel) !=
        1) {
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
