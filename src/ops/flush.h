/* SPDX-License-Identifier: BSD-3-Clause */
/* flush.h: Thread: the worker's owner. */
#ifndef UMI_FLUSH_H
#define UMI_FLUSH_H

#include "core/worker.h"

/* Flush `req->ep`, or the whole worker if that is NULL. */
umx_status umi_flush_post(umx_request *req);

#endif
