/* SPDX-License-Identifier: BSD-3-Clause */
/* alloc.h: which bytes of a symmetric heap are allocated. Every rank makes the
 * same calls, so that every rank's answers are the same: first fit, and nothing
 * that depends on addresses, but for what is the same of those of all ranks:
 * where in a page the heap begins. Thread: one. */
#ifndef UMI_SHMEM_ALLOC_H
#define UMI_SHMEM_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <umx/status.h>

typedef struct umi_shmem_block {
    uint64_t offset;
    uint64_t len;
} umi_shmem_block;

typedef struct umi_shmem_blocks {
    uint64_t         address;   /* of offset 0, as far as ranks have it alike */
    uint64_t         size;      /* bytes in all */
    uint64_t         available; /* bytes that are in no block */
    umi_shmem_block *blocks;    /* in the order of their offsets */
    size_t           count;
    size_t           capacity;
} umi_shmem_blocks;

void umi_shmem_blocks_init(umi_shmem_blocks *blocks, uint64_t address,
                           uint64_t size);
void umi_shmem_blocks_fini(umi_shmem_blocks *blocks);

/* Allocate `len` bytes, not 0, at an address that is a multiple of `align`, a
 * power of two.
 * UMX_ERR_EXCEEDS_LIMIT: there is no room; UMX_ERR_NO_MEMORY: none to note it.
 */
umx_status umi_shmem_block_alloc(umi_shmem_blocks *blocks, uint64_t len,
                                 uint64_t align, uint64_t *offset_p);

/* Tell whether a block begins there. */
bool umi_shmem_block_exists(const umi_shmem_blocks *blocks, uint64_t offset);

/* Free the block that begins there. */
void umi_shmem_block_free(umi_shmem_blocks *blocks, uint64_t offset);

#endif
