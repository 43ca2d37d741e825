/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* wireup.c: from a TCP connection to an open endpoint.
 *
 *   connecting                                     listening
 *       HELLO (version, limits, nonce, where) -->
 *                                             <--  CHALLENGE (nonce)   | with a
 *       AUTH (HMAC)                           -->                      | token
 *                                             <--  WELCOME (limits, nonce,
 *                                                  where, HMAC)
 *       OPEN (HMAC)                           -->  open
 *       PING (over UCX)                       -->                      | of
 *       open                                  <--  PONG (over UCX)     | another
 *                                                                      | host
 *
 * Each worker has a pair of keys (util/x25519.h) and names the public one. The
 * HMACs of WELCOME and OPEN, whose key comes from both sides' keys and from the
 * token if there is one, cover all that was said: who answers has the secret
 * key, said this, and said it now. Until OPEN has shown that, nothing that the
 * connecting side says touches another connection.
 *
 * Neighbours: proof.c makes the HMACs, peer_address.c decides whether UCX may
 * be given the peer's address, apart.c whether the two use shared memory,
 * connect.c is umx_ep_connect() and tells people why a handshake failed.
 *
 * AUTH proves the token before the listening side does any more work. A
 * peer that is refused gets REJECT, and goes; one that stays mute or speaks
 * something else is dropped at the deadline.
 *
 * Messages then travel over UCX, between endpoints made from the workers'
 * addresses. Not over a connection of UCX's own manager: with that tcp stays
 * active beside shared memory, and its poll costs more than a message. The
 * socket stays open: the end of it is the end of the peer. What comes over UCX
 * before OPEN has been read waits. */
/* clang-format on */
#include <stdlib.h>
#include <string.h>
#include <umx/version.h>

#include "worker/kinds_of_peers.h"
#include "host/descriptors.h"
#include "endpoint/connect_hosts.h"
#include "endpoint/network.h"
#include "endpoint/strangers.h"
#include "endpoint/wireup.h"
#include "util/count.h"
#include "util/hash.h"
#include "endpoint/log.h"

enum {
    WIRE_MINOR = 0
};

_Static_assert((int)UMI_CONTROL_MAX <= (int)UMI_SOCKET_MESSAGE_MAX, "buffers");

static void
set_peer_limits(umx_ep *ep, const umi_limits *limits, uint32_t channels)
{
    ep->peer_limits   = *limits;
    ep->peer_channels = channels;
}

static void
fail(umx_ep *ep, umx_status status, const char *reason)
{
    umi_endpoint_set_reason(ep, reason, strlen(reason));
    umi_endpoint_finish(ep, UMX_EP_FAILED, status);
}

/* Send `len` bytes of a control message; 0: it was too long. False if the
 * endpoint has failed over it. */
static bool
say_bytes(umx_ep *ep, const uint8_t *bytes, size_t len)
{
    umx_status status = UMX_ERR_OUT_OF_RANGE;

    if (len != 0) {
        status = umi_socket_send(&ep->socket, bytes, len);
    }
    if (status != UMX_OK) {
        umi_endpoint_finish(ep, UMX_EP_FAILED, status);
    }
    return status == UMX_OK;
}

static bool
say(umx_ep *ep, const umi_control *control)
{
    uint8_t bytes[UMI_CONTROL_MAX];

    return say_bytes(ep, bytes, umi_control_encode(control, bytes));
}

/* Write our own side. False if the endpoint has failed over it. */
static bool
fill_where(umx_ep *ep, umi_where *where)
{
    umx_status status = umi_where_fill(ep, where);

    if (status != UMX_OK) {
        fail(ep, status, "no worker address");
    }
    return status == UMX_OK;
}

