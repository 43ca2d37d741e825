/* SPDX-License-Identifier: BSD-3-Clause */
/* memh.h: memory that peers may reach. It belongs to a context; any worker of
 * that may be told to read or write it. Thread: any. */
#ifndef UMI_MEMH_H
#define UMI_MEMH_H

#include <umx/rma.h>

#include "host/pin.h"
#include "keys/context.h"
#include "keys/segment.h"
#include "keys/slab.h"
#include "util/refcnt.h"

struct umx_memh {
    umx_context    *context; /* held */
    umi_shared_refs refs;
    uint64_t        id;     /* in context->memhs; 0: not, or no longer */
    uint64_t        number; /* what `id` was at first */
    atomic_bool     is_closed;
    umx_buffer      buf;
    bool            is_readonly;
    bool            is_lent;      /* of umx_memh_register() */
    bool            is_of_driver; /* of umx_memh_alloc_cuda() */
    umi_segment    *segment; /* its header in a segment; NULL: it is in none */
    int             segment_number;
    size_t       offset;  /* of the data in a segment or mapping of its own, */
    size_t       slack;   /* which has so many bytes more than it needs */
    umi_block   *block;   /* of a heap; NULL: the segment is its own */
    umi_waiters *waiters; /* the segment's, or ... */
    umi_waiters  own_waiters; /* ... this one */
    umi_pin      pin;         /* of a slab's, the slab has one */
    atomic_bool  is_ordered;  /* waits begin with a membarrier: worker/wait.h */
    ucp_mem_h    ucp;         /* NULL: nothing to register */
    umi_ucx     *ucx;         /* held: what `ucp` is of; or NULL */
    uint8_t     *key;
    size_t       key_len;
    void (*on_free)(void *arg);
    void *arg;
};

/* Take one more reference. */
static inline void
umi_memh_hold(umx_memh *memh)
{
    umi_shared_refs_get(&memh->refs);
}

/* True if its user has closed it. */
static inline bool
umi_memh_is_closed(const umx_memh *memh)
{
    return atomic_load_explicit(&memh->is_closed, memory_order_acquire);
}

/* True if the registration covers `buf`. */
static inline bool
umi_memh_covers(const umx_memh *memh, const umx_buffer *buf)
{
    size_t at = (uintptr_t)buf->data - (uintptr_t)memh->buf.data;

    return at <= memh->buf.len && buf->len <= memh->buf.len - at &&
           (buf->memtype == memh->buf.memtype ||
            buf->memtype == UMX_MEMTYPE_UNKNOWN);
}

/* Check that an operation may use the registration of `buf`. */
static inline umx_status
umi_memh_check(const umx_buffer *buf)
{
    const umx_memh *memh = buf->memh;

    return (memh == NULL || buf->layout != NULL || buf->len == 0 ||
            umi_memh_covers(memh, buf)) ?
               UMX_OK :
               UMX_ERR_INVALID_PARAM;
}

/* The open memory of that id, held; NULL if there is none. */
umx_memh *umi_memh_find(umx_context *context, uint64_t id);

/* `buf` is moved to, or from, a device: if it is in a memory of the context,
 * have that pinned. */
void umi_memh_pin(umx_context *context, const umx_buffer *buf);

/* A memory of a heap, of the first `len` bytes of `block`, which it owns from
 * now on, also if this fails. */
umx_status umi_memh_open_block(umx_context *context, umi_block *block,
                               size_t len, umx_memh **memh_p);

/* The memory has been stored to: have the workers look that wait for it, all
 * but `inside`, which is in a (P) call and looks at its end. */
void umi_memh_ring(umx_memh *memh, const umx_worker *inside);

/* umx_memh_release() without closing: of a reference from umi_memh_find() or
 * umi_memh_hold(). */
void umi_memh_put(umx_memh *memh);

#endif
