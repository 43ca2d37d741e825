/* SPDX-License-Identifier: BSD-3-Clause */
/* query.c: questions to the peer, and the answers to its own.
 *
 * A peer takes only so many control messages at a time (control_io.c), so at
 * most MAX_ASKED questions are on their way; those that were given up count
 * until they are answered. */
#include <stdlib.h>
#include <string.h>
#include <umx/control.h>
#include <umx/layer.h>

#include "endpoint/accept.h"
#include "endpoint/endpoint.h"
#include "util/clock.h"
#include "util/count.h"
#include "util/process.h"

enum {
    MAX_ASKED = 16,
    /* Answers that may wait in UCX for a peer that does not take them. One that
     * keeps to MAX_ASKED has asked for no more before it has taken some. */
    MAX_ANSWERS = 256
};

typedef struct asked {
    uint64_t token;   /* 0: not sent */
    uint64_t time_ns; /* of sending, then until the answer */
    uint8_t  kind;
} asked;

UMI_REQUEST_TAIL(asked, asked_of);

static umx_request *
request_of(umi_node *node)
{
    return umi_container_of(node, umx_request, node);
}

static const umi_request_ops query_ops = {
    .name   = "ask",
    .cancel = umi_request_cancel_queued,
};

/* ---- asking --------------------------------------------------------------
 */

/* Find the first question that has not been sent; the sent ones are few. */
static umx_request *
first_unsent(umx_ep *ep)
{
    UMI_LIST_FOREACH(node, &ep->queries) {
        if (asked_of(request_of(node))->token == 0) {
            return request_of(node);
        }
    }
    return NULL;
}

void
umi_query_send_waiting(umx_ep *ep)
{
    while (ep->state == UMX_EP_OPEN && ep->num_asked < MAX_ASKED) {
        umx_request *req     = first_unsent(ep);
        umi_control  control = {0};

        if (req == NULL) {
            return;
        }
        ep->num_asked++;
        asked_of(req)->token   = ++ep->last_query;
        asked_of(req)->time_ns = umi_clock_ns();
        control.kind           = (umi_control_kind)asked_of(req)->kind;
        control.u.ask.token    = asked_of(req)->token;
        umi_endpoint_send_control(ep, &control); /* may end all of this */
    }
}

static umx_status
ask(umx_ep *ep, umi_control_kind kind, const umx_op_params *params,
    umx_request **req_p)
{
    umx_status   status = umi_endpoint_check(ep);
    umx_request *req;

    if (status == UMX_OK) {
        status = umi_endpoint_send_status(ep);
    }
    if (status != UMX_OK) {
        return status;
    }
    umi_link_look_first(&ep->base);
    req = umi_request_new(ep->base.worker, &ep->base, &query_ops, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    req->buf             = (umx_buffer){0};
    asked_of(req)->kind  = (uint8_t)kind;
    asked_of(req)->token = 0;
    umi_list_append(&ep->queries, &req->node);
    *req_p = req;
    umi_query_send_waiting(ep);
    return UMX_INPROGRESS;
}

umx_status
umx_ep_ping(umx_ep *ep, const umx_op_params *params, umx_request **req_p)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return ask(ep, UMI_PING, params, req_p);
}

umx_status
umx_ep_peer_info(umx_ep *ep, const umx_op_params *params, umx_request **req_p)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return ask(ep, UMI_INFO_REQUEST, params, req_p);
}

umx_status
umx_ep_close_listener(umx_ep *ep, const umx_op_params *params,
                      umx_request **req_p)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    if (ep->is_server) {
        return UMX_ERR_INVALID_PARAM;
    }
    return ask(ep, UMI_CLOSE_LISTENER, params, req_p);
}

uint64_t
umx_request_time_ns(const umx_request *req)
{
    return (req != NULL) ? asked_of(req)->time_ns : 0;
}

/* ---- the peer's answers --------------------------------------------------
 */

static umi_control_kind
answer_to(umi_control_kind kind)
{
    switch (kind) {
    case UMI_PING:
        return UMI_PONG;
    case UMI_INFO_REQUEST:
        return UMI_INFO;
    default:
        return UMI_LISTENER_CLOSED;
    }
}

/* Find the question with `token`; NULL if it was given up. */
static umx_request *
find_asked(umx_ep *ep, uint64_t token)
{
    UMI_LIST_FOREACH(node, &ep->queries) {
        if (asked_of(request_of(node))->token == token) {
            return request_of(node);
        }
    }
    return NULL;
}

