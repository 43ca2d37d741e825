/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.c: umx_ep_connect(), and why connecting fails, for people. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint/connect_hosts.h"
#include "endpoint/log.h"
#include "endpoint/strangers.h"
#include "endpoint/wireup.h"

/* Where to connect again. */
typedef struct umi_again {
    struct sockaddr_storage peer;
    size_t                  peer_len;
    struct sockaddr_storage local; /* if the program has chosen one */
    size_t                  local_len;
} umi_again;

/* ---- for people ----------------------------------------------------------
 */

const char *
umi_handshake_name_foreign(umx_ep *ep)
{
    enum {
        SHOWN = 32
    };
    char           text[40 + 4 * SHOWN];
    const uint8_t *data = NULL;
    size_t         len  = umi_socket_unread(&ep->socket, &data);
    size_t         pos;

    if (len == 0) {
        return "not a byte of an open socket";
    }
    pos = (size_t)snprintf(text, sizeof(text), "not a ucp %s: it sent '",
                           ep->is_server ? "client" : "server");

    for (size_t i = 0; i < len && i < SHOWN; i++) {
        bool is_plain = data[i] >= ' ' && data[i] < 0x7f;

        pos += (size_t)snprintf(text + pos, sizeof(text) - pos,
                                is_plain ? "%c" : "\\x%02x", data[i]);
    }
    snprintf(text + pos, sizeof(text) - pos, (len > SHOWN) ? "'..." : "'");
    free(ep->foreign);
    ep->foreign = strdup(text);
    return (ep->foreign != NULL) ? ep->foreign : "not a ucp peer";
}

/* The socket is connected, but UCX's messages are not answered. */
static void
explain_silence(umx_ep *ep, const char *address)
{
    char lanes[UMI_LANES_TEXT];
    char text[UMI_SOCKADDR_TEXT + sizeof(lanes) + 128];

    umi_endpoint_lanes(ep, lanes);
    snprintf(text, sizeof(text),
             "%s: connected, but messages of UCX, by %s, are not answered: the "
             "option NET_DEVICES says which devices UCX uses",
             address, (lanes[0] != '\0') ? lanes : "any network");
    umi_endpoint_set_reason(ep, text, strlen(text));
}

static const char undecided[] =
    "a process of this host has ended, and it is not known yet whether it "
    "blocks the queue in shared memory: that takes two seconds";

void
umi_handshake_explain(umx_ep *ep, umx_status status)
{
    char address[UMI_SOCKADDR_TEXT], text[UMI_SOCKADDR_TEXT + 128];

    if (ep->is_server || umx_ep_reason(ep)[0] != '\0') {
        return;
    }
    umi_socket_peer_text(&ep->socket, address);
    if (ep->handshake->is_knocking && status == UMX_ERR_TIMED_OUT) {
        explain_silence(ep, address);
        return;
    }
    if (ep->handshake->is_waiting && status == UMX_ERR_TIMED_OUT) {
        umi_endpoint_set_reason(ep, undecided, strlen(undecided));
        return;
    }
    if (ep->socket.error != 0) {
        snprintf(text, sizeof(text), "%s: %s (errno %d)%s", address,
                 strerror(ep->socket.error), ep->socket.error,
                 (ep->socket.error == ECONNREFUSED) ?
                     ": does a process listen there?" :
                     "");
    } else if (status == UMX_ERR_TIMED_OUT) {
        snprintf(
            text, sizeof(text), "%s: %s", address,
            umi_socket_is_connected(&ep->socket) ?
                "connected, but nothing was said: is its event loop busy, or "
                "is there a firewall?" :
                "no answer");
    } else {
        snprintf(text, sizeof(text), "%s: it hung up", address);
    }
    umi_endpoint_set_reason(ep, text, strlen(text));
}

/* ---- connecting ----------------------------------------------------------
 */

static umx_status
check_params(umx_worker *worker, const umx_connect_params *params)
{
    umx_status status = umi_worker_check_begin(worker);

    if (status != UMX_OK) {
        return status;
    }
    if (!umi_sockaddr_is_valid(params->addr, params->addr_len) ||
        ((params->field_mask & UMX_CONNECT_FIELD_LOCAL) &&
         !umi_sockaddr_is_valid(params->local, params->local_len))) {
        return UMX_ERR_INVALID_PARAM;
    }
    return UMX_OK;
}

/* True for what the network says of the address: that comes as a state change,
 * whether the system knows it at once or later. */
static bool
is_verdict(umx_status status)
{
    return status == UMX_ERR_NOT_CONNECTED || status == UMX_ERR_UNREACHABLE;
}

/* Tell what the system knew without a socket. */
static void
explain_at_once(umx_ep *ep, const struct sockaddr *addr)
{
    char address[UMI_SOCKADDR_TEXT], text[UMI_SOCKADDR_TEXT + 128];

    umi_sockaddr_text(addr, address);
    snprintf(text, sizeof(text), "%s: %s (errno %d)", address,
             strerror(ep->socket.error), ep->socket.error);
    umi_endpoint_set_reason(ep, text, strlen(text));
}

/* ---- connecting again ----------------------------------------------------
 */

