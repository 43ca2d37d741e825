/* SPDX-License-Identifier: BSD-3-Clause */
/* worker.c: umx_worker_create(), which puts the rooms together: each hears of
 * those above it by the tables here only. */
#include "worker/worker.h"

#include <assert.h>

#include "bounce/bounce.h"
#include "channel/am.h"
#include "channel/channel.h"
#include "channel/frames.h"
#include "endpoint/accept.h"
#include "endpoint/addressed.h"
#include "endpoint/endpoint.h"
#include "endpoint/strangers.h"
#include "keys/waiters.h"
#include "lend/agree.h"
#include "lend/lend.h"
#include "ops/follow.h"
#include "ops/queue.h"
#include "ops/tag.h"
#include "ops/transfer.h"
#include "ops/turns.h"
#include "progress/event_fd.h"
#include "progress/thread.h"
#include "rma/rma.h"

/* ---- connections ---------------------------------------------------------
 */

static void
fini_ep(umx_ep *ep)
{
    umi_channels_fini(ep);
    umi_rma_free_state(ep);
}

/* The peer may have died between a store and what it owes to who waits for it.
 * This worker looks anyway. */
static void
wake_waits(const umx_ep *ep)
{
    umx_worker *worker = umi_endpoint_worker(ep);

    umi_waiters_wake(worker->context, 0, worker->is_inside ? worker : NULL);
}

static void
peer_closed(umx_ep *ep)
{
    umi_channels_fail_recvs(ep, UMX_ERR_PEER_CLOSED);
    umi_channels_fail_sends(ep, UMX_ERR_PEER_CLOSED);
    umi_channel_am_run(ep); /* the last replies */
    umi_initiator_fail(ep, UMX_ERR_PEER_CLOSED);
    wake_waits(ep);
}

static void
finish_ep(umx_ep *ep, umx_status status)
{
    umi_channels_finish(ep, status);
    umi_rma_finish(ep, status);
    wake_waits(ep);
}

static void
visit_ep(umx_ep *ep, unsigned due)
{
    switch (due) {
    case UMI_DUE_CREDIT:
        umi_channels_grant(ep);
        break;
    case UMI_DUE_SEND:
        umi_channels_send(ep);
        umi_initiator_run_flushes(ep);
        break;
    case UMI_DUE_RECV:
        umi_channels_hand_out(ep);
        break;
    case UMI_DUE_HANDLERS:
        umi_channel_am_run(ep);
        break;
    case UMI_DUE_WITHDRAW:
        umi_channels_withdraw(ep);
        break;
    case UMI_DUE_ACK:
        umi_channels_fetch(ep);
        break;
    default:
        assert(false);
    }
}

static bool
ask_ep(const umx_ep *ep, umi_endpoint_question question)
{
    switch (question) {
    case UMI_HAS_WAITING:
        return umi_channels_have_waiting(ep);
    case UMI_HAS_DEFERRED:
        return umi_channels_have_deferred(ep);
    case UMI_IS_BUSY:
        return umi_initiator_is_busy(ep);
    case UMI_IS_RECEIVING:
        return umi_channels_are_receiving(ep);
    case UMI_HAS_ARRIVED:
        return umi_channels_have_arrived(ep);
    }
    return false;
}

static void
on_control(umx_ep *ep, const umi_control *control)
{
    switch (control->kind) {
    case UMI_CREDIT:
        umi_channels_on_credit(ep, control);
        break;
    case UMI_WITHDRAW:
        umi_channels_on_withdraw(ep, control);
        break;
    case UMI_GOODBYE:
        umi_channels_on_goodbye(ep);
        break;
    default:
        assert(false);
    }
}

static const umi_endpoint_hooks ep_hooks = {
    .size          = sizeof(umi_channels),
    .init          = umi_channels_init,
    .fini          = fini_ep,
    .open          = umi_channels_open,
    .visit         = visit_ep,
    .on_control    = on_control,
    .write_goodbye = umi_channels_write_goodbye,
    .read_goodbye  = umi_channels_read_goodbye,
    .ask           = ask_ep,
    .unsent_bytes  = umi_channels_unsent_bytes,
    .count_waiting = umi_channels_count_waiting,
    .find_unread   = umi_channels_find_unread,
    .stop_reading  = umi_channels_stop_reading,
    .fail_sends    = umi_channels_fail_sends,
    .peer_closed   = peer_closed,
    .finish        = finish_ep,
    .discard       = umi_channels_discard,
};

/* ---- workers -------------------------------------------------------------
 */

/* What the rooms keep behind each umx_worker. */
typedef struct rooms {
    umi_tags       tags;
    umi_lend       lend;
    umi_transfers  transfers;
    umi_bounce     bounce;
    umi_channel_am am;
    umi_strangers  strangers;
} rooms;

_Static_assert(sizeof(umx_worker) % _Alignof(rooms) == 0, "behind it");

static rooms *
rooms_of(umx_worker *worker)
{
    return (rooms *)(worker + 1);
}

static void
init_worker(umx_worker *worker)
{
    umi_tag_init(worker, &rooms_of(worker)->tags);
    umi_lend_init(worker, &rooms_of(worker)->lend);
    umi_transfer_init(worker, &rooms_of(worker)->transfers);
    umi_bounce_init(worker, &rooms_of(worker)->bounce);
    umi_channel_am_init(worker, &rooms_of(worker)->am);
    umi_strangers_init(worker, &rooms_of(worker)->strangers);
}

