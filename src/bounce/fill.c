/* SPDX-License-Identifier: BSD-3-Clause */
/* fill.c: the sending half of bounce.h. */
#include "bounce/object.h"
#include "mem/cuda.h"
#include "mem/gather.h"
#include "mem/memtype.h"
#include "util/clock.h"
#include "util/count.h"
#include "worker/datatype.h"
#include "worker/link.h"

enum {
    /* A slot is not filled by less, so that a message of some has several on
     * their way. */
    STEP_MIN  = 128 * 1024,
    STEPS     = 4, /* of a message, at least, if it is long enough */
    STEP_UNIT = 4096,
    /* How long a peer may keep slots that others wait for, and empty none;
     * twice as long after each time that they were taken back. */
    TAKE_BACK_MS  = 500,
    TAKE_BACK_MAX = 6 /* times */
};

static void run_waiting(umi_bounce_pool *pool);

static umi_fill *
fill_at(umi_node *node)
{
    return umi_container_of(node, umi_fill, node);
}

/* ---- slots ---------------------------------------------------------------
 */

static void
free_slot(umi_bounce_slot *slot)
{
    if (slot->fill != NULL) {
        UMI_DECREMENT(slot->fill->num_slots);
        slot->fill = NULL;
    }
    slot->state = UMI_BOUNCE_FREE;
}

/* Let go of what a fill has. A slot that a copy writes is freed behind it; what
 * the peer reads of the others means nothing any more. */
static void
drop_slots(umi_fill *fill)
{
    umi_bounce_pool *pool = fill->pool;

    for (int i = 0; i < UMI_BOUNCE_SLOTS && fill->num_slots != 0; i++) {
        umi_bounce_slot *slot = &pool->slots[i];

        if (slot->fill != fill) {
            continue;
        }
        if (slot->state == UMI_BOUNCE_FILLING) {
            slot->fill = NULL;
            UMI_DECREMENT(fill->num_slots);
        } else {
            umi_bounce_slot_turn(slot);
            free_slot(slot);
        }
    }
}

static void
stop_waiting(umi_fill *fill)
{
    umi_node_remove(&fill->wait_node);
    if (umi_list_is_empty(&fill->pool->waiting)) {
        umi_timer_stop(&fill->pool->timer);
    }
}

static void
end_fill(umi_fill *fill)
{
    umi_bounce *bounce = fill->ep->worker->bounce;

    assert(!fill->is_handed);
    if (fill->direct != NULL) {
        umi_direct_end(fill->direct);
    }
    drop_slots(fill);
    umi_node_remove(&fill->node);
    stop_waiting(fill);
    umi_pool_put(&bounce->objects, fill);
}

/* ---- filling -------------------------------------------------------------
 */

/* What copies of a device read for a fill; nothing: the CPU reads it. */
static umi_movable
source_of(umi_fill *fill)
{
    return umi_bounce_movable(fill->req, fill->pinned, &fill->device);
}

/* True if the fill has slots in that state. */
static bool
has_slots(const umi_fill *fill, umi_bounce_state state)
{
    for (int i = 0; i < UMI_BOUNCE_SLOTS; i++) {
        if (fill->pool->slots[i].fill == fill &&
            fill->pool->slots[i].state == state) {
            return true;
        }
    }
    return false;
}

static void
tell_filled(umi_bounce_slot *slot)
{
    umi_fill               *fill   = slot->fill;
    umx_worker             *worker = fill->ep->worker;
    const umi_bounce_pools *pools  = &worker->bounce->pools;
    umi_bounce_note         note   = {.kind    = UMI_BOUNCE_FILLED,
                                      .fetch   = fill->id,
                                      .offset  = slot->offset,
                                      .len     = slot->len,
                                      .slot    = slot->index,
                                      .turn    = slot->turn,
                                      .context = worker->context->id,
                                      .memory  = pools->memory,
                                      .segment = pools->number,
                                      .handle  = slot->pool->handle};

    if (!has_slots(fill, UMI_BOUNCE_LENT)) {
        fill->since = umi_clock_ns();
    }
    slot->state = UMI_BOUNCE_LENT;
    (void)umi_bounce_tell(fill->ep, &note); /* lost: the connection is, too */
}

