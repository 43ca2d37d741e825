/* SPDX-License-Identifier: BSD-3-Clause */
/* apart.c: may UCX use shared memory with a peer of this host? It maps the
 * memory that the peer's address names, and does not survive what is none of
 * its own. Both sides have to use shared memory, or neither: UCX has no option
 * for that, so it is not told of the memory of a peer that is apart.
 *
 * Where the answer is no, WELCOME says so to the side that connects, which may
 * not find out by itself. That side looks as well, and where only it finds a
 * reason, it connects again and HELLO says so. What a peer says is a claim: one
 * that claims to be apart gets no shared memory, and of one that does not only
 * memory is mapped that belongs to the user of this process. */
#include <string.h>
#include <unistd.h>

#include "codec/ucx_address.h"
#include "endpoint/wireup.h"
#include "host/ucx_segment.h"
#include "util/host.h"

typedef struct umi_apart {
    const char *why;
    const char *refusal; /* if UCX has no other transport */
} umi_apart;

#define APART(why)                                                   \
    {                                                                \
        why, why ", and UCX has no other transport: its option TLS " \
                 "leaves tcp out"                                    \
    }

/* UCX looks whether a peer lives by the number of its process, and gives a
 * connection over shared memory up where it finds no process of that number.
 * Two containers may share memory, but not the numbers. */
static const umi_apart by_numbers = APART("the two do not share process "
                                          "numbers, which UCX needs for shared "
                                          "memory");
static const umi_apart by_queues  = APART("UCX's queues in shared memory are "
                                           "not alike, by its options "
                                           "FIFO_SIZE, FIFO_ELEM_SIZE and "
                                           "SEG_SIZE");
static const umi_apart by_users   = APART("the two are processes of different "
                                            "users");
static const umi_apart by_rights  = APART("a process may not open the shared "
                                           "memory of the other");
static const umi_apart by_change  = APART("a process has changed its user "
                                           "since its worker was made");
static const umi_apart by_peer    = APART("the peer may not map the memory of "
                                             "this process, or has changed its "
                                             "user since its worker was made");

/* ---- looking -------------------------------------------------------------
 */

/* What was seen of the peer's segments. */
typedef struct sight {
    unsigned num_open;
    unsigned num_closed;
    bool     has_foreign;
} sight;

/* `own` is one of ours, of the same transport. */
static umi_ucx_segment_state
look_at(const umi_ucx_segment *segment, const umi_ucx_segment *own,
        size_t *size_p)
{
    return segment->is_posix ?
               umi_segments_look_posix(segment->id, own->id, segment->pid_ns,
                                       size_p) :
               umi_segments_look_sysv(segment->id, size_p);
}

/* UCX maps as much of a peer's segment as its own have. A status and its
 * reason. */
static umx_status
see(const umi_ucx_segment *segment, const umi_ucx_segment *own, sight *seen,
    const char **reason_p)
{
    umi_ucx_segment_state state;
    size_t                size, own_size;

    state = look_at(segment, own, &size);
    if (state == UMI_UCX_SEGMENT_OPEN &&
        (look_at(own, own, &own_size) != UMI_UCX_SEGMENT_OPEN ||
         size < own_size)) {
        state = UMI_UCX_SEGMENT_NONE;
    }
    switch (state) {
    case UMI_UCX_SEGMENT_OPEN:
        seen->num_open++;
        return UMX_OK;
    case UMI_UCX_SEGMENT_CLOSED:
        seen->num_closed++;
        return UMX_OK;
    case UMI_UCX_SEGMENT_FOREIGN:
        seen->has_foreign = true;
        return UMX_OK;
    case UMI_UCX_SEGMENT_GONE:
        *reason_p = "the peer's shared memory is gone";
        return UMX_ERR_CONNECTION_RESET;
    case UMI_UCX_SEGMENT_NONE:
        break;
    }
    *reason_p = "UCX's address names memory that is no segment of UCX's";
    return UMX_ERR_PROTOCOL;
}

/* Look at the segments that are in reach, as UCX would. */
static umx_status
see_all(const umi_ucx_address *own, const umi_ucx_address *peers, sight *seen,
        const char **reason_p)
{
    umx_status status = UMX_OK;

    for (unsigned i = 0; i < peers->num_segments; i++) {
        for (unsigned j = 0; j < own->num_segments && status == UMX_OK; j++) {
            if (own->segments[j].is_posix == peers->segments[i].is_posix &&
                own->segments[j].host == peers->segments[i].host) {
                status = see(&peers->segments[i], &own->segments[j], seen,
                             reason_p);
            }
        }
    }
    return status;
}

/* Nobody is to map the segments of such a worker: they are the former user's,
 * and what UCX adds to them is not. */
