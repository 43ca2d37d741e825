/* SPDX-License-Identifier: BSD-3-Clause */
#include "endpoint/strangers.h"

#include <string.h>

#include "endpoint/address_kind.h"
#include "ops/engines.h"
#include "util/log.h"
#include "worker/kinds_of_peers.h"

#define MAX_IN_USE 16

_Static_assert(MAX_IN_USE == UMI_STRANGERS_MAX, "a text says it");

enum {
    /* The worker's own engine: of strangers, also if they are gone; and of
     * all. UCX has room for 255, some of them for endpoints of its own. */
    MAX_IN_OWN = 4,
    MAX_OF_OWN = 128,
    /* A guest engine is made for each MAX_IN_GUEST configurations, which
     * divides the time that making it takes. */
    MAX_IN_GUEST = 16,
    MAX_GUESTS   = 4,
    IDLE_MS      = 2000
};

static const char too_many[] =
    UMI_TEXT_OF(MAX_IN_USE) " kinds of UCX addresses are in use by peers that "
                            "have no token and have sent nothing, and this "
                            "address is of another kind";

/* ---- guest engines -------------------------------------------------------
 */

static void
leave_guest(umx_worker *worker)
{
    umi_strangers *strangers = worker->strangers;

    if (strangers->guest != NULL) {
        umi_timer_stop(&strangers->idle);
        umi_engine_release(strangers->guest);
        strangers->guest = NULL;
    }
}

void
umi_strangers_leave(umx_worker *worker)
{
    leave_guest(worker);
    UMI_LIST_FOREACH(node, &worker->other_engines) {
        umi_container_of(node, umi_engine, node)->is_full = true;
    }
}

static void
wait_for_idle(umx_worker *worker)
{
    umi_timer_start(worker, &worker->strangers->idle,
                    IDLE_MS * UINT64_C(1000000));
}

static void
on_idle(umi_timer *timer)
{
    umi_strangers *strangers = umi_container_of(timer, umi_strangers, idle);
    umx_worker    *worker    = strangers->guest->worker;

    if (strangers->guest->refs <= 1) {
        leave_guest(worker);
    } else {
        wait_for_idle(worker);
    }
}

void
umi_strangers_init(umx_worker *worker, umi_strangers *strangers)
{
    umi_timer_init(&strangers->idle, on_idle);
    worker->strangers = strangers;
}

void
umi_strangers_fini(umx_worker *worker)
{
    umi_timer_stop(&worker->strangers->idle);
}

static umx_status
add_guest(umx_worker *worker)
{
    umi_engine *guest;
    umx_status  status;

    leave_guest(worker);
    status = umi_ops_engines_add(worker, &guest);
    if (status == UMX_OK) {
        guest->is_guest          = true;
        worker->strangers->guest = guest;
        wait_for_idle(worker);
    }
    return status;
}

/* Count those that something lives in. */
static unsigned
count_guests(const umx_worker *worker)
{
    unsigned count = 0;

    UMI_LIST_FOREACH(node, &worker->other_engines) {
        const umi_engine *engine = umi_container_of(node, umi_engine, node);

        count += engine->is_guest &&
                 engine->refs > (engine == worker->strangers->guest ? 1 : 0);
    }
    return count;
}

/* ---- the listening side --------------------------------------------------
 */

/* Count the configurations that only strangers use, in all engines. */
static unsigned
count_in_use(const umx_worker *worker)
{
    umi_configuration_counts counts;
    unsigned                 in_use;

    umi_configurations_count(&worker->engine->configurations, &counts);
    in_use = counts.in_use;
    UMI_LIST_FOREACH(node, &worker->other_engines) {
        umi_configurations_count(
            &umi_container_of(node, umi_engine, node)->configurations, &counts);
        in_use += counts.in_use;
    }
    return in_use;
}

/* Close links of strangers that only wait for the next connection. */
static void
close_waiting(umx_worker *worker)
{
    UMI_LIST_FOREACH_SAFE(node, &worker->links) {
        umi_link *link = umi_container_of(node, umi_link, node);

        if (umi_list_is_empty(&link->eps) && !link->configuration->is_trusted) {
            umi_link_close(link);
        }
    }
}

/* A link may have the kind. */
void
umi_strangers_note_kind(umx_ep *ep)
{
    umi_peer_claim *claim = &ep->handshake->claim;
    const umi_link *link  = umi_link_find(&ep->base, claim);

    if (link != NULL && umi_link_has_address(link, claim)) {
        memcpy(claim->kind, link->configuration->digest, UMI_SHA256_SIZE);
    } else {
        umi_endpoint_address_kind(umi_endpoint_worker(ep), claim->address,
                                  claim->address_len, claim->kind);
    }
}

/* True if `engine` has a link of the claim, which is of the same kind: a peer
 * may name another address each time. */