static void
on_filled(umi_dma *copy, umx_status status)
{
    umi_bounce_slot *slot = umi_container_of(copy, umi_bounce_slot, copy);
    umi_bounce_pool *pool = slot->pool;
    umi_fill        *fill = slot->fill;

    if (fill == NULL) {
        free_slot(slot);
    } else if (status == UMX_OK) {
        tell_filled(slot);
    } else {
        umx_request *req = fill->req;

        free_slot(slot);
        end_fill(fill);
        pool->worker->hooks->fail_sent(req, status);
    }
    run_waiting(pool);
}

/* True if the CPU fills the slots of a fill. A short message has one slot: of
 * several, none may overtake those in front of it. */
static bool
is_by_cpu(const umi_fill *fill, const umi_movable *it)
{
    return it->count == 0 || (fill->pool->device == UMX_DEVICE_NONE &&
                              umi_bounce_is_short(it, fill->len));
}

/* Have a device write to a slot. */
static umx_status
fill_by_device(umi_fill *fill, umi_bounce_slot *slot, const umi_movable *it)
{
    umx_request *req    = fill->req;
    umi_shift    shift  = {.direction = (fill->pinned != NULL) ? UMI_CUDA_IN :
                                                                 UMI_CUDA_ACROSS,
                           .is_out    = true,
                           .slot      = umi_bounce_slot_data(slot),
                           .offset    = slot->offset,
                           .len       = slot->len};
    umx_status   status = umi_bounce_device(it, &fill->device);

    if (status != UMX_OK) {
        return status;
    }
    if (fill->pool->device == UMX_DEVICE_NONE) {
        shift.direction = UMI_CUDA_OUT;
        umi_bounce_pools_pin(&req->worker->bounce->pools, fill->device);
    }
    umi_bounce_shift(&slot->copy, req, it, fill->device, &shift, on_filled);
    return UMX_OK;
}

/* Have the next bytes written to `slot`. */
static void
begin_fill(umi_fill *fill, umi_bounce_slot *slot)
{
    umx_request *req  = fill->req;
    umi_movable  it   = source_of(fill);
    size_t       left = fill->len - fill->filled;
    /* Copies that have been settled are not told yet. */
    bool       is_behind = has_slots(fill, UMI_BOUNCE_FILLING);
    umx_status status;

    umi_bounce_slot_turn(slot);
    slot->state  = UMI_BOUNCE_FILLING;
    slot->fill   = fill;
    slot->offset = fill->filled;
    slot->len    = (left < fill->step) ? left : fill->step;
    fill->num_slots++;
    fill->filled += slot->len;
    if (!is_by_cpu(fill, &it)) {
        status = fill_by_device(fill, slot, &it);
        if (status == UMX_OK) {
            return;
        }
    } else {
        status = umi_datatype_read(req, slot->offset,
                                   umi_bounce_slot_data(slot), slot->len);
        if (status == UMX_OK && !is_behind) {
            tell_filled(slot);
            return;
        }
    }
    umi_dma_end(&slot->copy, req->worker, status, on_filled);
}

static bool
is_filled(const umi_fill *fill)
{
    return fill->filled == fill->len;
}

/* True if the peer of `fill` has as many slots as one may have. */
static bool
has_its_share(const umi_fill *fill)
{
    const umi_bounce_pool *pool  = fill->pool;
    unsigned               count = 0;

    for (int i = 0; i < UMI_BOUNCE_SLOTS; i++) {
        const umi_fill *other = pool->slots[i].fill;

        count += other != NULL && other->ep->link == fill->ep->link;
    }
    return count >= UMI_BOUNCE_PEER_MAX;
}

/* Tell the receiver that a message cannot be fetched. */
static void
refuse(const umi_ep_base *ep, uint64_t fetch, umx_status status)
{
    umi_bounce_note note = {
        .kind = UMI_BOUNCE_UNABLE, .fetch = fetch, .status = status};

    (void)umi_bounce_tell(ep, &note);
}

static void
wait_for_slot(umi_fill *fill)
{
    umi_bounce_pool *pool = fill->pool;

    if (!umi_node_is_linked(&fill->wait_node)) {
        umi_list_append(&pool->waiting, &fill->wait_node);
    }
    if (!umi_node_is_linked(&pool->timer.node)) {
        umi_timer_start(pool->worker, &pool->timer,
                        TAKE_BACK_MS * UINT64_C(1000000));
    }
}

