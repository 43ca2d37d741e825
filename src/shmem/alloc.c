/* SPDX-License-Identifier: BSD-3-Clause */
#include "shmem/alloc.h"

#include <stdlib.h>
#include <string.h>

enum {
    UNIT     = 64, /* bytes: lengths are multiples */
    CAPACITY = 16  /* blocks, at first */
};

void
umi_shmem_blocks_init(umi_shmem_blocks *blocks, uint64_t address, uint64_t size)
{
    *blocks = (umi_shmem_blocks){
        .address = address, .size = size, .available = size};
}

void
umi_shmem_blocks_fini(umi_shmem_blocks *blocks)
{
    free(blocks->blocks);
    blocks->blocks = NULL;
}

static bool
make_room(umi_shmem_blocks *blocks)
{
    size_t capacity = (blocks->capacity == 0) ? CAPACITY : 2 * blocks->capacity;
    umi_shmem_block *grown;

    if (blocks->count < blocks->capacity) {
        return true;
    }
    grown = realloc(blocks->blocks, capacity * sizeof(*grown));
    if (grown == NULL) {
        return false;
    }
    blocks->blocks   = grown;
    blocks->capacity = capacity;
    return true;
}

/* Where the gap before block `i` begins, and where it ends. */
static uint64_t
gap_begin(const umi_shmem_blocks *blocks, size_t i)
{
    const umi_shmem_block *before = &blocks->blocks[i] - 1;

    return (i == 0) ? 0 : before->offset + before->len;
}

static uint64_t
gap_end(const umi_shmem_blocks *blocks, size_t i)
{
    return (i == blocks->count) ? blocks->size : blocks->blocks[i].offset;
}

/* The first offset from `offset` on whose address is a multiple of `align`. */
static uint64_t
align_up(const umi_shmem_blocks *blocks, uint64_t offset, uint64_t align)
{
    return offset + (-(blocks->address + offset) & (align - 1));
}

umx_status
umi_shmem_block_alloc(umi_shmem_blocks *blocks, uint64_t len, uint64_t align,
                      uint64_t *offset_p)
{
    if (len > blocks->available || align > blocks->size) {
        return UMX_ERR_EXCEEDS_LIMIT;
    }
    if (!make_room(blocks)) {
        return UMX_ERR_NO_MEMORY;
    }
    align = (align < UNIT) ? UNIT : align;
    len   = (len + UNIT - 1) / UNIT * UNIT;
    for (size_t i = 0; i <= blocks->count; i++) {
        uint64_t offset = align_up(blocks, gap_begin(blocks, i), align);
        uint64_t end    = gap_end(blocks, i);

        if (offset <= end && len <= end - offset) {
            umi_shmem_block *place = &blocks->blocks[i];

            memmove(place + 1, place, (blocks->count - i) * sizeof(*place));
            *place = (umi_shmem_block){.offset = offset, .len = len};
            blocks->count++;
            blocks->available -= len;
            *offset_p = offset;
            return UMX_OK;
        }
    }
    return UMX_ERR_EXCEEDS_LIMIT;
}

/* The first block that begins at `offset` or behind it. */
static size_t
find(const umi_shmem_blocks *blocks, uint64_t offset)
{
    size_t low = 0, high = blocks->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (blocks->blocks[middle].offset < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool
umi_shmem_block_exists(const umi_shmem_blocks *blocks, uint64_t offset)
{
    size_t i = find(blocks, offset);

    return i < blocks->count && blocks->blocks[i].offset == offset;
}

void
umi_shmem_block_free(umi_shmem_blocks *blocks, uint64_t offset)
{
    size_t           i     = find(blocks, offset);
    umi_shmem_block *place = &blocks->blocks[i];

    blocks->available += place->len;
    blocks->count--;
    memmove(place, place + 1, (blocks->count - i) * sizeof(*place));
}
