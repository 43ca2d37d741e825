/* SPDX-License-Identifier: BSD-3-Clause */
/* fetch.c: the receiving half of bounce.h. */
#include <stddef.h>
#include <string.h>

#include "bounce/object.h"
#include "codec/header.h"
#include "mem/memtype.h"
#include "worker/datatype.h"
#include "worker/link.h"

enum {
    /* Bytes of one copy within the process: of a device, and of the host. */
    DIRECT_STEP      = 64 * 1024 * 1024,
    DIRECT_HOST_STEP = 1024 * 1024
};

static void on_drained(umi_dma *copy, umx_status status);

static umi_fetch *
fetch_at(umi_node *node)
{
    return umi_container_of(node, umi_fetch, node);
}

umi_fetch *
umi_fetch_find(const umi_ep_base *ep, uint64_t id)
{
    UMI_LIST_FOREACH(node, &ep->bounce->fetches) {
        if (fetch_at(node)->id == id) {
            return fetch_at(node);
        }
    }
    return NULL;
}

static umi_fetch *
find_of(const umx_request *req)
{
    if (req->ep == NULL || req->ep->bounce == NULL) {
        return NULL;
    }
    UMI_LIST_FOREACH(node, &req->ep->bounce->fetches) {
        if (fetch_at(node)->req == req) {
            return fetch_at(node);
        }
    }
    return NULL;
}

/* ---- a message that may be fetched ---------------------------------------
 */

/* Free an offered message. While its handler runs, `arriving` tells on_offer()
 * whether the message still exists. */
static void
free_offered(umx_worker *worker, umi_offered *what)
{
    if (worker->bounce->arriving == what) {
        worker->bounce->arriving = NULL;
    }
    umi_pool_put(&worker->bounce->objects, what);
}

static void
offered_release(const umi_ep_base *ep, void *desc)
{
    umi_offered *what = desc;

    umi_am_release(ep, what->desc);
    free_offered(ep->worker, what);
}

/* Have UCX move the bytes. */
static umx_status
move_by_ucx(umx_request *req, umi_offered *what, size_t len)
{
    void *desc = what->desc;

    free_offered(req->worker, what);
    return umi_am_recv(req, desc, len);
}

/* ---- fetching ------------------------------------------------------------
 */

static umi_bounce_link *
link_of(const umi_fetch *fetch)
{
    return fetch->ep->link->bounce;
}

/* What copies of a device write for a fetch; nothing: the CPU writes it. */
static umi_movable
target_of(umi_fetch *fetch)
{
    return umi_bounce_movable(fetch->req, fetch->pinned, &fetch->device);
}

/* What the receiver can do, by the memory that it has now. */
static uint32_t
flags_of(umi_fetch *fetch)
{
    uint32_t flags = UMI_FETCH_DIRECT;

    fetch->pinned = NULL;
    if (target_of(fetch).count == 0) {
        fetch->pinned = umi_bounce_pinned(fetch->req, &fetch->device);
        if (fetch->pinned == NULL) {
            return 0;
        }
        flags |= UMI_FETCH_TO_HOST;
    } else if (umi_hand_may(fetch->req)) {
        flags |= UMI_FETCH_BY_UCX;
    }
    return link_of(fetch)->is_refused ? flags : flags | UMI_FETCH_BY_DEVICE;
}

/* Ask for the bytes from `drained` on. */
static umx_status
ask(umi_fetch *fetch)
{
    umi_bounce_note note = {.kind    = UMI_BOUNCE_FETCH,
                            .fetch   = ++fetch->ep->bounce->last_fetch,
                            .offset  = fetch->drained,
                            .len     = fetch->len,
                            .channel = fetch->what->channel,
                            .seq     = fetch->what->seq,
                            .context = umi_direct_process(),
                            .flags   = flags_of(fetch)};

    fetch->id     = note.fetch;
    fetch->filled = fetch->drained;
    return umi_bounce_tell(fetch->ep, &note);
}

/* What copies read for a fetch means nothing any more. */
static void
drop_drains(const umi_fetch *fetch)
{
    UMI_LIST_FOREACH(node, &fetch->ep->worker->dmas) {
        umi_dma *copy = umi_container_of(node, umi_dma, node);

        if (copy->done == on_drained &&
            umi_container_of(copy, umi_drain, copy)->fetch == fetch) {
            umi_container_of(copy, umi_drain, copy)->fetch = NULL;
        }
    }
}