static void
free_worker(umx_worker *worker)
{
    umi_lend_fini(&rooms_of(worker)->lend);
    umi_transfer_fini(&rooms_of(worker)->transfers);
    umi_bounce_fini(&rooms_of(worker)->bounce);
}

static void
abort_worker(umx_worker *worker)
{
    umi_queue_fini(worker);
    umi_strangers_fini(worker);
    umi_tag_abort(worker);
    umi_addressed_abort(worker);
}

static void
fini_worker(umx_worker *worker)
{
    umi_am_refuse_all(worker);
    umi_channel_am_fini(worker);
    umi_addressed_fini(worker);
}

static bool
has_received(const umi_ep_base *base)
{
    const umx_ep *ep      = umi_endpoint_of((umi_ep_base *)base);
    umx_ep_stats  waiting = {0};

    ep->hooks->count_waiting(ep, &waiting);
    return ep->stats.received_messages > waiting.unexpected_messages;
}

static void
tell_ep(umi_ep_base *ep, umi_ep_news news, const char *reason)
{
    switch (news) {
    case UMI_NEWS_EVENTS:
        umi_endpoint_visit(ep);
        break;
    case UMI_NEWS_PIECE:
        umi_endpoint_of(ep)->num_arrivals++; /* a sign of life */
        break;
    case UMI_NEWS_DEFERRED:
        umi_endpoint_defer(umi_endpoint_of(ep));
        break;
    case UMI_NEWS_UNCOPIED:
        umi_endpoint_cannot_copy(umi_endpoint_of(ep));
        break;
    case UMI_NEWS_RENEWED:
        umi_endpoint_engine_gone(ep, reason);
        break;
    case UMI_NEWS_MOVES:
        umi_endpoint_go_on(ep);
        break;
    case UMI_NEWS_ABORT:
        umi_endpoint_abort(ep);
        break;
    }
}

/* What the rooms keep behind each umi_link: lend/agree.h finds its own there.
 */
typedef struct link_rooms {
    umi_lend_agreement agreement;
    umi_turns          turns;
    umi_bounce_link    bounce;
} link_rooms;

static link_rooms *
rooms_of_link(umi_link *link)
{
    return (link_rooms *)(void *)(link + 1);
}

static void
init_link(umi_link *link)
{
    umi_lend_init_link(link);
    umi_turns_init(link, &rooms_of_link(link)->turns);
    umi_bounce_init_link(link, &rooms_of_link(link)->bounce);
}

static void
fini_link(umi_link *link)
{
    umi_lend_fini_link(link);
    umi_turns_fini(link);
    umi_bounce_fini_link(link);
}

static const umi_worker_hooks worker_hooks = {
    .ep            = &ep_hooks,
    .size          = sizeof(rooms),
    .init          = init_worker,
    .free          = free_worker,
    .link_size     = sizeof(link_rooms),
    .init_link     = init_link,
    .fini_link     = fini_link,
    .take_turns    = umi_turns_take,
    .message_size  = sizeof(umx_message),
    .frames_size   = sizeof(umi_frames),
    .tell_ep       = tell_ep,
    .has_received  = has_received,
    .find_sent     = umi_channel_find_sent,
    .fail_sent     = umi_channel_fail_sent,
    .fail_landing  = umi_channel_fail_landing,
    .on_connection = umi_handshake_on_connection,
    .on_busy       = umi_handshake_on_busy,
    .drop_accepted = umi_accept_drop,
    .on_arrivals   = umi_tag_look,
    .hold_flush    = umi_initiator_hold_flush,
    .stop_thread   = umi_progress_stop,
    .abort         = abort_worker,
    .fini          = fini_worker,
};

/* Let a pool make its first chunk, so that no message has to wait for it. */
static void
grow(umi_pool *pool)
{
    void *first = umi_pool_get(pool);

    if (first != NULL) {
        umi_pool_put(pool, first);
    }
}

umx_status
umx_worker_create(umx_context *context, umx_worker **worker_p)
{
    umx_worker *worker;
    umx_status  status = umi_worker_create(context, &worker_hooks, &worker);

    if (status != UMX_OK) {
        return status;
    }
    umi_nap_init(worker);
    status = umi_am_set_handler(worker, UMI_AM_DATA, umi_channel_on_arrival);
    if (status == UMX_OK) {
        status = umi_am_set_handler(worker, UMI_AM_CONTROL,
                                    umi_endpoint_control_on_arrival);
    }
    if (status == UMX_OK) {
        status = umi_lend_listen(worker);
    }
    if (status == UMX_OK) {
        status = umi_follow_listen(worker);
    }
    if (status == UMX_OK) {
        status = umi_transfer_listen(worker);
    }
    if (status == UMX_OK) {
        status = umi_bounce_listen(worker);
    }
    if (status == UMX_OK) {
        status = umi_rma_init(worker);
    }
    if (status == UMX_OK) {
        status = umi_queue_init(worker);
    }
    if (status != UMX_OK) {
        umx_worker_destroy(worker);
        return status;
    }
    grow(&worker->messages);
    grow(&worker->smalls);
    *worker_p = worker;
    return UMX_OK;
}
