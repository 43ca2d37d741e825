/* SPDX-License-Identifier: BSD-3-Clause */
/* After the functions "is_reachable" of UCX's transports (uct). */
#define _GNU_SOURCE /* process_vm_readv */
#include "endpoint/address_kind.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "codec/control.h"
#include "codec/ucx_address.h"
#include "host/routes.h"
#include "host/ucx_segment.h"

enum {
    MAX_OWN    = 64, /* transports of our engines */
    MAX_REACH  = 16, /* bytes that say how a transport is reached */
    MAX_PIECES = 2 * 128 + 2,
    MAX_BYTES  = UMI_ADDRESS_MAX + MAX_PIECES * MAX_REACH
};

#define CMA_HAS_PID_NS (UINT32_C(1) << 31)

typedef struct kind {
    umi_ucx_piece own[MAX_OWN];
    size_t        num_own;
    uint64_t      own_uuids[MAX_OWN];
    size_t        num_own_uuids;
    uint8_t       bytes[MAX_BYTES];
    size_t        len;
} kind;

static void
add(kind *k, const void *bytes, size_t len)
{
    if (len <= sizeof(k->bytes) - k->len) {
        memcpy(k->bytes + k->len, bytes, len);
        k->len += len;
    }
}

/* ---- our own addresses ---------------------------------------------------
 */

static void
note_own(const umi_ucx_piece *piece, void *arg)
{
    kind *k = arg;

    if (piece->transport != NULL && k->num_own < MAX_OWN) {
        k->own[k->num_own++] = *piece;
    }
}

static void
note_engine(kind *k, umi_engine *engine)
{
    umi_ucx_address decoded;
    const void     *address;
    size_t          len;
    const char     *why;

    if (engine->ucp != NULL && k->num_own_uuids < MAX_OWN &&
        umi_engine_address(engine, true, &address, &len) == UMX_OK &&
        umi_ucx_address_decode(&decoded, address, len, &why) &&
        decoded.version <= 2) {
        k->own_uuids[k->num_own_uuids++] = decoded.uuid;
        umi_ucx_address_walk(address, len, note_own, k);
    }
}

static bool
begin_alike(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
    return memcmp(a, b, (a_len < b_len) ? a_len : b_len) == 0;
}

/* True if a transport of ours has the address, of its device or of itself. UCX
 * reads as much of it as its own have. */
static bool
is_own(const kind *k, const umi_ucx_piece *piece, bool is_device)
{
    for (size_t i = 0; i < k->num_own; i++) {
        const umi_ucx_piece *own = &k->own[i];

        if (own->name_sum == piece->name_sum &&
            (is_device ? begin_alike(own->device, own->device_len,
                                     piece->device, piece->device_len) :
                         begin_alike(own->iface, own->iface_len, piece->iface,
                                     piece->iface_len))) {
            return true;
        }
    }
    return false;
}

/* Find ours of the same name; NULL: we have none, and UCX leaves it out. */
static const umi_ucx_piece *
find_own(const kind *k, const umi_ucx_piece *piece)
{
    for (size_t i = 0; i < k->num_own; i++) {
        if (k->own[i].name_sum == piece->name_sum) {
            return &k->own[i];
        }
    }
    return NULL;
}

/* ---- how UCX reaches a transport -----------------------------------------
 */

/* UCX tries to map the segment. */
static bool
reaches_posix(const umi_ucx_piece *own, const umi_ucx_piece *piece)
{
    uint64_t own_id, id;
    uint32_t pid_ns = 0;
    size_t   size;

    memcpy(&own_id, own->iface, sizeof(own_id));
    memcpy(&id, piece->iface, sizeof(id));
    if ((id & UMI_UCX_POSIX_HAS_PID_NS) &&
        piece->iface_len >= sizeof(id) + sizeof(pid_ns)) {
        memcpy(&pid_ns, piece->iface + sizeof(id), sizeof(pid_ns));
    }
    return umi_segments_look_posix(id, own_id, pid_ns, &size) ==
           UMI_UCX_SEGMENT_OPEN;
}

