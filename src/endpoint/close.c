/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* close.c: closing by agreement.
 *
 *   closing                                        the other side
 *       all sends posted, receives landed
 *       GOODBYE (next seq of each channel)    -->
 *                                                  all of it has arrived:
 *                                                  pending receives fail,
 *                                                  announced messages are
 *                                                  pulled into memory
 *                                             <--  GOODBYE-ACK
 *       disconnect                            -->  UCX reports a reset, which
 *                                                  means CLOSED now
 *
 * A peer that does not run is not waited for: settle.c.
 *
 * A receive whose bytes are on their way is waited for before GOODBYE, which
 * tells the peer that nothing more is read: so the send that it takes succeeds,
 * and all others fail.
 *
 * UCX tells a graceful close and a crash apart by nothing: GOODBYE does. It
 * may overtake data, hence the sequence numbers. Both sides may close at once:
 * each acknowledges the other, whoever is acknowledged first disconnects. */
/* clang-format on */
#include "endpoint/endpoint.h"

#include <string.h>

#include "util/clock.h"
#include "util/log.h"

/* ---- our close -----------------------------------------------------------
 */

bool
umi_close_is_needed(umx_ep *ep)
{
    return ep->hooks->ask(ep, UMI_HAS_WAITING) ||
           !umi_list_is_empty(&ep->base.waiting);
}

static void
set_deadline(umx_ep *ep, uint64_t timeout_ns)
{
    uint64_t now = umi_clock_ns();

    ep->close_deadline_ns = (timeout_ns < UINT64_MAX - now) ? now + timeout_ns :
                                                              UINT64_MAX;
    /* A handshake's own deadline stays if it comes first. */
    if (ep->state != UMX_EP_CONNECTING ||
        !umi_node_is_linked(&ep->timer.node) ||
        ep->close_deadline_ns < ep->timer.deadline_ns) {
        umi_timer_start(umi_endpoint_worker(ep), &ep->timer, timeout_ns);
    }
}

void
umi_close_start(umx_ep *ep, uint64_t timeout_ns)
{
    ep->is_closing       = true;
    ep->base.is_draining = true;
    umi_ep_base_hold(&ep->base);
    umi_endpoint_worker(ep)->num_closing++;
    set_deadline(ep, timeout_ns);
    ep->hooks->stop_reading(ep);
    umi_request_complete_all(&ep->queries, UMX_ERR_PEER_CLOSED);
    umi_ep_base_end_raw(&ep->base, UMX_ERR_PEER_CLOSED);
    if (ep->state == UMX_EP_OPEN) {
        umi_endpoint_set_state(ep, UMX_EP_DRAINING);
        umi_settle_start(ep);
        umi_endpoint_due(ep, UMI_DUE_SEND | UMI_DUE_ACK);
    }
}

void
umi_close_resume(umx_ep *ep)
{
    uint64_t now = umi_clock_ns();

    umi_endpoint_set_state(ep, UMX_EP_DRAINING);
    umi_timer_start(umi_endpoint_worker(ep), &ep->timer,
                    ep->close_deadline_ns > now ? ep->close_deadline_ns - now :
                                                  0);
    umi_settle_start(ep);
    umi_endpoint_due(ep, UMI_DUE_SEND);
}

static void
send_goodbye(umx_ep *ep)
{
    umi_control control;

    control.kind               = UMI_GOODBYE;
    control.u.goodbye.code     = 0;
    control.u.goodbye.raw_tags = ep->base.raw_tags;
    control.u.goodbye.count    = 0;
    control.u.goodbye.is_last  = false;
    ep->hooks->write_goodbye(ep, &control);
    control.u.goodbye.is_last = true;
    ep->is_goodbye_sent       = true;
    umi_endpoint_send_control(ep, &control);
    if (ep->state == UMX_EP_DRAINING) {
        umi_settle_start(ep);
    }
}

void
umi_close_advance(umx_ep *ep)
{
    if (ep->state != UMX_EP_DRAINING || ep->is_goodbye_sent) {
        return;
    }
    if (ep->is_peer_closed) {
        ep->hooks->fail_sends(ep, UMX_ERR_PEER_CLOSED);
        return; /* the peer waits for our ACK, and disconnects */
    }
    if (!ep->hooks->ask(ep, UMI_HAS_WAITING) &&
        umi_list_is_empty(&ep->base.waiting) && ep->base.num_tag_sends == 0 &&
        !ep->hooks->ask(ep, UMI_IS_BUSY) &&
        !ep->hooks->ask(ep, UMI_IS_RECEIVING)) {
        send_goodbye(ep);
    }
}

void
umi_close_check_received(umx_ep *ep)
{
    if (ep->state == UMX_EP_DRAINING && !ep->is_goodbye_sent) {
        umi_endpoint_due(ep, UMI_DUE_SEND);
    }
}

void
umi_close_on_ack(umx_ep *ep)
{
    if (ep->state != UMX_EP_DRAINING || !ep->is_goodbye_sent) {
        umi_endpoint_protocol_error(ep, "GOODBYE-ACK that nobody waits for");
        return;
    }
    umi_endpoint_finish(ep, UMX_EP_CLOSED, UMX_OK);
}

/* ---- the peer's close ----------------------------------------------------
 */

void
umi_close_on_goodbye(umx_ep *ep, const umi_control *control)
{
    if (ep->has_goodbye) {
        umi_endpoint_protocol_error(ep, "GOODBYE came twice");
        return;
    }
    if (!ep->hooks->read_goodbye(ep, control)) {
        return;
    }
    ep->has_goodbye = control->u.goodbye.is_last;
    if (ep->has_goodbye) {
        umi_close_check_arrived(ep);
    }
}

