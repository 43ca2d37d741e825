/* SPDX-License-Identifier: BSD-3-Clause */
/* flush.h: Thread: the worker's owner. */
#ifndef UMI_FLUSH_H
#define UMI_FLUSH_H

#include "worker/worker.h"

/* What a request needs that flushes its endpoint: the first in its tail. */
typedef struct umi_ep_flush {
    struct umi_link *held; /* umi_link_begin_flush(); NULL when it has ended */
} umi_ep_flush;

UMI_REQUEST_TAIL(umi_ep_flush, umi_ep_flush_of);

/* Flush `req->ep`, or the whole worker if that is NULL. */
umx_status umi_flush_post(umx_request *req);

#endif