/* End a fetch; `what` is the caller's. */
static void
end_fetch(umi_fetch *fetch)
{
    drop_drains(fetch);
    if (fetch->direct != NULL) {
        umi_direct_put(fetch->direct);
    }
    umi_node_remove(&fetch->node);
    umi_pool_put(&fetch->ep->worker->bounce->objects, fetch);
}

static void
tell_stop(const umi_fetch *fetch)
{
    umi_bounce_note note = {.kind = UMI_BOUNCE_STOP, .fetch = fetch->id};

    (void)umi_bounce_tell(fetch->ep, &note);
}

/* True if one of the memories is a device's. */
static bool
is_to_fetch(const umx_request *req, const umi_offered *what)
{
    return umi_bounce_is_agreed(req->ep) &&
           (what->is_device || umi_bounce_pieces(req).count != 0);
}

static umx_status
offered_recv(umx_request *req, void *desc, size_t len)
{
    umi_ep_base *ep   = req->ep;
    umi_offered *what = desc;
    umi_fetch   *fetch;

    if (!is_to_fetch(req, what)) {
        return move_by_ucx(req, what, len);
    }
    fetch = umi_pool_get(&ep->worker->bounce->objects);
    if (fetch == NULL) {
        return move_by_ucx(req, what, len);
    }
    *fetch = (umi_fetch){.ep     = ep,
                         .req    = req,
                         .what   = what,
                         .len    = len,
                         .device = UMX_DEVICE_NONE};
    if (ask(fetch) != UMX_OK) {
        umi_pool_put(&ep->worker->bounce->objects, fetch);
        return move_by_ucx(req, what, len);
    }
    what->is_fetched = true;
    umi_node_init(&fetch->node);
    umi_list_append(&ep->bounce->fetches, &fetch->node);
    umi_request_posted(req);
    req->is_movable = true;
    umi_list_append(&ep->inflight, &req->node);
    return UMX_INPROGRESS;
}

const umi_way umi_way_bounce = {
    .is_announced = true,
    .recv         = offered_recv,
    .release      = offered_release,
};

void *
umi_bounce_stop(umx_request *req)
{
    umi_fetch   *fetch = find_of(req);
    umi_offered *what;

    if (fetch == NULL || fetch->is_handed) {
        return NULL;
    }
    umi_dma_settle(req); /* before the slots are another's */
    what = fetch->what;
    tell_stop(fetch);
    end_fetch(fetch);
    return what;
}

/* ---- slots that are filled -----------------------------------------------
 */

static void
tell_freed(const umi_fetch *fetch, uint32_t slot, uint32_t turn)
{
    umi_bounce_note note = {.kind  = UMI_BOUNCE_FREED,
                            .fetch = fetch->id,
                            .slot  = slot,
                            .turn  = turn};

    (void)umi_bounce_tell(fetch->ep, &note);
}

/* Ask anew for what is not here for good. */
static void
ask_from_here(umi_fetch *fetch)
{
    umi_dma_settle(fetch->req);
    drop_drains(fetch);
    (void)ask(fetch); /* else the connection has failed */
}

void
umi_fetch_otherwise(umi_fetch *fetch)
{
    tell_stop(fetch);
    ask_from_here(fetch);
}

void
umi_fetch_finish(umi_fetch *fetch, umx_status status)
{
    umx_request *req  = fetch->req;
    umi_offered *what = fetch->what;

    end_fetch(fetch);
    offered_release(req->ep, what);
    umi_request_complete(req, status);
}

/* `len` bytes more have been read of a slot. If the slot has been taken back
 * meanwhile they are anything, and are fetched again. */
static void
note_drained(umi_fetch *fetch, const char *table, uint32_t slot, uint32_t turn,
             size_t len)
{
    if (!umi_bounce_slots_is_turn(table, slot, turn)) {
        ask_from_here(fetch);
        return;
    }
    tell_freed(fetch, slot, turn);
    fetch->drained += len;
    if (fetch->drained == fetch->len) {
        umi_fetch_finish(fetch, UMX_OK);
    }
}

/* ---- memory of this process ----------------------------------------------
 */

/* The loan has ended under way. Ask again: the message is withdrawn, or is to
 * be had in another way. */
static void
ask_again(umi_fetch *fetch)
{
    umi_direct_put(fetch->direct);
    fetch->direct  = NULL;
    fetch->drained = 0;
    (void)ask(fetch); /* else the connection has failed */
}

/* Make a drain of a fetch. NULL: out of memory, and the connection has failed.
 */
