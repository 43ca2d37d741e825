/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_address.c: may UCX be given the address that a peer names? apart.c looks
 * at the memory that it names. */
#include <string.h>

#include "codec/ucx_address.h"
#include "endpoint/wireup.h"
#include "util/log.h"

/* Why UCX has none. */
#define WHY ": its options TLS and NET_DEVICES leave out all that are up"

static bool
has_uuid(umi_engine *engine, uint64_t uuid)
{
    umi_ucx_address own;
    const void     *data;
    size_t          len;
    const char     *why;

    return umi_engine_address(engine, true, &data, &len) == UMX_OK &&
           umi_ucx_address_decode(&own, data, len, &why) && own.uuid == uuid;
}

/* True if UCX's number `uuid` is that of another engine of ours. */
static bool
is_of_another(umx_worker *worker, uint64_t uuid)
{
    UMI_LIST_FOREACH(node, &worker->other_engines) {
        if (has_uuid(umi_container_of(node, umi_engine, node), uuid)) {
            return true;
        }
    }
    return false;
}

/* Tell which side of a connection between hosts has no network in UCX; NULL:
 * both have. */
static const char *
why_no_network(const umx_ep *ep, const umi_ucx_address *own,
               const umi_ucx_address *peers)
{
    if (ep->socket.is_local || (own->has_network && peers->has_network)) {
        return NULL;
    }
    return (peers->has_network != ep->is_server) ?
               "UCX has no network device on the connecting side" WHY :
               "UCX has no network device on the listening side" WHY;
}

/* What our own address is like tells what this UCX understands: if that is of a
 * form that is not known here, the peer's is taken as it is. */
umx_status
umi_peer_address_check(umx_ep *ep, const umi_where *where,
                       const char **reason_p)
{
    umx_worker      *worker = umi_endpoint_worker(ep);
    umi_ucx_address *own    = &ep->handshake->own_address;
    umi_ucx_address *peers  = &ep->handshake->peers_address;
    const void      *data;
    size_t           len;
    const char      *why;
    umx_status status = umi_engine_address(worker->engine, true, &data, &len);

    if (status != UMX_OK) {
        *reason_p = "no worker address";
        return status;
    }
    ep->handshake->claim.uuid = 0;
    ep->handshake->is_checked = false;
    if (!umi_ucx_address_decode(own, data, len, &why) || own->version > 2) {
        umi_log(UMI_LOG_INFO, "UCX's addresses are of a form that is not known "
                              "here, and are not checked");
        ep->handshake->is_checked = true;
        return UMX_OK;
    }
    if (!umi_ucx_address_decode(peers, where->address, where->address_len,
                                reason_p)) {
        return UMX_ERR_PROTOCOL;
    }
    if (peers->version > 2) {
        *reason_p = "UCX's address is of a version that this UCX does not have";
        return UMX_ERR_PROTOCOL;
    }
    if (peers->has_local && !ep->socket.is_local) {
        *reason_p = "UCX's address names shared memory of another host";
        return UMX_ERR_PROTOCOL;
    }
    if ((peers->uuid == own->uuid || is_of_another(worker, peers->uuid)) &&
        memcmp(where->key, worker->key, UMI_KEY_SIZE) != 0) {
        *reason_p = "UCX's address is our own";
        return UMX_ERR_PROTOCOL;
    }
    *reason_p = why_no_network(ep, own, peers);
    if (*reason_p != NULL) {
        return UMX_ERR_UNREACHABLE;
    }
    ep->handshake->claim.uuid = peers->uuid;
    return UMX_OK;
}
