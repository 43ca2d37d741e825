/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.c: umx_ep_connect(), and why connecting fails, for people. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint/wireup.h"

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

void
umi_handshake_explain(umx_ep *ep, umx_status status)
{
    char address[UMI_ADDRESS_TEXT], text[UMI_ADDRESS_TEXT + 128];

    if (ep->is_server || umx_ep_reason(ep)[0] != '\0') {
        return;
    }
    umi_socket_peer_text(&ep->socket, address);
    if (ep->socket.error != 0) {
        snprintf(text, sizeof(text), "%s: %s (errno %d)", address,
                 strerror(ep->socket.error), ep->socket.error);
    } else if (status == UMX_ERR_TIMED_OUT) {
        snprintf(text, sizeof(text), "%s: %s", address,
                 umi_socket_is_connected(&ep->socket) ?
                     "connected, but nothing was said" :
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
    umx_status status = umi_worker_check(worker);

    if (status != UMX_OK) {
        return status;
    }
    if (!umi_address_is_valid(params->addr, params->addr_len) ||
        ((params->field_mask & UMX_CONNECT_FIELD_LOCAL) &&
         !umi_address_is_valid(params->local, params->local_len))) {
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
    char address[UMI_ADDRESS_TEXT], text[UMI_ADDRESS_TEXT + 128];

    umi_address_text(addr, address);
    snprintf(text, sizeof(text), "%s: %s (errno %d)", address,
             strerror(ep->socket.error), ep->socket.error);
    umi_endpoint_set_reason(ep, text, strlen(text));
}

umx_status
umx_ep_connect(umx_worker *worker, const umx_connect_params *params,
               umx_ep **ep_p)
{
    UMI_GUARD(worker);
    bool       has_local  = (params->field_mask & UMX_CONNECT_FIELD_LOCAL) != 0;
    uint64_t   timeout_ns = worker->context->config.connect_timeout_ns;
    umx_status status     = check_params(worker, params);
    umx_ep    *ep;

    if (status == UMX_OK) {
        status = umi_endpoint_new(worker, &ep);
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
    status = umi_socket_connect(&ep->socket, params->addr, params->addr_len,
                                has_local ? params->local : NULL,
                                params->local_len);
    if (status == UMX_OK) {
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
