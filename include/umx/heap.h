/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file heap.h  Many small memories in few segments of the system.
 *
 * Memory of umx_memh_alloc() is a System V segment of its own, and a host has a
 * few thousands of them for all its processes (kernel.shmmni, 4096 by default).
 * A heap takes the memories of up to a sixteenth of a slab from slabs, which
 * are segments of 1 MiB; a larger one is a segment of its own as ever. What is
 * written of memories in rma.h holds for a heap's: each has a key of its own,
 * its peers' operations stay within it, and its key is stale once it is closed.
 *
 * **Who shares a slab.** A peer on this host maps the whole slab of a memory
 * whose key it opens, for reading and for writing. Give the keys of a heap's
 * memories to peers that may have all of them: make a heap for each set of
 * peers, one communicator for example. Peers that may only read a memory must
 * not have the key of a heap's; those of umx_memh_register() can be read-only.
 * Peers on other hosts map nothing, and reach the memories of their keys only.
 *
 * **When space is used again.** Not while a peer may still reach it: that is
 * once the memory is closed, everything that was under way on it is over, and
 * nobody but its owner has the slab mapped. The kernel counts who has: a peer
 * that has died has not, one whose connection broke has until it destroys its
 * keys, and a forked child has until it ends or executes another program. Until
 * then new memories come from other slabs.
 *
 * UCX's own put and get (`config.rma_ucx`) are not used on a heap's memories:
 * a network card knows no bounds within a slab. The owner executes them.
 */
#ifndef UMX_HEAP_H
#define UMX_HEAP_H

#include <umx/rma.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct umx_heap umx_heap;

enum umx_heap_field {
    UMX_HEAP_FIELD_SLAB_SIZE = 1u << 0 /* absent: 1 MiB */
};

typedef struct umx_heap_params {
    uint64_t field_mask;
    size_t   slab_size; /* bytes; 256 KiB to 1 GiB */
} umx_heap_params;

/** What a heap has. */
typedef struct umx_heap_info {
    size_t num_slabs;    /* segments of the system */
    size_t num_memories; /* in them, not released */
} umx_heap_info;

/**
 * Make a heap. It takes a slab when there is something to put into it.
 *
 * Ownership: the caller's, given back by umx_heap_destroy(). Takes a reference
 *            on `context`.
 * Thread:    any; so are all calls of a heap.
 *
 * @return UMX_OK, UMX_ERR_INVALID_PARAM (`slab_size`), UMX_ERR_NO_MEMORY,
 *         UMX_ERR_FORKED
 */
UMX_API UMX_MUST_CHECK umx_status
umx_heap_create(umx_context *context, const umx_heap_params *params,
                umx_heap **heap_p);

/**
 * Allocate `len` bytes of zeros, as umx_memh_alloc() does. They begin at a
 * multiple of 64 bytes.
 *
 * Ownership: the caller's reference, which may outlive the heap.
 * @return as umx_memh_alloc()
 */
UMX_API UMX_MUST_CHECK umx_status umx_heap_alloc(umx_heap *heap, size_t len,
                                                 umx_memh **memh_p);

/** Fill in what the heap has in use. */
UMX_API void umx_heap_query(umx_heap *heap, umx_heap_info *info);

/** Give the heap back. Its memories stay until they are released, and each slab
 * until its last one is. */
UMX_API void umx_heap_destroy(umx_heap *heap);

/**
 * Write to `text` which limit of the system on segments is reached now, if one
 * is, and how many segments this user and this process have. For a person who
 * reads UMX_ERR_SEGMENT_LIMIT.
 *
 * @return as snprintf(): bytes of the whole text, without the '\0'
 */
UMX_API size_t umx_segment_limits(char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
