/* SPDX-License-Identifier: BSD-3-Clause */
/* where.c: who and where each side of a handshake says it is. */
#include <stdlib.h>
#include <string.h>
#include <umx/version.h>
#include <unistd.h>

#include "codec/ucx_address.h"
#include "endpoint/wireup.h"
#include "host/routes.h"
#include "util/hash.h"
#include "util/host.h"

_Static_assert((int)UMI_WHERE_ID_SIZE == (int)UMI_WORKER_ID_SIZE,
               "wire format");

/* ---- the network of the connection ---------------------------------------
 *
 * UCX would choose among all networks that both hosts have, and the program has
 * chosen one of them: that by which it connects. So the peer is told of no
 * other device of tcp. */

static bool
is_of_connection(const umi_ucx_piece *piece, void *arg)
{
    return !umi_ucx_is_tcp(piece) ||
           umi_routes_is_same_interface(arg, piece->device[1],
                                        piece->device + 2);
}

static void
count_tcp(const umi_ucx_piece *piece, void *arg)
{
    *(unsigned *)arg += umi_ucx_is_tcp(piece);
}

static unsigned
num_tcp(const void *address, size_t len)
{
    unsigned num = 0;

    umi_ucx_address_walk(address, len, count_tcp, &num);
    return num;
}

/* Leave out what is no device of the connection's interface. An interface that
 * UCX has no device of, such as one that the system forwards from, tells
 * nothing. */
static umx_status
select_devices(umx_ep *ep, umi_where *where)
{
    umi_handshake          *handshake = ep->handshake;
    struct sockaddr_storage local;
    size_t                  local_len = sizeof(local), len;
    uint8_t                *selected;

    if (ep->socket.is_local || umi_endpoint_worker(ep)->context->has_devices ||
        num_tcp(where->address, where->address_len) < 2 ||
        umi_socket_address(&ep->socket, false, (struct sockaddr *)&local,
                           &local_len) != UMX_OK) {
        return UMX_OK;
    }
    selected = malloc(where->address_len);
    if (selected == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    free(handshake->selected);
    handshake->selected = selected;
    len = umi_ucx_address_filter(where->address, where->address_len,
                                 is_of_connection, &local, selected);
    if (len != 0 && num_tcp(selected, len) != 0) {
        where->address     = selected;
        where->address_len = (uint16_t)len;
    }
    return UMX_OK;
}

/* ---- both sides ----------------------------------------------------------
 */

umx_status
umi_where_fill(umx_ep *ep, umi_where *where)
{
    umx_worker *worker = umi_endpoint_worker(ep);
    const void *address;
    size_t      len;
    umx_status status = umi_engine_address(ep->base.engine, ep->socket.is_local,
                                           &address, &len);

    if (status == UMX_OK && len > UMI_ADDRESS_MAX) {
        status = UMX_ERR_OUT_OF_RANGE;
    }
    if (status != UMX_OK) {
        return status;
    }
    memcpy(where->worker_id, worker->id, UMI_WORKER_ID_SIZE);
    memcpy(where->key, worker->key, UMI_KEY_SIZE);
    where->endpoint   = ep->base.wire_id;
    where->pid        = (uint32_t)getpid();
    where->process_ns = umi_host_process_namespace();
    where->version    = UMX_VERSION_MAJOR << 16 | UMX_VERSION_MINOR << 8 |
                     UMX_VERSION_PATCH;
    where->address     = address;
    where->address_len = (uint16_t)len;
    return select_devices(ep, where);
}

/* Compute the secret of both keys, or take it from the link of a peer that has
 * shown its own. */
static bool
share(umx_worker *worker, umi_peer_claim *claim)
{
    const umi_link *link = umi_link_with_key(worker, claim->key);

    if (link != NULL) {
        memcpy(claim->shared, link->shared, sizeof(claim->shared));
        return true;
    }
    return umi_x25519_shared(worker->secret, claim->key, claim->shared);
}

umx_status
umi_where_keep(umx_ep *ep, const umi_where *where, uint64_t features,
               const char **reason_p)
{
    umi_handshake    *handshake = ep->handshake;
    umi_peer_claim   *claim     = &handshake->claim;
    const umx_config *config    = umi_endpoint_config(ep);
    uint64_t          context_id;
    umx_status        status = umi_peer_address_check(ep, where, reason_p);

    if (status != UMX_OK) {
        return status;
    }
    memcpy(claim->key, where->key, sizeof(claim->key));
    memcpy(&context_id, where->worker_id, sizeof(context_id));
    umi_worker_id_of(context_id, claim->key, claim->worker_id);
    if (memcmp(claim->worker_id, where->worker_id, UMI_WORKER_ID_SIZE) != 0 ||
        !share(umi_endpoint_worker(ep), claim)) {
        *reason_p = "the worker's id is not that of its key";
        return UMX_ERR_PROTOCOL;
    }
    umi_hmac_sha256(config->token, config->token_len, claim->shared,
                    sizeof(claim->shared), handshake->secret);
    free(handshake->address);
    handshake->address = calloc(1,
                                where->address_len + UMI_UCX_ADDRESS_PADDING);
    if (handshake->address == NULL) {
        *reason_p = "";
        return UMX_ERR_NO_MEMORY;
    }
    memcpy(handshake->address, where->address, where->address_len);
    claim->address           = handshake->address;
    claim->address_len       = where->address_len;
    claim->is_trusted        = config->token != NULL || !ep->is_server;
    handshake->is_peer_apart = (features & UMI_FEATURE_APART) != 0;
    handshake->peer_queues   = (uint32_t)(features >> UMI_FEATURE_QUEUES);
    claim->apart             = NULL;
    ep->apart                = NULL;
    ep->shares_pids          = umi_apart_shares_pids(ep, where);
    ep->base.remote_id       = where->endpoint;
    ep->base.does_bounce     = (features & UMI_FEATURE_BOUNCE) != 0;
    ep->peer_pid             = where->pid;
    ep->peer_version         = where->version;
    return umi_apart_check(ep, 0, reason_p);
}