/* The port is the system's choice: the one so far may not be free at once. */
static void
forget_port(struct sockaddr_storage *addr)
{
    if (addr->ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)addr)->sin6_port = 0;
    } else {
        ((struct sockaddr_in *)addr)->sin_port = 0;
    }
}

/* Write down where to connect again. False: once has been enough, or it is not
 * known. */
static bool
remember(umx_ep *ep)
{
    umi_again *again = NULL;

    if (ep->handshake->again != NULL) {
        return false;
    }
    again = calloc(1, sizeof(*again));
    if (again == NULL) {
        return false;
    }
    again->peer_len  = sizeof(again->peer);
    again->local_len = sizeof(again->local);
    if (umi_socket_address(&ep->socket, true, (struct sockaddr *)&again->peer,
                           &again->peer_len) != UMX_OK ||
        umi_socket_address(&ep->socket, false, (struct sockaddr *)&again->local,
                           &again->local_len) != UMX_OK) {
        free(again);
        return false;
    }
    forget_port(&again->local);
    ep->handshake->again = again;
    return true;
}

static void
fail(umx_ep *ep, umx_status status, const char *why)
{
    umi_endpoint_set_reason(ep, why, strlen(why));
    umi_endpoint_finish(ep, UMX_EP_FAILED, status);
}

void
umi_handshake_reset(umx_ep *ep)
{
    ep->attempt++;
    ep->protocol_error         = NULL;
    ep->base.events            = 0;
    ep->handshake->has_hello   = false;
    ep->handshake->is_waiting  = false;
    ep->handshake->is_knocking = false;
    ep->handshake->is_answered = false;
    umi_endpoint_set_reason(ep, "", 0);
}

void
umi_connect_again(umx_ep *ep, umx_status status, const char *why)
{
    umi_connect_hosts *hosts = ep->handshake->hosts;

    if (!remember(ep) || umi_strangers_begin_anew(ep) != UMX_OK) {
        fail(ep, status, why);
        return;
    }
    if (hosts != NULL) {
        hosts->next--; /* the same host once more */
    }
    umi_socket_close(&ep->socket);
    umi_endpoint_due(ep, UMI_DUE_CONNECT);
}

void
umi_connect_give_up(umx_ep *ep, umx_status status, const char *why)
{
    if (ep->handshake->must_say_apart) {
        umi_connect_again(ep, status, why);
    } else {
        fail(ep, status, why);
    }
}

void
umi_connect_step(umx_ep *ep)
{
    const umi_again *again;
    umx_status       status;

    if (ep->state != UMX_EP_CONNECTING) {
        return;
    }
    if (ep->handshake->hosts != NULL) {
        umi_connect_hosts_step(ep);
        return;
    }
    again = ep->handshake->again;
    umi_handshake_reset(ep);
    status = umi_socket_connect(
        &ep->socket, (const struct sockaddr *)&again->peer, again->peer_len,
        ep->handshake->has_local ? (const struct sockaddr *)&again->local :
                                   NULL,
        again->local_len);
    if (status != UMX_OK) {
        explain_at_once(ep, (const struct sockaddr *)&again->peer);
        umi_endpoint_finish(ep, UMX_EP_FAILED, status);
        return;
    }
    umi_handshake_start(ep);
}

/* ---- the call ------------------------------------------------------------
 */

umx_status
umx_ep_connect(umx_worker *worker, const umx_connect_params *params,
               umx_ep **ep_p)
{
    UMI_GUARD(worker);
    bool       has_local  = (params->field_mask & UMX_CONNECT_FIELD_LOCAL) != 0;
    uint64_t   timeout_ns = worker->context->config.connect_timeout_ns;
    umx_status status     = check_params(worker, params);
    umx_window window     = {0};
    umx_ep    *ep;

    if (params->field_mask & UMX_CONNECT_FIELD_WINDOW) {
        window = params->window;
    }
    if (status == UMX_OK) {
        status = umi_endpoint_new(worker, &window, &ep);
    }
    if (status != UMX_OK) {
        return status;
    }
    if (params->field_mask & UMX_CONNECT_FIELD_TIMEOUT) {
        timeout_ns = params->timeout_ns;
    }
    if (params->field_mask & UMX_CONNECT_FIELD_ON_STATE) {
        ep->on_state = params->on_state;
        ep->arg      = params->arg;
    }
    ep->handshake->has_local = has_local;
    status = umi_socket_connect(&ep->socket, params->addr, params->addr_len,
                                has_local ? params->local : NULL,
                                params->local_len);
    if (status == UMX_OK) {
        if (umi_log_is_on(UMI_LOG_DEBUG)) {
            umi_endpoint_log_connect(ep);
        }
        umi_timer_start(worker, &ep->timer, timeout_ns);
        umi_handshake_start(ep);
    } else if (is_verdict(status)) {
        explain_at_once(ep, params->addr);
        umi_endpoint_finish(ep, UMX_EP_FAILED, status);
    } else {
        umx_ep_destroy(ep);
        return status;
    }
    worker->is_armed = false; /* what is due runs at the next drain */
    *ep_p            = ep;
    return UMX_OK;
}
