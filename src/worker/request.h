/* SPDX-License-Identifier: BSD-3-Clause */
/* request.h: the object of one operation. Thread: the worker's owner.
 *
 * A request is on one list at a time: a queue of the layer that made it, its
 * endpoint's list of operations in UCX's hands (`inflight`), or the worker's
 * done list. UCX's callbacks only call umi_request_complete(); `finish` and
 * `on_done` run later, from umi_worker_run_events().
 *
 * It has two states: that of the operation, and that of the user's part, which
 * ends with it, or before (detach.c). */
#ifndef UMI_REQUEST_H
#define UMI_REQUEST_H

#include <assert.h>
#include <stdint.h>
#include <umx/trace.h>

#include "keys/memh.h"
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
    /* umx_request_cancel() on a request not yet complete: complete the request,
     * or umi_request_detach() it, so that the buffer is the user's again. A
     * request for which neither is done is deferred: it completes later. NULL:
     * always deferred. */
    void (*cancel)(umx_request *req);
    /* umx_request_cancel() on a request that is complete and not yet reported:
     * give back what it has received, so that `finish` needs nothing of the
     * buffer. NULL: `finish` never does. */
    void (*cancel_complete)(umx_request *req);
    /* Hand the request to UCX, for umi_ep_base_post_waiting(). NULL: such a
     * request never waits. */
    umx_status (*post)(umx_request *req);
    /* What umi_dma_after() waits for is done, or has failed. NULL: such a
     * request never waits for it. */
    void (*ready)(umx_request *req, umx_status status);
    /* Add to the event of its end what traces say of it: bytes, tag, flags.
     * NULL: nothing. */
    void (*describe)(const umx_request *req, umx_trace_event *event);
    /* The memory is the library's: it is given to nobody before `finish`, which
     * finds it where it was. */
    bool has_own_memory;
} umi_request_ops;

enum {
    UMI_REQUEST_TAIL_SIZE = 64
};

/* Memory of the library's in the place of the user's. */
typedef struct umi_spare {
    umx_worker *worker;
    size_t      len; /* counted in worker->copied_bytes */
    _Alignas(16) unsigned char bytes[];
} umi_spare;

/* What has become of the operation:
 *
 *   OURS ---> POSTED ---> COMPLETE ---> OVER
 *     ^ \       |           ^ |  \        ^
 *     |  `------|-----------' |   `---> STUCK
 *     `---------+-------------'
 *
 * UCX gives an operation back that is posted anew, and `finish` may keep one
 * that goes on. */
typedef enum umi_request_state {
    UMI_REQUEST_OURS,     /* it waits in the library, or is about to be posted;
                             also one that ends in its posting call */
    UMI_REQUEST_COMPLETE, /* it has its status: on the done list, or reported */
    UMI_REQUEST_OVER,     /* detached, and `finish` has run; or UCX has ended */
    /* A bit of its own: UCX has it. */
    UMI_REQUEST_POSTED = 4,
    UMI_REQUEST_STUCK /* complete, and UCX has it until its worker goes */
} umi_request_state;

/* What the user has of it:
 *
 *   WAITS ---> DEFERRED ---> DETACHED ---> RELEASED
 *       `---------------------^
 */
typedef enum umi_user_state {
    UMI_USER_WAITS,    /* until on_done has run: is_done */
    UMI_USER_DEFERRED, /* cancelled, and the buffer is not the user's yet */
    /* A bit of its own: it ends before the operation, umi_request_detach(). */
    UMI_USER_DETACHED = 2,
    UMI_USER_RELEASED /* likewise, and the user has given the request back */
} umi_user_state;