/* Fill what slots there are for a message. Those of a device are for what its
 * copies read: a message whose bytes are elsewhere now goes in another way. */
static void
run(umi_fill *fill)
{
    if (fill->pool->device != UMX_DEVICE_NONE && source_of(fill).count == 0) {
        refuse(fill->ep, fill->id, UMX_ERR_CANCELED);
        end_fill(fill);
        return;
    }
    while (!is_filled(fill)) {
        umi_bounce_slot *slot = has_its_share(fill) ?
                                    NULL :
                                    umi_bounce_pool_take(fill->pool);

        if (slot == NULL) {
            wait_for_slot(fill);
            return;
        }
        begin_fill(fill, slot);
    }
    stop_waiting(fill);
}

/* A slot may have become free: those that wait get it in order. */
static void
run_waiting(umi_bounce_pool *pool)
{
    UMI_LIST_FOREACH_SAFE(node, &pool->waiting) {
        run(umi_container_of(node, umi_fill, wait_node));
    }
}

/* End a fill, whose slots others may have. */
static void
end_and_go_on(umi_fill *fill)
{
    umi_bounce_pool *pool = fill->pool;

    end_fill(fill);
    run_waiting(pool);
}

/* ---- slots that are kept -------------------------------------------------
 */

/* True if the peer has had the slot for too long. */
static bool
is_kept(const umi_bounce_slot *slot, uint64_t now)
{
    uint64_t allowed = TAKE_BACK_MS * UINT64_C(1000000);

    return slot->state == UMI_BOUNCE_LENT && slot->fill != NULL &&
           now - slot->fill->since >= allowed
                                          << slot->fill->ep->bounce->num_taken;
}

/* Take the slots of a peer back that has stopped, or is slow, and tell it so:
 * it fetches again from where it is. */
static bool
take_back(umi_bounce_pool *pool, uint64_t now)
{
    for (int i = 0; i < UMI_BOUNCE_SLOTS; i++) {
        umi_fill *fill = pool->slots[i].fill;

        if (is_kept(&pool->slots[i], now)) {
            umi_bounce_note note = {.kind  = UMI_BOUNCE_TAKEN,
                                    .fetch = fill->id};

            if (fill->ep->bounce->num_taken < TAKE_BACK_MAX) {
                fill->ep->bounce->num_taken++;
            }
            (void)umi_bounce_tell(fill->ep,
                                  &note); /* lost: as the connection */
            end_fill(fill);
            return true;
        }
    }
    return false;
}

/* True if some message waits for slots of others. */
static bool
is_waited_for(const umi_bounce_pool *pool)
{
    UMI_LIST_FOREACH(node, &pool->waiting) {
        if (!has_its_share(umi_container_of(node, umi_fill, wait_node))) {
            return true;
        }
    }
    return false;
}

void
umi_fill_on_timer(umi_timer *timer)
{
    umi_bounce_pool *pool = umi_container_of(timer, umi_bounce_pool, timer);
    uint64_t         now  = umi_clock_ns();

    while (is_waited_for(pool) && take_back(pool, now)) {
        run_waiting(pool);
    }
    if (!umi_list_is_empty(&pool->waiting)) {
        umi_timer_start(pool->worker, timer, TAKE_BACK_MS * UINT64_C(1000000));
    }
}

/* ---- notes, inside UCX's callback ----------------------------------------
 */

static umi_fill *
find(const umi_ep_base *ep, uint64_t id)
{
    UMI_LIST_FOREACH(node, &ep->bounce->fills) {
        if (fill_at(node)->id == id) {
            return fill_at(node);
        }
    }
    return NULL;
}

/* Find what fills slots for `req`, or lends its memory; not what UCX has. */
static umi_fill *
find_of(const umx_request *req)
{
    if (req->ep->bounce == NULL) {
        return NULL;
    }
    UMI_LIST_FOREACH(node, &req->ep->bounce->fills) {
        if (fill_at(node)->req == req && !fill_at(node)->is_handed) {
            return fill_at(node);
        }
    }
    return NULL;
}

