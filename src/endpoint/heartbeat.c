/* SPDX-License-Identifier: BSD-3-Clause */
/* heartbeat.c: giving up a peer that is silent.
 *
 * One that is stopped, hung, or behind a network that has gone sends nothing,
 * which is looked for if config.heartbeat_ns is set. A peer that has sent
 * nothing for a quarter of that time is asked, over the socket, where no bulk
 * is in the way.
 *
 * For a network that has gone, or a host that has stopped, the system looks by
 * itself, if config.keepalive_ns is set: over the same socket, and over UCX's,
 * for which UCX has no such limit (host/config.c). */
#include <umx/layer.h>

#include "endpoint/endpoint.h"
#include "worker/engine.h"

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

    if (!umi_silence_count(ep, &ep->heartbeat, false, "the peer")) {
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
    ep->keepalive_ns = umi_endpoint_worker(ep)->context->config.keepalive_ns;
}

/* Have the system look after the networks to the peer: that of the socket, and
 * those of UCX, which may be others. */
static void
keep_alive(umx_ep *ep)
{
    const umi_link *link = ep->base.link;

    umi_socket_keep_alive(&ep->socket, ep->keepalive_ns);
    if (!ep->socket.is_local && link != NULL && link->has_tcp) {
        umi_engine_keep_alive(link->engine, ep->keepalive_ns);
    }
}

void
umi_heartbeat_start(umx_ep *ep)
{
    keep_alive(ep);
    if (umi_endpoint_worker(ep)->context->config.heartbeat_ns != 0) {
        umi_silence_forget(ep, &ep->heartbeat);
        wait_quarter(ep);
    }
}

/* The question that ends a handshake has come over UCX: by a socket that UCX
 * may have accepted after the handshake's own last word had come. */
void
umi_heartbeat_on_knock(umx_ep *ep)
{
    if (ep->state == UMX_EP_OPEN || ep->state == UMX_EP_DRAINING) {
        keep_alive(ep);
    }
}

/* ---- for layers ----------------------------------------------------------
 */

void
umx_ep_set_keepalive(umx_ep *ep, uint64_t keepalive_ns)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    ep->keepalive_ns = keepalive_ns;
    if (ep->state == UMX_EP_OPEN || ep->state == UMX_EP_DRAINING) {
        keep_alive(ep);
    }
}

unsigned
umx_ep_count_signs(const umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return umi_silence_signs(ep);
}

void
umx_ep_ask(umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    umi_socket_ping(&ep->socket);
}