static umx_status
keep_info(umx_ep *ep, const umi_control *control)
{
    char *text = strndup(control->u.info.text, control->u.info.text_len);

    if (text == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    free(ep->info);
    ep->info = text;
    return UMX_OK;
}

void
umi_query_on_answer(umx_ep *ep, const umi_control *control)
{
    uint64_t     token  = 0;
    umx_status   status = UMX_OK;
    umx_request *req;

    switch (control->kind) {
    case UMI_PONG:
        token = control->u.ask.token;
        break;
    case UMI_INFO:
        token = control->u.info.token;
        break;
    default:
        token  = control->u.listener_closed.token;
        status = (umx_status)control->u.listener_closed.status;
        break;
    }
    if (ep->num_asked == 0 || token == 0 || token > ep->last_query) {
        umi_endpoint_protocol_error(ep, "an answer to nothing");
        return;
    }
    UMI_DECREMENT(ep->num_asked);
    req = find_asked(ep, token);
    if (req != NULL &&
        answer_to((umi_control_kind)asked_of(req)->kind) != control->kind) {
        umi_endpoint_protocol_error(ep, "an answer to another question");
        return;
    }
    if (req != NULL) {
        if (control->kind == UMI_INFO) {
            status = keep_info(ep, control);
        }
        asked_of(req)->time_ns = umi_clock_ns() - asked_of(req)->time_ns;
        umi_request_complete(req, status);
    }
    umi_query_send_waiting(ep);
}

/* ---- our answers ---------------------------------------------------------
 */

static void
send_info(umx_ep *ep, uint64_t token)
{
    umi_control control = {.kind = UMI_INFO, .u.info.token = token};
    char        text[UMI_TEXT_MAX];

    control.u.info.text_len = (uint16_t)umi_info_write(ep, text, sizeof(text));
    control.u.info.text     = text;
    umi_endpoint_send_control(ep, &control);
}

static umx_status
close_listener(umx_ep *ep)
{
    umx_listener *listener = ep->accepted_by;

    if (listener == NULL) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (listener->is_destroyed) {
        return UMX_OK;
    }
    if (listener->on_remote_close == NULL) {
        return UMX_ERR_REJECTED;
    }
    umi_listener_stop(listener);
    if (umi_accept_put_off(listener)) {
        listener->is_close_put_off = true;
    } else {
        listener->on_remote_close(listener, listener->arg);
    }
    return UMX_OK;
}

void
umi_query_answer(umx_ep *ep, const umi_control *question)
{
    uint64_t    token  = question->u.ask.token;
    umi_control answer = {.kind = UMI_PONG, .u.ask.token = token};

    if (ep->num_answers >= MAX_ANSWERS) {
        umi_endpoint_protocol_error(ep,
                                    "questions whose answers are not taken");
        return;
    }
    if (question->kind == UMI_INFO_REQUEST) {
        send_info(ep, token);
        return;
    }
    if (question->kind == UMI_CLOSE_LISTENER) {
        answer.kind                     = UMI_LISTENER_CLOSED;
        answer.u.listener_closed.token  = token;
        answer.u.listener_closed.status = close_listener(ep);
    }
    umi_endpoint_send_control(ep, &answer);
}

/* ---- what is known without asking ----------------------------------------
 */

const char *
umx_ep_peer_info_text(const umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return ep->info;
}

umx_status
umx_ep_peer_id(const umx_ep *ep, umx_peer_id *peer)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    if (ep->peer_pid == 0) {
        return UMX_ERR_NOT_CONNECTED;
    }
    peer->pid        = ep->peer_pid;
    peer->version[0] = ep->peer_version >> 16;
    peer->version[1] = ep->peer_version >> 8 & 0xff;
    peer->version[2] = ep->peer_version & 0xff;
    return UMX_OK;
}

bool
umx_ep_is_hung_up(const umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return umi_socket_is_hung_up(&ep->socket);
}

_Static_assert(UMX_PROCESS_UNKNOWN == (int)UMI_PROCESS_UNKNOWN &&
                   UMX_PROCESS_RUNS == (int)UMI_PROCESS_RUNS &&
                   UMX_PROCESS_STOPPED == (int)UMI_PROCESS_STOPPED &&
                   UMX_PROCESS_ENDED == (int)UMI_PROCESS_ENDED,
               "one set of states");

umx_process_state
umx_ep_peer_process(const umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return (ep->shares_pids && ep->peer_pid != 0) ?
               (umx_process_state)umi_process_state_of((pid_t)ep->peer_pid) :
               UMX_PROCESS_UNKNOWN;
}

void
umx_ep_query(const umx_ep *ep, umx_ep_stats *stats)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    *stats = ep->stats;
    ep->hooks->count_waiting(ep, stats);
}

bool
umx_ep_unread(const umx_ep *ep, umx_unread *unread)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return ep->hooks->find_unread(ep, unread);
}