struct umx_request {
    umi_node   node;
    umx_status status;
    bool       is_done;      /* on_done has run, or may not */
    bool       is_kept;      /* released by the user */
    bool       is_cancelled; /* umx_request_cancel() was called */
    /* umi_request_is_odd() looks at the first four at once. */
    uint8_t  num_dmas;         /* copies that are under way: dma.h */
    unsigned state : 3;        /* umi_request_state */
    unsigned user : 2;         /* umi_user_state */
    bool     is_lost : 1;      /* in UCX's hands for good, it seems */
    bool     is_observed : 1;  /* its end is recorded: observe.h */
    bool     is_internal : 1;  /* `on_done` is of the library's */
    bool     is_movable : 1;   /* UCX has the memory through datatype.h */
    bool     is_void : 1;      /* nobody wants the bytes: UCX gets zeros */
    bool     is_abandoned : 1; /* umx_request_abandon(): no limit counts */
    int16_t  user_status;      /* umi_request_detach_as() */
    int16_t memory_status; /* not UMX_OK: why its memory cannot be written; what
                              comes goes nowhere, and it ends so */
    /* A new request has zeros from here ... */
    umx_done_fn        on_done;
    umx_done_fn        on_lost; /* or NULL */
    void              *arg;
    struct umi_gather *gather; /* the memory instead of buf.data, or NULL */
    umi_spare         *copy;   /* what `buf` or `gather` is in; or NULL */
    void  *small; /* of worker->smalls: the bytes that UCX sends; or NULL */
    size_t moved; /* is_movable: where the bytes end that UCX has moved */
    /* ... to here. */
    const umi_request_ops *ops;
    umx_worker            *worker;
    struct umi_ep_base    *ep;  /* held; NULL for a worker's operations */
    umx_buffer             buf; /* `memh` is held */
    umi_node               detached_node; /* worker->detached */
    const char            *label; /* is_observed: its name, like the next */
    uint64_t               begun; /* ticks */
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

/* ---- states --------------------------------------------------------------
 */

/* True if `to` may come next. */
bool umi_request_is_edge(umi_request_state from, umi_request_state to);
bool umi_request_is_user_edge(umi_user_state from, umi_user_state to);

static inline void
umi_request_set_state(umx_request *req, umi_request_state state)
{
    assert(umi_request_is_edge((umi_request_state)req->state, state));
    req->state = state;
}

static inline void
umi_request_set_user(umx_request *req, umi_user_state user)
{
    assert(umi_request_is_user_edge((umi_user_state)req->user, user));
    req->user = user;
}

/* True if UCX has the operation. */
static inline bool
umi_request_is_posted(const umx_request *req)
{
    return (req->state & UMI_REQUEST_POSTED) != 0;
}

/* UCX has it from now on. */
static inline void
umi_request_posted(umx_request *req)
{
    umi_request_set_state(req, UMI_REQUEST_POSTED);
}

/* UCX has given it back, or `finish` keeps it: it is about to be posted. */
static inline void
umi_request_restart(umx_request *req)
{
    if (req->state != UMI_REQUEST_OURS) {
        umi_request_set_state(req, UMI_REQUEST_OURS);
    }
    req->status = UMX_INPROGRESS;
}

/* True if the user's part ends before the operation. */
static inline bool
umi_request_is_detached(const umx_request *req)
{
    return (req->user & UMI_USER_DETACHED) != 0;
}

/* True if it needs more than most when it is freed: one test of a byte. */
static inline bool
umi_request_is_odd(const umx_request *req)
{
    return ((req->state & UMI_REQUEST_POSTED) |
            (req->user & UMI_USER_DETACHED) | req->is_lost |
            req->is_observed) != 0;
}

/* True if its end needs more than most, as that with an error: one branch. */
static inline bool
umi_request_has_odd_end(const umx_request *req)
{
    return ((req->user & UMI_USER_DETACHED) | req->is_observed |
            (unsigned)req->status) != 0;
}

/* The user waits for the buffer of a cancelled operation; again, or not. */
static inline void
umi_request_defer(umx_request *req)
{
    if (req->user != UMI_USER_DEFERRED) {
        umi_request_set_user(req, UMI_USER_DEFERRED);
    }
}

/* ---- life ----------------------------------------------------------------
 */

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

/* ---- detach.c: an operation that goes on without the user's memory --------
 */

/* True if UCX, or hardware, has the memory itself: it cannot be moved. */
static inline bool
umi_request_is_fixed(const umx_request *req)
{
    return umi_request_is_posted(req) && !req->is_movable;
}

/* How many bytes of `len` have come into the memory of `req`, or have gone:
 * once UCX has given it back, all. */
static inline size_t
umi_request_num_moved(const umx_request *req, size_t len)
{
    return (req->status == UMX_INPROGRESS && req->moved < len) ? req->moved :
                                                                 len;
}

/* True if `len` bytes more may be copied for a cancelled `req`. */
bool umi_request_may_copy(const umx_request *req, size_t len);

/* Give `req` memory of the library's instead of the user's: `size` bytes, of
 * which the first `len` are copied. UMX_INPROGRESS: UCX has the memory itself,
 * or config.cancel_bytes are in use, and it is neither forced nor abandoned;
 * UMX_ERR_NO_MEMORY. */
umx_status umi_request_copy(umx_request *req, size_t size, size_t len,
                            bool is_forced);

/* Take the memory of `req` away from UCX, which reads zeros from now on, and
 * whose writes go nowhere. False: UCX has the memory itself. */
bool umi_request_void(umx_request *req);

/* End the user's part of `req`, which needs the buffer no longer: `on_done`
 * runs with UMX_ERR_CANCELED in the next (P) call. The operation's own part
 * goes on until it completes and `finish` has run. */
void umi_request_detach(umx_request *req);

/* End the user's part likewise, with another status. */
void umi_request_detach_as(umx_request *req, umx_status status);

/* True if an operation of `ep` on `list` is cancelled, and its buffer still
 * lent. */
bool umi_requests_have_deferred(const umi_list           *list,
                                const struct umi_ep_base *ep);

/* Report the ends of detached requests: all, or in the progress thread the
 * library's own. */
void umi_requests_report_detached(umx_worker *worker);

/* The operation of a detached request is over: free the request if the user has
 * released it. One that is stuck stays so. */
void umi_request_end_detached(umx_request *req);

/* Memory for a copy. UMX_INPROGRESS: config.cancel_bytes are in use, and it is
 * not forced; UMX_ERR_NO_MEMORY. */
umx_status umi_spare_new(umx_worker *worker, size_t len, bool is_forced,
                         umi_spare **copy_p);
void       umi_spare_free(umi_spare *copy);

/* Take the memory of `req` over. */
static inline umi_spare *
umi_request_take_spare(umx_request *req)
{
    umi_spare *copy = req->copy;

    req->copy = NULL;
    return copy;
}

/* Report, once, that UCX seems not to give the operation back. */
void umi_request_lose(umx_request *req, umx_status status);

/* umx_op_params.on_lost of a part of the request `arg`. */
void umi_request_lose_whole(umx_request *part, umx_status status, void *arg);

/* umi_request_complete() for every request on `list`. */
void umi_request_complete_all(umi_list *list, umx_status status);

/* umi_request_ops.cancel of a request that only waits on a list. */
void umi_request_cancel_queued(umx_request *req);

#endif
