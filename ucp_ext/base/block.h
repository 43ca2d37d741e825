/* SPDX-License-Identifier: BSD-3-Clause */
/* block.h: pieces of memory of one size, which the module keeps for the next
 * operation. What only some requests need is in blocks of its own: in the
 * steady state it costs no allocation. Thread: with the GIL. */
#ifndef UCP_EXT_BASE_BLOCK_H
#define UCP_EXT_BASE_BLOCK_H

#include "base/state.h"

enum {
    BLOCK_SIZE      = 96, /* bytes */
    MAX_FREE_BLOCKS = 1024
};

struct block {
    struct block *next;
};

/* Get BLOCK_SIZE bytes, not initialised; NULL with an exception. */
static inline void *
block_get(mod_state *st)
{
    block *first = st->free_blocks;

    if (UNLIKELY(first == NULL)) {
        first = PyMem_Malloc(BLOCK_SIZE);
        return (first != NULL) ? first : (void *)PyErr_NoMemory();
    }
    st->free_blocks = first->next;
    st->num_free_blocks--;
    return first;
}

static inline void
block_put(mod_state *st, void *memory)
{
    block *first = memory;

    if (UNLIKELY(st->num_free_blocks >= MAX_FREE_BLOCKS ||
                 st->request_type == NULL)) {
        PyMem_Free(memory); /* enough are kept, or the module has ended */
        return;
    }
    first->next     = st->free_blocks;
    st->free_blocks = first;
    st->num_free_blocks++;
}

/* Free the blocks that are kept. */
static inline void
block_clear_free(mod_state *st)
{
    block *first;

    while ((first = st->free_blocks) != NULL) {
        st->free_blocks = first->next;
        PyMem_Free(first);
    }
    st->num_free_blocks = 0;
}

#endif
