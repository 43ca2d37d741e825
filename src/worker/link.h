/* SPDX-License-Identifier: BSD-3-Clause */
/* link.h: the link to another worker: UCX's endpoint, which all connections
 * between the two workers share. A link is made for the first connection, from
 * the other worker's address, and stays for a while after the last one has
 * ended well.
 *
 * The peer of a link is known by its public key, by UCX's number of its worker,
 * and by nothing else that it says: a handshake shows that the peer has the
 * secret key. Until then what the peer says is a claim, and gets a link that no
 * other claim can touch, unless both name the same address for the same key.
 *
 * UCX pairs the endpoints of two workers by counting them: the n-th that one
 * side makes to the other's worker belongs to the n-th that the other makes
 * back, and announcements to an endpoint that is closed are dropped. Hence each
 * link has a number, the count, and the two sides of a connection must have
 * links of equal numbers; the handshake sees to it (endpoint/wireup.c). A side
 * that has made a few less makes some that nobody uses. Where the numbers are
 * further apart, the connecting side begins anew, in an engine of which UCX has
 * counted nothing yet. Thread: the worker's owner. */
#ifndef UMI_LINK_H
#define UMI_LINK_H

#include <ucp/api/ucp.h>

#include "util/hash.h"
#include "worker/worker.h"

enum {
    /* How many endpoints a side makes that nobody uses, for a peer that is
     * ahead. Each takes a third of a millisecond, and may connect to whatever
     * the peer's address names. */
    UMI_LINK_SKIPS_MAX = 4
};

typedef struct umi_link {
    umi_node    node; /* worker->links */
    umx_worker *worker;
    umi_engine *engine; /* held */
    ucp_ep_h    handle;
    uint64_t    id; /* umi_engine_count(), and that of its counterpart */
    uint8_t     worker_id[UMI_WORKER_ID_SIZE]; /* the peer's, like the next */
    uint8_t     key[UMI_X25519_SIZE];
    uint8_t     shared[UMI_X25519_SIZE]; /* of its key and our secret */
    uint8_t     address_hash[UMI_SHA256_SIZE];
    struct umi_configuration *configuration; /* UCX's, for its address */
    uint64_t  uuid;         /* UCX's number of its worker; 0: not known */
    bool      is_proven;    /* a handshake has shown that the key is its own */
    umi_list  eps;          /* umi_ep_base.link_node */
    umi_timer linger;       /* until it is closed, or freed */
    bool      is_failed;    /* UCX's error handler ran */
    bool      is_ending;    /* worker->ending_links: nobody uses it */
    unsigned  num_flushes;  /* that UCX has and that hold it */
    unsigned  num_quiet;    /* flushes in a row that were done at once */
    bool      is_close_due; /* once UCX has nothing left to do */
    bool      is_closed;    /* and freed once these have ended */
    const struct umi_apart *apart; /* as in the claim that it was made for */
    bool                    has_shm;
    bool                    has_tcp;
    bool                    has_rdma;
    bool     loses_unread; /* messages go over tcp: umi_link_look_first() */
    bool     has_hardware; /* a transport may read memory by itself */
    bool     has_cuda_ipc; /* UCX moves memory of devices between the two */
    unsigned num_lanes;    /* 0: not known; without those of devices */
    struct umi_turns       *turns;  /* ops/turns.h */
    struct umi_bounce_link *bounce; /* bounce/bounce.h */
} umi_link;                         /* behind it: umi_worker_hooks.link_size */

/* Who and where a peer says it is. */
typedef struct umi_peer_claim {
    uint8_t     worker_id[UMI_WORKER_ID_SIZE];
    uint8_t     key[UMI_X25519_SIZE];
    uint8_t     shared[UMI_X25519_SIZE];
    const void *address; /* UCX's */
    size_t      address_len;
    uint8_t     kind[UMI_SHA256_SIZE]; /* of the address: address_kind.h */
    bool        is_trusted;            /* it is no stranger: strangers.h */
    const struct umi_apart *apart;     /* endpoint/apart.c; NULL: it is not */
    uint64_t
        uuid; /* UCX's number of the worker, in the address; 0: not known */
} umi_peer_claim;

/* Find a link to the peer that has shown that it has this key; or NULL. */
const umi_link *umi_link_with_key(const umx_worker *worker, const uint8_t *key);

/* Find the link of this claim, in the engine that the handshake of `ep` tells
 * the peer of; NULL if there is none, or it has failed. */
umi_link *umi_link_find(const umi_ep_base *ep, const umi_peer_claim *claim);

/* True if the link was made for the address that the claim names. */
bool umi_link_has_address(const umi_link *link, const umi_peer_claim *claim);

/* Find the link of this claim, or make one with the next number.
 * UMX_ERR_REJECTED: a peer with another key is at that address; UCX, which
 * tells workers apart by their uuid, would take one's end for the other's. */
umx_status umi_link_claim(const umi_ep_base *ep, const umi_peer_claim *claim,
                          umi_link **link_p);

/* Find the link with the number `id`, of a claim that has been shown to be
 * true. A link is made if there is none, and takes the place of one with a
 * lower number: then the connections of that one fail, but for those that are
 * not bound yet. UMX_ERR_CONNECTION_RESET: the number is past, or too far
 * ahead. */
umx_status umi_link_get(const umi_ep_base *ep, const umi_peer_claim *claim,
                        uint64_t id, umi_link **link_p);

/* Note of which configurations peers have become trusted: something of theirs
 * has been received. */
void umi_links_note_trust(umx_worker *worker);

/* UCX has a flush for the link. Returns the link if its memory is held until
 * the flush ends; NULL: it is not. */
umi_link *umi_link_begin_flush(umi_link *link);
/* Note that the flush has ended; NULL: nothing happens. Safe inside UCX's
 * callbacks. */
void umi_link_end_flush(umi_link *held);

/* Fail the link's connections with CONNECTION_RESET. UCX's endpoint is closed
 * by force, over tcp after a while. */
void umi_link_close(umi_link *link);

/* Close the link; its connections name `reason`, which is static. */
void umi_link_fail(umi_link *link, const char *reason);

/* Report that the link cannot go on, inside UCX's callbacks. `reason` is
 * static.
 */
void umi_link_break(umi_link *link, umx_status status, const char *reason);

/* Let `ep` use the link. */
void umi_link_attach(umi_link *link, umi_ep_base *ep);

void umi_link_look(const umi_ep_base *ep); /* for the next */

/* Take what has come, before something is sent, if the worker has not done so
 * for long. A peer may have ended meanwhile, and not waited until its last
 * messages were read (endpoint/settle.c). The first bytes sent to it over tcp
 * make its system reset the connection, the next ones fail, and UCX then drops
 * what is unread. */
static inline void
umi_link_look_first(const umi_ep_base *ep)
{
    UMI_ASSERT_NO_WALK(); /* also where there is nothing to look for */
    if (ep->worker->loses_unread) {
        umi_link_look(ep);
    }
}

/* `ep` is over. `is_graceful`: the peer is well, so the link may stay for the
 * next connection; else the link is closed if this was its last connection, so
 * that UCX gives all buffers back. The end of a handshake says nothing of a
 * peer that is well. */
void umi_link_detach(umi_ep_base *ep, bool is_graceful);

/* Close all links at once: the worker ends. */
void umi_links_free(umx_worker *worker);

/* Free what is left of the links. UCX's workers are gone. */
void umi_links_fini(umx_worker *worker);

#endif
