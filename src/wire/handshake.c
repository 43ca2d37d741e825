/* handshake.c: from a UCX connection to an open endpoint.
 *
 *   connecting                                     listening
 *       HELLO (version, limits, nonce)        -->
 *                                             <--  CHALLENGE (nonce)   |
 *       AUTH (HMAC)                           -->                      | token
 *                                             <--  WELCOME (limits, HMAC)
 *     open                                           open
 *
 * Each side proves the token over both nonces, so nothing can be replayed. A
 * peer that is refused gets REJECT, and goes; one that stays mute or speaks
 * something else is dropped at the deadline. */
#include <stdlib.h>
#include <string.h>
#include <umx/version.h>

#include "util/hash.h"
#include "util/log.h"
#include "wire/conn.h"

enum {
    WIRE_MINOR = 0
};

static const umx_config *
config_of(const umx_ep *ep)
{
    return &umi_conn_worker(ep)->context->config;
}

static umi_limits
own_limits(const umx_ep *ep)
{
    const umx_config *config = config_of(ep);
    umi_limits        limits = {
               .bytes    = config->credit_bytes,
               .messages = config->credit_messages,
               .rndv     = config->credit_rndv,
    };

    return limits;
}

static void
start_credit(umi_channel *channel)
{
    umi_credit_start(channel, &channel->ep->peer_limits);
}

static void
fail(umx_ep *ep, umx_status status, const char *reason)
{
    umi_conn_set_reason(ep, reason, strlen(reason));
    umi_conn_finish(ep, UMX_EP_FAILED, status);
}

static void
open_conn(umx_ep *ep, const umi_limits *peer_limits)
{
    umi_timer_stop(&ep->timer);
    ep->state       = UMX_EP_OPEN;
    ep->peer_limits = *peer_limits;
    ep->rndv_thresh = umi_ep_has_shm(&ep->base) ?
                          config_of(ep)->rndv_thresh_shm :
                          config_of(ep)->rndv_thresh_net;
    umi_conn_each_channel(ep, start_credit);
    if (ep->is_server) {
        umi_conn_due(ep, UMI_DUE_ACCEPT | UMI_DUE_NOTIFY);
    } else {
        umi_handshake_end(ep);
        umi_conn_due(ep, UMI_DUE_SEND | UMI_DUE_NOTIFY);
    }
}

/* HMAC over a role and two nonces. */
static void
make_mac(const umx_ep *ep, const char *role, const uint8_t *first,
         const uint8_t *second, uint8_t *mac)
{
    uint8_t text[10 + 2 * UMI_NONCE_SIZE];

    memcpy(text, role, 10);
    memcpy(text + 10, first, UMI_NONCE_SIZE);
    memcpy(text + 10 + UMI_NONCE_SIZE, second, UMI_NONCE_SIZE);
    umi_hmac_sha256(config_of(ep)->token, config_of(ep)->token_len, text,
                    sizeof(text), mac);
}

static void
client_mac(const umx_ep *ep, uint8_t *mac)
{
    make_mac(ep, "umx client", ep->handshake->client_nonce,
             ep->handshake->server_nonce, mac);
}

static void
server_mac(const umx_ep *ep, uint8_t *mac)
{
    make_mac(ep, "umx server", ep->handshake->server_nonce,
             ep->handshake->client_nonce, mac);
}

void
umi_handshake_end(umx_ep *ep)
{
    umi_handshake *handshake = ep->handshake;

    if (handshake == NULL) {
        return;
    }
    ep->handshake = NULL;
    if (handshake->listener != NULL) {
        handshake->listener->num_handshakes--;
        umi_listener_release(handshake->listener);
    }
    free(handshake);
}

/* ---- the listening side --------------------------------------------------
 */