static size_t
step_of(size_t len, const umi_bounce_pool *pool)
{
    size_t step = len / STEPS / STEP_UNIT * STEP_UNIT;

    step = (step < STEP_MIN) ? STEP_MIN : step;
    return (step > pool->size) ? pool->size : step;
}

/* Let a receiver of this process read the memory itself, where one of both is
 * a device's. */
static bool
lend_directly(umi_fill *fill, bool is_to_host)
{
    const umx_buffer *run  = umi_bounce_run(fill->req);
    umi_bounce_note   note = {.kind = UMI_BOUNCE_DIRECT, .fetch = fill->id};

    if (run == NULL) {
        run = &fill->req->buf;
        if (is_to_host || fill->req->gather != NULL || run->layout != NULL ||
            fill->req->is_void) {
            return false;
        }
    }
    fill->direct = umi_direct_lend(run);
    if (fill->direct == NULL) {
        return false;
    }
    note.memory = umi_direct_id(fill->direct);
    fill->ep->bounce->sent[UMI_BOUNCE_BY_READ]++;
    (void)umi_bounce_tell(fill->ep, &note); /* lost: the connection is, too */
    return true;
}

/* True if copies of a device read what is sent: that is known from now on. */
static bool
is_by_device(umi_fill *fill)
{
    umi_movable it = umi_bounce_pieces(fill->req);

    if (it.count != 0) {
        return !umi_bounce_is_short(&it, fill->len) &&
               umi_bounce_device(&it, &fill->device) == UMX_OK;
    }
    fill->pinned = umi_bounce_pinned(fill->req, &fill->device);
    return fill->pinned != NULL;
}

/* Take slots of the device whose copies read what is sent, if there are any. */
static void
use_device_slots(umi_fill *fill)
{
    umi_bounce_pool *pool;

    if (is_by_device(fill) &&
        umi_bounce_pool_of(&fill->ep->worker->bounce->pools, fill->device,
                           &pool) == UMX_OK) {
        fill->pool = pool;
        fill->step = step_of(fill->len, pool);
    } else {
        fill->pinned = NULL; /* the CPU copies it */
    }
}

/* Choose how the receiver gets the bytes, now that both memories are known. */
static void
answer(umi_fill *fill, const umi_bounce_note *note)
{
    bool is_here = note->context != 0 && note->context == umi_direct_process();

    if (fill->filled == 0) {
        if (is_here && (note->flags & UMI_FETCH_DIRECT) != 0 &&
            lend_directly(fill, (note->flags & UMI_FETCH_TO_HOST) != 0)) {
            return;
        }
        if (!is_here && (note->flags & UMI_FETCH_BY_UCX) != 0 &&
            umi_hand_over(fill)) {
            return;
        }
    }
    if (!is_here && (note->flags & UMI_FETCH_BY_DEVICE) != 0) {
        use_device_slots(fill);
    }
    fill->ep->bounce
        ->sent[(fill->pool->device != UMX_DEVICE_NONE) ? UMI_BOUNCE_BY_DEVICE :
                                                         UMI_BOUNCE_BY_HOST]++;
    run(fill);
}

/* A message that is over, or withdrawn, is not there any more: its receiver
 * hears of that elsewhere. */
void
umi_fill_on_fetch(umi_ep_base *ep, const umi_bounce_note *note)
{
    umx_worker  *worker = ep->worker;
    umx_request *req = worker->hooks->find_sent(ep, note->channel, note->seq);
    umi_bounce_pool *pool;
    umi_fill        *fill;
    umx_status       status;

    if (note->fetch != ep->bounce->last_fill + 1 ||
        (req != NULL &&
         (note->len != req->buf.len || note->offset >= req->buf.len))) {
        umi_ep_base_refuse(ep, "a fetch that cannot be");
        return;
    }
    ep->bounce->last_fill = note->fetch;
    status                = (req == NULL) ?
                                UMX_ERR_NO_MESSAGE :
                                umi_bounce_pool_of_host(&worker->bounce->pools, &pool);
    if (status != UMX_OK) {
        refuse(ep, note->fetch, status);
        return;
    }
    umi_bounce_stop_filling(req); /* it fetches anew */
    fill = umi_pool_get(&worker->bounce->objects);
    if (fill == NULL) {
        refuse(ep, note->fetch, UMX_ERR_NO_MEMORY);
        return;
    }
    *fill = (umi_fill){.ep     = ep,
                       .req    = req,
                       .id     = note->fetch,
                       .len    = req->buf.len,
                       .filled = note->offset,
                       .pool   = pool,
                       .step   = step_of(req->buf.len, pool),
                       .device = UMX_DEVICE_NONE};
    umi_node_init(&fill->node);
    umi_node_init(&fill->wait_node);
    umi_list_append(&ep->bounce->fills, &fill->node);
    answer(fill, note);
}

