/* SPDX-License-Identifier: BSD-3-Clause */
/* describe.c: an endpoint, and what UCX has of it, for people. */
#include "endpoint/describe.h"

#include <inttypes.h>
#include <stdio.h>

#include "endpoint/log.h"
#include "lend/note.h"
#include "util/clock.h"

static const char *
state_of(const umx_ep *ep)
{
    switch (ep->state) {
    case UMX_EP_CONNECTING:
        return ep->is_server ? "a peer connects" : "connecting";
    case UMX_EP_OPEN:
        return ep->is_peer_closed ? "closed by the peer" : "open";
    case UMX_EP_DRAINING:
        return ep->is_goodbye_sent ? "closing, waits for the peer's answer" :
                                     "closing, waits for its sends";
    case UMX_EP_CLOSED:
        return ep->is_peer_closed ? "closed by the peer" : "closed";
    case UMX_EP_FAILED:
        break;
    }
    return umx_status_string(ep->error);
}

/* Sum up the operations that UCX has, by their kinds. */
static void
describe_inflight(const umi_list *list, const umi_lines *lines)
{
    enum {
        KINDS = 4
    };
    struct {
        const char *name;
        unsigned    count;
        uint64_t    bytes;
        unsigned    num_cancelled;
    } kinds[KINDS]    = {0};
    unsigned num_more = 0;

    UMI_LIST_FOREACH(node, list) {
        const umx_request *req = umi_container_of(node, umx_request, node);
        int                i   = 0;

        while (i < KINDS && kinds[i].name != NULL &&
               kinds[i].name != req->ops->name) {
            i++;
        }
        if (i == KINDS) {
            num_more++;
            continue;
        }
        kinds[i].name = req->ops->name;
        kinds[i].count++;
        kinds[i].bytes += req->buf.len;
        kinds[i].num_cancelled += req->is_cancelled;
    }
    for (int i = 0; i < KINDS && kinds[i].count != 0; i++) {
        char cancelled[32] = "";

        if (kinds[i].num_cancelled != 0) {
            snprintf(cancelled, sizeof(cancelled), "; %u cancelled",
                     kinds[i].num_cancelled);
        }
        umi_lines_add(lines,
                      "    %s: %u under way, %" PRIu64
                      " bytes: not read by the "
                      "peer, or not sent by UCX%s",
                      kinds[i].name, kinds[i].count, kinds[i].bytes, cancelled);
    }
    if (num_more != 0) {
        umi_lines_add(lines, "    %u more operations of other kinds in UCX",
                      num_more);
    }
}

static void
describe_queue(const umi_list *list, const char *what, const umi_lines *lines)
{
    unsigned count = 0;

    UMI_LIST_FOREACH(node, list) {
        count++;
    }
    if (count != 0) {
        umi_lines_add(lines, "    %u %s", count, what);
    }
}

bool
umi_endpoint_is_idle(const umx_ep *ep)
{
    umx_ep_stats stats = {0};

    if (ep->state == UMX_EP_CONNECTING || ep->state == UMX_EP_DRAINING ||
        !umi_list_is_empty(&ep->base.inflight) ||
        !umi_list_is_empty(&ep->base.waiting)) {
        return false;
    }
    ep->hooks->count_waiting(ep, &stats);
    return stats.waiting_sends == 0 && stats.unexpected_messages == 0;
}

void
umi_endpoint_describe(const umx_ep *ep, const umi_lines *lines)
{
    const char *reason = (ep->reason != NULL) ? ep->reason : "";
    char        name[UMI_ENDPOINT_NAME];

    umi_endpoint_name(ep, name);
    umi_lines_add(lines,
                  "  %s: %s%s%s%s, %.1f s old; sent %" PRIu64
                  " messages of %" PRIu64 " bytes, received %" PRIu64
                  " of %" PRIu64,
                  name, state_of(ep), ep->is_dropped ? ", dropped" : "",
                  (reason[0] != '\0') ? ": " : "", reason,
                  (double)(umi_clock_ns() - ep->begun_ns) / 1e9,
                  ep->stats.sent_messages, ep->stats.sent_bytes,
                  ep->stats.received_messages, ep->stats.received_bytes);
    if (ep->apart != NULL) {
        umi_lines_add(lines, "    without shared memory: %s", ep->apart);
    }
    describe_queue(&ep->base.waiting,
                   "operations wait until the connection is open", lines);
    describe_inflight(&ep->base.inflight, lines);
    describe_queue(&ep->closers, "calls of close() wait", lines);
    describe_queue(&ep->drainers,
                   "calls of drain() wait until the peer has all messages",
                   lines);
    describe_queue(&ep->queries, "questions to the peer are not answered",
                   lines);
}
