/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/peer.h"

#include <stdlib.h>
#include <string.h>

/* Making UCX's endpoint anew costs a millisecond at each side. */
enum {
    LINGER_MS = 2000
};

umi_peer *
umi_peer_find(umx_worker *worker, const uint8_t *key)
{
    UMI_LIST_FOREACH(link, &worker->peers) {
        umi_peer *peer = umi_container_of(link, umi_peer, link);

        if (peer->is_proven && !peer->is_failed &&
            memcmp(peer->key, key, UMI_X25519_SIZE) == 0) {
            return peer;
        }
    }
    return NULL;
}

/* Made for the same claim by another handshake: if one of them is true, so is
 * the other. */
static umi_peer *
find_claimed(umi_engine *engine, const umi_peer_claim *claim,
             const uint8_t *address_hash)
{
    UMI_LIST_FOREACH(link, &engine->worker->peers) {
        umi_peer *peer = umi_container_of(link, umi_peer, link);

        if (!peer->is_failed && peer->engine == engine &&
            memcmp(peer->key, claim->key, UMI_X25519_SIZE) == 0 &&
            memcmp(peer->worker_id, claim->worker_id, UMI_WORKER_ID_SIZE) ==
                0 &&
            memcmp(peer->address_hash, address_hash, UMI_SHA256_SIZE) == 0) {
            return peer;
        }
    }
    return NULL;
}

static void
unlink_ep(umi_ep *ep)
{
    umi_link_remove(&ep->peer_link);
    ep->peer   = NULL;
    ep->handle = NULL;
}

/* ---- UCX's endpoint ------------------------------------------------------
 */

static void
on_ucx_error(void *arg, ucp_ep_h handle, ucs_status_t status)
{
    umi_peer *peer = arg;

    (void)handle;
    if (peer->is_failed) {
        return;
    }
    peer->is_failed = true;
    UMI_LIST_FOREACH_SAFE(link, &peer->eps) {
        umi_ep *ep = umi_container_of(link, umi_ep, peer_link);

        if (ep->is_bound) {
            ep->ucx_error = umi_ep_status(status);
            umi_ep_raise(ep, UMI_EP_EVENT_ERROR);
        } else {
            unlink_ep(ep); /* its handshake gets another */
        }
    }
    if (umi_list_is_empty(&peer->eps)) {
        umi_timer_start(peer->worker, &peer->linger, 0);
    }
}

static umx_status
open_handle(umi_peer *peer, const void *address)
{
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address     = address,
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_ucx_error, .arg = peer},
    };

    peer->worker->is_armed = false;
    return (umx_status)ucp_ep_create(peer->engine->ucp, &params, &peer->handle);
}

static void
note_transport(const char *transport, const char *device, void *arg)
{
    umi_peer *peer = arg;

    (void)device;
    if (umi_transport_is_shm(transport)) {
        peer->has_shm = true;
    }
    if (strncmp(transport, "rc_", 3) == 0 ||
        strncmp(transport, "dc_", 3) == 0) {
        peer->has_rdma = true;
    }
}

/* ---- life ----------------------------------------------------------------
 */

static void
on_linger(umi_timer *timer)
{
    umi_peer_close(umi_container_of(timer, umi_peer, linger));
}

static bool
is_anothers(umx_worker *worker, const umi_peer_claim *claim)
{
    UMI_LIST_FOREACH(link, &worker->peers) {
        umi_peer *peer = umi_container_of(link, umi_peer, link);

        if (peer->is_proven && !peer->is_failed && peer->uuid == claim->uuid &&
            memcmp(peer->key, claim->key, UMI_X25519_SIZE) != 0) {
            return true;
        }
    }
    return false;
}

static umx_status
peer_new(umi_engine *engine, const umi_peer_claim *claim,
         const uint8_t *address_hash, umi_peer **peer_p)
{
    umx_worker *worker = engine->worker;
    umi_peer   *peer;
    umx_status  status;

    if (claim->uuid != 0 && is_anothers(worker, claim)) {
        return UMX_ERR_REJECTED;
    }
    peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    peer->worker = worker;
    peer->engine = engine;
    memcpy(peer->worker_id, claim->worker_id, UMI_WORKER_ID_SIZE);
    memcpy(peer->key, claim->key, UMI_X25519_SIZE);
    memcpy(peer->shared, claim->shared, UMI_X25519_SIZE);
    memcpy(peer->address_hash, address_hash, UMI_SHA256_SIZE);
    peer->uuid = claim->uuid;
    umi_list_init(&peer->eps);
    umi_list_init(&peer->former);
    umi_timer_init(&peer->linger, on_linger);
    status = open_handle(peer, claim->address);
    if (status != UMX_OK) {
        free(peer);
        return status;
    }
    umi_engine_hold(engine);
    peer->id = ++worker->last_peer_id;
    (void)!umi_transports(peer->handle, note_transport, peer);
    umi_list_append(&worker->peers, &peer->link);
    *peer_p = peer;
    return UMX_OK;
}

