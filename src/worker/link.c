/* SPDX-License-Identifier: BSD-3-Clause */
#include "worker/link.h"

#include <stdlib.h>
#include <string.h>

#include "util/clock.h"
#include "util/count.h"
#include "worker/kinds_of_peers.h"

enum {
    /* Making UCX's endpoint anew costs a millisecond at each side. */
    LINGER_MS = 2000,
    /* How often in a row UCX's tcp must say that all is out that it has begun
     * to send, and in which time the two sides ask. */
    QUIET_TIMES     = 2,
    QUIET_FIRST_NS  = 5 * 1000000,
    QUIET_SECOND_NS = 50 * 1000000,
    /* How long ago a worker's last look is, before it looks first. */
    STALE_MS = 20
};

const umi_link *
umi_link_with_key(const umx_worker *worker, const uint8_t *key)
{
    UMI_LIST_FOREACH(node, &worker->links) {
        const umi_link *link = umi_container_of(node, umi_link, node);

        if (link->is_proven && memcmp(link->key, key, UMI_X25519_SIZE) == 0) {
            return link;
        }
    }
    return NULL;
}

bool
umi_link_has_address(const umi_link *link, const umi_peer_claim *claim)
{
    uint8_t hash[UMI_SHA256_SIZE];

    umi_sha256(claim->address, claim->address_len, hash);
    return memcmp(link->address_hash, hash, UMI_SHA256_SIZE) == 0;
}

/* A link that was made for the same claim by another handshake will do: if one
 * of the two claims is true, so is the other. */
umi_link *
umi_link_find(const umi_ep_base *ep, const umi_peer_claim *claim)
{
    UMI_LIST_FOREACH(node, &ep->worker->links) {
        umi_link *link = umi_container_of(node, umi_link, node);

        if (!link->is_failed && link->engine == ep->engine &&
            link->uuid == claim->uuid &&
            memcmp(link->key, claim->key, UMI_X25519_SIZE) == 0 &&
            (link->is_proven || umi_link_has_address(link, claim))) {
            return link;
        }
    }
    return NULL;
}

static void
note_trust(const umi_ep_base *ep)
{
    umi_configuration *configuration = ep->link->configuration;

    configuration->is_trusted = configuration->is_trusted ||
                                ep->worker->hooks->has_received(ep);
}

void
umi_links_note_trust(umx_worker *worker)
{
    UMI_LIST_FOREACH(node, &worker->links) {
        umi_link *link = umi_container_of(node, umi_link, node);

        UMI_LIST_FOREACH(ep_node, &link->eps) {
            note_trust(umi_container_of(ep_node, umi_ep_base, link_node));
        }
    }
}

static void
unlink_ep(umi_ep_base *ep)
{
    note_trust(ep);
    umi_node_remove(&ep->link_node);
    ep->link   = NULL;
    ep->handle = NULL;
}

/* ---- UCX's endpoint ------------------------------------------------------
 */

void
umi_link_break(umi_link *link, umx_status status, const char *reason)
{
    if (link->is_failed) {
        return;
    }
    link->is_failed = true;
    UMI_LIST_FOREACH_SAFE(node, &link->eps) {
        umi_ep_base *ep = umi_container_of(node, umi_ep_base, link_node);

        if (ep->is_bound) {
            ep->ucx_error = status;
            ep->reason    = (reason != NULL) ? reason : ep->reason;
            umi_ep_base_raise(ep, UMI_EP_EVENT_ERROR);
        } else {
            unlink_ep(ep); /* its handshake gets another */
        }
    }
    if (umi_list_is_empty(&link->eps)) {
        umi_timer_start(link->worker, &link->linger, 0);
    }
}

static void
on_ucx_error(void *arg, ucp_ep_h handle, ucs_status_t status)
{
    (void)handle;
    umi_link_break(arg, umi_ep_status(status), NULL);
}

static umx_status
open_handle(umi_link *link, const void *address)
{
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address     = address,
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_ucx_error, .arg = link},
    };
    umx_status status;

    link->worker->is_armed = false;
    link->id               = umi_engine_count(link->engine, link->uuid);
    if (link->id == 0) {
        return UMX_ERR_NO_MEMORY;
    }
    status = (umx_status)ucp_ep_create(link->engine->ucp, &params,
                                       &link->handle);
    if (status == UMX_ERR_EXCEEDS_LIMIT) {
        link->engine->is_full = true;
    }
    return status;
}

