/* SPDX-License-Identifier: BSD-3-Clause */
/* request.h: the object of one operation. Thread: the worker's owner.
 *
 * A request is on one list at a time: a queue of the layer that made it, its
 * endpoint's list of operations in UCX's hands (`inflight`), or the worker's
 * done list. UCX's callbacks only call umi_request_complete(); `finish` and
 * `on_done` run later, from umi_worker_run_events(). */
#ifndef UMI_REQUEST_H
#define UMI_REQUEST_H

#include <stdint.h>
#include <umx/request.h>

#include "core/memh.h"
#include "util/list.h"

struct umi_ep_base;

/* UMX_OP_FLAG_LAYER: the callbacks are the library's own, and run in the
 * progress thread, too. */
#define UMI_OP_FLAG_INTERNAL (UINT64_C(1) << 30)

/* What differs between kinds of operations. */
typedef struct umi_request_ops {
    const char *name;
    /* Settle the layer's own state, before on_done; may change the status or
     * return false to keep the request (it completes again later). NULL:
     * nothing to do. */
    bool (*finish)(umx_request *req);
    /* umx_request_cancel() on a request not yet complete. NULL: cannot. */
    void (*cancel)(umx_request *req);
    /* Hand the request to UCX, for umi_ep_base_post_waiting(). NULL: such a
     * request never waits. */
    umx_status (*post)(umx_request *req);
} umi_request_ops;

enum {
    UMI_REQUEST_TAIL_SIZE = 64
};

struct umx_request {
    umi_node               node;
    umx_status             status;
    bool                   is_done;       /* on_done has run, or may not */
    bool                   is_kept;       /* released by the user */
    bool                   is_cancelled;  /* umx_request_cancel() was called */
    bool                   is_posted : 1; /* in UCX's hands */
    bool                   is_internal : 1; /* `on_done` is of the library's */
    bool                   is_lost : 1;     /* there for good, it seems */
    umx_done_fn            on_done;
    umx_done_fn            on_lost; /* or NULL */
    void                  *arg;
    const umi_request_ops *ops;
    umx_worker            *worker;
    struct umi_ep_base    *ep;     /* held; NULL for a worker's operations */
    umx_buffer             buf;    /* `memh` is held */
    struct umi_gather     *gather; /* the memory instead of buf.data, or NULL */
    umx_recv_info          info;
    /* The operation's own: UMI_REQUEST_TAIL. UCX may read from here until the
     * operation completes. */
    _Alignas(8) unsigned char tail[UMI_REQUEST_TAIL_SIZE];
};

/* `type` is what requests of some operation have in their tail, where `get`
 * finds it. It is not cleared. */
#define UMI_REQUEST_TAIL(type, get)                         \
    _Static_assert(sizeof(type) <= UMI_REQUEST_TAIL_SIZE && \
                       _Alignof(type) <= 8,                 \
                   "no room in umx_request.tail");          \
    static inline type *get(const umx_request *req)         \
    {                                                       \
        return (type *)(void *)(uintptr_t)req->tail;        \
    }                                                       \
    _Static_assert(true, "a semicolon follows")

/* A request of `ops` with the user's params; NULL when out of memory. */
umx_request *umi_request_new(umx_worker *worker, struct umi_ep_base *ep,
                             const umi_request_ops *ops,
                             const umx_op_params   *params);

/* Put a request back into the pool: one that never was INPROGRESS, or after
 * on_done. */
void umi_request_free(umx_request *req);

/* Give `req` the buffer that the user lends it; hold its registration. */
static inline void
umi_request_hold_buffer(umx_request *req, const umx_buffer *buf)
{
    req->buf = *buf;
    if (buf->memh != NULL) {
        umi_memh_hold(buf->memh);
    }
}

/* Hold the registration of `buf`, one of several buffers. Only the first that
 * has one is held: a buffer with another loses its own. */
static inline void
umi_request_hold_part(umx_request *req, umx_buffer *buf)
{
    if (buf->memh != NULL && req->buf.memh == NULL) {
        umi_memh_hold(buf->memh);
        req->buf.memh = buf->memh;
    } else if (buf->memh != req->buf.memh) {
        buf->memh = NULL;
    }
}

/* Give the registration up: the user has the buffer back. */
static inline void
umi_request_drop_buffer(umx_request *req)
{
    umx_memh *memh = req->buf.memh;

    if (memh != NULL) {
        req->buf.memh = NULL;
        umi_memh_put(memh);
    }
}

/* The operation is over: to the worker's done list. From UCX's callbacks or
 * from ours. */
void umi_request_complete(umx_request *req, umx_status status);

/* Report, once, that UCX seems not to give the operation back. */
void umi_request_lose(umx_request *req, umx_status status);

/* umx_op_params.on_lost of a part of the request `arg`. */
void umi_request_lose_whole(umx_request *part, umx_status status, void *arg);

/* umi_request_complete() for every request on `list`. */
void umi_request_complete_all(umi_list *list, umx_status status);

/* umi_request_ops.cancel of a request that only waits on a list. */
void umi_request_cancel_queued(umx_request *req);

#endif