static umi_drain *
new_drain(umi_fetch *fetch)
{
    umx_worker *worker = fetch->ep->worker;
    umi_drain  *drain  = umi_pool_get(&worker->bounce->objects);

    if (drain == NULL) {
        umi_ep_base_refuse(fetch->ep, "out of memory for a fetch");
        return NULL;
    }
    *drain = (umi_drain){.worker = worker, .fetch = fetch};
    return drain;
}

/* The direction in which a device copies; the source or `to` is memory of the
 * device. */
static umi_cuda_direction
direction_of(const umx_buffer *to, bool is_from_device)
{
    if (!is_from_device) {
        return UMI_CUDA_IN;
    }
    return umi_memtype_is_device(to) ? UMI_CUDA_ACROSS : UMI_CUDA_OUT;
}

/* Read the next bytes of what is lent. The driver reads pageable memory in the
 * call, so that such a step is short. */
static void
read_step(umi_fetch *fetch)
{
    umx_request *req   = fetch->req;
    umi_movable  to    = target_of(fetch);
    size_t       left  = fetch->len - fetch->drained, max;
    umi_drain   *drain = new_drain(fetch);
    umi_movable  from  = {.count = 1};
    umi_shift    shift = {.offset = fetch->drained};
    umx_status   status;

    if (drain == NULL) {
        return;
    }
    from.pieces = (to.count != 0) ? umi_direct_lock(fetch->direct) : NULL;
    if (from.pieces == NULL) { /* it has ended, or its receive is cancelled */
        umi_pool_put(&req->worker->bounce->objects, drain);
        ask_again(fetch);
        return;
    }
    max = umi_memtype_is_device(from.pieces) ? DIRECT_STEP : DIRECT_HOST_STEP;
    drain->len      = (left < max) ? left : max;
    shift.len       = drain->len;
    shift.slot      = (char *)from.pieces->data + fetch->drained;
    shift.direction = direction_of(to.pieces,
                                   umi_memtype_is_device(from.pieces));
    status          = umi_bounce_device((fetch->pinned != NULL) ? &from : &to,
                               &fetch->device);
    if (status == UMX_OK) {
        umi_bounce_shift(&drain->copy, req, &to, fetch->device, &shift,
                         on_drained);
    } else {
        umi_dma_end(&drain->copy, req->worker, status, on_drained);
    }
    umi_direct_unlock();
}

/* `len` bytes more have been read, which count if the loan has not ended. */
static void
note_read(umi_fetch *fetch, size_t len)
{
    fetch->drained += len;
    if (fetch->drained != fetch->len) {
        read_step(fetch);
        return;
    }
    if (umi_direct_lock(fetch->direct) == NULL) {
        ask_again(fetch);
        return;
    }
    umi_direct_unlock();
    umi_fetch_finish(fetch, UMX_OK);
}

static void
on_drained(umi_dma *copy, umx_status status)
{
    umi_drain  *drain  = umi_container_of(copy, umi_drain, copy);
    umx_worker *worker = drain->worker;
    umi_fetch  *fetch  = drain->fetch;
    umi_drain   it     = *drain;

    umi_pool_put(&worker->bounce->objects, drain);
    if (fetch == NULL) {
        return;
    }
    if (status == UMX_OK && it.table == NULL) {
        note_read(fetch, it.len);
    } else if (status == UMX_OK) {
        note_drained(fetch, it.table, it.slot, it.turn, it.len);
    } else {
        worker->hooks->fail_landing(fetch->req, status);
    }
}

/* Have a device read a slot. */
static void
drain_by_device(umi_fetch *fetch, const umi_movable *to, umi_drain *drain,
                const char *from, size_t offset)
{
    bool      is_of_host = umi_bounce_is_of_host(drain->slot);
    umi_shift shift      = {.direction = direction_of(to->pieces, !is_of_host),
                            .slot      = (char *)(uintptr_t)from,
                            .offset    = offset,
                            .len       = drain->len};

    if (is_of_host) {
        umi_bounce_pin(link_of(fetch), fetch->device);
    }
    umi_bounce_shift(&drain->copy, fetch->req, to, fetch->device, &shift,
                     on_drained);
}