/* Make endpoints that nobody uses, until the next one has the number `id`. */
static umx_status
skip_to(umi_link *link, const void *address, uint64_t id)
{
    uint64_t next = umi_engine_counted(link->engine, link->uuid) + 1;

    if (id - next > UMI_LINK_SKIPS_MAX) {
        return UMX_ERR_CONNECTION_RESET;
    }
    for (; next < id; next++) {
        umx_status status = open_handle(link, address);

        if (status != UMX_OK) {
            return status;
        }
        umi_engine_close(link->engine, link->handle);
        (void)ucp_worker_progress(link->engine->ucp); /* close descriptors */
    }
    return UMX_OK;
}

/* True for what moves memory of devices alone: no message goes that way, and no
 * memory of the host. */
static bool
is_of_devices(const char *transport)
{
    return strncmp(transport, "cuda", 4) == 0 ||
           strcmp(transport, "gdr_copy") == 0;
}

static void
note_transport(const char *transport, const char *device, void *arg)
{
    umi_link *link = arg;

    (void)device;
    if (is_of_devices(transport)) {
        link->has_cuda_ipc |= strcmp(transport, "cuda_ipc") == 0;
        return;
    }
    link->num_lanes++;
    if (umi_transport_is_shm(transport)) {
        link->has_shm = true;
    }
    if (strcmp(transport, "tcp") == 0) {
        link->has_tcp = true;
    }
    if (strncmp(transport, "rc_", 3) == 0 ||
        strncmp(transport, "dc_", 3) == 0) {
        link->has_rdma = true;
    }
    if (!umi_transport_is_shm(transport) && strcmp(transport, "tcp") != 0 &&
        strcmp(transport, "self") != 0 && strcmp(transport, "cma") != 0) {
        link->has_hardware         = true;
        link->worker->has_hardware = true;
    }
}

/* ---- life ----------------------------------------------------------------
 */

static void
forget_link(umi_link *link)
{
    umi_node_remove(&link->node);
    umi_configuration_put(link->configuration);
    umi_engine_release(link->engine);
    free(link);
}

/* A flush of UCX's (1.22) is for a moment in its queue of callbacks only: where
 * it is done on one of several lanes and goes on to the next, and where it was
 * posted before the lanes were connected (UCP_EP_FLAG_BLOCK_FLUSH). A close by
 * force does not take it out, and ucp_ep_flush_resume_slow_path_callback() uses
 * the endpoint that is gone. So an endpoint that has a flush is closed when UCX
 * has nothing left to do: the flush waits in a lane then, where a close finds
 * it. */
umi_link *
umi_link_begin_flush(umi_link *link)
{
    if (!link->has_tcp && !link->has_rdma) {
        return NULL;
    }
    link->num_flushes++;
    return link;
}

void
umi_link_end_flush(umi_link *held)
{
    if (held != NULL && UMI_DECREMENT(held->num_flushes) == 0 &&
        held->is_closed) {
        forget_link(held);
    }
}

/* Run UCX until it has found nothing to do twice, or the flushes have ended:
 * what a callback adds to the queue is run the next time. */
static void
settle(umi_link *link)
{
    enum {
        MAX_POLLS = 4096
    };
    unsigned num_idle = 0;

    UMI_ASSERT_NO_WALK();
    UMI_ASSERT_OUTSIDE_UCX(link->worker);
    for (int i = 0; i < MAX_POLLS && link->num_flushes != 0 && num_idle < 2;
         i++) {
        num_idle = (ucp_worker_progress(link->engine->ucp) == 0) ?
                       num_idle + 1 :
                       0;
    }
    link->worker->is_armed   = false;
    link->worker->has_events = true;
}

/* UCX's endpoint is closed, and gives up what it has; the link is freed when it
 * has given up its flushes. */
static void
close_handle(umi_link *link)
{
    umi_timer_stop(&link->linger);
    explicit_bzero(link->shared, sizeof(link->shared));
    link->num_flushes++; /* the close itself: callbacks end others */
    link->is_closed = true;
    umi_engine_close(link->engine, link->handle);
    umi_link_end_flush(link);
}

/* Close UCX's endpoint: at once, or by on_linger() or umi_links_free(). */
static void
free_link(umi_link *link)
{
    if (link->num_flushes == 0) {
        close_handle(link);
        return;
    }
    if (!link->is_ending) {
        link->is_ending = true;
        umi_node_remove(&link->node);
        umi_list_append(&link->worker->ending_links, &link->node);
    }
    link->is_close_due = true;
    if (!link->worker->is_ending) {
        umi_timer_start(link->worker, &link->linger, 0);
    }
}

static void look_if_quiet(umi_link *link);

