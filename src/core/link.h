/* SPDX-License-Identifier: BSD-3-Clause */
/* link.h: UCX's endpoint to another worker. All connections between two
 * workers share it; it is made for the first one, from the other's worker
 * address, and stays for a while after the last one has ended well.
 *
 * A peer is known by its public key, by UCX's number of its worker, and by
 * nothing else that it says: a handshake shows that the other side has the
 * secret key. Until then what it says is a claim, and gets an endpoint that no
 * other claim can touch, unless both name the same address for the same key.
 *
 * UCX pairs the endpoints of two workers by counting them: the n-th that one
 * side makes to the other's worker belongs to the n-th that the other makes
 * back, and announcements to an endpoint that is closed are dropped. Hence each
 * has a number, the count, and the two sides of a connection must have
 * endpoints of equal numbers; the handshake sees to it (wireup.c). A side
 * that has made fewer makes some that nobody uses. Thread: the worker's owner.
 */
#ifndef UMI_PEER_H
#define UMI_PEER_H

#include <ucp/api/ucp.h>

#include "core/worker.h"
#include "util/hash.h"

typedef struct umi_peer {
    umi_node    node; /* worker->peers */
    umx_worker *worker;
    umi_engine *engine; /* held */
    ucp_ep_h    handle;
    uint64_t    id; /* umi_engine_count(), and that of its counterpart */
    uint8_t     worker_id[UMI_WORKER_ID_SIZE]; /* the peer's, like the next */
    uint8_t     key[UMI_X25519_SIZE];
    uint8_t     shared[UMI_X25519_SIZE]; /* of its key and our secret */
    uint8_t     address_hash[UMI_SHA256_SIZE];
    uint64_t    uuid;        /* UCX's number of its worker; 0: not known */
    bool        is_proven;   /* a handshake has shown that the key is its own */
    umi_list    eps;         /* umi_ep.peer_node */
    umi_timer   linger;      /* until it is closed, or freed */
    bool        is_failed;   /* UCX's error handler ran */
    bool        is_ending;   /* worker->ending_peers: nobody uses it */
    bool        is_draining; /* UCX has a flush for it */
    unsigned    num_quiet;   /* flushes in a row that were done at once */
    bool        is_closed;   /* and freed once that has ended */
    bool        has_shm;
    bool        has_tcp;
    bool        has_rdma;
    /* What lend/agree.c keeps of the peer; NULL until it does. */
    struct umi_cma *cma;
    void (*end_cma)(struct umi_peer *peer); /* frees that */
} umi_peer;

/* Who and where a peer says it is. */
typedef struct umi_peer_claim {
    uint8_t     worker_id[UMI_WORKER_ID_SIZE];
    uint8_t     key[UMI_X25519_SIZE];
    uint8_t     shared[UMI_X25519_SIZE];
    const void *address; /* UCX's */
    size_t      address_len;
    uint64_t
        uuid; /* UCX's number of the worker, in the address; 0: not known */
} umi_peer_claim;

/* Any that has shown that it has this key; or NULL. */
const umi_peer *umi_peer_with_key(const umx_worker *worker, const uint8_t *key);

/* The one that the claim is of, in the engine that the handshake of `ep` tells
 * the peer of; NULL if there is none, or it has failed. */
umi_peer *umi_peer_find(const umi_ep *ep, const umi_peer_claim *claim);

/* That one, or one that is made from the claim, with the next number.
 * UMX_ERR_REJECTED: a peer with another key is at that address; UCX, which
 * tells workers apart by their uuid, would take one's end for the other's. */
umx_status umi_peer_claim_one(const umi_ep *ep, const umi_peer_claim *claim,
                              umi_peer **peer_p);

/* The one with the number `id`, of a claim that has been shown to be true. It
 * is made if there is none, and takes the place of one with a lower number:
 * then the connections of that one fail, but for those that are not bound yet.
 * UMX_ERR_CONNECTION_RESET: the number is past, or too far ahead. */
umx_status umi_peer_get(const umi_ep *ep, const umi_peer_claim *claim,
                        uint64_t id, umi_peer **peer_p);

/* Its connections fail with CONNECTION_RESET. UCX's endpoint is closed by
 * force, over tcp after a while. */
void umi_peer_close(umi_peer *peer);

/* And so do they, with that reason, which is static. */
void umi_peer_fail(umi_peer *peer, const char *reason);

void umi_peer_attach(umi_peer *peer, umi_ep *ep);

/* `ep` is over. `is_graceful`: the peer is well, so UCX's endpoint may stay for
 * the next connection; else it is closed if this was its last one, so that UCX
 * gives all buffers back. The end of a handshake says nothing of a peer that is
 * well. */
void umi_peer_detach(umi_ep *ep, bool is_graceful);

/* The worker ends: close all, at once. */
void umi_peers_free(umx_worker *worker);

/* UCX's workers are gone, and with them what they had of peers. */
void umi_peers_fini(umx_worker *worker);

#endif
