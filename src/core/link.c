/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/link.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Making UCX's endpoint anew costs a millisecond at each side. */
    LINGER_MS = 2000,
    /* How often UCX's tcp is asked whether all is out that it has begun to
     * send, and how often it must say so to be believed. */
    QUIET_FIRST  = 2,
    QUIET_SECOND = 20,
    QUIET_NS     = 5 * 1000000,
    /* So long may a peer keep us at it whose number is far ahead. */
    MAX_SKIPS = 2048
};

const umi_peer *
umi_peer_with_key(const umx_worker *worker, const uint8_t *key)
{
    UMI_LIST_FOREACH(node, &worker->peers) {
        const umi_peer *peer = umi_container_of(node, umi_peer, node);

        if (peer->is_proven && memcmp(peer->key, key, UMI_X25519_SIZE) == 0) {
            return peer;
        }
    }
    return NULL;
}

static bool
has_address(const umi_peer *peer, const umi_peer_claim *claim)
{
    uint8_t hash[UMI_SHA256_SIZE];

    umi_sha256(claim->address, claim->address_len, hash);
    return memcmp(peer->address_hash, hash, UMI_SHA256_SIZE) == 0;
}

/* One that was made for the same claim by another handshake will do: if one of
 * them is true, so is the other. */
umi_peer *
umi_peer_find(const umi_ep *ep, const umi_peer_claim *claim)
{
    UMI_LIST_FOREACH(node, &ep->worker->peers) {
        umi_peer *peer = umi_container_of(node, umi_peer, node);

        if (!peer->is_failed && peer->engine == ep->engine &&
            peer->uuid == claim->uuid &&
            memcmp(peer->key, claim->key, UMI_X25519_SIZE) == 0 &&
            (peer->is_proven || has_address(peer, claim))) {
            return peer;
        }
    }
    return NULL;
}

