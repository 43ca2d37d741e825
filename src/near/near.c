/* SPDX-License-Identifier: BSD-3-Clause */
#include "near/near.h"

#include <string.h>

#include "codec/header.h"
#include "ops/am.h"
#include "ops/transfer.h"
#include "util/count.h"
#include "util/log.h"
#include "util/membarrier.h"

enum {
    POLL_CELLS = 16, /* of a ring, before the next has its turn */
    WAKE_NS    = 1000000
};

/* ---- writing -------------------------------------------------------------
 */

umi_ep_base *
umi_near_find_ep(const umi_link *link)
{
    UMI_LIST_FOREACH(node, &link->eps) {
        umi_ep_base *ep = umi_container_of(node, umi_ep_base, link_node);

        if (ep->is_bound && ep->remote_id != 0) {
            return ep;
        }
    }
    return NULL;
}

umx_status
umi_near_tell(const umi_ep_base *ep, umi_near_note note)
{
    note.endpoint = ep->remote_id;
    return umi_transfer_tell(ep, UMI_AM_NEAR, &note, sizeof(note));
}

/* Wake the reader, who has announced itself so. If WAKE cannot be sent, it is
 * tried again: there may be no next message. */
static __attribute__((noinline)) void
wake(umi_near_link *near, const umi_ep_base *ep, uint32_t asleep)
{
    umi_near_note note = {.kind = UMI_NEAR_WAKE};

    if (umi_near_tell(ep, note) == UMX_OK) {
        near->out->rung = asleep;
    } else {
        umi_timer_start(near->link->worker, &near->wake_timer, WAKE_NS);
    }
}

static void
on_wake_timer(umi_timer *timer)
{
    umi_near_link *near   = umi_container_of(timer, umi_near_link, wake_timer);
    const umi_ep_base *ep = umi_near_find_ep(near->link);
    uint32_t           asleep;

    if (near->is_open && ep != NULL) {
        asleep = umi_near_ring_sleeper(near->out);
        if (asleep != 0) {
            wake(near, ep, asleep);
        }
    }
}

bool
umi_near_send(umi_ep_base *ep, const void *header, size_t header_len,
              const void *data, size_t len)
{
    umi_near_link *near = ep->link->near;
    uint32_t       asleep;

    if (len > near->max) {
        umi_near_pass(ep);
        return false;
    }
    if (!near->is_open) {
        umi_near_count(near, ep);
        return false;
    }
    if (near->skip != 0) {
        near->skip--;
        return false;
    }
    if (!umi_near_ring_put(near->out, header, header_len, data, len)) {
        umi_near_pass(ep);
        return false;
    }
    asleep = umi_near_ring_sleeper(near->out);
    if (asleep != 0) {
        wake(near, ep, asleep);
    }
    ep->worker->stats->near_messages++;
    return true;
}

/* ---- reading -------------------------------------------------------------
 */

static void
refuse(umi_near_link *near, const char *why)
{
    near->link->worker->stats->protocol_errors++;
    umi_near_end_in(near);
    umi_link_break(near->link, UMX_ERR_PROTOCOL, why);
}

/* Check the header in a cell. Tells what is wrong; NULL: nothing. `*is_for_p`:
 * it is for an endpoint that there is. */
static const char *
check(const umi_near_link *near, const umi_near_taken *taken,
      umi_header *header, bool *is_for_p)
{
    umx_worker        *worker = near->link->worker;
    const umi_ep_base *ep;

    if (!umi_header_decode(header, taken->cell.room, taken->cell.header_len) ||
        taken->cell.header_len != umi_header_size(header->flags)) {
        return "a message without a header in its ring";
    }
    ep        = umi_ids_get(&worker->eps_by_id, header->endpoint);
    *is_for_p = ep != NULL;
    if (ep == NULL) {
        umi_worker_stray(worker, header->endpoint);
    } else if (ep->link != near->link && ep->link != NULL) {
        return "a message to another peer's endpoint in its ring";
    }
    return NULL;
}

/* Hand a message on, as UCX would. */
static void
deliver(umx_worker *worker, umi_near_taken *taken, unsigned kind)
{
    uint8_t        copy[UMX_NEAR_MAX];
    umi_am_arrival arrival = {
        .header     = taken->cell.room,
        .header_len = taken->cell.header_len,
        .way        = &umi_way_eager,
        .data       = (void *)(uintptr_t)taken->bytes,
        .len        = taken->cell.len,
    };

    /* The bytes of a message are copied before anything looks at them. Those of
     * other kinds are looked at where they are, so they are copied first. */
    if (kind != UMI_KIND_MESSAGE) {
        memcpy(copy, taken->bytes, taken->cell.len);
        arrival.data = copy;
    }
    (void)worker->am_handlers[UMI_AM_DATA].fn(worker, &arrival);
}