/* Let messages flow: both sides know the link to each other. */
static void
open_conn(umx_ep *ep)
{
    umi_timer_stop(&ep->timer);
    umi_endpoint_begin_traffic(ep);
    umi_socket_settle(&ep->socket);
    ep->base.is_bound = true;
    umi_endpoint_set_state(ep, UMX_EP_OPEN);
    if (umi_log_is_on(umi_endpoint_log_level(ep))) {
        umi_endpoint_log_open(ep);
    }
    umi_endpoint_observe_open(ep, UMX_OK);
    ep->hooks->open(ep);
    umi_heartbeat_start(ep);
    if (ep->is_server) {
        umi_endpoint_due(ep, UMI_DUE_ACCEPT | UMI_DUE_CONTROL | UMI_DUE_NOTIFY);
    } else {
        umi_handshake_end(ep);
        if (ep->is_closing) {
            umi_close_resume(ep);
        } else {
            umi_endpoint_due(ep, UMI_DUE_SEND | UMI_DUE_NOTIFY);
        }
    }
}

void
umi_handshake_end(umx_ep *ep)
{
    umi_handshake *handshake = ep->handshake;

    if (handshake == NULL) {
        return;
    }
    ep->handshake = NULL;
    UMI_DECREMENT(umi_endpoint_worker(ep)->num_handshakes);
    umi_endpoint_due(ep,
                     UMI_DUE_HANDLERS); /* messages may have overtaken OPEN */
    if (handshake->listener != NULL) {
        UMI_DECREMENT(handshake->listener->num_handshakes);
        umi_listener_release(handshake->listener);
    }
    if (handshake->configuration != NULL) {
        umi_configuration_put(handshake->configuration);
    }
    free(handshake->address);
    free(handshake->selected);
    free(handshake->hosts);
    free(handshake->again);
    explicit_bzero(handshake, sizeof(*handshake));
    free(handshake);
}

/* True if there is a connection to the same peer under the same number, which
 * could not tell the messages of the two apart. */
static bool
has_twin(const umx_ep *ep)
{
    UMI_LIST_FOREACH(node, &ep->base.link->eps) {
        const umi_ep_base *other = umi_container_of(node, umi_ep_base,
                                                    link_node);

        if (other != &ep->base && other->is_bound &&
            other->remote_id == ep->base.remote_id) {
            return true;
        }
    }
    return false;
}

/* Open the connection, whose peer has shown who it is. */
static void
open_with(umx_ep *ep)
{
    if (has_twin(ep)) {
        umi_endpoint_protocol_error(ep, "an endpoint number that is in use");
    } else {
        open_conn(ep);
    }
}

/* ---- the listening side --------------------------------------------------
 */

static void
fill_reject(umi_control *control, umx_status reason, const char *text)
{
    control->kind              = UMI_REJECT;
    control->u.reject.reason   = reason;
    control->u.reject.text     = text;
    control->u.reject.text_len = (uint16_t)strlen(text);
}

static void
refuse(int fd, const char *text)
{
    uint8_t     bytes[UMI_CONTROL_MAX];
    umi_control control;

    fill_reject(&control, UMX_ERR_REJECTED, text);
    umi_socket_refuse(fd, bytes, umi_control_encode(&control, bytes));
}

static const char busy[] = "busy: the listener has too few file descriptors "
                           "left (its limit of open files, ulimit -n)";

void
umi_handshake_on_busy(int fd)
{
    refuse(fd, busy);
}

