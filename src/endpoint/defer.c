/* SPDX-License-Identifier: BSD-3-Clause */
/* defer.c: cancelled operations whose buffers are free only when the peer has
 * done its part (umx_request_cancel()): the peer must be alive for that.
 *
 * Signs of life are what arrives, an answer over the socket, and on this host a
 * process that is neither stopped nor dead. A peer without any for
 * config.cancel_timeout_ns is given up: silence.c. */
#include <umx/layer.h>

#include "endpoint/endpoint.h"

static bool
has_deferred(const umx_ep *ep)
{
    return umi_requests_have_deferred(&ep->base.inflight, &ep->base) ||
           ep->hooks->ask(ep, UMI_HAS_DEFERRED) ||
           umi_requests_have_deferred(&umi_endpoint_worker(ep)->inflight,
                                      &ep->base);
}

static void
wait_quarter(umx_ep *ep)
{
    umi_silence_wait(
        ep, &ep->deferred,
        umi_endpoint_worker(ep)->context->config.cancel_timeout_ns);
}

static void
on_quarter(umi_timer *timer)
{
    umx_ep *ep = umi_container_of(timer, umx_ep, deferred.timer);

    if (has_deferred(ep) &&
        umi_silence_count(ep, &ep->deferred,
                          umx_ep_peer_process(ep) == UMX_PROCESS_RUNS,
                          "the peer, for which a cancelled operation waits,")) {
        umi_socket_ping(&ep->socket);
        wait_quarter(ep);
    }
}

void
umi_defer_init(umx_ep *ep)
{
    umi_timer_init(&ep->deferred.timer, on_quarter);
}

void
umi_endpoint_defer(umx_ep *ep)
{
    if (umi_endpoint_worker(ep)->context->config.cancel_timeout_ns != 0 &&
        !umi_node_is_linked(&ep->deferred.timer.node) &&
        ep->state != UMX_EP_CLOSED && ep->state != UMX_EP_FAILED) {
        umi_silence_forget(ep, &ep->deferred);
        wait_quarter(ep);
    }
}