static bool
has_link(umx_ep *ep, umi_engine *engine)
{
    const umi_peer_claim *claim = &ep->handshake->claim;
    const umi_link       *link;

    umi_ep_base_use(&ep->base, engine);
    link = umi_link_find(&ep->base, claim);
    return link != NULL && memcmp(link->configuration->digest, claim->kind,
                                  UMI_SHA256_SIZE) == 0;
}

static const umi_configuration *
find_configuration(const umi_engine *engine, const umi_peer_claim *claim)
{
    return engine->is_full ?
               NULL :
               umi_configuration_find(&engine->configurations, claim->kind);
}

/* Find the engine that has the link of the claim. */
static bool
find_link(umx_ep *ep)
{
    umx_worker *worker = umi_endpoint_worker(ep);

    if (has_link(ep, worker->engine)) {
        return true;
    }
    UMI_LIST_FOREACH(node, &worker->other_engines) {
        umi_engine *engine = umi_container_of(node, umi_engine, node);

        if (engine->is_guest && !engine->is_full && has_link(ep, engine)) {
            return true;
        }
    }
    umi_ep_base_use(&ep->base, worker->engine);
    return false;
}

/* Find an engine that has the configuration. One that peers who are no
 * strangers use in a guest engine may be in the worker's own as well. */
static umi_engine *
find_engine(umx_worker *worker, const umi_peer_claim *claim)
{
    umi_engine *found = NULL;

    if (claim->is_trusted || find_configuration(worker->engine, claim)) {
        return worker->engine;
    }
    UMI_LIST_FOREACH(node, &worker->other_engines) {
        umi_engine *engine           = umi_container_of(node, umi_engine, node);
        const umi_configuration *has = find_configuration(engine, claim);

        if (has != NULL && has->is_trusted) {
            return worker->engine;
        }
        if (has != NULL && engine->is_guest) {
            found = engine;
        }
    }
    return found;
}

/* Find room for another configuration of a stranger. */
static umx_status
make_room(umx_worker *worker, umi_engine **engine_p, const char **reason_p)
{
    umi_strangers           *strangers = worker->strangers;
    umi_configuration_counts counts;
    umx_status               status;

    if (count_in_use(worker) >= UMI_STRANGERS_MAX) {
        close_waiting(worker);
    }
    *reason_p = too_many;
    if (count_in_use(worker) >= UMI_STRANGERS_MAX) {
        return UMX_ERR_REJECTED;
    }
    umi_configurations_count(&worker->engine->configurations, &counts);
    if (counts.strangers < MAX_IN_OWN) {
        *engine_p = worker->engine;
        return UMX_OK;
    }
    if (strangers->guest != NULL && !strangers->guest->is_full) {
        umi_configurations_count(&strangers->guest->configurations, &counts);
        if (counts.all < MAX_IN_GUEST) {
            *engine_p = strangers->guest;
            return UMX_OK;
        }
    }
    if (count_guests(worker) >= MAX_GUESTS) {
        return UMX_ERR_REJECTED;
    }
    status = add_guest(worker);
    if (status != UMX_OK) {
        *reason_p = umx_status_string(status);
        return status;
    }
    *engine_p = strangers->guest;
    return UMX_OK;
}

umx_status
umi_strangers_place(umx_ep *ep, const char **reason_p)
{
    umx_worker     *worker = umi_endpoint_worker(ep);
    umi_peer_claim *claim  = &ep->handshake->claim;
    umi_engine     *engine;
    umx_status      status = UMX_OK;

    umi_strangers_note_kind(ep);
    if (!find_link(ep)) {
        umi_links_note_trust(worker);
        engine = find_engine(worker, claim);
        if (engine == NULL) {
            status = make_room(worker, &engine, reason_p);
        }
        if (status != UMX_OK) {
            return status;
        }
        umi_ep_base_use(&ep->base, engine);
    }
    /* The link that the peer chooses is made later; others may come before. */
    ep->handshake->configuration = umi_configuration_get(
        &ep->base.engine->configurations, claim->kind);
    if (ep->handshake->configuration == NULL) {
        *reason_p = umx_status_string(UMX_ERR_NO_MEMORY);
        return UMX_ERR_NO_MEMORY;
    }
    return UMX_OK;
}

/* ---- both sides ----------------------------------------------------------
 */

umx_status
umi_strangers_begin_anew(umx_ep *ep)
{
    umi_engine *engine;
    umx_status  status = umi_ops_engines_add(umi_endpoint_worker(ep), &engine);

    if (status == UMX_OK) {
        umi_ep_base_use(&ep->base, engine);
        umi_engine_release(engine); /* it lives as long as `ep` and its link */
    }
    return status;
}

void
umi_strangers_renew(umx_worker *worker)
{
    umi_configuration_counts counts;
    umx_status               status;

    umi_configurations_count(&worker->engine->configurations, &counts);
    if (!worker->engine->is_full && counts.all < MAX_OF_OWN) {
        return;
    }
    status = umi_ops_engines_renew(worker);
    if (status != UMX_OK) {
        umi_log(UMI_LOG_DEBUG, "UCX's worker is not replaced: %s",
                umx_status_string(status));
    }
}