/* Have the CPU read a slot of the host. */
static umx_status
drain_by_cpu(umi_fetch *fetch, umi_drain *drain, const char *from,
             size_t offset)
{
    umx_request *req    = fetch->req;
    umi_drain    it     = *drain;
    umx_status   status = umi_datatype_write(req, offset, from, drain->len);

    if (status == UMX_OK) {
        umi_pool_put(&req->worker->bounce->objects, drain);
        note_drained(fetch, it.table, it.slot, it.turn, it.len);
    }
    return status;
}

/* Find a slot's bytes, for the CPU or a device; NULL: they are in memory that
 * is not mapped here, or that the CPU cannot read. */
static const char *
find_slot(const umi_fetch *fetch, bool is_for_cpu, const umi_bounce_note *note)
{
    umi_bounce_link *link = link_of(fetch);
    const char      *first;

    if (umi_bounce_is_of_host(note->slot)) {
        return umi_bounce_slots_at(link->data, note->slot);
    }
    first = is_for_cpu ?
                NULL :
                umi_bounce_map_device(link, &note->handle, fetch->device);
    return (first != NULL) ? first + (size_t)(note->slot % UMI_BOUNCE_SLOTS) *
                                         UMI_BOUNCE_DEVICE_SLOT :
                             NULL;
}

/* True if a device is to read a slot. Into pinned memory the CPU reads what is
 * in memory of the host, and into a device's what is short. */
static bool
is_for_device(const umi_fetch *fetch, const umi_movable *to, uint32_t slot)
{
    return to->count != 0 && (!umi_bounce_is_of_host(slot) ||
                              (umi_memtype_is_device(to->pieces) &&
                               !umi_bounce_is_short(to, fetch->len)));
}

/* Read a slot; what goes wrong is heard of later, outside UCX. */
static void
drain_slot(umi_fetch *fetch, const umi_bounce_note *note)
{
    umx_request *req    = fetch->req;
    umi_movable  to     = target_of(fetch);
    umi_drain   *drain  = new_drain(fetch);
    size_t       offset = (size_t)note->offset;
    const char  *from;
    umx_status   status = UMX_OK;

    if (drain == NULL) {
        return;
    }
    drain->table = link_of(fetch)->data;
    drain->slot  = note->slot;
    drain->turn  = note->turn;
    drain->len   = (size_t)note->len;
    if (to.count != 0) {
        status = umi_bounce_device(&to, &fetch->device);
    }
    if (status == UMX_OK) {
        from = find_slot(fetch, to.count == 0, note);
        if (from == NULL) {
            umi_pool_put(&req->worker->bounce->objects, drain);
            umi_fetch_otherwise(fetch);
            return;
        }
        if (is_for_device(fetch, &to, note->slot)) {
            drain_by_device(fetch, &to, drain, from, offset);
            return;
        }
        status = drain_by_cpu(fetch, drain, from, offset);
    }
    if (status != UMX_OK) {
        umi_dma_end(&drain->copy, req->worker, status, on_drained);
    }
}

void
umi_fetch_fail(umi_fetch *fetch, umx_status status)
{
    umi_drain *drain = new_drain(fetch);

    if (drain != NULL) {
        umi_dma_end(&drain->copy, drain->worker, status, on_drained);
    }
}

/* ---- notes, inside UCX's callback ----------------------------------------
 */

/* Give a message up that cannot be fetched: UCX moves its bytes, if they are
 * there still. */
static void
give_up(umi_fetch *fetch)
{
    umx_request *req  = fetch->req;
    umi_offered *what = fetch->what;
    size_t       len  = fetch->len;
    umx_status   status;

    umi_dma_settle(req);
    end_fetch(fetch);
    umi_node_remove(&req->node);
    umi_request_restart(req);
    status = move_by_ucx(req, what, len);
    if (status != UMX_INPROGRESS) {
        umi_request_complete(req, status);
    }
}

void
umi_fetch_on_filled(umi_ep_base *ep, const umi_bounce_note *note)
{
    umi_fetch *fetch = umi_fetch_find(ep, note->fetch);

    if (fetch == NULL || fetch->is_handed) {
        if (note->fetch == 0 || note->fetch > ep->bounce->last_fetch) {
            umi_ep_base_refuse(ep, "bytes that nobody has asked for");
        }
        return; /* it crosses STOP */
    }
    if (fetch->direct != NULL || !umi_bounce_is_index(note->slot) ||
        note->offset != fetch->filled || note->len == 0 ||
        note->len > fetch->len - fetch->filled ||
        note->len > umi_bounce_slot_size(note->slot)) {
        umi_ep_base_refuse(ep, "bytes out of order");
        return;
    }
    if (!umi_bounce_map(ep->link, note)) {
        tell_stop(fetch);
        give_up(fetch);
        return;
    }
    if (fetch->filled == 0) {
        ep->bounce->received[umi_bounce_is_of_host(note->slot) ?
                                 UMI_BOUNCE_BY_HOST :
                                 UMI_BOUNCE_BY_DEVICE]++;
    }
    fetch->filled += (size_t)note->len;
    drain_slot(fetch, note);
}