void
umi_handshake_on_connection(umx_listener *listener, int fd)
{
    umx_worker *worker = listener->worker;
    umx_ep     *ep;
    umx_status  status;

    /* UCX needs some, too, for a connection that works. */
    if (!umi_descriptors_are_left_after(fd)) {
        umi_listener_tell_few(listener);
        worker->stats->refused_connections++;
        umi_handshake_on_busy(fd);
        return;
    }

    if (listener->num_handshakes >= listener->backlog) {
        umi_log(UMI_LOG_WARN, "connection refused: %u handshakes in progress",
                listener->num_handshakes);
        worker->stats->refused_connections++;
        refuse(fd, "too many handshakes in progress");
        return;
    }
    status = umi_endpoint_new(worker, &listener->window, &ep);
    if (status != UMX_OK) {
        umi_log(UMI_LOG_ERROR, "connection refused: %s",
                umx_status_string(status));
        worker->stats->refused_connections++;
        refuse(fd, umx_status_string(status));
        return;
    }
    ep->is_server = true;
    status        = umi_socket_take(&ep->socket, fd);
    if (status != UMX_OK) {
        umi_log(UMI_LOG_ERROR, "connection not accepted: %s",
                umx_status_string(status));
        umi_endpoint_set_state(ep, UMX_EP_FAILED);
        umi_handshake_end(ep);
        umi_ep_base_release(&ep->base);
        return;
    }
    (void)umi_network_follow(ep);
    ep->handshake->listener = listener;
    umi_listener_hold(listener);
    ep->accepted_by = listener;
    umi_listener_hold(listener);
    listener->num_handshakes++;
    umi_timer_start(worker, &ep->timer, listener->timeout_ns);
}

/* Tell the peer why, and let it go first: closing here at once could overtake
 * the words. The handshake's timer stays the bound. */
static void
reject(umx_ep *ep, umx_status reason, const char *text)
{
    umi_control control;

    /* A peer that has died cannot be reached, and that is no fault of its own.
     */
    if (ep->handshake->listener != NULL &&
        (reason == UMX_ERR_AUTH || !umi_socket_is_over(&ep->socket))) {
        umi_listener_complain(ep->handshake->listener, &ep->socket, text);
    }
    umi_endpoint_worker(ep)->stats->protocol_errors++;
    fill_reject(&control, reason, text);
    ep->handshake->is_rejected = true;
    if (say(ep, &control)) {
        umi_socket_finish(&ep->socket);
    }
}

/* Send WELCOME, whose last bytes are its HMAC. */
static bool
say_welcome(umx_ep *ep, const umi_control *control)
{
    uint8_t bytes[UMI_CONTROL_MAX];
    size_t  len = umi_control_encode(control, bytes);

    if (len != 0) {
        umi_proof_of_server(ep, bytes, len - UMI_MAC_SIZE,
                            bytes + len - UMI_MAC_SIZE);
        umi_sha256(bytes, len, ep->handshake->welcome_hash);
    }
    return say_bytes(ep, bytes, len);
}

static const char *
why_unlinked(umx_status status)
{
    switch (status) {
    case UMX_ERR_REJECTED:
        return "UCX's address is that of another worker";
    case UMX_ERR_EXCEEDS_LIMIT:
        return "UCX has no room for another kind of address: connect again";
    default:
        return umi_descriptors_are_left(UMI_DESCRIPTORS_OF_EP) ?
                   umi_network_no_transport(true) :
                   busy;
    }
}

static void
welcome(umx_ep *ep)
{
    const umi_peer_claim *claim   = &ep->handshake->claim;
    umi_control           control = {.kind = UMI_WELCOME};
    umi_link             *link;
    const char           *reason;
    umx_status            status;

    if (umi_endpoint_must_wait(ep)) {
        return;
    }
    if (!umi_random_bytes(control.u.welcome.nonce, UMI_NONCE_SIZE)) {
        fail(ep, UMX_ERR_IO_ERROR, "no random bytes");
        return;
    }
    status = umi_apart_check(ep, 0, &reason);
    if (status != UMX_OK) {
        fail(ep, status, reason);
        return;
    }
    status = umi_strangers_place(ep, &reason);
    if (status != UMX_OK) {
        reject(ep, status, reason);
        return;
    }
    /* The link is made now, so that UCX's endpoint is there when UCX hears of
     * the other side's. */
    status = umi_link_claim(&ep->base, claim, &link);
    if (status != UMX_OK) {
        reject(ep, status, why_unlinked(status));
        return;
    }
    umi_link_attach(link, &ep->base);
    control.u.welcome.major    = UMX_WIRE_VERSION;
    control.u.welcome.minor    = WIRE_MINOR;
    control.u.welcome.features = umi_apart_features(ep) | UMI_FEATURE_BOUNCE;
    control.u.welcome.limits   = ep->own_limits;
    control.u.welcome.channels = umi_endpoint_config(ep)->channels_max;
    control.u.welcome.peer     = link->id;
    control.u.welcome.made = umi_engine_counted(ep->base.engine, claim->uuid);
    if (fill_where(ep, &control.u.welcome.where) && say_welcome(ep, &control)) {
        ep->handshake->is_welcomed = true;
    }
}

