/* SPDX-License-Identifier: BSD-3-Clause */
#include "endpoint/endpoint.h"
#include "worker/observe.h"

#include <stdlib.h>
#include <string.h>

#include "endpoint/accept.h"
#include "endpoint/connect_hosts.h"
#include "endpoint/log.h"
#include "endpoint/strangers.h"
#include "lend/lend.h"
#include "ops/queue.h"
#include "ops/tag.h"
#include "util/clock.h"
#include "util/count.h"

/* How long after its end an endpoint waits for what UCX has of it: what UCX
 * gives back, it gives back with its next progress, or much later. */
enum {
    LOST_MS      = 100,
    LAST_LOOK_NS = 1000000 /* after the deadline of a close */
};

/* ---- life ----------------------------------------------------------------
 */

static void
conn_free(umi_ep_base *base)
{
    umx_ep *ep = umi_endpoint_of(base);

    umi_timer_stop(&ep->timer);
    umi_timer_stop(&ep->heartbeat.timer);
    umi_timer_stop(&ep->deferred.timer);
    umi_timer_stop(&ep->settle.timer);
    umi_node_remove(&ep->put_off.node);
    umi_node_remove(&ep->put_off_lost.node);
    umi_socket_close(&ep->socket);
    umi_ep_base_fini(base);
    ep->hooks->fini(ep);
    if (ep->accepted_by != NULL) {
        umi_listener_release(ep->accepted_by);
    }
    free(ep->reason);
    free(ep->foreign);
    free(ep->info);
    free(ep);
}

static void
retire_conn(umi_retire *retire)
{
    umx_ep_destroy(umi_container_of(retire, umx_ep, retire));
}

/* Choose the status with which the queued operations end. */
static umx_status
pending_status(const umx_ep *ep)
{
    if (ep->is_peer_closed) {
        return UMX_ERR_PEER_CLOSED;
    }
    return (ep->state == UMX_EP_FAILED) ? ep->error : UMX_ERR_CANCELED;
}

/* Report operations as lost: UCX has had the time to give them back. */
static void
report_lost(umx_ep *ep)
{
    UMI_LIST_FOREACH_SAFE(node, &ep->base.inflight) {
        umi_request_lose(umi_container_of(node, umx_request, node),
                         pending_status(ep));
    }
}

static void
report_lost_later(umi_put_off *put_off)
{
    report_lost(umi_container_of(put_off, umx_ep, put_off_lost));
}

static void
on_timer(umi_timer *timer)
{
    umx_ep *ep = umi_container_of(timer, umx_ep, timer);

    umi_ep_base_hold(&ep->base);
    if (ep->state == UMX_EP_CONNECTING) {
        umi_handshake_explain(ep, UMX_ERR_TIMED_OUT);
        umi_endpoint_finish(ep, UMX_EP_FAILED, UMX_ERR_TIMED_OUT);
    } else if (ep->state == UMX_EP_DRAINING && !ep->is_last_look) {
        /* Timers run before what has come is looked at. */
        ep->is_last_look = true;
        umi_timer_start(umi_endpoint_worker(ep), timer, LAST_LOOK_NS);
    } else if (ep->state == UMX_EP_DRAINING) {
        if (!ep->is_peer_closed) {
            umi_settle_explain(ep);
        }
        umi_endpoint_finish(ep, UMX_EP_CLOSED,
                            ep->is_peer_closed ? UMX_OK : UMX_ERR_TIMED_OUT);
    } else if (ep->state != UMX_EP_OPEN &&
               !umi_worker_put_off(ep->base.worker, &ep->put_off_lost,
                                   report_lost_later)) {
        report_lost(ep);
    }
    umi_ep_base_release(&ep->base);
}

/* Set what the endpoint grants its peer: what `window` says, and else the
 * config. */
static void
set_limits(umx_ep *ep, const umx_config *config, const umx_window *window)
{
    ep->own_limits  = (umi_limits){.bytes    = config->credit_bytes,
                                   .messages = config->credit_messages,
                                   .rndv     = config->credit_rndv};
    ep->most_limits = (umi_limits){.bytes    = config->credit_bytes_max,
                                   .messages = config->credit_messages_max};
    if (window->messages != 0) {
        ep->own_limits.messages  = window->messages;
        ep->own_limits.rndv      = 0; /* as credit.c says */
        ep->most_limits.messages = 0;
    }
    if (window->bytes != 0) {
        ep->own_limits.bytes  = window->bytes;
        ep->most_limits.bytes = 0;
    }
}