void
umi_fetch_on_direct(umi_ep_base *ep, const umi_bounce_note *note)
{
    umi_fetch *fetch = umi_fetch_find(ep, note->fetch);

    if (fetch == NULL || fetch->direct != NULL || fetch->is_handed ||
        fetch->filled != 0) {
        return;
    }
    fetch->direct = umi_direct_take(note->memory, fetch->len);
    if (fetch->direct == NULL) { /* it has ended, or never begun */
        tell_stop(fetch);
        give_up(fetch);
        return;
    }
    ep->bounce->received[UMI_BOUNCE_BY_READ]++;
    if (fetch->pinned != NULL) {
        fetch->device = UMX_DEVICE_NONE; /* it is the sender's */
    }
    read_step(fetch);
}

/* Slots that had been emptied when they were taken back are counted. */
void
umi_fetch_on_taken(umi_ep_base *ep, const umi_bounce_note *note)
{
    umi_fetch *fetch = umi_fetch_find(ep, note->fetch);

    if (fetch != NULL && !fetch->is_handed && fetch->direct == NULL) {
        ask_from_here(fetch);
    }
}

void
umi_fetch_on_unable(umi_ep_base *ep, const umi_bounce_note *note)
{
    umi_fetch *fetch = umi_fetch_find(ep, note->fetch);

    if (fetch != NULL && !fetch->is_handed) {
        give_up(fetch);
    } else if (note->fetch == 0 || note->fetch > ep->bounce->last_fetch) {
        umi_ep_base_refuse(ep, "a fetch that has never begun");
    }
}

/* ---- arrival, inside UCX's callback --------------------------------------
 */

static int
on_offer(umx_worker *worker, const umi_am_arrival *arrival, bool is_device)
{
    umi_am_arrival message = *arrival;
    umi_header     header;
    umi_offered   *what;
    int            verdict;

    if (arrival->way != &umi_way_rndv ||
        !umi_header_decode(&header, arrival->header, arrival->header_len)) {
        return worker->am_handlers[UMI_AM_DATA].fn(worker, arrival);
    }
    what = umi_pool_get(&worker->bounce->objects);
    if (what == NULL) {
        return worker->am_handlers[UMI_AM_DATA].fn(worker, arrival);
    }
    *what = (umi_offered){
        .desc      = arrival->data,
        .channel   = umi_header_channel_id(header.kind, header.channel),
        .seq       = header.seq,
        .is_device = is_device,
    };
    message.way              = &umi_way_bounce;
    message.data             = what;
    worker->bounce->arriving = what;
    verdict = worker->am_handlers[UMI_AM_DATA].fn(worker, &message);
    if (worker->bounce->arriving == NULL) {
        return verdict; /* UCX moves the bytes, or they have been released */
    }
    worker->bounce->arriving = NULL;
    if (verdict == UMI_AM_KEPT || what->is_fetched) {
        return UMI_AM_KEPT;
    }
    umi_pool_put(&worker->bounce->objects, what);
    return verdict;
}

static int
on_offer_of_host(umx_worker *worker, const umi_am_arrival *arrival)
{
    return on_offer(worker, arrival, false);
}

static int
on_offer_of_device(umx_worker *worker, const umi_am_arrival *arrival)
{
    return on_offer(worker, arrival, true);
}

umx_status
umi_fetch_listen(umx_worker *worker)
{
    umx_status status = umi_am_set_handler(worker, UMI_AM_OFFERED,
                                           on_offer_of_host);

    return (status == UMX_OK) ?
               umi_am_set_handler(worker, UMI_AM_OFFERED_DEVICE,
                                  on_offer_of_device) :
               status;
}

void
umi_fetches_end(umi_ep_base *ep, umx_status status)
{
    UMI_LIST_FOREACH_SAFE(node, &ep->bounce->fetches) {
        umi_fetch *fetch = fetch_at(node);

        if (!fetch->is_handed) { /* else UCX ends it */
            umi_dma_settle(fetch->req);
            umi_fetch_finish(fetch, status);
        }
    }
}