static void
challenge(umx_ep *ep)
{
    umi_control control = {.kind = UMI_CHALLENGE};

    if (!umi_random_bytes(ep->handshake->challenge, UMI_NONCE_SIZE)) {
        fail(ep, UMX_ERR_IO_ERROR, "no random bytes");
        return;
    }
    memcpy(control.u.challenge.nonce, ep->handshake->challenge, UMI_NONCE_SIZE);
    (void)say(ep, &control);
}

static void
on_hello(umx_ep *ep, const umi_control *control, const void *data, size_t len)
{
    const char *reason;
    umx_status  status;

    if (ep->handshake->has_hello) {
        umi_endpoint_protocol_error(ep, "HELLO came twice");
        return;
    }
    ep->handshake->has_hello = true;
    if (control->u.hello.major != UMX_WIRE_VERSION) {
        reject(ep, UMX_ERR_VERSION,
               "wire version " UMI_TEXT_OF(UMX_WIRE_VERSION) " is needed");
        return;
    }
    umi_sha256(data, len, ep->handshake->hello_hash);
    set_peer_limits(ep, &control->u.hello.limits, control->u.hello.channels);
    status = umi_where_keep(ep, &control->u.hello.where,
                            control->u.hello.features, &reason);
    if (status == UMX_ERR_PROTOCOL) {
        umi_endpoint_protocol_error(ep, reason);
    } else if (status == UMX_ERR_UNREACHABLE) {
        reject(ep, status, reason);
    } else if (status != UMX_OK) {
        fail(ep, status, reason);
    } else if (umi_endpoint_config(ep)->token != NULL) {
        challenge(ep);
    } else {
        welcome(ep);
    }
}

static void
on_auth(umx_ep *ep, const umi_control *control)
{
    uint8_t mac[UMI_MAC_SIZE];

    if (!ep->handshake->has_hello || ep->handshake->is_welcomed ||
        umi_endpoint_config(ep)->token == NULL) {
        umi_endpoint_protocol_error(ep, "AUTH that nobody asked for");
        return;
    }
    umi_proof_of_token(ep, mac);
    if (umi_equal_constant_time(mac, control->u.auth.mac, UMI_MAC_SIZE)) {
        welcome(ep);
    } else {
        reject(ep, UMX_ERR_AUTH, "the token is not ours");
    }
}

/* Bind `ep` to the link `id`: the peer has shown who it is, and both sides know
 * the number. */
static umx_status
bind_ep(umx_ep *ep, uint64_t id)
{
    umi_link   *link;
    const char *reason;
    umx_status  status = umi_apart_check(ep, id, &reason);

    if (status == UMX_OK) {
        status = umi_link_get(&ep->base, &ep->handshake->claim, id, &link);
    }
    if (status == UMX_OK && ep->base.link == NULL) {
        umi_link_attach(link, &ep->base);
    }
    return status;
}

static void
on_open(umx_ep *ep, const umi_control *control)
{
    uint8_t    mac[UMI_MAC_SIZE];
    umx_status status;

    if (!ep->handshake->is_welcomed) {
        umi_endpoint_protocol_error(ep, "OPEN before WELCOME");
        return;
    }
    umi_proof_of_client(ep, control->u.open.peer, mac);
    if (!umi_equal_constant_time(mac, control->u.open.mac, UMI_MAC_SIZE)) {
        umi_endpoint_protocol_error(ep, "not the worker that it says it is");
        return;
    }
    status = bind_ep(ep, control->u.open.peer);
    if (status == UMX_OK) {
        open_with(ep);
        return;
    }
    if (status == UMX_ERR_CONNECTION_RESET) { /* it connects once more */
        umi_log(UMI_LOG_INFO, "a peer that connects counts UCX's endpoints "
                              "differently");
    }
    umi_endpoint_finish(ep, UMX_EP_FAILED, status);
}