static void
unlink_ep(umi_ep *ep)
{
    umi_node_remove(&ep->peer_node);
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
    UMI_LIST_FOREACH_SAFE(node, &peer->eps) {
        umi_ep *ep = umi_container_of(node, umi_ep, peer_node);

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
    peer->id               = umi_engine_count(peer->engine, peer->uuid);
    if (peer->id == 0) {
        return UMX_ERR_NO_MEMORY;
    }
    return (umx_status)ucp_ep_create(peer->engine->ucp, &params, &peer->handle);
}

/* Endpoints that nobody uses, until the next one has the number `id`. */
static umx_status
skip_to(umi_peer *peer, const void *address, uint64_t id)
{
    uint64_t made = umi_engine_counted(peer->engine, peer->uuid);

    for (int i = 0; made + 1 < id; i++, made++) {
        umx_status status = (i < MAX_SKIPS) ? open_handle(peer, address) :
                                              UMX_ERR_CONNECTION_RESET;

        if (status != UMX_OK) {
            return status;
        }
        umi_engine_close(peer->engine, peer->handle);
        (void)ucp_worker_progress(peer->engine->ucp); /* close descriptors */
    }
    return UMX_OK;
}

static void
note_transport(const char *transport, const char *device, void *arg)
{
    umi_peer *peer = arg;

    (void)device;
    if (umi_transport_is_shm(transport)) {
        peer->has_shm = true;
    }
    if (strcmp(transport, "tcp") == 0) {
        peer->has_tcp = true;
    }
    if (strncmp(transport, "rc_", 3) == 0 ||
        strncmp(transport, "dc_", 3) == 0) {
        peer->has_rdma = true;
    }
}

/* ---- life ----------------------------------------------------------------
 */

static void free_peer(umi_peer *peer);

static void look_if_quiet(umi_peer *peer);

static void
on_linger(umi_timer *timer)
{
    umi_peer *peer = umi_container_of(timer, umi_peer, linger);

    if (peer->is_failed && peer->is_ending) {
        free_peer(peer);
    } else if (peer->is_ending) {
        look_if_quiet(peer);
    } else {
        umi_peer_close(peer);
    }
}

static bool
is_anothers(const umx_worker *worker, const umi_peer_claim *claim)
{
    UMI_LIST_FOREACH(node, &worker->peers) {
        const umi_peer *peer = umi_container_of(node, umi_peer, node);

        if (claim->uuid != 0 && peer->is_proven && !peer->is_failed &&
            peer->uuid == claim->uuid &&
            memcmp(peer->key, claim->key, UMI_X25519_SIZE) != 0) {
            return true;
        }
    }
    return false;
}

static umx_status
peer_new(const umi_ep *ep, const umi_peer_claim *claim, uint64_t id,
         umi_peer **peer_p)
{
    umx_worker *worker = ep->worker;
    umi_peer   *peer;
    umx_status  status;

    if (is_anothers(worker, claim)) {
        return UMX_ERR_REJECTED;
    }
    peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    peer->worker = worker;
    peer->engine = ep->engine;
    memcpy(peer->worker_id, claim->worker_id, UMI_WORKER_ID_SIZE);
    memcpy(peer->key, claim->key, UMI_X25519_SIZE);
    memcpy(peer->shared, claim->shared, UMI_X25519_SIZE);
    umi_sha256(claim->address, claim->address_len, peer->address_hash);
    peer->uuid = claim->uuid;
    umi_list_init(&peer->eps);
    umi_timer_init(&peer->linger, on_linger);
    status = skip_to(peer, claim->address, id);
    if (status == UMX_OK) {
        status = open_handle(peer, claim->address);
    }
    if (status != UMX_OK) {
        explicit_bzero(peer->shared, sizeof(peer->shared));
        free(peer);
        return status;
    }
    umi_engine_hold(peer->engine);
    (void)!umi_transports(peer->handle, note_transport, peer);
    umi_list_append(&worker->peers, &peer->node);
    *peer_p = peer;
    return UMX_OK;
}

static void
forget_peer(umi_peer *peer)
{
    umi_node_remove(&peer->node);
    umi_engine_release(peer->engine);
    free(peer);
}

/* UCX's endpoint is closed. What UCX has begun may end later: on_drained(). */
static void
free_peer(umi_peer *peer)
{
    bool is_draining = peer->is_draining;

    umi_timer_stop(&peer->linger);
    explicit_bzero(peer->shared, sizeof(peer->shared));
    peer->is_closed = true;
    umi_engine_close(peer->engine, peer->handle);
    if (!is_draining) {
        forget_peer(peer);
    }
}

static void
on_drained(void *request, ucs_status_t status, void *arg)
{
    umi_peer *peer = arg;

    (void)status;
    ucp_request_free(request);
    peer->worker->closes_in_ucx--;
    peer->is_draining = false;
    if (peer->is_closed) {
        forget_peer(peer);
    } else {
        umi_timer_start(peer->worker, &peer->linger, QUIET_NS);
    }
}

/* The side that closes first is not the other one's. */
static unsigned
quiet_needed(const umi_peer *peer)
{
    bool is_first = memcmp(peer->worker->key, peer->key, UMI_X25519_SIZE) <= 0;

    return is_first ? QUIET_FIRST : QUIET_SECOND;
}

/* A flush that UCX has done at once says that nothing is in its hands now. */
static void
look_if_quiet(umi_peer *peer)
{
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send   = on_drained,
        .user_data = peer,
    };
    ucs_status_ptr_t request = ucp_ep_flush_nbx(peer->handle, &params);

    peer->worker->is_armed = false;
    peer->num_quiet++;
    if (UCS_PTR_IS_PTR(request)) {
        peer->is_draining = true;
        peer->num_quiet   = 0;
        peer->worker->closes_in_ucx++;
    } else if (UCS_PTR_IS_ERR(request) ||
               peer->num_quiet >= quiet_needed(peer)) {
        free_peer(peer);
    } else {
        umi_timer_start(peer->worker, &peer->linger, QUIET_NS);
    }
}

/* UCX's tcp (1.22) may not be closed while it sends, and not by both sides at
 * once. It owes the peer a goodbye (uct_tcp_ep_destroy). What it has begun to
 * send without a copy is cut off, and it waits for its end for ever; where it
 * was a copy, it waits until the socket takes it. If the peer's own goodbye
 * comes meanwhile, UCX frees its endpoint for that and goes on to use it for
 * the other (uct_tcp_iface_handle_events). To who has had the other's goodbye,
 * it owes none. So an endpoint is closed when what has begun is out, by one of
 * the two sides first; a peer that takes nothing is waited for until it goes,
 * or the worker does, which polls its sockets no more. */