void
umi_endpoint_set_state(umx_ep *ep, umx_ep_state state)
{
    UMI_ASSERT_LOCKED(umi_endpoint_worker(ep));
    assert(ep->state < UMX_EP_CLOSED); /* from where states are final */
    assert(state > ep->state);
    assert(state != UMX_EP_DRAINING || ep->state == UMX_EP_OPEN);
    ep->state = state;
}

umx_status
umi_endpoint_new(umx_worker *worker, const umx_window *window, umx_ep **ep_p)
{
    const umx_config         *config = &worker->context->config;
    const umi_endpoint_hooks *hooks  = worker->hooks->ep;

    umx_ep        *ep        = calloc(1, sizeof(*ep) + hooks->size);
    umi_handshake *handshake = calloc(1, sizeof(*handshake));
    umx_status     status    = UMX_ERR_NO_MEMORY;

    umi_strangers_renew(worker);
    if (ep != NULL && handshake != NULL) {
        status = umi_ep_base_init(&ep->base, worker, conn_free);
    }
    if (status != UMX_OK) {
        free(ep);
        free(handshake);
        return status;
    }
    set_limits(ep, config, window);
    umi_lend_begin(&ep->base, &ep->lend);
    umi_transfer_begin(&ep->base, &ep->transfers);
    umi_bounce_begin(&ep->base, &ep->bounce);
    umi_node_init(&ep->put_off.node);
    umi_node_init(&ep->put_off_lost.node);
    umi_list_init(&ep->control);
    umi_list_init(&ep->closers);
    umi_list_init(&ep->drainers);
    umi_list_init(&ep->queries);
    umi_node_init(&ep->untaken_node);
    umi_timer_init(&ep->timer, on_timer);
    umi_heartbeat_init(ep);
    umi_defer_init(ep);
    umi_settle_init(ep);
    ep->traffic   = &ep->early;
    ep->begun_ns  = umi_clock_ns();
    ep->retire.fn = retire_conn;
    ep->state     = UMX_EP_CONNECTING;
    ep->begun     = UMI_IS_OBSERVED() ? umi_ticks() : 0;
    ep->handshake = handshake;
    ep->hooks     = hooks;
    hooks->init(ep);
    worker->num_handshakes++;
    umi_handshake_init(ep);
    *ep_p = ep;
    return UMX_OK;
}

umx_status
umi_endpoint_end_status(const umx_ep *ep, umx_status status)
{
    if (ep->is_peer_closed) {
        return UMX_ERR_PEER_CLOSED;
    }
    if (ep->state == UMX_EP_FAILED) {
        return ep->error;
    }
    return status;
}

umx_status
umi_endpoint_send_status(const umx_ep *ep)
{
    if (ep->is_peer_closed) {
        return UMX_ERR_PEER_CLOSED;
    }
    switch (ep->state) {
    case UMX_EP_CONNECTING:
    case UMX_EP_OPEN:
        return ep->is_closing ? UMX_ERR_CLOSED : UMX_OK;
    case UMX_EP_FAILED:
        return ep->error;
    case UMX_EP_DRAINING:
    case UMX_EP_CLOSED:
        break;
    }
    return UMX_ERR_CLOSED;
}

umx_status
umi_endpoint_recv_status(const umx_ep *ep)
{
    if (ep->state == UMX_EP_DRAINING) {
        return UMX_ERR_CLOSED;
    }
    if (ep->state == UMX_EP_CLOSED && !ep->is_peer_closed) {
        return UMX_ERR_CLOSED;
    }
    return umi_endpoint_send_status(ep);
}

bool
umi_endpoint_may_read(const umx_ep *ep)
{
    return ep->state == UMX_EP_OPEN || ep->state == UMX_EP_CONNECTING ||
           ep->state == UMX_EP_FAILED ||
           (ep->state == UMX_EP_CLOSED && ep->is_peer_closed);
}

bool
umi_endpoint_reads_on(const umx_ep *ep)
{
    return umi_endpoint_may_read(ep) && !ep->is_closing && !ep->is_dropped;
}

/* ---- events --------------------------------------------------------------
 */

void
umi_endpoint_due(umx_ep *ep, unsigned due)
{
    ep->due |= due;
    umi_ep_base_raise(&ep->base, UMI_EP_EVENT_LAYER);
}

