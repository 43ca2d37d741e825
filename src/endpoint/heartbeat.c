/* SPDX-License-Identifier: BSD-3-Clause */
/* heartbeat.c: giving up a peer that is silent: stopped, hung, or behind a
 * network that has gone. UCX and the kernel report nothing of that.
 *
 * Off unless config.heartbeat_ns is set. Anything that arrives is a sign of
 * life; a peer that has sent nothing for a quarter of that time is asked, over
 * the socket, where no bulk is in the way. Silence is counted in quarters that
 * have been waited for, so that a pause of our own does not count as the
 * peer's. */
#include <string.h>

#include "endpoint/endpoint.h"
#include "util/log.h"

enum {
    QUARTERS = 4
};

static void
give_up(umx_ep *ep)
{
    static const char reason[] = "the peer is silent";

    umi_log(UMI_LOG_WARN, "endpoint %llu: %s", (unsigned long long)ep->base.id,
            reason);
    umi_endpoint_set_reason(ep, reason, strlen(reason));
    umi_endpoint_finish(ep, UMX_EP_FAILED, UMX_ERR_ENDPOINT_TIMEOUT);
}

static void
restart(umx_ep *ep)
{
    umx_worker *worker = umi_endpoint_worker(ep);

    umi_timer_start(worker, &ep->heartbeat,
                    worker->context->config.heartbeat_ns / QUARTERS);
}

static void
on_quarter(umi_timer *timer)
{
    umx_ep  *ep    = umi_container_of(timer, umx_ep, heartbeat);
    unsigned heard = ep->num_arrivals + ep->socket.num_heard;

    if (heard != ep->num_heard) {
        ep->num_heard  = heard;
        ep->num_silent = 0;
        restart(ep);
        return;
    }
    if (++ep->num_silent == QUARTERS) {
        umi_ep_base_hold(&ep->base);
        give_up(ep);
        umi_ep_base_release(&ep->base);
        return;
    }
    umi_socket_ping(&ep->socket);
    restart(ep);
}

void
umi_heartbeat_init(umx_ep *ep)
{
    umi_timer_init(&ep->heartbeat, on_quarter);
}

void
umi_heartbeat_start(umx_ep *ep)
{
    if (umi_endpoint_worker(ep)->context->config.heartbeat_ns != 0) {
        restart(ep);
    }
}