void
umi_close_check_arrived(umx_ep *ep)
{
    if (!ep->is_peer_closed && ep->hooks->ask(ep, UMI_HAS_ARRIVED)) {
        umi_endpoint_due(ep, UMI_DUE_GOODBYE);
    }
}

void
umi_close_peer_done(umx_ep *ep)
{
    if (ep->is_peer_closed || ep->base.handle == NULL) {
        return;
    }
    ep->is_peer_closed = true;
    umi_ep_base_end_raw(&ep->base, UMX_ERR_PEER_CLOSED);
    ep->hooks->peer_closed(ep);
    umi_request_complete_all(&ep->queries, UMX_ERR_PEER_CLOSED);
    umi_endpoint_due(ep, UMI_DUE_NOTIFY | UMI_DUE_ACK);
}

void
umi_close_try_ack(umx_ep *ep)
{
    umi_control control = {.kind = UMI_GOODBYE_ACK};

    if (!ep->is_peer_closed || ep->is_ack_sent || ep->base.handle == NULL) {
        return;
    }
    if (ep->state == UMX_EP_OPEN && ep->num_announced != 0) {
        ep->hooks->visit(ep, UMI_DUE_ACK);
    }
    /* What this side closed on is not read any more: only receives already
     * landing are waited for. */
    if (ep->num_landing != 0 ||
        (ep->state == UMX_EP_OPEN && ep->num_announced != 0)) {
        return;
    }
    ep->is_ack_sent = true;
    umi_endpoint_send_control(ep, &control);
}

/* ---- the end -------------------------------------------------------------
 */

/* Choose the status of a connection that failed. For a refused one UCX reports
 * NOT_CONNECTED or CONNECTION_RESET, whichever of its system calls hears of it
 * first. */
static umx_status
connect_status(const umx_ep *ep, umx_status status)
{
    bool is_silent = !ep->is_server && !ep->handshake->has_hello &&
                     ep->base.reason == NULL;

    return (status == UMX_ERR_CONNECTION_RESET && is_silent) ?
               UMX_ERR_NOT_CONNECTED :
               status;
}

/* Choose the status of an open connection that has ended. What breaks in UCX
 * when its peer dies has many names: an shm segment that is gone, for one. */
static umx_status
end_of_open(const umx_ep *ep, umx_status status)
{
    bool is_reset = status != UMX_ERR_ENDPOINT_TIMEOUT &&
                    umi_socket_is_over(&ep->socket);

    return is_reset ? UMX_ERR_CONNECTION_RESET : status;
}

void
umi_close_on_error(umx_ep *ep, umx_status status)
{
    if (ep->base.reason != NULL) {
        umi_endpoint_set_reason(ep, ep->base.reason, strlen(ep->base.reason));
    }
    switch (ep->state) {
    case UMX_EP_CONNECTING:
        umi_endpoint_finish(ep, UMX_EP_FAILED, connect_status(ep, status));
        break;
    case UMX_EP_OPEN:
        if (ep->is_peer_closed) {
            umi_endpoint_finish(ep, UMX_EP_CLOSED, UMX_ERR_PEER_CLOSED);
        } else {
            umi_endpoint_finish(ep, UMX_EP_FAILED, end_of_open(ep, status));
        }
        break;
    case UMX_EP_DRAINING:
        if (ep->is_peer_closed || ep->has_goodbye) {
            umi_endpoint_finish(ep, UMX_EP_CLOSED, UMX_OK);
        } else {
            umi_endpoint_finish(ep, UMX_EP_FAILED, end_of_open(ep, status));
        }
        break;
    case UMX_EP_CLOSED:
    case UMX_EP_FAILED:
        break;
    }
}

static const umi_request_ops close_ops = {
    .name   = "close",
    .cancel = umi_request_cancel_queued,
};

umx_status
umx_ep_close(umx_ep *ep, uint64_t timeout_ns, const umx_op_params *params,
             umx_request **req_p)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    umx_request *req;
    umx_status   status;

    if (ep->base.worker == NULL || ep->state == UMX_EP_CLOSED ||
        ep->state == UMX_EP_FAILED) {
        return UMX_OK;
    }
    status = umi_worker_check(ep->base.worker);
    if (status != UMX_OK) {
        return status;
    }
    umi_ep_base_flush_gathered(&ep->base, true);
    if (ep->state == UMX_EP_CONNECTING && !umi_close_is_needed(ep)) {
        umx_ep_abort(ep);
        return UMX_OK;
    }
    req = umi_request_new(ep->base.worker, &ep->base, &close_ops, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    req->buf = (umx_buffer){0};
    umi_list_append(&ep->closers, &req->node);
    if (!ep->is_closing) {
        umi_close_start(ep, timeout_ns);
    }
    *req_p = req;
    return UMX_INPROGRESS;
}

void
umi_close_check_count(umx_ep *ep)
{
    if (ep->close_after != 0 && ep->recv_count >= ep->close_after) {
        umi_endpoint_due(ep, UMI_DUE_CLOSE_COUNT);
    }
}

umx_status
umx_ep_close_after_recv(umx_ep *ep, uint64_t n)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    if (ep->close_after != 0) {
        return UMX_ERR_BUSY;
    }
    if (n < ep->recv_count) {
        return UMX_ERR_INVALID_PARAM;
    }
    ep->close_after = n;
    if (n == ep->recv_count && ep->state == UMX_EP_OPEN) {
        umi_endpoint_due(ep, UMI_DUE_CLOSE_COUNT);
    }
    return UMX_OK;
}