void
umi_endpoint_protocol_error(umx_ep *ep, const char *why)
{
    if (ep->protocol_error == NULL) {
        ep->protocol_error = why;
        umi_endpoint_due(ep, UMI_DUE_PROTOCOL);
    }
}

void
umi_endpoint_cannot_land(umx_ep *ep, umx_status status)
{
    if (status == UMX_ERR_CONNECTION_RESET) {
        ep->base.ucx_error = status;
        umi_ep_base_raise(&ep->base, UMI_EP_EVENT_ERROR);
    } else {
        umi_endpoint_protocol_error(ep, "announced data cannot be received");
    }
}

void
umi_endpoint_cannot_copy(umx_ep *ep)
{
    umi_endpoint_protocol_error(ep, "out of memory for a cancelled operation");
}

static void
drop_for_protocol(umx_ep *ep)
{
    umi_endpoint_worker(ep)->stats->protocol_errors++;
    if (ep->handshake != NULL && ep->handshake->listener != NULL) {
        umi_listener_complain(ep->handshake->listener, &ep->socket,
                              ep->protocol_error);
    } else {
        umi_log(UMI_LOG_WARN, "endpoint %llu dropped: %s",
                (unsigned long long)ep->base.id, ep->protocol_error);
    }
    umi_endpoint_set_reason(ep, ep->protocol_error, strlen(ep->protocol_error));
    umi_endpoint_finish(ep, UMX_EP_FAILED, UMX_ERR_PROTOCOL);
}

static bool
take_due(umx_ep *ep, unsigned bit)
{
    if (ep->due & bit) {
        ep->due &= ~bit;
        return true;
    }
    return false;
}

/* Hand what has arrived to the receives that wait for it. */
static void
hand_out(umx_ep *ep)
{
    if (take_due(ep, UMI_DUE_RECV)) {
        ep->hooks->visit(ep, UMI_DUE_RECV);
    }
}

static void
tell_state_later(umi_put_off *put_off)
{
    umx_ep *ep      = umi_container_of(put_off, umx_ep, put_off);
    bool    is_open = ep->is_open_put_off;

    umi_ep_base_hold(&ep->base);
    ep->is_open_put_off = false;
    if (is_open && ep->state != UMX_EP_OPEN && ep->on_state != NULL) {
        ep->on_state(ep, UMX_EP_OPEN, UMX_OK, ep->arg);
    }
    if (ep->on_state != NULL) {
        ep->on_state(ep, ep->state, ep->error, ep->arg);
    }
    umi_ep_base_release(&ep->base);
}

/* The state of an endpoint that nobody has taken is the library's to see. */
static void
tell_state(umx_ep *ep)
{
    if (!umi_node_is_linked(&ep->untaken_node) && !ep->is_layers &&
        umi_worker_put_off(ep->base.worker, &ep->put_off, tell_state_later)) {
        ep->is_open_put_off |= (ep->state == UMX_EP_OPEN);
    } else {
        ep->on_state(ep, ep->state, ep->error, ep->arg);
    }
}

/* Act once on all that is due, in the order in which it must be seen. */
static void
visit_due(umx_ep *ep)
{
    if (take_due(ep, UMI_DUE_PROTOCOL)) {
        drop_for_protocol(ep);
    }
    if (take_due(ep, UMI_DUE_CONNECT)) {
        umi_connect_step(ep);
    }
    if (take_due(ep, UMI_DUE_HANDSHAKE)) {
        umi_handshake_go_on(ep);
    }
    /* Accept before acting on what the peer has asked: that may be to close the
     * listener. */
    if (take_due(ep, UMI_DUE_ACCEPT)) {
        umi_accept(ep);
    }
    if (take_due(ep, UMI_DUE_CONTROL)) {
        umi_endpoint_control_run(ep);
    }
    if (take_due(ep, UMI_DUE_WITHDRAW)) {
        ep->hooks->visit(ep, UMI_DUE_WITHDRAW);
    }
    if (take_due(ep, UMI_DUE_CREDIT)) {
        ep->hooks->visit(ep, UMI_DUE_CREDIT);
    }
    if (take_due(ep, UMI_DUE_SEND)) {
        if (ep->state == UMX_EP_OPEN || ep->state == UMX_EP_DRAINING) {
            ep->hooks->visit(ep, UMI_DUE_SEND);
            umi_query_send_waiting(ep);
            umi_ep_base_post_waiting(&ep->base);
        }
        umi_close_advance(ep);
    }
    hand_out(ep);
    if (take_due(ep, UMI_DUE_GOODBYE)) {
        umi_close_peer_done(ep);
    }
    if (take_due(ep, UMI_DUE_ACK)) {
        umi_close_try_ack(ep);
    }
    if (take_due(ep, UMI_DUE_CLOSE_COUNT) && ep->state == UMX_EP_OPEN &&
        ep->num_to_fetch == 0) {
        umi_ep_base_flush_gathered(&ep->base, true);
        umi_close_start(
            ep, umi_endpoint_worker(ep)->context->config.close_timeout_ns);
    }
    if (take_due(ep, UMI_DUE_HANDLERS)) {
        ep->hooks->visit(ep, UMI_DUE_HANDLERS);
    }
    if (take_due(ep, UMI_DUE_NOTIFY) && ep->on_state != NULL) {
        tell_state(ep);
    }
}

