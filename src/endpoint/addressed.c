/* SPDX-License-Identifier: BSD-3-Clause */
#include "endpoint/addressed.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

/* How many endpoints are kept that have ended with something to read, and that
 * nobody takes. */
enum {
    MAX_ENDED = 64
};

/* ---- endpoints that were not taken ---------------------------------------
 */

static umx_ep *
ep_of(umi_node *node)
{
    return umi_container_of(node, umx_ep, untaken_node);
}

static umi_addressed *
addressed_of(const umx_ep *ep)
{
    return umi_endpoint_worker(ep)->addressed;
}

/* Take `ep` off the list; the reference stays. */
static void
unlink_ep(umi_addressed *addressed, umx_ep *ep)
{
    umi_node_remove(&ep->untaken_node);
    umx_ep_set_on_state(ep, NULL, NULL);
    addressed->num_ended -= ep->is_ended_untaken;
    ep->is_ended_untaken = false;
}

static void
drop_ep(umi_addressed *addressed, umx_ep *ep)
{
    unlink_ep(addressed, ep);
    umx_ep_destroy(ep);
}

static bool
has_unread(const umx_ep *ep)
{
    umx_ep_stats stats;

    umx_ep_query(ep, &stats);
    return stats.unexpected_messages != 0;
}

static void
drop_first_ended(umi_addressed *addressed)
{
    UMI_LIST_FOREACH(node, &addressed->waiting) {
        if (ep_of(node)->is_ended_untaken) {
            drop_ep(addressed, ep_of(node));
            return;
        }
    }
}

/* Note that an endpoint which nobody has taken has ended, or was closed by its
 * peer. */
static void
on_state(umx_ep *ep, umx_ep_state state, umx_status status, void *arg)
{
    umi_addressed *addressed = addressed_of(ep);

    (void)status;
    (void)arg;
    if (state == UMX_EP_OPEN && !ep->is_peer_closed) {
        return;
    }
    if (!has_unread(ep)) {
        drop_ep(addressed, ep);
    } else if (!ep->is_ended_untaken) {
        ep->is_ended_untaken = true;
        if (++addressed->num_ended > MAX_ENDED) {
            drop_first_ended(addressed);
        }
    }
}

static void
tell_later(umi_put_off *put_off)
{
    umi_addressed *addressed = umi_container_of(put_off, umi_addressed,
                                                put_off);

    if (addressed->fn != NULL) {
        addressed->fn(addressed->worker, addressed->arg);
    }
}

static void
on_accept(umx_listener *listener, umx_ep *ep, void *arg)
{
    umx_worker    *worker    = arg;
    umi_addressed *addressed = worker->addressed;

    (void)listener;
    umi_list_append(&addressed->waiting, &ep->untaken_node);
    umx_ep_set_on_state(ep, on_state, NULL);
    if (!umi_worker_put_off(worker, &addressed->put_off, tell_later)) {
        tell_later(&addressed->put_off);
    }
}

static void
take_ep(umi_addressed *addressed, umx_ep *ep)
{
    unlink_ep(addressed, ep);
    umi_endpoint_due(ep, UMI_DUE_HANDLERS); /* its messages have waited, too */
}

umx_ep *
umx_worker_take_addressed(umx_worker *worker)
{
    UMI_GUARD(worker);
    umi_addressed *addressed = worker->addressed;
    umx_ep        *ep;

    if (addressed == NULL || umi_list_is_empty(&addressed->waiting)) {
        return NULL;
    }
    ep = ep_of(addressed->waiting.next);
    take_ep(addressed, ep);
    return ep;
}

bool
umi_addressed_claim(umx_ep *ep)
{
    umi_addressed *addressed;

    if (ep->base.worker == NULL || !umi_node_is_linked(&ep->untaken_node)) {
        return false;
    }
    addressed = addressed_of(ep);
    if (addressed == NULL || ep->accepted_by != addressed->listener) {
        return false; /* in the queue of a listener of the program's */
    }
    take_ep(addressed, ep);
    return true;
}

umx_ep *
umi_addressed_next(const umx_worker *worker, const umx_ep *ep)
{
    umi_addressed  *addressed = worker->addressed;
    const umi_node *node;

    if (addressed == NULL) {
        return NULL;
    }
    node = (ep != NULL) ? ep->untaken_node.next : addressed->waiting.next;
    return (node != &addressed->waiting) ? ep_of((umi_node *)node) : NULL;
}

/* ---- the address ---------------------------------------------------------
 */