/* Read the next message of a ring. False: there is none, or the ring is over.
 */
static bool
take_one(umi_near_link *near)
{
    const char    *why    = NULL;
    bool           is_for = false;
    umi_near_taken taken;
    umi_header     header;

    switch (umi_near_ring_take(near->in, &taken)) {
    case UMI_NEAR_NOTHING:
        return false;
    case UMI_NEAR_NONSENSE:
        why = "nonsense in its ring";
        break;
    case UMI_NEAR_MESSAGE:
        why = check(near, &taken, &header, &is_for);
        break;
    }
    if (why != NULL) {
        refuse(near, why);
        return false;
    }
    if (is_for) {
        deliver(near->link->worker, &taken, header.kind);
    }
    umi_near_ring_read(near->in);
    return true;
}

void
umi_near_take_all(umi_near_link *near)
{
    /* The writer may go on writing. */
    for (int i = 0; i < UMI_NEAR_CELLS && near->in != NULL && take_one(near);
         i++) {
    }
}

void
umi_near_take_link(umi_link *link)
{
    if (link->near != NULL && link->near->in != NULL) {
        umi_near_take_all(link->near);
    }
}

static void
announce(umi_near *near, bool is_asleep)
{
    near->is_announced = is_asleep;
    UMI_LIST_FOREACH(node, &near->ins) {
        umi_near_ring_announce(umi_container_of(node, umi_near_link, node)->in,
                               is_asleep);
    }
}

unsigned
umi_near_poll(umx_worker *worker)
{
    unsigned events = 0;

    if (worker->near->is_announced) {
        announce(worker->near, false);
        worker->is_armed = false; /* it is not to sleep as it is */
    }
    UMI_SET_IN_UCX(worker, true);
    UMI_LIST_FOREACH_SAFE(node, &worker->near->ins) {
        umi_near_link *near = umi_container_of(node, umi_near_link, node);

        for (int i = 0; i < POLL_CELLS && near->in != NULL && take_one(near);
             i++) {
            events++;
        }
    }
    UMI_SET_IN_UCX(worker, false);
    return events;
}

/* A reader that has promised membarriers and is not allowed any more does not
 * sleep: the writers rely on them. */
static bool
fence(const umi_near *near)
{
    if (!near->is_ordered) {
        atomic_thread_fence(memory_order_seq_cst);
        return true;
    }
    return umi_membarrier_fence();
}

bool
umi_near_announce(umx_worker *worker)
{
    umi_near *near = worker->near;

    announce(near, true);
    if (!fence(near)) {
        return true;
    }
    atomic_thread_fence(memory_order_seq_cst);
#ifndef UMI_WITHOUT_SECOND_LOOK /* for the test that fails without it */
    UMI_LIST_FOREACH(node, &near->ins) {
        if (umi_near_ring_has_next(
                umi_container_of(node, umi_near_link, node)->in)) {
            return true;
        }
    }
#endif
    return false;
}

/* ---- notes ---------------------------------------------------------------
 */

static int
on_note(umx_worker *worker, const umi_am_arrival *arrival)
{
    umi_near_note note;
    umi_ep_base  *ep;

    if (!umi_codec_near_decode(&note, arrival->header, arrival->header_len)) {
        worker->stats->protocol_errors++; /* whose it is cannot be known */
        return UMI_AM_CONSUMED;
    }
    ep = umi_transfer_find_ep(worker, &note.endpoint);
    if (ep != NULL && ep->link->near != NULL) {
        umi_near_on_note(ep, &note);
    }
    return UMI_AM_CONSUMED;
}

/* ---- life ----------------------------------------------------------------
 */

void
umi_near_init(umx_worker *worker, umi_near *near)
{
    umi_list_init(&near->ins);
    worker->near = near;
}

umx_status
umi_near_listen(umx_worker *worker)
{
    if (worker->context->config.near_max == 0) {
        return UMX_OK;
    }
    worker->near->is_ordered = umi_membarrier_is_possible();
    return umi_am_set_handler(worker, UMI_AM_NEAR, on_note);
}

void
umi_near_init_link(umi_link *link, umi_near_link *near)
{
    const umx_config *config = &link->worker->context->config;

    near->link = link;
    near->max  = config->near_max;
    umi_node_init(&near->node);
    umi_timer_init(&near->wake_timer, on_wake_timer);
    umi_near_init_out(near);
    if (config->near_max != 0 && link->has_shm && !link->has_hardware) {
        link->near = near;
    }
}

void
umi_near_fini_link(umi_link *link)
{
    if (link->near != NULL) {
        umi_near_end_out(link->near);
        umi_near_end_in(link->near);
        link->near = NULL;
    }
}
