/* SPDX-License-Identifier: BSD-3-Clause */
/* defer.c: cancelled operations whose buffers are free only when the peer has
 * done its part (umx_request_cancel()): the peer must be alive for that.
 *
 * Signs of life are what arrives, an answer over the socket, and on this host a
 * process that is neither stopped nor dead. A peer without any for
 * config.cancel_timeout_ns is given up. As in heartbeat.c, silence is counted
 * in quarters of that time. */
#include <stdio.h>
#include <string.h>

#include "endpoint/endpoint.h"
#include "util/log.h"

enum {
    QUARTERS = 4
};

static bool
is_one_deferred(const umi_list *list, const umi_ep_base *ep)
{
    UMI_LIST_FOREACH(node, list) {
        const umx_request *req = umi_container_of(node, umx_request, node);

        if (req->is_deferred && req->ep == ep) {
            return true;
        }
    }
    return false;
}

static bool
has_deferred(const umx_ep *ep)
{
    return umi_requests_have_deferred(&ep->base.inflight) ||
           ep->hooks->has_deferred(ep) ||
           is_one_deferred(&umi_endpoint_worker(ep)->inflight, &ep->base);
}

/* True if the peer is a process of this host that runs, or could. */
static bool
is_running(const umx_ep *ep)
{
    char  path[64], state = 0;
    FILE *stat;

    if (!ep->socket.is_local || ep->peer_pid == 0) {
        return false;
    }
    snprintf(path, sizeof(path), "/proc/%u/stat", (unsigned)ep->peer_pid);
    stat = fopen(path, "re");
    if (stat == NULL) {
        return false;
    }
    if (fscanf(stat, "%*d (%*[^)]) %c", &state) != 1) {
        state = 0;
    }
    fclose(stat);
    return state == 'R' || state == 'S' || state == 'D';
}

static void
give_up(umx_ep *ep)
{
    static const char reason[] =
        "the peer shows no sign of life, and a cancelled "
        "operation waits for it";

    umi_log(UMI_LOG_WARN, "endpoint %llu: %s", (unsigned long long)ep->base.id,
            reason);
    umi_endpoint_set_reason(ep, reason, strlen(reason));
    umi_endpoint_finish(ep, UMX_EP_FAILED, UMX_ERR_ENDPOINT_TIMEOUT);
}

static void
restart(umx_ep *ep)
{
    umx_worker *worker = umi_endpoint_worker(ep);

    umi_timer_start(worker, &ep->deferred,
                    worker->context->config.cancel_timeout_ns / QUARTERS);
}

static void
on_quarter(umi_timer *timer)
{
    umx_ep  *ep    = umi_container_of(timer, umx_ep, deferred);
    unsigned heard = ep->num_arrivals + ep->socket.num_heard;

    if (!has_deferred(ep)) {
        return;
    }
    if (heard != ep->num_deferred_heard || is_running(ep)) {
        ep->num_deferred_heard  = heard;
        ep->num_deferred_silent = 0;
    } else if (++ep->num_deferred_silent == QUARTERS) {
        umi_ep_base_hold(&ep->base);
        give_up(ep);
        umi_ep_base_release(&ep->base);
        return;
    }
    umi_socket_ping(&ep->socket);
    restart(ep);
}

void
umi_defer_init(umx_ep *ep)
{
    umi_timer_init(&ep->deferred, on_quarter);
}

void
umi_endpoint_defer(umx_ep *ep)
{
    if (umi_endpoint_worker(ep)->context->config.cancel_timeout_ns != 0 &&
        !umi_node_is_linked(&ep->deferred.node) && ep->state != UMX_EP_CLOSED &&
        ep->state != UMX_EP_FAILED) {
        ep->num_deferred_heard  = ep->num_arrivals + ep->socket.num_heard;
        ep->num_deferred_silent = 0;
        restart(ep);
    }
}
