/* SPDX-License-Identifier: BSD-3-Clause */
/* describe.c: a worker and all under it, for people. */
#include <umx/describe.h>

#include <unistd.h>

#include "channel/channel.h"
#include "endpoint/describe.h"
#include "host/fork.h"
#include "util/clock.h"
#include "worker/listener.h"
#include "worker/wait.h"

static unsigned
count(const umi_list *list)
{
    unsigned number = 0;

    UMI_LIST_FOREACH(node, list) {
        number++;
    }
    return number;
}

static void
describe_listener(const umx_listener *listener, const umi_lines *lines)
{
    struct sockaddr_storage addr = {0};
    size_t                  len  = sizeof(addr);
    char                    text[UMI_SOCKADDR_TEXT];

    if (listener->is_internal) {
        return;
    }
    (void)!umx_listener_address(listener, (struct sockaddr *)&addr, &len);
    umi_sockaddr_text((struct sockaddr *)&addr, text);
    umi_lines_add(lines,
                  "  listener on %s: %u handshakes in progress, %u endpoints "
                  "that the program has not taken",
                  text, listener->num_handshakes, count(&listener->accepted));
}

/* Endpoints with something to wait for come first: a text may be cut. */
static void
describe_endpoints(const umx_worker *worker, bool is_idle,
                   const umi_lines *lines)
{
    UMI_LIST_FOREACH(node, &worker->eps) {
        const umx_ep *ep = (const umx_ep *)umi_container_of(node, umi_ep_base,
                                                            node);

        if (umi_endpoint_is_idle(ep) == is_idle) {
            umi_endpoint_describe(ep, lines);
            umi_channels_describe(ep, lines);
        }
    }
}

static void
describe_worker(const umx_worker *worker, const umi_lines *lines)
{
    uint64_t deadline = umi_worker_deadline(worker);
    uint64_t now      = umi_clock_ns();

    umi_lines_add(lines,
                  "  %s; %llu operations are not reported yet, %llu endpoints, "
                  "%u closing, %u handshakes",
                  worker->is_armed ? "sleeps until something comes" :
                                     "has work that its owner has not done",
                  (unsigned long long)worker->requests.in_use,
                  (unsigned long long)worker->stats->endpoints,
                  worker->num_closing, worker->num_handshakes);
    if (deadline != UINT64_MAX) {
        umi_lines_add(
            lines, "  a timer is due %s %.1f s",
            (deadline > now) ? "in" : "since",
            (double)((deadline > now) ? deadline - now : now - deadline) / 1e9);
    }
    if (!umi_list_is_empty(&worker->inflight)) {
        umi_lines_add(lines, "  %u receives of UCX's own tags wait",
                      count(&worker->inflight));
    }
    if (!umi_list_is_empty(&worker->waits)) {
        umi_lines_add(lines,
                      "  %u operations wait for numbers in memory of this "
                      "process",
                      count(&worker->waits));
    }
}

umx_status
umx_worker_describe(const umx_worker *worker, umx_line_fn fn, void *arg)
{
    umi_lines lines = {.fn = fn, .arg = arg};

    if (worker->generation != umi_fork_generation()) {
        return UMX_ERR_FORKED;
    }
    if (worker->guard != NULL && !umi_guard_try_lock(worker->guard)) {
        return UMX_ERR_BUSY;
    }
    describe_worker(worker, &lines);
    UMI_LIST_FOREACH(node, &worker->dependents) {
        const umi_dependent *dependent = umi_container_of(node, umi_dependent,
                                                          node);

        if (dependent->describe != NULL) {
            dependent->describe(dependent, fn, arg);
        }
    }
    UMI_LIST_FOREACH(node, &worker->listeners) {
        describe_listener(umi_container_of(node, umx_listener, node), &lines);
    }
    describe_endpoints(worker, false, &lines);
    describe_endpoints(worker, true, &lines);
    if (worker->guard != NULL) {
        umi_guard_unlock(worker->guard);
    }
    return UMX_OK;
}
