/* SPDX-License-Identifier: BSD-3-Clause */
/* heartbeat.c: giving up a peer that is silent: stopped, hung, or behind a
 * network that has gone. UCX and the kernel report nothing of that.
 *
 * Off unless config.heartbeat_ns is set. A peer that has sent nothing for a
 * quarter of that time is asked, over the socket, where no bulk is in the way.
 */
#include "endpoint/endpoint.h"

static void
wait_quarter(umx_ep *ep)
{
    umi_silence_wait(ep, &ep->heartbeat,
                     umi_endpoint_worker(ep)->context->config.heartbeat_ns);
}

static void
on_quarter(umi_timer *timer)
{
    umx_ep *ep = umi_container_of(timer, umx_ep, heartbeat.timer);

    if (!umi_silence_count(ep, &ep->heartbeat, false, "the peer is silent")) {
        return;
    }
    if (ep->heartbeat.num_silent != 0) {
        umi_socket_ping(&ep->socket);
    }
    wait_quarter(ep);
}

void
umi_heartbeat_init(umx_ep *ep)
{
    umi_timer_init(&ep->heartbeat.timer, on_quarter);
}

void
umi_heartbeat_start(umx_ep *ep)
{
    if (umi_endpoint_worker(ep)->context->config.heartbeat_ns != 0) {
        wait_quarter(ep);
    }
}
