/* SPDX-License-Identifier: BSD-3-Clause */
/* observe.h: what is recorded of operations while UMI_IS_OBSERVED(), see
 * util/trace.h. Each function here is called only then, but for
 * umi_observe_failure(). Thread: the worker's owner. */
#ifndef UMI_OBSERVE_H
#define UMI_OBSERVE_H

#include <umx/worker.h>

#include "util/trace.h"

struct umi_ep_base;

/* A request is made: it is `is_observed` from now on. */
void umi_observe_begin(umx_request *req);

/* An observed request has ended: its user is told next. UMX_INPROGRESS: its
 * posting call has ended it. */
void umi_observe_end(umx_request *req, umx_status status);

/* Count a request that has ended with an error: its user is told next. It need
 * not be observed. */
void umi_observe_failure(const umx_request *req, umx_status status);

/* An operation that needs no request has been done at once. */
void umi_observe_at_once(const struct umi_ep_base *ep, const char *name,
                         uint64_t bytes, uint64_t tag);

/* umi_request_ops.describe of a receive, and of what sends `buf`. */
void umi_observe_received(const umx_request *req, umx_trace_event *event);
void umi_observe_sent(const umx_request *req, umx_trace_event *event);

/* A send begins to wait for credit, or goes on. */
void umi_observe_wait(const umx_request *req, umx_trace_kind kind);

/* Something that is no request has begun at the tick `begin`, and ends with
 * `status`; it counts as a latency. `ep`: or NULL. */
void umi_observe_span(umx_worker *worker, const struct umi_ep_base *ep,
                      const char *name, uint64_t begin, umx_status status);

/* The same of a wake-up, which is no latency. */
void umi_observe_wakeup(umx_worker *worker, uint64_t begin);

#endif