/* ---- the connecting side -------------------------------------------------
 */

/* Ask the peer for an answer over UCX: the network by which its messages go
 * need not be that of the socket, nor let anything through. */
static void
knock(umx_ep *ep)
{
    umi_control control = {.kind = UMI_PING, .u.ask.token = UMI_KNOCK};

    ep->base.is_bound           = true;
    ep->handshake->is_knocking  = true;
    ep->handshake->num_arrivals = ep->num_arrivals;
    (void)umi_endpoint_send_control(ep, &control);
}

bool
umi_handshake_is_heard(const umx_ep *ep)
{
    return ep->state == UMX_EP_CONNECTING && ep->handshake->is_knocking &&
           ep->num_arrivals != ep->handshake->num_arrivals;
}

void
umi_handshake_answered(umx_ep *ep)
{
    ep->handshake->is_knocking = false;
    open_with(ep);
}

static void
on_challenge(umx_ep *ep, const umi_control *control)
{
    umi_control answer = {.kind = UMI_AUTH};

    if (umi_endpoint_config(ep)->token == NULL) {
        fail(ep, UMX_ERR_AUTH, "the listener asks for a token");
        return;
    }
    if (ep->handshake->has_hello) {
        umi_endpoint_protocol_error(ep, "CHALLENGE came twice");
        return;
    }
    ep->handshake->has_hello = true;
    memcpy(ep->handshake->challenge, control->u.challenge.nonce,
           UMI_NONCE_SIZE);
    umi_proof_of_token(ep, answer.u.auth.mac);
    (void)say(ep, &answer);
}

/* Tell why the listener cannot be trusted; UMX_OK if it can. */
static umx_status
check_welcome(umx_ep *ep, const umi_control *control, const void *data,
              size_t len, const char **reason_p)
{
    uint8_t    mac[UMI_MAC_SIZE];
    umx_status status;

    if (control->u.welcome.major != UMX_WIRE_VERSION) {
        *reason_p = "the listener speaks another wire version";
        return UMX_ERR_VERSION;
    }
    if (!umi_connect_hosts_is_right(ep, control->u.welcome.where.worker_id)) {
        *reason_p = "another worker has the port now";
        return UMX_ERR_WORKER_GONE;
    }
    status = umi_where_keep(ep, &control->u.welcome.where,
                            control->u.welcome.features, reason_p);
    if (status != UMX_OK) {
        return status;
    }
    umi_proof_of_server(ep, data, len - UMI_MAC_SIZE, mac);
    if (!umi_equal_constant_time(mac, control->u.welcome.mac, UMI_MAC_SIZE)) {
        *reason_p = (umi_endpoint_config(ep)->token != NULL) ?
                        "the listener does not know the token" :
                        "the listener is not the worker that it says it is";
        return UMX_ERR_AUTH;
    }
    umi_sha256(data, len, ep->handshake->welcome_hash);
    return UMX_OK;
}

/* Choose the number of the link to use, which both sides can have: that of the
 * newest link that either has if the other has it, too, or has not come so far
 * yet, else a new one. */
static uint64_t
choose_endpoint(const umx_ep *ep, const umi_control *control)
{
    const umi_peer_claim *claim  = &ep->handshake->claim;
    const umi_link       *link   = umi_link_find(&ep->base, claim);
    uint64_t              theirs = control->u.welcome.peer;
    uint64_t              made   = control->u.welcome.made;
    uint64_t              ours   = (link != NULL) ? link->id : 0;
    uint64_t counted = umi_engine_counted(ep->base.engine, claim->uuid);

    if (ours != 0 && (ours == theirs || ours > made)) {
        return ours;
    }
    if (theirs > counted) {
        return theirs;
    }
    return (counted > made ? counted : made) + 1;
}

