/* SPDX-License-Identifier: BSD-3-Clause */
/* request.h: the object of one operation. Thread: the worker's owner.
 *
 * A request is on one list at a time: a queue of the layer that made it, its
 * endpoint's list of operations in UCX's hands (`inflight`), or the worker's
 * done list. UCX's callbacks only call umi_request_complete(); `finish` and
 * `on_done` run later, from umi_worker_run_events(). */
#ifndef UMI_REQUEST_H
#define UMI_REQUEST_H

#include <umx/frames.h>
#include <umx/request.h>
#include <umx/rma.h>

#include "core/memh.h"
#include "util/list.h"

struct umi_ep;
struct umi_channel;

/* What differs between kinds of operations. */
typedef struct umi_request_ops {
    const char *name;
    /* Before on_done: settle the layer's own state; may change the status or
     * return false to keep the request (it completes again later). NULL:
     * nothing to do. */
    bool (*finish)(umx_request *req);
    /* umx_request_cancel() on a request not yet complete. NULL: cannot. */
    void (*cancel)(umx_request *req);
    /* Hand it to UCX, for umi_ep_post_waiting(). NULL: never waits. */
    umx_status (*post)(umx_request *req);
} umi_request_ops;

struct umx_request {
    umi_link               link;
    umx_status             status;
    bool                   is_done;       /* on_done has run, or may not */
    bool                   is_kept;       /* released by the user */
    bool                   is_cancelled;  /* umx_request_cancel() was called */
    bool                   is_posted : 1; /* in UCX's hands */
    bool                   is_lost : 1;   /* there for good, it seems */
    umx_done_fn            on_done;
    umx_done_fn            on_lost; /* or NULL */
    void                  *arg;
    const umi_request_ops *ops;
    umx_worker            *worker;
    struct umi_ep         *ep;     /* held; NULL for a worker's operations */
    umx_buffer             buf;    /* `memh` is held */
    struct umi_gather     *gather; /* the memory instead of buf.data, or NULL */
    umx_recv_info          info;
    /* For the layers above; the wire header lives here because UCX reads it
     * until the operation completes. */
    union {
        struct {
            uint64_t            header[3];
            umx_message        *longer; /* instead of `header`, or NULL */
            umx_message        *staged; /* the bytes, on the host; or NULL */
            umx_message        *memory; /* that they are in; or NULL */
            struct umi_channel *channel;
            uint32_t            header_len;
            bool                is_rndv;
            bool is_unread; /* rendezvous: the peer has closed before */
        } send;
        struct {
            uint64_t            tag;
            uint64_t            mask;
            struct umi_channel *channel;
            umx_message        *message;
            umx_message        *staged; /* where bytes land; or NULL */
            void               *device; /* where they belong, if so */
            uint32_t            flags;
            uint8_t             phase;
        } recv;
        struct {
            void                   *handle; /* UCX's request, to cancel it */
            struct umi_engine      *engine; /* held; where that is */
            uint64_t                tag;
            uint64_t                mask;
            struct umx_tag_message *message; /* see ops/tag.h */
            bool                    is_sync;
            bool                    is_moving; /* to another engine */
        } raw;
        struct {
            unsigned   num_left; /* endpoints */
            umx_status status;   /* of posting */
        } flush;                 /* of a worker */
        struct {
            size_t           num_parts; /* that are not complete */
            umx_status       status;    /* the first failure */
            uint8_t          stage;
            bool             is_write;
            bool             has_signal;
            bool             is_in_ucx; /* counted */
            struct umx_rkey *rkey;      /* held; of UCX's own operations */
            umx_atomic       signal;
        } rma; /* and a flush that waits for such */
        struct {
            uint64_t low;
        } drain;
        struct {
            struct umi_channel *channel;
            uint64_t            place; /* of the first byte in the stream */
            size_t              filled;
            size_t              good; /* of `filled`: before what failed */
            unsigned            num_landing;
            umx_status          status;
            bool                is_wait_all;
            bool                is_ended;
            bool                is_returning; /* see channel.num_returning */
        } stream;
        struct {
            struct umx_request *target;
            size_t              at; /* in its buffer */
        } land;
        struct {
            struct umi_channel *channel;
            unsigned            count;
            unsigned            pending;
            umx_status          status;
        } pieces;
        struct {
            void *sending;
        } message; /* with metadata, to several */
        struct {
            uint64_t generation; /* what is of this one or before ... */
            uint64_t num_left;   /* ... and not complete */
        } settling;              /* of a sender of such */
        struct {
            struct umi_channel *channel;
            umx_message        *message; /* NULL: none yet */
            umx_frames_alloc_fn alloc;
            void               *arg;
            const umx_buffer   *buffers;
            size_t              count;
            size_t              num_landing;
            umx_status          status;
            uint8_t             phase;
            bool                is_ended;
            bool                is_returning; /* as above */
        } frames;
        struct {
            struct umx_request *target;
            umx_message        *staged; /* where bytes land; or NULL */
            void               *device; /* where they belong, if so */
        } part; /* of a message of frames, as it lands */
        struct {
            uint64_t token;   /* 0: not sent */
            uint64_t time_ns; /* of sending, then until the answer */
            uint8_t  kind;
        } ask;
    } u;
};

/* A request of `ops` with the user's params; NULL when out of memory. */
umx_request *umi_request_new(umx_worker *worker, struct umi_ep *ep,
                             const umi_request_ops *ops,
                             const umx_op_params   *params);

/* Back to the pool: for one that never was INPROGRESS, and after on_done. */
void umi_request_free(umx_request *req);

/* `buf` is lent to it: `req->buf`. */
static inline void
umi_request_borrow(umx_request *req, const umx_buffer *buf)
{
    req->buf = *buf;
    if (buf->memh != NULL) {
        umi_memh_hold(buf->memh);
    }
}

/* So is `buf`, one of several. It loses its registration if that is not the one
 * that `req` holds, which is the first. */
static inline void
umi_request_borrow_part(umx_request *req, umx_buffer *buf)
{
    if (buf->memh != NULL && req->buf.memh == NULL) {
        umi_memh_hold(buf->memh);
        req->buf.memh = buf->memh;
    } else if (buf->memh != req->buf.memh) {
        buf->memh = NULL;
    }
}

/* The end of the loan. */
static inline void
umi_request_end_loan(umx_request *req)
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

/* It seems that UCX will not give the operation back: report that, once. */
void umi_request_lose(umx_request *req, umx_status status);

/* umx_op_params.on_lost of a part of the request `arg`. */
void umi_request_lose_whole(umx_request *part, umx_status status, void *arg);

/* umi_request_complete() for every request on `list`. */
void umi_request_complete_all(umi_list *list, umx_status status);

/* umi_request_ops.cancel of a request that only waits on a list. */
void umi_request_cancel_queued(umx_request *req);

#endif
