/* SPDX-License-Identifier: BSD-3-Clause */
/* observe.c: what is recorded of operations; and umx/observe.h, which reads
 * counters. */
#include "worker/observe.h"

#include <umx/observe.h>

#include "util/latency.h"
#include "util/page.h"
#include "worker/worker.h"

/* ---- counters ------------------------------------------------------------
 */

size_t
umx_observe_workers(umx_worker_numbers *numbers, size_t max)
{
    return umi_page_read(numbers, max);
}

void
umx_observe_rank(umx_worker *worker, const char *name, int rank, int num_ranks)
{
    UMI_GUARD(worker);
    umi_page_set_rank(worker->slot, name, (uint64_t)rank, (uint64_t)num_ranks);
}

void
umi_observe_failure(const umx_request *req, umx_status status)
{
    umx_worker_stats *stats = req->worker->stats;

    if (req->is_internal) {
        return; /* it is a part of one that is counted */
    }
    switch (status) {
    case UMX_OK:
    case UMX_ERR_CLOSED:
    case UMX_ERR_PEER_CLOSED:
    case UMX_ERR_WITHDRAWN: /* the receive goes on */
        break;
    case UMX_ERR_CANCELED:
        stats->cancelled_operations++;
        break;
    case UMX_ERR_TIMED_OUT:
    case UMX_ERR_ENDPOINT_TIMEOUT:
        stats->timed_out_operations++;
        break;
    default:
        stats->failed_operations++;
        break;
    }
}

uint64_t
umx_worker_number(const umx_worker *worker)
{
    return worker->slot->number;
}

/* ---- events and latencies ------------------------------------------------
 */

static bool
is_traced(void)
{
    return (umi_observed & UMI_OBSERVED_TRACE) != 0;
}

/* Record an event, of which `what` has the rest. */
static void
add_event(const umx_worker *worker, umx_trace_kind kind, umx_trace_event what)
{
    umx_trace_event *event = umi_trace_claim();

    if (event == NULL) {
        return;
    }
    event->time_ns   = what.time_ns;
    event->begin_ns  = what.begin_ns;
    event->operation = what.operation;
    event->endpoint  = what.endpoint;
    event->bytes     = what.bytes;
    event->tag       = what.tag;
    event->name      = what.name;
    event->worker    = (uint32_t)worker->slot->number;
    event->status    = what.status;
    event->flags     = what.flags;
    umi_trace_commit(event, kind);
}

/* Count a latency. The histograms of a worker are made with the first one. */
static void
add_latency(umx_worker *worker, const char *name, uint64_t ticks)
{
    if (worker->latency == NULL) {
        worker->latency = umi_latency_new(worker->slot->number);
        if (worker->latency == NULL) {
            return;
        }
    }
    umi_latency_record(worker->latency, name, ticks);
}

static uint64_t
id_of(const umi_ep_base *ep)
{
    return (ep != NULL) ? ep->id : 0;
}

void
umi_observe_begin(umx_request *req)
{
    req->is_observed = true;
    req->label       = req->ops->name;
    req->begun       = umi_ticks();
    if (is_traced()) {
        add_event(req->worker, UMX_TRACE_BEGIN,
                  (umx_trace_event){
                      .time_ns   = req->begun,
                      .begin_ns  = req->begun,
                      .operation = (uintptr_t)req,
                      .endpoint  = id_of(req->ep),
                      .name      = req->label,
                      .flags     = req->is_internal ? UMX_TRACE_IS_PART : 0,
                  });
    }
}

void
umi_observe_end(umx_request *req, umx_status status)
{
    uint64_t        now   = umi_ticks();
    umx_trace_event event = {
        .time_ns   = now,
        .begin_ns  = req->begun,
        .operation = (uintptr_t)req,
        .endpoint  = id_of(req->ep),
        .name      = req->label,
        .status    = (int16_t)((status == UMX_INPROGRESS) ? UMX_OK : status),
        .flags     = req->is_internal ? UMX_TRACE_IS_PART : 0,
    };

    req->is_observed = false;
    if (req->ops->describe != NULL) {
        req->ops->describe(req, &event);
    }
    if ((umi_observed & UMI_OBSERVED_LATENCY) != 0 &&
        (event.flags & UMX_TRACE_IS_PART) == 0) {
        add_latency(req->worker, event.name, now - req->begun);
    }
    if (is_traced()) {
        add_event(req->worker, UMX_TRACE_END, event);
    }
}

void
umi_observe_received(const umx_request *req, umx_trace_event *event)
{
    if (req->status == UMX_OK) {
        event->bytes = req->info.length;
        event->tag   = req->info.tag;
    }
}

void
umi_observe_sent(const umx_request *req, umx_trace_event *event)
{
    event->bytes = req->buf.len;
}

void
umi_observe_at_once(const umi_ep_base *ep, const char *name, uint64_t bytes,
                    uint64_t tag)
{
    if ((umi_observed & UMI_OBSERVED_LATENCY) != 0) {
        add_latency(ep->worker, name, 0);
    }
    if (is_traced()) {
        uint64_t now = umi_ticks();

        add_event(ep->worker, UMX_TRACE_END,
                  (umx_trace_event){
                      .time_ns  = now,
                      .begin_ns = now,
                      .endpoint = ep->id,
                      .name     = name,
                      .bytes    = bytes,
                      .tag      = tag,
                  });
    }
}

void
umi_observe_wait(const umx_request *req, umx_trace_kind kind)
{
    if (is_traced() && req->is_observed) {
        add_event(req->worker, kind,
                  (umx_trace_event){
                      .time_ns   = umi_ticks(),
                      .operation = (uintptr_t)req,
                  });
    }
}

void
umi_observe_span(umx_worker *worker, const umi_ep_base *ep, const char *name,
                 uint64_t begin, umx_status status)
{
    uint64_t now = umi_ticks();

    if ((umi_observed & UMI_OBSERVED_LATENCY) != 0) {
        add_latency(worker, name, now - begin);
    }
    if (is_traced()) {
        add_event(worker, UMX_TRACE_END,
                  (umx_trace_event){
                      .time_ns  = now,
                      .begin_ns = begin,
                      .endpoint = id_of(ep),
                      .name     = name,
                      .status   = (int16_t)status,
                  });
    }
}

void
umi_observe_wakeup(umx_worker *worker, uint64_t begin)
{
    if (is_traced()) {
        add_event(worker, UMX_TRACE_SPAN,
                  (umx_trace_event){
                      .time_ns  = umi_ticks(),
                      .begin_ns = begin,
                      .name     = "wake-up",
                  });
    }
}

void
umx_request_describe(umx_request *req, const char *name, uint64_t bytes,
                     uint64_t tag, int rank)
{
    UMI_GUARD(req->worker);
    if (!UMI_IS_OBSERVED() || !req->is_observed) {
        return;
    }
    if (name != NULL) {
        req->label = name;
    }
    if (is_traced()) {
        add_event(req->worker, UMX_TRACE_DETAIL,
                  (umx_trace_event){
                      .time_ns   = umi_ticks(),
                      .operation = (uintptr_t)req,
                      .endpoint  = (uint64_t)(rank + 1),
                      .bytes     = bytes,
                      .tag       = tag,
                      .name      = req->label,
                  });
    }
}
