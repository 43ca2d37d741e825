/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_address.c: may UCX be given the address that a peer names? UCX maps the
 * memory that an address names, and does not survive what is none of its own.
 */
#include <string.h>

#include "codec/ucx_address.h"
#include "core/ucx_segment.h"
#include "endpoint/wireup.h"
#include "util/log.h"

/* Why UCX has none. */
#define WHY ": its options TLS and NET_DEVICES leave out all that are up"

/* `own` is one of ours, of the same transport. */
static umx_status
segment_size(const umi_ucx_segment *segment, const umi_ucx_segment *own,
             size_t *size_p)
{
    return segment->is_posix ?
               umi_segment_ucx_posix_size(segment->id, own->id, segment->pid_ns,
                                          size_p) :
               umi_segment_ucx_sysv_size(segment->id, size_p);
}

/* UCX maps as much of a peer's segment as its own have. */
static umx_status
check_segment(const umi_ucx_address *own, const umi_ucx_segment *segment)
{
    size_t     size, own_size;
    umx_status status;

    for (unsigned i = 0; i < own->num_segments; i++) {
        const umi_ucx_segment *ours = &own->segments[i];

        if (ours->is_posix != segment->is_posix ||
            ours->host != segment->host) {
            continue;
        }
        status = segment_size(segment, ours, &size);
        if (status != UMX_OK) {
            return status;
        }
        if (segment_size(ours, ours, &own_size) != UMX_OK || size < own_size) {
            return UMX_ERR_PROTOCOL;
        }
    }
    return UMX_OK;
}

/* A status and its reason. */
static umx_status
check_segments(const umi_ucx_address *own, const umi_ucx_address *peers,
               const char **reason_p)
{
    umx_status status = UMX_OK;

    for (unsigned i = 0; status == UMX_OK && i < peers->num_segments; i++) {
        status = check_segment(own, &peers->segments[i]);
    }
    if (status == UMX_ERR_CONNECTION_RESET) {
        *reason_p = "the peer's shared memory is gone";
    } else if (status != UMX_OK) {
        *reason_p = "UCX's address names memory that is no segment of UCX's";
    }
    return status;
}

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

umx_status
umi_peer_address_check_memory(umx_ep *ep, uint64_t id, const char **reason_p)
{
    umi_handshake        *handshake = ep->handshake;
    const umi_peer_claim *claim     = &handshake->claim;
    const umi_link       *link      = umi_link_find(&ep->base, claim);
    umx_status            status;

    if (handshake->is_checked ||
        (link != NULL && (id == 0 || link->id == id))) {
        return UMX_OK;
    }
    status = check_segments(&handshake->own_address, &handshake->peers_address,
                            reason_p);
    handshake->is_checked = (status == UMX_OK);
    return status;
}