/* UCX numbers the endpoints that a side makes, so a side comes to `id` only by
 * making those in between. True if those are too many for one of the two. */
static bool
is_far(const umx_ep *ep, const umi_control *control, uint64_t id)
{
    uint64_t made    = control->u.welcome.made;
    uint64_t counted = umi_engine_counted(ep->base.engine,
                                          ep->handshake->claim.uuid);

    return id == 0 || (id > made && id - made - 1 > UMI_LINK_SKIPS_MAX) ||
           (id > counted && id - counted - 1 > UMI_LINK_SKIPS_MAX);
}

static const char *
why_unbound(umx_status status)
{
    switch (status) {
    case UMX_ERR_REJECTED:
        return "UCX's address is that of another worker";
    case UMX_ERR_CONNECTION_RESET:
        return "the two sides count UCX's endpoints differently";
    case UMX_ERR_EXCEEDS_LIMIT:
        return "UCX has no room for another kind of address";
    default:
        return umi_descriptors_are_left(UMI_DESCRIPTORS_OF_EP) ?
                   umi_network_no_transport(false) :
                   "too few file descriptors are left (ulimit -n)";
    }
}

static void
on_welcome(umx_ep *ep, const umi_control *control, const void *data, size_t len)
{
    umi_control answer = {.kind = UMI_OPEN};
    const char *reason;
    umx_status  status = check_welcome(ep, control, data, len, &reason);

    if (status != UMX_OK) {
        umi_connect_give_up(ep, status, reason);
        return;
    }
    umi_strangers_note_kind(ep);
    answer.u.open.peer = choose_endpoint(ep, control);
    status             = is_far(ep, control, answer.u.open.peer) ?
                             UMX_ERR_CONNECTION_RESET :
                             bind_ep(ep, answer.u.open.peer);
    if (status == UMX_ERR_CONNECTION_RESET || status == UMX_ERR_EXCEEDS_LIMIT) {
        umi_connect_again(ep, status, why_unbound(status));
        return;
    }
    if (status != UMX_OK) {
        umi_connect_give_up(ep, status, why_unbound(status));
        return;
    }
    set_peer_limits(ep, &control->u.welcome.limits,
                    control->u.welcome.channels);
    umi_proof_of_client(ep, answer.u.open.peer, answer.u.open.mac);
    if (!say(ep, &answer)) {
        return;
    }
    if (ep->socket.is_local) {
        open_with(ep);
    } else {
        knock(ep);
    }
}

static void
on_reject(umx_ep *ep, const umi_control *control)
{
    umx_status status = (umx_status)control->u.reject.reason;

    if (status != UMX_ERR_VERSION && status != UMX_ERR_AUTH &&
        status != UMX_ERR_UNREACHABLE) {
        status = UMX_ERR_REJECTED;
    }
    umi_endpoint_set_reason(ep, control->u.reject.text,
                            control->u.reject.text_len);
    umi_endpoint_finish(ep, UMX_EP_FAILED, status);
}

/* ---- the socket ----------------------------------------------------------
 */

/* `control` was decoded from `len` bytes at `data`. */
static void
act(umx_ep *ep, const umi_control *control, const void *data, size_t len)
{
    if (ep->is_server && control->kind == UMI_HELLO) {
        on_hello(ep, control, data, len);
    } else if (ep->is_server && control->kind == UMI_AUTH) {
        on_auth(ep, control);
    } else if (ep->is_server && control->kind == UMI_OPEN) {
        on_open(ep, control);
    } else if (!ep->is_server && control->kind == UMI_CHALLENGE) {
        on_challenge(ep, control);
    } else if (!ep->is_server && control->kind == UMI_WELCOME) {
        on_welcome(ep, control, data, len);
    } else if (!ep->is_server && control->kind == UMI_REJECT) {
        on_reject(ep, control);
    } else {
        umi_endpoint_protocol_error(ep, "control message out of turn");
    }
}