/* Write the namespace of processes, and whether UCX can read: it tries, and the
 * kernel allows that or not before it looks at the memory. */
static void
add_cma(kind *k, const umi_ucx_piece *piece)
{
    struct iovec iov = {.iov_base = &iov, .iov_len = sizeof(iov)};
    uint32_t     pid, namespace = 0;
    bool         is_refused;

    memcpy(&pid, piece->iface, sizeof(pid));
    if ((pid & CMA_HAS_PID_NS) &&
        piece->iface_len >= sizeof(pid) + sizeof(namespace)) {
        memcpy(&namespace, piece->iface + sizeof(pid), sizeof(namespace));
    }
    is_refused = process_vm_readv((pid_t)(pid & ~CMA_HAS_PID_NS), &iov, 1, &iov,
                                  1, 0) < 0 &&
                 errno == EPERM;
    add(k, &namespace, sizeof(namespace));
    add(k, &is_refused, sizeof(is_refused));
}

/* Write how the host reaches `piece`, a tcp transport: by the interface of its
 * own address, or by those that lead to it. */
static void
add_tcp(kind *k, const umi_ucx_piece *piece)
{
    bool     is_ours = is_own(k, piece, true);
    uint64_t routes  = 0;

    if (!(piece->device[0] & UMI_UCX_TCP_LOOPBACK)) {
        routes = umi_routes_hash(piece->device[1], piece->device + 2);
    }
    add(k, piece->device, 2);
    add(k, &is_ours, sizeof(is_ours));
    add(k, &routes, sizeof(routes));
}

static void
add_reach(kind *k, const umi_ucx_piece *piece)
{
    const umi_ucx_piece *own     = find_own(k, piece);
    bool                 reaches = false;

    if (own == NULL || piece->transport[0] == '\0') {
        /* What the first byte says is what devices have in common. */
        add(k, piece->device, (own != NULL && piece->device_len > 0) ? 1 : 0);
        return;
    }
    if (strcmp(piece->transport, "tcp") == 0) {
        add_tcp(k, piece);
        return;
    }
    if (strcmp(piece->transport, "self") == 0) {
        reaches = is_own(k, piece, false);
    } else if (!is_own(k, piece, true)) {
        reaches = false; /* another host's, or of another namespace */
    } else if (strcmp(piece->transport, "posix") == 0) {
        reaches = reaches_posix(own, piece);
    } else {
        reaches = true;
        if (strcmp(piece->transport, "cma") == 0) {
            add_cma(k, piece);
        }
    }
    add(k, &reaches, sizeof(reaches));
}

static void
add_piece(const umi_ucx_piece *piece, void *arg)
{
    kind *k = arg;

    add(k, piece->head, piece->head_len);
    if (piece->transport != NULL) {
        add_reach(k, piece);
    }
}

/* ---- the whole -----------------------------------------------------------
 */

/* UCX treats a worker's endpoints to itself as others. */
static void
add_uuid(kind *k, uint64_t uuid)
{
    bool is_ours = false;

    for (size_t i = 0; i < k->num_own_uuids; i++) {
        is_ours = is_ours || k->own_uuids[i] == uuid;
    }
    add(k, &is_ours, sizeof(is_ours));
}

void
umi_endpoint_address_kind(umx_worker *worker, const void *address, size_t len,
                          uint8_t digest[UMI_SHA256_SIZE])
{
    umi_ucx_address decoded;
    const char     *why;
    kind            k;

    memset(digest, 0, UMI_SHA256_SIZE);
    k.num_own = k.num_own_uuids = k.len = 0;
    note_engine(&k, worker->engine);
    UMI_LIST_FOREACH(node, &worker->other_engines) {
        note_engine(&k, umi_container_of(node, umi_engine, node));
    }
    if (k.num_own_uuids == 0 ||
        !umi_ucx_address_decode(&decoded, address, len, &why) ||
        decoded.version > 2) {
        return;
    }
    add_uuid(&k, decoded.uuid);
    umi_ucx_address_walk(address, len, add_piece, &k);
    umi_sha256(k.bytes, k.len, digest);
}