void
umi_handshake_on_request(umx_listener *listener, void *conn_request)
{
    umx_worker *worker = listener->worker;
    umx_ep     *ep;
    umx_status  status;

    if (listener->num_handshakes >= listener->backlog) {
        umi_log(UMI_LOG_WARN, "connection refused: %u handshakes in progress",
                listener->num_handshakes);
        umi_listener_reject(listener, conn_request);
        return;
    }
    ep = umi_conn_new(worker);
    if (ep == NULL) {
        umi_log(UMI_LOG_ERROR, "connection refused: out of memory");
        umi_listener_reject(listener, conn_request);
        return;
    }
    ep->is_server = true;
    status        = umi_ep_open_request(&ep->base, conn_request);
    if (status != UMX_OK) {
        umi_log(UMI_LOG_ERROR, "connection not accepted: %s",
                umx_status_string(status));
        ep->state = UMX_EP_FAILED;
        umi_handshake_end(ep);
        umi_ep_release(&ep->base);
        return;
    }
    ep->handshake->listener = listener;
    umi_listener_hold(listener);
    listener->num_handshakes++;
    umi_timer_start(worker, &ep->timer, listener->timeout_ns);
}

/* Tell the peer why, and let it go first: closing here at once could overtake
 * the words. The handshake's timer stays the bound. */
static void
reject(umx_ep *ep, umx_status reason, const char *text)
{
    umi_control control = {.kind = UMI_REJECT};

    umi_log(UMI_LOG_WARN, "endpoint %llu rejected: %s",
            (unsigned long long)ep->base.id, text);
    umi_conn_worker(ep)->stats.protocol_errors++;
    control.u.reject.reason   = reason;
    control.u.reject.text     = text;
    control.u.reject.text_len = (uint16_t)strlen(text);
    umi_conn_send_control(ep, &control);
}

static void
welcome(umx_ep *ep)
{
    umi_control control     = {.kind = UMI_WELCOME};
    umi_limits  peer_limits = ep->peer_limits;

    control.u.welcome.major  = UMX_WIRE_VERSION;
    control.u.welcome.minor  = WIRE_MINOR;
    control.u.welcome.limits = own_limits(ep);
    if (config_of(ep)->token != NULL) {
        server_mac(ep, control.u.welcome.mac);
    }
    umi_conn_send_control(ep, &control);
    if (ep->state == UMX_EP_CONNECTING) {
        open_conn(ep, &peer_limits);
    }
}

static void
challenge(umx_ep *ep)
{
    umi_control control = {.kind = UMI_CHALLENGE};

    if (!umi_random_bytes(ep->handshake->server_nonce, UMI_NONCE_SIZE)) {
        fail(ep, UMX_ERR_IO_ERROR, "no random bytes");
        return;
    }
    memcpy(control.u.challenge.nonce, ep->handshake->server_nonce,
           UMI_NONCE_SIZE);
    umi_conn_send_control(ep, &control);
}

static void
on_hello(umx_ep *ep, const umi_control *control)
{
    umi_handshake *handshake = ep->handshake;

    if (handshake->has_hello) {
        umi_conn_protocol_error(ep, "HELLO came twice");
        return;
    }
    handshake->has_hello = true;
    memcpy(handshake->client_nonce, control->u.hello.nonce, UMI_NONCE_SIZE);
    ep->peer_limits = control->u.hello.limits;
    if (control->u.hello.major != UMX_WIRE_VERSION) {
        reject(ep, UMX_ERR_VERSION, "wire version 1 is needed");
    } else if (config_of(ep)->token != NULL) {
        challenge(ep);
    } else {
        welcome(ep);
    }
}

static void
on_auth(umx_ep *ep, const umi_control *control)
{
    uint8_t mac[UMI_MAC_SIZE];

    if (!ep->handshake->has_hello || config_of(ep)->token == NULL) {
        umi_conn_protocol_error(ep, "AUTH that nobody asked for");
        return;
    }
    client_mac(ep, mac);
    if (umi_equal_constant_time(mac, control->u.auth.mac, UMI_MAC_SIZE)) {
        welcome(ep);
    } else {
        reject(ep, UMX_ERR_AUTH, "the token is not ours");
    }
}

/* ---- the connecting side -------------------------------------------------
 */

static void
on_challenge(umx_ep *ep, const umi_control *control)
{
    umi_control answer = {.kind = UMI_AUTH};

    if (config_of(ep)->token == NULL) {
        fail(ep, UMX_ERR_AUTH, "the listener asks for a token");
        return;
    }
    if (ep->handshake->has_hello) {
        umi_conn_protocol_error(ep, "CHALLENGE came twice");
        return;
    }
    ep->handshake->has_hello = true;
    memcpy(ep->handshake->server_nonce, control->u.challenge.nonce,
           UMI_NONCE_SIZE);
    client_mac(ep, answer.u.auth.mac);
    umi_conn_send_control(ep, &answer);
}