void
umi_fill_moved(umi_fill *fill)
{
    fill->is_handed = false;
    end_fill(fill);
}

/* The peer reads none of its slots any more. */
void
umi_fill_on_stop(umi_ep_base *ep, const umi_bounce_note *note)
{
    umi_fill *fill = find(ep, note->fetch);

    if (fill != NULL) {
        if (!fill->is_handed) { /* else UCX hears that nobody wants it */
            end_and_go_on(fill);
        }
    } else if (note->fetch > ep->bounce->last_fill) {
        umi_ep_base_refuse(ep, "a fetch that has never begun");
    }
}

/* A slot that has been taken back is another's. */
void
umi_fill_on_freed(umi_ep_base *ep, const umi_bounce_note *note)
{
    umi_fill        *fill = find(ep, note->fetch);
    umi_bounce_pool *pool;
    umi_bounce_slot *slot;

    if (!umi_bounce_is_index(note->slot) ||
        note->fetch > ep->bounce->last_fill) {
        umi_ep_base_refuse(ep, "a slot that there is not");
        return;
    }
    if (fill == NULL) {
        return;
    }
    pool = fill->pool;
    slot = &pool->slots[note->slot % UMI_BOUNCE_SLOTS];
    if (slot->fill != fill || slot->index != note->slot ||
        slot->turn != note->turn || slot->state != UMI_BOUNCE_LENT) {
        return;
    }
    free_slot(slot);
    fill->since = umi_clock_ns();
    if (is_filled(fill) && fill->num_slots == 0) {
        end_fill(fill);
    } else if (!is_filled(fill)) {
        wait_for_slot(fill); /* behind others */
    }
    run_waiting(pool);
}

/* ---- the message ---------------------------------------------------------
 */

bool
umi_bounce_is_agreed(const umi_ep_base *ep)
{
    return ep->does_bounce && ep->link != NULL && ep->link->has_shm;
}

/* True if some of the memory is a device's. */
static bool
has_device(const umx_request *req)
{
    if (req->gather == NULL) {
        return umi_memtype_is_device(&req->buf);
    }
    for (size_t i = 0; i < req->gather->count; i++) {
        if (umi_memtype_is_device(&req->gather->pieces[i])) {
            return true;
        }
    }
    return false;
}

umx_status
umi_bounce_send(umx_request *req, const void *header, size_t header_len)
{
    unsigned id = has_device(req) ? UMI_AM_OFFERED_DEVICE : UMI_AM_OFFERED;

    return umi_am_send(req, id, header, header_len, true);
}

bool
umi_bounce_is_filling(const umx_request *req)
{
    return req->is_movable && find_of(req) != NULL;
}

void
umi_bounce_move(umx_request *req)
{
    umi_fill *fill = find_of(req);

    if (fill != NULL && fill->direct != NULL) {
        umi_direct_end(fill->direct); /* its reader asks again */
        fill->direct = NULL;
    }
}

void
umi_bounce_forget(umx_request *req)
{
    umi_bounce_stop_filling(req);
    UMI_LIST_FOREACH(node, &req->ep->bounce->fills) {
        if (fill_at(node)->req == req) {
            fill_at(node)->req = NULL; /* UCX ends it */
        }
    }
}

void
umi_bounce_stop_filling(umx_request *req)
{
    umi_fill *fill;

    umi_dma_settle(req);
    while ((fill = find_of(req)) != NULL) {
        end_and_go_on(fill);
    }
}

void
umi_fills_end(umi_ep_base *ep)
{
    UMI_LIST_FOREACH_SAFE(node, &ep->bounce->fills) {
        umi_fill *fill = fill_at(node);

        if (!fill->is_handed) { /* else UCX ends it */
            umi_dma_settle(fill->req);
            end_and_go_on(fill);
        }
    }
}
