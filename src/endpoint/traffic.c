/* SPDX-License-Identifier: BSD-3-Clause */
/* traffic.c: messages and bytes are counted for the host of the peer, in memory
 * that other processes read: util/page.h. */
#include "endpoint/endpoint.h"
#include "worker/worker.h"

/* Count in `traffic` from now on, and what was counted before as well. */
static void
move_to(umx_ep *ep, umi_traffic *traffic)
{
    traffic->sent_messages += ep->early.sent_messages;
    traffic->sent_bytes += ep->early.sent_bytes;
    traffic->received_messages += ep->early.received_messages;
    traffic->received_bytes += ep->early.received_bytes;
    ep->traffic = traffic;
}

static void
add_transport(const char *transport, const char *device, void *arg)
{
    umi_page_host *host = arg;

    (void)device;
    umi_page_host_add_transport(host, transport);
}

/* Find the row of the peer's host; NULL: it has none. */
static umi_page_host *
host_of(const umx_ep *ep)
{
    umi_page_slot *slot = umi_endpoint_worker(ep)->slot;
    char           name[UMI_SOCKADDR_TEXT];

    if (ep->socket.is_local) {
        return umi_page_host_of(slot, "localhost");
    }
    return umi_socket_peer_host(&ep->socket, name) ?
               umi_page_host_of(slot, name) :
               NULL;
}

void
umi_endpoint_begin_traffic(umx_ep *ep)
{
    umi_page_host *host = host_of(ep);

    if (host == NULL) {
        move_to(ep, &umi_endpoint_worker(ep)->slot->others);
        return;
    }
    move_to(ep, &host->traffic);
    (void)!umx_ep_transports(ep, add_transport, host);
}

void
umi_endpoint_end_traffic(umx_ep *ep)
{
    if (ep->traffic == &ep->early) {
        move_to(ep, &umi_endpoint_worker(ep)->slot->others);
    }
}
