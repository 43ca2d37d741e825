/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.h: UCX's own put and get. Thread: the worker's owner. */
#ifndef UMI_UCX_RMA_H
#define UMI_UCX_RMA_H

#include "core/worker.h"

/* Write `buf` to `address` of the peer of `req->ep`, or read it. UMX_OK: done
 * with `buf`. UMX_INPROGRESS: it is one of `req->u.rma.num_parts` now; with the
 * last one `req` is complete. */
umx_status umi_ucx_rma_post(umx_request *req, ucp_rkey_h rkey, uint64_t address,
                            const umx_buffer *buf, bool is_write);

#endif
