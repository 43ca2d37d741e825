/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.h: operations on memory that the owner's library executes: what an
 * endpoint keeps of them. The two sides send each other active messages of two
 * ids of ours; codec/rma.h has the bytes. Thread: the worker's owner. */
#ifndef UMI_RMA_H
#define UMI_RMA_H

#include <umx/rma.h>

#include "channel/channel.h"
#include "codec/rma.h"
#include "ops/rma.h"
#include "util/slots.h"
#include "worker/rkey.h"

/* What an endpoint that has used such operations keeps. */
typedef struct umi_rma {
    /* what we asked for */
    umi_list  parts; /* not complete, in the order of posting */
    umi_slots ids;   /* parts whose reply is to come */
    umi_list  flushes;
    uint64_t  num_posted;
    bool      is_fence_due; /* the next request carries the fence */
    umi_list  unsent;       /* parts behind a fence that UCX's come before */
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

/* ---- state.c -------------------------------------------------------------
 */

/* Find `ep`'s state, which is made on first use; NULL when out of memory. */
umi_rma *umi_rma_get_state(umx_ep *ep);
void     umi_rma_free_state(umx_ep *ep);

/* Listen for requests and replies, in a new worker. */
umx_status umi_rma_init(umx_worker *worker);

/* Drop requests and fail operations: the connection is over. */
void umi_rma_finish(umx_ep *ep, umx_status status);

/* ---- initiator.c: operations that the peer executes -----------------------
 */

/* Begin an operation, to which parts are added one by one. */
umx_request *umi_initiator_begin(umx_rkey *rkey, const umx_op_params *params);
/* Add a put or a get. */
void umi_initiator_transfer(umx_request *req, umx_rkey *rkey,
                            const umx_rma_item *item, bool is_write);
/* Add an atomic operation; `old` may be NULL. */
void umi_initiator_atomic(umx_request *req, umx_rkey *rkey,
                          const umx_atomic *atomic, uint64_t *old);
/* Add an atomic operation that is executed after all before it, and if the part
 * before it goes well. */
void umi_initiator_signal(umx_request *req, umx_rkey *rkey,
                          const umx_atomic *signal);
/* Add the signal of a put that UCX has done: the put was posted before what a
 * fence holds back. */
void umi_initiator_late_signal(umx_request *req, umx_rkey *rkey,
                               const umx_atomic *signal);
/* End the operation: all parts are there. */
void umi_initiator_end(umx_request *req);

/* Send what waited for UCX's own operations, once none is under way. */
void umi_initiator_ucx_done(umx_ep *ep);

/* Handle a reply. */
void umi_initiator_on_reply(umx_ep *ep, umx_message *message, void *arg);

/* Fail what waits for replies: none will come any more. */
void umi_initiator_fail(umx_ep *ep, umx_status status);

/* True if anything that we asked for is under way. */
bool umi_initiator_is_busy(const umx_ep *ep);

/* umi_worker_hooks.hold_flush */
umx_status umi_initiator_hold_flush(umx_request *req, bool has_messages);

/* Messages that waited for credit have gone: so may flushes. */
void umi_initiator_run_flushes(umx_ep *ep);

/* ---- target.c: operations of the peer ------------------------------------
 */

/* Handle a request. */
void umi_target_on_request(umx_ep *ep, umx_message *message, void *arg);

/* Drop the requests that wait. */
void umi_target_finish(umx_ep *ep);

/* ---- ucx.c: UCX's own operations -----------------------------------------
 */

/* Post what umx_rma_put_many() and umx_rma_put_signal_to()
 * post. */
umx_status umi_rma_ucx_transfer(umx_rkey *rkey, const umx_rma_item *items,
                                size_t count, bool is_write,
                                const umx_op_params *params,
                                umx_request        **req_p);
umx_status umi_rma_ucx_signal(umx_rkey *rkey, const umx_rma_item *item,
                              umx_rkey *signal_rkey, const umx_atomic *signal,
                              const umx_op_params *params, umx_request **req_p);

/* Merge items[i] and its neighbours; the index of the one after them. */
size_t umi_rma_merge(const umx_rma_item *items, size_t count, size_t i,
                     umx_rma_item *merged);

#endif
