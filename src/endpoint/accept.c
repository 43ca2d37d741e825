/* SPDX-License-Identifier: BSD-3-Clause */
#include "endpoint/accept.h"

#include "util/count.h"

static umx_ep *
ep_of(umi_node *node)
{
    return umi_container_of(node, umx_ep, untaken_node);
}

static void
call_later(umi_put_off *put_off)
{
    umx_listener *listener = umi_container_of(put_off, umx_listener, put_off);
    umx_ep       *ep;

    umi_listener_hold(listener);
    if (listener->is_close_put_off) {
        listener->is_close_put_off = false;
        if (listener->on_remote_close != NULL) {
            listener->on_remote_close(listener, listener->arg);
        }
    }
    if (listener->on_ready != NULL) {
        if (!umi_list_is_empty(&listener->accepted)) {
            listener->on_ready(listener, listener->arg);
        }
    } else {
        while (listener->on_accept != NULL &&
               (ep = umx_listener_take(listener)) != NULL) {
            listener->on_accept(listener, ep, listener->arg);
        }
    }
    umi_listener_release(listener);
}

bool
umi_accept_put_off(umx_listener *listener)
{
    return !listener->is_internal &&
           umi_worker_put_off(listener->worker, &listener->put_off, call_later);
}

void
umi_accept(umx_ep *ep)
{
    umx_listener *listener = ep->handshake->listener;

    ep->handshake->listener = NULL;
    umi_handshake_end(ep);
    UMI_DECREMENT(listener->num_handshakes);
    if (listener->is_destroyed ||
        (listener->on_accept == NULL && listener->on_ready == NULL)) {
        umx_ep_abort(ep);
        umx_ep_destroy(ep);
    } else if (umi_accept_put_off(listener)) {
        umi_list_append(&listener->accepted, &ep->untaken_node);
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
    UMI_GUARD_IF_ANY(listener->worker);
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