/* Listen on both families of addresses, or on the one that there is. */
static umx_status
listen_on_all(umx_worker *worker, umx_listener **listener_p)
{
    struct sockaddr_in6 in6    = {.sin6_family = AF_INET6};
    struct sockaddr_in  in     = {.sin_family = AF_INET};
    umx_listener_params params = {
        .field_mask = UMI_LISTENER_FIELD_INTERNAL,
        .addr       = (struct sockaddr *)&in6,
        .addr_len   = sizeof(in6),
        .on_accept  = on_accept,
        .arg        = worker,
    };
    umx_status status = umx_listener_create(worker, &params, listener_p);

    if (status == UMX_OK) {
        return status;
    }
    params.addr     = (struct sockaddr *)&in;
    params.addr_len = sizeof(in);
    return umx_listener_create(worker, &params, listener_p);
}

static umx_status
pack(const umx_worker *worker, umi_addressed *addressed)
{
    umi_address             address = {.network_id = umi_host_network_id()};
    struct sockaddr_storage bound;
    size_t                  len = sizeof(bound);
    in_port_t               port;
    umx_status              status;

    status = umx_listener_address(addressed->listener,
                                  (struct sockaddr *)&bound, &len);
    if (status != UMX_OK) {
        return status;
    }
    port          = (bound.ss_family == AF_INET6) ?
                        ((struct sockaddr_in6 *)&bound)->sin6_port :
                        ((struct sockaddr_in *)&bound)->sin_port;
    address.port  = ntohs(port);
    address.count = umi_host_addresses(address.hosts, UMI_ADDRESS_HOSTS_MAX);
    if (address.count == 0) {
        return UMX_ERR_IO_ERROR;
    }
    memcpy(address.worker_id, worker->id, UMI_WHERE_ID_SIZE);
    addressed->len = umi_address_encode(&address, addressed->bytes);
    return UMX_OK;
}

/* The state, without an address yet. */
static umi_addressed *
get_state(umx_worker *worker)
{
    umi_addressed *addressed = worker->addressed;

    if (addressed == NULL) {
        addressed = calloc(1, sizeof(*addressed));
        if (addressed != NULL) {
            umi_list_init(&addressed->waiting);
            umi_node_init(&addressed->put_off.node);
            addressed->worker = worker;
            worker->addressed = addressed;
        }
    }
    return addressed;
}

umx_status
umx_worker_get_address(umx_worker *worker, const void **address_p,
                       size_t *len_p)
{
    UMI_GUARD(worker);
    umi_addressed *addressed;
    umx_status     status = umi_worker_check(worker);

    if (status != UMX_OK) {
        return status;
    }
    addressed = get_state(worker);
    if (addressed == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    if (addressed->is_withdrawn) {
        return UMX_ERR_CLOSED;
    }
    if (addressed->listener == NULL) {
        status = listen_on_all(worker, &addressed->listener);
        if (status != UMX_OK) {
            return status;
        }
        status = pack(worker, addressed);
        if (status != UMX_OK) {
            umx_listener_destroy(addressed->listener);
            addressed->listener = NULL;
            return status;
        }
    }
    *address_p = addressed->bytes;
    *len_p     = addressed->len;
    return UMX_OK;
}

umx_status
umx_worker_set_on_addressed(umx_worker *worker, umx_addressed_fn fn, void *arg)
{
    UMI_GUARD(worker);
    umi_addressed *addressed = get_state(worker);

    if (addressed == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    addressed->fn  = fn;
    addressed->arg = arg;
    return UMX_OK;
}

/* ---- the end -------------------------------------------------------------
 */

void
umx_worker_withdraw_address(umx_worker *worker)
{
    UMI_GUARD(worker);
    umi_addressed *addressed = get_state(worker);

    if (addressed == NULL || addressed->is_withdrawn) {
        return;
    }
    addressed->is_withdrawn = true;
    if (addressed->listener != NULL) {
        umx_listener_destroy(addressed->listener);
        addressed->listener = NULL;
    }
    while (!umi_list_is_empty(&addressed->waiting)) {
        drop_ep(addressed, ep_of(addressed->waiting.next));
    }
}

void
umi_addressed_abort(umx_worker *worker)
{
    if (worker->addressed == NULL) {
        return;
    }
    UMI_LIST_FOREACH(node, &worker->addressed->waiting) {
        umx_ep_abort(ep_of(node));
    }
    umx_worker_withdraw_address(worker);
}

void
umi_addressed_fini(umx_worker *worker)
{
    if (worker->addressed != NULL) {
        umi_node_remove(&worker->addressed->put_off.node);
    }
    free(worker->addressed);
    worker->addressed = NULL;
}
