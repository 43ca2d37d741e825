/* memh.h: memory that peers may reach. It belongs to a context; any worker of
 * that may be told to read or write it. Thread: any. */
#ifndef UMI_MEMH_H
#define UMI_MEMH_H

#include <umx/rma.h>

#include "core/context.h"
#include "core/segment.h"

struct umx_memh {
    umx_context *context; /* held */
    atomic_uint  refs;
    uint64_t     id; /* in context->memhs; 0: not, or no longer */
    umx_buffer   buf;
    bool         is_readonly;
    bool         is_lent;      /* of umx_memh_register() */
    bool         is_of_driver; /* of umx_memh_alloc_cuda() */
    umi_segment *segment;      /* of umx_memh_alloc(); NULL: private memory */
    ucp_mem_h    ucp;          /* NULL: nothing to register */
    uint8_t     *key;
    size_t       key_len;
    void (*on_free)(void *arg);
    void *arg;
};

/* The open memory of that id, held; NULL if there is none. */
umx_memh *umi_memh_find(umx_context *context, uint64_t id);

/* umx_memh_release() without closing: of a reference from umi_memh_find(). */
void umi_memh_put(umx_memh *memh);

#endif
