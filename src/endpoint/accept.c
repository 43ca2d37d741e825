/* SPDX-License-Identifier: BSD-3-Clause */
#include "endpoint/accept.h"

static umx_ep *
ep_of(umi_node *node)
{
    return umi_container_of(node, umx_ep, untaken_node);
}

void
umi_accept(umx_ep *ep)
{
    umx_listener *listener = ep->handshake->listener;

    ep->handshake->listener = NULL;
    umi_handshake_end(ep);
    listener->num_handshakes--;
    if (listener->is_destroyed ||
        (listener->on_accept == NULL && listener->on_ready == NULL)) {
        umx_ep_abort(ep);
        umx_ep_destroy(ep);
    } else if (listener->on_ready != NULL) {
        umi_list_append(&listener->accepted, &ep->untaken_node);
        listener->on_ready(listener, listener->arg);
    } else {
        listener->on_accept(listener, ep, listener->arg);
    }
    umi_listener_release(listener);
}

umx_ep *
umx_listener_take(umx_listener *listener)
{
    umi_node *node = umi_list_pop(&listener->accepted);
    umx_ep   *ep;

    if (node == NULL) {
        return NULL;
    }
    ep = ep_of(node);
    umi_endpoint_due(ep, UMI_DUE_HANDLERS); /* its messages have waited, too */
    return ep;
}

void
umi_accept_drop(umx_listener *listener)
{
    umi_node *node;

    while ((node = umi_list_pop(&listener->accepted)) != NULL) {
        umx_ep_destroy(ep_of(node));
    }
}
