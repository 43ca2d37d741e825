/* SPDX-License-Identifier: BSD-3-Clause */
/* where.c: who and where each side of a handshake says it is. */
#include <stdlib.h>
#include <string.h>
#include <umx/version.h>
#include <unistd.h>

#include "endpoint/wireup.h"
#include "util/hash.h"

_Static_assert((int)UMI_WHERE_ID_SIZE == (int)UMI_WORKER_ID_SIZE,
               "wire format");

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
    where->endpoint = ep->base.wire_id;
    where->pid      = (uint32_t)getpid();
    where->version  = UMX_VERSION_MAJOR << 16 | UMX_VERSION_MINOR << 8 |
                     UMX_VERSION_PATCH;
    where->address     = address;
    where->address_len = (uint16_t)len;
    return UMX_OK;
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
umi_where_keep(umx_ep *ep, const umi_where *where, const char **reason_p)
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
    claim->address     = handshake->address;
    claim->address_len = where->address_len;
    claim->is_trusted  = config->token != NULL || !ep->is_server;
    ep->base.remote_id = where->endpoint;
    ep->peer_pid       = where->pid;
    ep->peer_version   = where->version;
    return umi_peer_address_check_memory(ep, 0, reason_p);
}
