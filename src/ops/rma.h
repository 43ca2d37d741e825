/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.h: UCX's own put and get. Thread: the worker's owner. */
#ifndef UMI_UCX_RMA_H
#define UMI_UCX_RMA_H

#include <umx/rma.h>

#include "ops/flush.h"

/* An operation, or a flush that waits for such. */
typedef struct umi_rma_op {
    union {
        size_t       num_parts; /* that are not complete */
        umi_ep_flush flush;     /* all are complete, and it ends with a 0 */
    };
    umx_status status; /* the first failure */
    uint8_t    stage;
    bool       is_write;
    bool       has_signal;
    bool       is_in_ucx;   /* counted */
    umx_rkey  *rkey;        /* held; of UCX's own operations */
    umx_rkey  *signal_rkey; /* held, or NULL; whose `signal` is */
    umx_atomic signal;
} umi_rma_op;

UMI_REQUEST_TAIL(umi_rma_op, umi_rma_op_of);

/* Write `buf` to `address` of the peer of `req->ep`, or read it. UMX_OK: done
 * with `buf`. UMX_INPROGRESS: it is one of `umi_rma_op_of(req)->num_parts` now;
 * with the last one `req` is complete. */
umx_status umi_post_rma(umx_request *req, ucp_rkey_h rkey, uint64_t address,
                        const umx_buffer *buf, bool is_write);

#endif