static void
on_linger(umi_timer *timer)
{
    umi_link *link = umi_container_of(timer, umi_link, linger);

    if (link->is_close_due) {
        settle(link);
        close_handle(link);
    } else if (link->is_ending && link->is_failed) {
        free_link(link);
    } else if (link->is_ending) {
        look_if_quiet(link);
    } else {
        umi_link_close(link);
    }
}

static bool
is_anothers(const umx_worker *worker, const umi_peer_claim *claim)
{
    UMI_LIST_FOREACH(node, &worker->links) {
        const umi_link *link = umi_container_of(node, umi_link, node);

        if (claim->uuid != 0 && link->is_proven && !link->is_failed &&
            link->uuid == claim->uuid &&
            memcmp(link->key, claim->key, UMI_X25519_SIZE) != 0) {
            return true;
        }
    }
    return false;
}

static umx_status
link_new(const umi_ep_base *ep, const umi_peer_claim *claim, uint64_t id,
         umi_link **link_p)
{
    umx_worker *worker = ep->worker;
    umi_link   *link;
    umx_status  status;

    if (is_anothers(worker, claim)) {
        return UMX_ERR_REJECTED;
    }
    link = calloc(1, sizeof(*link) + worker->hooks->link_size);
    if (link == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    link->worker = worker;
    link->engine = ep->engine;
    memcpy(link->worker_id, claim->worker_id, UMI_WORKER_ID_SIZE);
    memcpy(link->key, claim->key, UMI_X25519_SIZE);
    memcpy(link->shared, claim->shared, UMI_X25519_SIZE);
    umi_sha256(claim->address, claim->address_len, link->address_hash);
    link->uuid  = claim->uuid;
    link->apart = claim->apart;
    umi_list_init(&link->eps);
    umi_timer_init(&link->linger, on_linger);
    link->configuration = umi_configuration_get(&link->engine->configurations,
                                                claim->kind);
    status              = UMX_ERR_NO_MEMORY;
    if (link->configuration == NULL) {
        goto free_link;
    }
    link->configuration->is_trusted |= claim->is_trusted;
    status = skip_to(link, claim->address, id);
    if (status == UMX_OK) {
        status = open_handle(link, claim->address);
    }
    if (status != UMX_OK) {
        goto put_configuration;
    }
    umi_engine_hold(link->engine);
    (void)!umi_transport_each(link->handle, note_transport, link);
    if (link->has_tcp && !link->has_shm) {
        link->loses_unread   = true;
        worker->loses_unread = true;
    }
    umi_list_append(&worker->links, &link->node);
    worker->hooks->init_link(link);
    *link_p = link;
    return UMX_OK;

put_configuration:
    umi_configuration_put(link->configuration);
free_link:
    explicit_bzero(link->shared, sizeof(link->shared));
    free(link);
    return status;
}

/* Look again in a while. The two sides take different times, so that one closes
 * first; and so that their flushes do not keep each other busy: with what UCX
 * answers to a flush, it owes the other side one. */
static void
look_later(umi_link *link)
{
    bool is_first = memcmp(link->worker->key, link->key, UMI_X25519_SIZE) <= 0;

    umi_timer_start(link->worker, &link->linger,
                    is_first ? QUIET_FIRST_NS : QUIET_SECOND_NS);
}

static void
on_drained(void *request, ucs_status_t status, void *arg)
{
    umi_link *link = arg;

    (void)status;
    ucp_request_free(request);
    link->worker->closes_in_ucx--;
    if (!link->is_close_due && !link->is_closed) {
        look_later(link);
    }
    umi_link_end_flush(link);
}

/* A flush that UCX has done at once says that nothing is in its hands now. */
static void
look_if_quiet(umi_link *link)
{
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send   = on_drained,
        .user_data = link,
    };
    ucs_status_ptr_t request = ucp_ep_flush_nbx(link->handle, &params);

    link->worker->is_armed = false;
    link->num_quiet++;
    if (UCS_PTR_IS_PTR(request)) {
        (void)!umi_link_begin_flush(link); /* it has tcp: end_link() */
        link->num_quiet = 0;
        link->worker->closes_in_ucx++;
    } else if (UCS_PTR_IS_ERR(request) || link->num_quiet >= QUIET_TIMES) {
        free_link(link);
    } else {
        look_later(link);
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
end_link(umi_link *link)
{
    umx_worker *worker = link->worker;

    if (!link->has_tcp || !link->is_proven || link->is_failed ||
        worker->is_ending) {
        free_link(link);
        return;
    }
    link->is_ending = true;
    umi_node_remove(&link->node);
    umi_list_append(&worker->ending_links, &link->node);
    look_if_quiet(link);
}

void
umi_link_close(umi_link *link)
{
    while (!umi_list_is_empty(&link->eps)) {
        umi_ep_base *ep = umi_container_of(link->eps.next, umi_ep_base,
                                           link_node);

        unlink_ep(ep);
        ep->ucx_error = UMX_ERR_CONNECTION_RESET;
        umi_ep_base_raise(ep, UMI_EP_EVENT_ERROR);
    }
    link->worker->hooks->fini_link(link);
    end_link(link);
}

void
umi_link_fail(umi_link *link, const char *reason)
{
    UMI_LIST_FOREACH(node, &link->eps) {
        umi_container_of(node, umi_ep_base, link_node)->reason = reason;
    }
    umi_link_close(link);
}

/* Replace `old`, whose counterpart is gone, by `link`. The connections that are
 * not bound yet go over. */
static void
supersede(umi_link *old, umi_link *link)
{
    UMI_LIST_FOREACH_SAFE(node, &old->eps) {
        umi_ep_base *ep = umi_container_of(node, umi_ep_base, link_node);

        if (!ep->is_bound) {
            unlink_ep(ep);
            umi_link_attach(link, ep);
        }
    }
    umi_link_close(old);
}

umx_status
umi_link_claim(const umi_ep_base *ep, const umi_peer_claim *claim,
               umi_link **link_p)
{
    *link_p = umi_link_find(ep, claim);
    return (*link_p != NULL) ?
               UMX_OK :
               link_new(ep, claim,
                        umi_engine_counted(ep->engine, claim->uuid) + 1,
                        link_p);
}

umx_status
umi_link_get(const umi_ep_base *ep, const umi_peer_claim *claim, uint64_t id,
             umi_link **link_p)
{
    umi_link  *old = umi_link_find(ep, claim);
    umx_status status;

    if (old != NULL && old->id == id) {
        old->is_proven = true;
        *link_p        = old;
        return UMX_OK;
    }
    if (id <= umi_engine_counted(ep->engine, claim->uuid)) {
        return UMX_ERR_CONNECTION_RESET;
    }
    status = link_new(ep, claim, id, link_p);
    if (status != UMX_OK) {
        return status;
    }
    (*link_p)->is_proven = true;
    if (old != NULL) {
        supersede(old, *link_p);
    }
    return UMX_OK;
}

void
umi_link_attach(umi_link *link, umi_ep_base *ep)
{
    ep->link   = link;
    ep->handle = link->handle;
    umi_list_append(&link->eps, &ep->link_node);
    umi_timer_stop(&link->linger);
}

void
umi_link_look(const umi_ep_base *ep)
{
    umx_worker *worker = ep->worker;
    uint64_t    stale  = umi_ticks_from_ns(STALE_MS * UINT64_C(1000000));

    if (worker->is_inside || ep->link == NULL || !ep->link->loses_unread ||
        umi_ticks() - worker->looked < stale) {
        return;
    }
    worker->looked = umi_ticks();
    umi_worker_take_all(worker);
}

void
umi_link_detach(umi_ep_base *ep, bool is_graceful)
{
    umi_link *link    = ep->link;
    bool      is_well = is_graceful || !ep->is_bound;

    ep->is_cut = !is_graceful;
    if (link == NULL) {
        return;
    }
    unlink_ep(ep);
    ep->is_outlived = true;
    if (!umi_list_is_empty(&link->eps)) {
        return;
    }
    if (is_well && link->is_proven && !link->is_failed) {
        umi_timer_start(link->worker, &link->linger,
                        LINGER_MS * UINT64_C(1000000));
    } else {
        ep->is_outlived = false;
        umi_link_close(link);
    }
}

/* A link that is ending and whose endpoint is not closed yet, or NULL. */
static umi_link *
open_link(const umx_worker *worker)
{
    UMI_LIST_FOREACH(node, &worker->ending_links) {
        umi_link *link = umi_container_of(node, umi_link, node);

        if (!link->is_closed) {
            return link;
        }
    }
    return NULL;
}

void
umi_links_free(umx_worker *worker)
{
    umi_link *link;

    while (!umi_list_is_empty(&worker->links)) {
        umi_link_close(umi_container_of(worker->links.next, umi_link, node));
    }
    while ((link = open_link(worker)) != NULL) {
        settle(link);
        close_handle(link);
    }
}

void
umi_links_fini(umx_worker *worker)
{
    umi_node *node;

    while ((node = umi_list_pop(&worker->ending_links)) != NULL) {
        free(umi_container_of(node, umi_link, node));
    }
}