/* UCX reports the end of a connection while messages of the peer, its GOODBYE
 * among them, lie in a queue that another transport has. */
static void
take_what_came(umx_ep *ep)
{
    if (ep->base.link != NULL) { /* this side has not closed it */
        umi_worker_take_all(umi_endpoint_worker(ep));
    }
}

void
umi_endpoint_visit(umi_ep_base *base)
{
    umx_ep  *ep      = umi_endpoint_of(base);
    unsigned events  = base->events;
    unsigned attempt = ep->attempt;

    base->events = 0;
    if (events & UMI_EP_EVENT_ERROR) {
        take_what_came(ep);
        if (umi_handshake_is_heard(ep)) {
            umi_handshake_answered(ep);
        }
        ep->due &= ~(unsigned)UMI_DUE_SEND; /* it would go nowhere */
    }
    while (ep->due != 0) {
        visit_due(ep);
    }
    umi_close_advance(ep); /* the last raw tag send may have completed */
    /* Act on the error after what had arrived before the connection broke. */
    if ((events & UMI_EP_EVENT_ERROR) && attempt == ep->attempt) {
        if (ep->state == UMX_EP_CONNECTING && ep->handshake->is_knocking) {
            umi_handshake_explain(ep, UMX_ERR_TIMED_OUT); /* UCX gave up */
        }
        umi_close_on_error(ep, base->ucx_error);
        while (ep->due != 0) {
            visit_due(ep);
        }
    }
}

/* True if the peer has not been told where this side is. The listening side
 * gets a configuration first: umi_strangers_place(). */
static bool
is_untold(const umx_ep *ep)
{
    return ep->state == UMX_EP_CONNECTING &&
           (ep->is_server ? ep->handshake->configuration == NULL :
                            ep->handshake->is_waiting);
}

/* Give the engine's connections up: the address that the peer has been told
 * leads nowhere. */
void
umi_endpoint_engine_gone(umi_ep_base *base, const char *reason)
{
    umx_ep *ep = umi_endpoint_of(base);

    if (is_untold(ep)) {
        umi_ep_base_use(base, base->worker->engine);
        umi_endpoint_go_on(base);
        return;
    }
    if (ep->state == UMX_EP_CONNECTING && ep->socket.is_local) {
        base->ucx_error = UMX_ERR_CONNECTION_RESET;
        base->reason    = reason;
        umi_ep_base_raise(base, UMI_EP_EVENT_ERROR);
    }
}

bool
umi_endpoint_must_wait(umx_ep *ep)
{
    umi_engine *engine = ep->is_server ? umi_endpoint_worker(ep)->engine :
                                         ep->base.engine;

    ep->handshake->is_waiting = ep->socket.is_local &&
                                umi_queue_is_in_doubt(engine);
    return ep->handshake->is_waiting;
}

void
umi_endpoint_go_on(umi_ep_base *base)
{
    umx_ep *ep = umi_endpoint_of(base);

    if (ep->handshake != NULL && ep->handshake->is_waiting) {
        umi_endpoint_due(ep, UMI_DUE_HANDSHAKE);
    }
}

/* ---- the end -------------------------------------------------------------
 */