static void
on_welcome(umx_ep *ep, const umi_control *control)
{
    uint8_t mac[UMI_MAC_SIZE];

    if (control->u.welcome.major != UMX_WIRE_VERSION) {
        fail(ep, UMX_ERR_VERSION, "the listener speaks another wire version");
        return;
    }
    if (config_of(ep)->token != NULL) {
        server_mac(ep, mac);
        if (!umi_equal_constant_time(mac, control->u.welcome.mac,
                                     UMI_MAC_SIZE)) {
            fail(ep, UMX_ERR_AUTH, "the listener does not know the token");
            return;
        }
    }
    open_conn(ep, &control->u.welcome.limits);
}

static void
on_reject(umx_ep *ep, const umi_control *control)
{
    umx_status status = (umx_status)control->u.reject.reason;

    if (status != UMX_ERR_VERSION && status != UMX_ERR_AUTH) {
        status = UMX_ERR_REJECTED;
    }
    umi_conn_set_reason(ep, control->u.reject.text, control->u.reject.text_len);
    umi_conn_finish(ep, UMX_EP_FAILED, status);
}

void
umi_handshake_on_control(umx_ep *ep, const umi_control *control)
{
    if (ep->is_server && control->kind == UMI_HELLO) {
        on_hello(ep, control);
    } else if (ep->is_server && control->kind == UMI_AUTH) {
        on_auth(ep, control);
    } else if (!ep->is_server && control->kind == UMI_CHALLENGE) {
        on_challenge(ep, control);
    } else if (!ep->is_server && control->kind == UMI_WELCOME) {
        on_welcome(ep, control);
    } else if (!ep->is_server && control->kind == UMI_REJECT) {
        on_reject(ep, control);
    } else {
        umi_conn_protocol_error(ep, "control message out of turn");
    }
}

static umx_status
send_hello(umx_ep *ep)
{
    umi_control control = {.kind = UMI_HELLO};

    if (!umi_random_bytes(ep->handshake->client_nonce, UMI_NONCE_SIZE)) {
        return UMX_ERR_IO_ERROR;
    }
    control.u.hello.major  = UMX_WIRE_VERSION;
    control.u.hello.minor  = WIRE_MINOR;
    control.u.hello.limits = own_limits(ep);
    memcpy(control.u.hello.nonce, ep->handshake->client_nonce, UMI_NONCE_SIZE);
    umi_conn_send_control(ep, &control);
    return UMX_OK;
}

umx_status
umx_ep_connect(umx_worker *worker, const umx_connect_params *params,
               umx_ep **ep_p)
{
    bool       has_local  = (params->field_mask & UMX_CONNECT_FIELD_LOCAL) != 0;
    uint64_t   timeout_ns = worker->context->config.connect_timeout_ns;
    umx_status status     = umi_worker_check(worker);
    umx_ep    *ep;

    if (status != UMX_OK) {
        return status;
    }
    if (params->addr == NULL || params->addr_len == 0 ||
        (has_local && (params->local == NULL || params->local_len == 0))) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (!umi_context_can_use(worker->context, params->addr)) {
        return UMX_ERR_UNREACHABLE;
    }
    if (params->field_mask & UMX_CONNECT_FIELD_TIMEOUT) {
        timeout_ns = params->timeout_ns;
    }
    ep = umi_conn_new(worker);
    if (ep == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    if (params->field_mask & UMX_CONNECT_FIELD_ON_STATE) {
        ep->on_state = params->on_state;
        ep->arg      = params->arg;
    }
    status = umi_ep_open(&ep->base, params->addr, params->addr_len,
                         has_local ? params->local : NULL, params->local_len);
    if (status != UMX_OK) {
        goto release_ep;
    }
    umi_timer_start(worker, &ep->timer, timeout_ns);
    status = send_hello(ep);
    if (status != UMX_OK) {
        goto release_ep;
    }
    *ep_p = ep;
    return UMX_OK;

release_ep:
    umx_ep_destroy(ep);
    return status;
}