static void
end_peer(umi_peer *peer)
{
    umx_worker *worker = peer->worker;

    if (!peer->has_tcp || !peer->is_proven || peer->is_failed ||
        worker->is_ending) {
        free_peer(peer);
        return;
    }
    peer->is_ending = true;
    umi_node_remove(&peer->node);
    umi_list_append(&worker->ending_peers, &peer->node);
    look_if_quiet(peer);
}

void
umi_peer_close(umi_peer *peer)
{
    while (!umi_list_is_empty(&peer->eps)) {
        umi_ep *ep = umi_container_of(peer->eps.next, umi_ep, peer_node);

        unlink_ep(ep);
        ep->ucx_error = UMX_ERR_CONNECTION_RESET;
        umi_ep_raise(ep, UMI_EP_EVENT_ERROR);
    }
    if (peer->cma != NULL) {
        peer->end_cma(peer);
    }
    end_peer(peer);
}

void
umi_peer_fail(umi_peer *peer, const char *reason)
{
    UMI_LIST_FOREACH(node, &peer->eps) {
        umi_container_of(node, umi_ep, peer_node)->reason = reason;
    }
    umi_peer_close(peer);
}

/* What `old` belonged to at the other side is gone. The connections that are
 * not bound yet go over. */
static void
supersede(umi_peer *old, umi_peer *peer)
{
    UMI_LIST_FOREACH_SAFE(node, &old->eps) {
        umi_ep *ep = umi_container_of(node, umi_ep, peer_node);

        if (!ep->is_bound) {
            unlink_ep(ep);
            umi_peer_attach(peer, ep);
        }
    }
    umi_peer_close(old);
}

umx_status
umi_peer_claim_one(const umi_ep *ep, const umi_peer_claim *claim,
                   umi_peer **peer_p)
{
    *peer_p = umi_peer_find(ep, claim);
    return (*peer_p != NULL) ?
               UMX_OK :
               peer_new(ep, claim,
                        umi_engine_counted(ep->engine, claim->uuid) + 1,
                        peer_p);
}

umx_status
umi_peer_get(const umi_ep *ep, const umi_peer_claim *claim, uint64_t id,
             umi_peer **peer_p)
{
    umi_peer  *old = umi_peer_find(ep, claim);
    umx_status status;

    if (old != NULL && old->id == id) {
        old->is_proven = true;
        *peer_p        = old;
        return UMX_OK;
    }
    if (id <= umi_engine_counted(ep->engine, claim->uuid)) {
        return UMX_ERR_CONNECTION_RESET;
    }
    status = peer_new(ep, claim, id, peer_p);
    if (status != UMX_OK) {
        return status;
    }
    (*peer_p)->is_proven = true;
    if (old != NULL) {
        supersede(old, *peer_p);
    }
    return UMX_OK;
}

void
umi_peer_attach(umi_peer *peer, umi_ep *ep)
{
    ep->peer   = peer;
    ep->handle = peer->handle;
    umi_list_append(&peer->eps, &ep->peer_node);
    umi_timer_stop(&peer->linger);
}

void
umi_peer_detach(umi_ep *ep, bool is_graceful)
{
    umi_peer *peer    = ep->peer;
    bool      is_well = is_graceful || !ep->is_bound;

    ep->is_cut = !is_graceful;
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

void
umi_peers_free(umx_worker *worker)
{
    while (!umi_list_is_empty(&worker->peers)) {
        umi_peer_close(umi_container_of(worker->peers.next, umi_peer, node));
    }
    UMI_LIST_FOREACH_SAFE(node, &worker->ending_peers) {
        umi_peer *peer = umi_container_of(node, umi_peer, node);

        if (!peer->is_closed) {
            free_peer(peer);
        }
    }
}

void
umi_peers_fini(umx_worker *worker)
{
    umi_node *node;

    while ((node = umi_list_pop(&worker->ending_peers)) != NULL) {
        free(umi_container_of(node, umi_peer, node));
    }
}