uint64_t
umi_endpoint_unsent_bytes(const umx_ep *ep)
{
    uint64_t bytes = ep->hooks->unsent_bytes(ep);

    UMI_LIST_FOREACH(node, &ep->base.inflight) {
        const umx_request *req = umi_container_of(node, umx_request, node);

        if (req->ops == &umi_tag_send_ops) {
            bytes += req->buf.len;
        }
    }
    UMI_LIST_FOREACH(node, &ep->base.waiting) {
        bytes += umi_container_of(node, umx_request, node)->buf.len;
    }
    return bytes;
}

/* True if the peer, if it is one, has sent all that it ever will. */
static bool
is_goodbye(const umx_ep *ep, umx_ep_state state, umx_status status)
{
    if (ep->state == UMX_EP_CONNECTING) {
        return status != UMX_ERR_CONNECTION_RESET &&
               status != UMX_ERR_TIMED_OUT;
    }
    return state == UMX_EP_CLOSED && !ep->is_unanswered &&
           (status == UMX_OK || ep->is_ack_sent);
}

void
umi_endpoint_observe_open(umx_ep *ep, umx_status status)
{
    if (UMI_IS_OBSERVED() && ep->begun != 0) {
        umi_observe_span(umi_endpoint_worker(ep), &ep->base,
                         ep->is_server ? "accept" : "connect", ep->begun,
                         status);
    }
    ep->begun = 0;
}

static void
count_failure(umx_worker *worker, bool is_unaccepted)
{
    if (is_unaccepted) {
        worker->stats->refused_connections++;
    } else {
        worker->stats->failed_connections++;
    }
}

void
umi_endpoint_finish(umx_ep *ep, umx_ep_state state, umx_status status)
{
    bool is_unaccepted = ep->handshake != NULL &&
                         ep->handshake->listener != NULL;
    bool was_closing = ep->is_closing;

    if (ep->state == UMX_EP_CLOSED || ep->state == UMX_EP_FAILED) {
        return;
    }
    if (state == UMX_EP_FAILED && ep->state == UMX_EP_CONNECTING &&
        ep->handshake->hosts != NULL &&
        umi_connect_hosts_goes_on(ep, &status)) {
        return;
    }
    hand_out(ep); /* what has come was before the end */
    if (umi_log_is_on(umi_endpoint_log_level(ep))) {
        umi_endpoint_log_end(ep, state, status);
    }
    if (ep->socket.is_local && !is_goodbye(ep, state, status)) {
        umi_queue_doubt(ep->base.engine);
    }
    umi_timer_stop(&ep->timer);
    umi_timer_stop(&ep->heartbeat.timer);
    umi_timer_stop(&ep->deferred.timer);
    umi_timer_stop(&ep->settle.timer);
    umi_endpoint_observe_open(ep, status);
    umi_endpoint_end_traffic(ep);
    ep->is_dropped   = ep->is_dropped || is_unaccepted;
    ep->unsent_bytes = umi_endpoint_unsent_bytes(ep);
    umi_endpoint_set_state(ep, state);
    ep->error = status;
    umi_ep_base_end_raw(&ep->base, pending_status(ep));
    if (state == UMX_EP_FAILED) {
        umi_tag_doubt(umi_endpoint_worker(ep));
        count_failure(umi_endpoint_worker(ep), is_unaccepted);
    }
    umi_socket_close(&ep->socket);
    umi_link_detach(&ep->base,
                    state == UMX_EP_CLOSED &&
                        (status == UMX_OK || status == UMX_ERR_PEER_CLOSED));
    ep->hooks->finish(ep, pending_status(ep));
    umi_request_complete_all(&ep->base.waiting, pending_status(ep));
    umi_lend_end(&ep->base, pending_status(ep));
    umi_transfer_end(&ep->base, pending_status(ep));
    umi_bounce_end(&ep->base, pending_status(ep));
    umi_request_complete_all(&ep->closers, status);
    umi_request_complete_all(&ep->drainers, pending_status(ep));
    umi_request_complete_all(&ep->queries, pending_status(ep));
    umi_endpoint_control_drop(ep);
    umi_handshake_end(ep);
    if (!umi_list_is_empty(&ep->base.inflight) &&
        !umi_endpoint_worker(ep)->is_ending) {
        umi_timer_start(umi_endpoint_worker(ep), &ep->timer,
                        LOST_MS * UINT64_C(1000000));
    }
    ep->due &= ~(unsigned)UMI_DUE_ACCEPT;
    umi_endpoint_due(ep, UMI_DUE_NOTIFY);
    if (was_closing) {
        ep->is_closing = false;
        UMI_DECREMENT(umi_endpoint_worker(ep)->num_closing);
        umi_ep_base_release(&ep->base);
    }
    if (is_unaccepted) {
        umi_ep_base_release(&ep->base);
    }
}