static bool
has_changed_user(const umx_worker *worker)
{
    return worker->user != geteuid();
}

static uint32_t
own_queues(const umx_ep *ep)
{
    return umi_endpoint_worker(ep)->context->queues;
}

/* Find out why UCX may not use shared memory with the peer, `*apart_p`; NULL:
 * it may. A status and its reason. */
static umx_status
look(const umx_ep *ep, const umi_apart **apart_p, const char **reason_p)
{
    const umi_handshake *handshake = ep->handshake;
    sight                seen      = {0};
    umx_status           status;

    *apart_p = NULL;
    if (!ep->shares_pids) {
        *apart_p = &by_numbers;
        return UMX_OK;
    }
    if (handshake->peer_queues != own_queues(ep)) {
        *apart_p = &by_queues;
        return UMX_OK;
    }
    if (has_changed_user(umi_endpoint_worker(ep))) {
        *apart_p = &by_change;
        return UMX_OK;
    }
    status = see_all(&handshake->own_address, &handshake->peers_address, &seen,
                     reason_p);
    if (status != UMX_OK) {
        return status;
    }
    if (seen.has_foreign) {
        *apart_p = &by_users;
    } else if (seen.num_closed != 0 && seen.num_open == 0) {
        *apart_p = &by_rights;
    } else if (handshake->is_peer_apart) {
        *apart_p = &by_peer;
    }
    return UMX_OK;
}

/* ---- what UCX is told ----------------------------------------------------
 */

static bool
leaves_host(const umi_ucx_piece *piece, void *arg)
{
    (void)arg;
    return !piece->is_local;
}

/* Leave the peer's shared memory out of its address. */
static umx_status
strip(umx_ep *ep, const umi_apart *apart, const char **reason_p)
{
    umi_handshake   *handshake = ep->handshake;
    umi_peer_claim  *claim     = &handshake->claim;
    umi_ucx_address *peers     = &handshake->peers_address;
    const char      *why;
    size_t           len;

    len = umi_ucx_address_filter(handshake->address, claim->address_len,
                                 leaves_host, NULL, handshake->address);
    if (len == 0 ||
        !umi_ucx_address_decode(peers, handshake->address, len, &why) ||
        peers->num_transports == 0) {
        *reason_p = apart->refusal;
        return UMX_ERR_UNREACHABLE;
    }
    memset((char *)handshake->address + len, 0, claim->address_len - len);
    claim->address_len = len;
    claim->apart       = apart;
    ep->apart          = apart->why;
    return UMX_OK;
}

/* Where the listening side uses shared memory, the side that connects has to
 * tell it not to. Both see by themselves that they do not share numbers, or
 * have other queues. */
static bool
must_be_said(const umx_ep *ep, const umi_apart *apart)
{
    return !ep->is_server && !ep->handshake->is_peer_apart &&
           apart != &by_numbers && apart != &by_queues;
}

uint64_t
umi_apart_features(const umx_ep *ep)
{
    const umi_handshake *handshake = ep->handshake;

    bool is_apart = ep->apart != NULL || handshake->is_peer_apart ||
                    handshake->must_say_apart ||
                    has_changed_user(umi_endpoint_worker(ep));

    return (is_apart ? UMI_FEATURE_APART : 0u) | (uint64_t)own_queues(ep)
                                                     << UMI_FEATURE_QUEUES;
}

bool
umi_apart_shares_pids(const umx_ep *ep, const umi_where *where)
{
    uint32_t own = umi_host_process_namespace();

    return ep->socket.is_local &&
           (own == 0 || where->process_ns == 0 || own == where->process_ns);
}

umx_status
umi_apart_check(umx_ep *ep, uint64_t id, const char **reason_p)
{
    umi_handshake   *handshake = ep->handshake;
    const umi_link  *link      = umi_link_find(&ep->base, &handshake->claim);
    const umi_apart *apart;
    umx_status       status = UMX_OK;

    if (handshake->is_checked || !ep->socket.is_local) {
        return UMX_OK;
    }
    if (link != NULL && (id == 0 || link->id == id)) {
        return (link->apart != NULL) ? strip(ep, link->apart, reason_p) :
                                       UMX_OK;
    }
    status = look(ep, &apart, reason_p);
    if (status == UMX_OK && apart != NULL && must_be_said(ep, apart)) {
        handshake->must_say_apart = true;
        *reason_p                 = apart->why;
        return UMX_ERR_UNREACHABLE;
    }
    if (status == UMX_OK && apart != NULL) {
        status = strip(ep, apart, reason_p);
    }
    handshake->is_checked = (status == UMX_OK);
    return status;
}