static void
on_message(umi_socket *sock, const void *data, size_t len)
{
    umx_ep     *ep = umi_container_of(sock, umx_ep, socket);
    umi_control control;
    const char *why;

    umi_ep_base_raise(&ep->base,
                      UMI_EP_EVENT_LAYER); /* holds it past this call */
    if (ep->state != UMX_EP_CONNECTING || ep->handshake->is_rejected ||
        ep->protocol_error != NULL) {
        return;
    }
    if (umi_control_decode(&control, data, len, &why)) {
        act(ep, &control, data, len);
    } else {
        umi_endpoint_protocol_error(ep, why);
    }
}

/* True if a message may begin with these bytes: all begin alike. */
static bool
may_begin(const void *data, size_t len)
{
    uint32_t magic = UMI_CONTROL_MAGIC;

    return memcmp(data, &magic, len < sizeof(magic) ? len : sizeof(magic)) == 0;
}

/* A peer that has no token goes when it is asked for one. */
static void
complain_of_unproven(umx_ep *ep)
{
    const umi_handshake *handshake = ep->handshake;

    if (ep->is_server && handshake->listener != NULL && handshake->has_hello &&
        !handshake->is_welcomed && umi_endpoint_config(ep)->token != NULL) {
        umi_listener_complain(handshake->listener, &ep->socket,
                              "it left when it was asked for the token");
    }
}

/* The end of the socket may have overtaken what came over UCX. */
static void
on_end(umi_socket *sock, umx_status status)
{
    umx_ep *ep = umi_container_of(sock, umx_ep, socket);

    if (status == UMX_ERR_PROTOCOL) {
        umi_endpoint_protocol_error(ep, umi_handshake_name_foreign(ep));
        return;
    }
    if (ep->state == UMX_EP_CONNECTING) {
        umi_handshake_explain(ep, status);
        complain_of_unproven(ep);
    } else if (status == UMX_ERR_ENDPOINT_TIMEOUT) {
        umi_silence_explain(ep, "the host of the peer",
                            umi_socket_silent_ns(sock));
    }
    ep->base.ucx_error = status;
    umi_ep_base_raise(&ep->base, UMI_EP_EVENT_ERROR);
}

static const umi_socket_ops socket_ops = {
    .on_connected = umi_network_on_connected,
    .on_message   = on_message,
    .may_begin    = may_begin,
    .on_end       = on_end,
};

void
umi_handshake_init(umx_ep *ep)
{
    umi_socket_init(&ep->socket, &umi_endpoint_worker(ep)->watches,
                    &socket_ops);
}

/* ---- connecting ----------------------------------------------------------
 */

void
umi_handshake_start(umx_ep *ep)
{
    umi_control control = {.kind = UMI_HELLO};
    uint8_t     bytes[UMI_CONTROL_MAX];
    size_t      len;

    if (umi_endpoint_must_wait(ep)) {
        return;
    }
    if (!umi_random_bytes(control.u.hello.nonce, UMI_NONCE_SIZE)) {
        fail(ep, UMX_ERR_IO_ERROR, "no random bytes");
        return;
    }
    control.u.hello.major    = UMX_WIRE_VERSION;
    control.u.hello.minor    = WIRE_MINOR;
    control.u.hello.features = umi_apart_features(ep) | UMI_FEATURE_BOUNCE;
    control.u.hello.limits   = ep->own_limits;
    control.u.hello.channels = umi_endpoint_config(ep)->channels_max;
    if (fill_where(ep, &control.u.hello.where)) {
        len = umi_control_encode(&control, bytes);
        umi_sha256(bytes, len, ep->handshake->hello_hash);
        (void)say_bytes(ep, bytes, len);
    }
}

void
umi_handshake_go_on(umx_ep *ep)
{
    if (ep->state != UMX_EP_CONNECTING || !ep->handshake->is_waiting) {
        return;
    }
    if (ep->is_server) {
        welcome(ep);
    } else {
        umi_handshake_start(ep);
    }
}