void
umi_endpoint_abort(umi_ep_base *base)
{
    umx_ep *ep = umi_endpoint_of(base);

    umi_ep_base_hold(base);
    umi_endpoint_finish(ep, UMX_EP_CLOSED, UMX_ERR_CANCELED);
    umi_timer_stop(&ep->timer); /* the worker goes */
    ep->hooks->discard(ep);
    umi_ep_base_release(base);
}

void
umi_endpoint_set_reason(umx_ep *ep, const char *text, size_t len)
{
    free(ep->reason);
    ep->reason = strndup(text, len); /* NULL: no words are lost but these */
}

/* ---- public --------------------------------------------------------------
 */

void
umx_ep_abort(umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    if (ep->base.worker != NULL) {
        umi_ep_base_hold(&ep->base);
        umi_endpoint_finish(ep, UMX_EP_CLOSED, UMX_ERR_CANCELED);
        umi_ep_base_release(&ep->base);
    }
}

static bool
has_usable_worker(const umx_ep *ep)
{
    return ep->base.worker != NULL &&
           umi_worker_check(ep->base.worker) == UMX_OK;
}

static void
start_close(umx_ep *ep)
{
    if (!ep->is_closing) {
        umi_close_start(
            ep, umi_endpoint_worker(ep)->context->config.close_timeout_ns);
    }
}

/* End an endpoint that its user has dropped, in the background if need be. */
static void
end_dropped(umx_ep *ep)
{
    switch (ep->state) {
    case UMX_EP_CONNECTING:
        if (umi_close_is_needed(ep)) {
            start_close(ep);
        } else {
            umx_ep_abort(ep);
        }
        break;
    case UMX_EP_OPEN:
        start_close(ep);
        break;
    case UMX_EP_DRAINING:
        break;
    case UMX_EP_CLOSED:
    case UMX_EP_FAILED:
        ep->hooks->discard(ep);
        break;
    }
}

void
umx_ep_destroy(umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    if (has_usable_worker(ep)) {
        umi_ep_base_flush_gathered(&ep->base, true);
    }
    ep->is_dropped = true;
    ep->on_state   = NULL;
    if (has_usable_worker(ep)) {
        end_dropped(ep);
    }
    umi_ep_base_release(&ep->base);
}

void
umx_ep_retire(umx_ep *ep)
{
    if (ep->base.worker == NULL) {
        umx_ep_destroy(ep);
    } else {
        umi_worker_retire(ep->base.worker, &ep->retire);
    }
}

umx_status
umx_ep_peer_address(const umx_ep *ep, struct sockaddr *addr, size_t *len_p)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return umi_socket_address(&ep->socket, true, addr, len_p);
}

umx_status
umx_ep_local_address(const umx_ep *ep, struct sockaddr *addr, size_t *len_p)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return umi_socket_address(&ep->socket, false, addr, len_p);
}

void
umx_ep_set_on_state(umx_ep *ep, umx_ep_state_fn fn, void *arg)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    ep->on_state = fn;
    ep->arg      = arg;
}

void *
umx_ep_get_arg(const umx_ep *ep)
{
    return ep->arg;
}

umx_ep_state
umx_ep_get_state(const umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return (ep->state == UMX_EP_CONNECTING && ep->is_closing) ?
               UMX_EP_DRAINING :
               ep->state;
}

umx_status
umx_ep_error(const umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return ep->is_peer_closed && ep->state != UMX_EP_FAILED ?
               UMX_ERR_PEER_CLOSED :
               ep->error;
}

bool
umx_ep_is_peer_closed(const umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return ep->is_peer_closed;
}

const char *
umx_ep_reason(const umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return umi_endpoint_reason(ep);
}

int
umx_ep_errno(const umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return ep->socket.error;
}

uint64_t
umx_ep_unsent_bytes(const umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return ep->unsent_bytes;
}

uint64_t
umx_ep_recv_count(const umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return ep->recv_count;
}

uint32_t
umx_ep_channels_max(const umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return ep->peer_channels;
}
