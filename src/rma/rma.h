/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.h: operations on memory that the owner's library executes: what an
 * endpoint keeps of them. The two sides send each other active messages of two
 * ids of ours; codec/rma.h has the bytes. Thread: the worker's owner. */
#ifndef UMI_RMA_H
#define UMI_RMA_H

#include <umx/rma.h>

#include "channel/channel.h"
#include "codec/rma.h"
#include "core/rkey.h"
#include "ops/rma.h"
#include "util/slots.h"

/* Of an endpoint that has had to do with it. */
typedef struct umi_rma {
    /* what we asked for */
    umi_list  parts; /* not complete, in the order of posting */
    umi_slots ids;   /* parts whose reply is to come */
    umi_list  flushes;
    uint64_t  num_posted;
    bool      is_fence_due; /* the next request carries the fence */
    umi_list  unsent;       /* parts behind a fence that UCX\'s come before */
    unsigned  num_ucx;      /* operations of UCX under way */
    bool      is_fenced;    /* since then something has been under way: memory
                               is reached by requests only */
    /* what the peer asked for */
    unsigned num_serving;
    umi_list held; /* messages that wait for that (umx_message) */
    bool     is_running_held;
    uint64_t previous_id; /* of the request executed last */
    int32_t  previous_status;
} umi_rma;

/* `ep`'s; made on first use; NULL when out of memory. */
umi_rma *umi_rma_get_state(umx_ep *ep);
void     umi_rma_free_state(umx_ep *ep);

/* A new worker: listen for requests and replies. */
umx_status umi_rma_init(umx_worker *worker);

/* No replies will come any more: what waits for them ends with `status`. */
void umi_rma_fail(umx_ep *ep, umx_status status);

/* The connection is over. */
void umi_rma_finish(umx_ep *ep, umx_status status);

/* Is anything that we asked for under way? */
bool umi_rma_is_busy(const umx_ep *ep);

/* umi_worker_hooks.hold_flush */
umx_status umi_rma_hold_flush(umx_request *req);

/* initiator.c: post an operation, whose parts are added one by one. */
umx_request *umi_rma_ask(umx_rkey *rkey, const umx_op_params *params);
void         umi_rma_ask_transfer(umx_request *req, umx_rkey *rkey,
                                  const umx_rma_item *item, bool is_write);
/* `old` may be NULL. */
void umi_rma_ask_atomic(umx_request *req, umx_rkey *rkey,
                        const umx_atomic *atomic, uint64_t *old);
/* After all before it, and if the part before it goes well. */
void umi_rma_ask_signal(umx_request *req, umx_rkey *rkey,
                        const umx_atomic *signal);
/* Of a put that UCX has done: it was posted before what a fence holds back. */
void umi_rma_ask_late_signal(umx_request *req, umx_rkey *rkey,
                             const umx_atomic *signal);
/* All parts are there. */
void umi_rma_ask_end(umx_request *req);

/* ucx.c: UCX's own operations, as umx_rma_put_many() and
 * umx_rma_put_signal_to(). */
umx_status umi_rma_ucx_transfer(umx_rkey *rkey, const umx_rma_item *items,
                                size_t count, bool is_write,
                                const umx_op_params *params,
                                umx_request        **req_p);
umx_status umi_rma_ucx_signal(umx_rkey *rkey, const umx_rma_item *item,
                              umx_rkey *signal_rkey, const umx_atomic *signal,
                              const umx_op_params *params, umx_request **req_p);

/* None of them may be under way any more. */
void umi_rma_ucx_done(umx_ep *ep);

/* items[i] and its neighbours as one; the index of the one after them. */
size_t umi_rma_merge(const umx_rma_item *items, size_t count, size_t i,
                     umx_rma_item *merged);

/* The handlers of the two ids. */
void umi_rma_on_reply(umx_ep *ep, umx_message *message, void *arg);
void umi_rma_on_request(umx_ep *ep, umx_message *message, void *arg);

#endif