umx_status
umi_peer_get(const umi_ep *ep, const umi_peer_claim *claim, umi_peer **peer_p)
{
    uint8_t hash[UMI_SHA256_SIZE];

    *peer_p = umi_peer_find(ep->worker, claim->key);
    if (*peer_p != NULL) {
        return UMX_OK;
    }
    umi_sha256(claim->address, claim->address_len, hash);
    *peer_p = find_claimed(ep->engine, claim, hash);
    return (*peer_p != NULL) ? UMX_OK :
                               peer_new(ep->engine, claim, hash, peer_p);
}

/* What libumx has at it ends. */
static void
end_use(umi_peer *peer)
{
    while (!umi_list_is_empty(&peer->eps)) {
        umi_ep *ep = umi_container_of(peer->eps.next, umi_ep, peer_link);

        unlink_ep(ep);
        ep->ucx_error = UMX_ERR_CONNECTION_RESET;
        umi_ep_raise(ep, UMI_EP_EVENT_ERROR);
    }
    if (peer->cma != NULL) {
        peer->end_cma(peer);
    }
    umi_timer_stop(&peer->linger);
    umi_link_remove(&peer->link);
}

static void
free_peer(umi_peer *peer)
{
    umi_engine_close(peer->engine, peer->handle);
    umi_engine_release(peer->engine);
    explicit_bzero(peer->shared, sizeof(peer->shared));
    free(peer);
}

static void
close_former(umi_peer *peer)
{
    while (!umi_list_is_empty(&peer->former)) {
        umi_peer *former = umi_container_of(peer->former.next, umi_peer, link);

        end_use(former);
        free_peer(former);
    }
}

void
umi_peer_close(umi_peer *peer)
{
    close_former(peer);
    end_use(peer);
    free_peer(peer);
}

void
umi_peer_fail(umi_peer *peer, const char *reason)
{
    UMI_LIST_FOREACH(link, &peer->eps) {
        umi_container_of(link, umi_ep, peer_link)->reason = reason;
    }
    umi_peer_close(peer);
}

/* Has UCX requests that only the end of an endpoint gives back? */
static bool
has_requests(const umi_peer *peer)
{
    UMI_LIST_FOREACH(link, &peer->worker->eps) {
        umi_ep *ep = umi_container_of(link, umi_ep, link);

        if ((ep->peer == peer || ep->peer == NULL) &&
            !umi_list_is_empty(&ep->inflight)) {
            return true;
        }
    }
    return false;
}

/* UCX pairs the endpoints of two workers by counting them, and the two count
 * differently once a handshake has ended in its middle. So what the other side
 * has made in place of the one that is gone may belong to `old`, in UCX's eyes,
 * and its announcements would be dropped with it. Hence `old` stays until
 * `peer` goes. */
static void
supersede(umi_peer *old, umi_peer *peer)
{
    bool is_idle = !old->is_failed && !has_requests(old);

    close_former(old); /* was for the one that is gone */
    end_use(old);
    if (is_idle) {
        umi_list_append(&peer->former, &old->link);
    } else {
        free_peer(old);
    }
}

umx_status
umi_peer_renew(umi_peer *old, const umi_ep *ep, const umi_peer_claim *claim,
               umi_peer **peer_p)
{
    uint8_t    hash[UMI_SHA256_SIZE];
    umx_status status;

    umi_sha256(claim->address, claim->address_len, hash);
    status = peer_new(ep->engine, claim, hash, peer_p);
    if (status != UMX_OK) {
        return status;
    }
    (*peer_p)->is_proven = true;
    UMI_LIST_FOREACH_SAFE(link, &old->eps) {
        umi_ep *other = umi_container_of(link, umi_ep, peer_link);

        if (!other->is_bound && other->engine == ep->engine) {
            unlink_ep(other);
            umi_peer_attach(*peer_p, other);
        }
    }
    supersede(old, *peer_p);
    return UMX_OK;
}

void
umi_peer_attach(umi_peer *peer, umi_ep *ep)
{
    umi_engine_hold(peer->engine);
    umi_engine_release(ep->engine);
    ep->engine = peer->engine;
    ep->peer   = peer;
    ep->handle = peer->handle;
    umi_list_append(&peer->eps, &ep->peer_link);
    umi_timer_stop(&peer->linger);
}

void
umi_peer_detach(umi_ep *ep, bool is_graceful)
{
    umi_peer *peer    = ep->peer;
    bool      is_well = is_graceful || !ep->is_bound;

    if (peer == NULL) {
        return;
    }
    unlink_ep(ep);
    if (!umi_list_is_empty(&peer->eps)) {
        return;
    }
    if (is_well && peer->is_proven && !peer->is_failed) {
        umi_timer_start(peer->worker, &peer->linger,
                        LINGER_MS * UINT64_C(1000000));
    } else {
        umi_peer_close(peer);
    }
}
