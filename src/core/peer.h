/* SPDX-License-Identifier: BSD-3-Clause */
/* peer.h: UCX's endpoint to another worker. All connections between two
 * workers share it; it is made for the first one, from the other's worker
 * address, and stays for a while after the last one has ended well.
 *
 * A peer is known by its public key, and by nothing else that it says: a
 * handshake shows that the other side has the secret key to it. Until then what
 * it says is a claim, and gets an endpoint that no other claim can touch,
 * unless both name the same address for the same key.
 *
 * Both sides must agree on which endpoint of theirs belongs to which of the
 * other's: over tcp they are two ends of one connection. Each has a number
 * that grows; the handshake compares them (handshake.c). Thread: the
 * worker's owner. */
#ifndef UMI_PEER_H
#define UMI_PEER_H

#include <ucp/api/ucp.h>

#include "core/worker.h"
#include "util/hash.h"

typedef struct umi_peer {
    umi_link    link; /* worker->peers */
    umx_worker *worker;
    umi_engine *engine; /* held */
    ucp_ep_h    handle;
    uint64_t    id;        /* ours: not 0, grows */
    uint64_t    remote_id; /* of its counterpart; 0: not known yet */
    uint8_t     worker_id[UMI_WORKER_ID_SIZE]; /* the peer's, like the next */
    uint8_t     key[UMI_X25519_SIZE];
    uint8_t     shared[UMI_X25519_SIZE]; /* of its key and our secret */
    uint8_t     address_hash[UMI_SHA256_SIZE];
    uint64_t    uuid;      /* in that address; 0: not known */
    bool        is_proven; /* a handshake has shown that the key is its own */
    umi_list    eps;       /* umi_ep.peer_link */
    umi_list    former;    /* umi_peer.link: the one in whose place it is */
    umi_timer   linger;
    bool        is_failed; /* UCX's error handler ran */
    bool        has_shm;
    bool        has_rdma;
    /* What ops/cma_agree.c keeps of the peer; NULL until it does. */
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

/* The one that has shown that it has this key; NULL if there is none, or it has
 * failed. */
umi_peer *umi_peer_find(umx_worker *worker, const uint8_t *key);

/* That one, or one that is made from the claim, and found by nobody who does
 * not claim just the same. It is made in the engine that the handshake of `ep`
 * tells the peer of. UMX_ERR_REJECTED: a peer with another key is at that
 * address; UCX, which tells workers apart by their uuid, would take one's end
 * for the other's. */
umx_status umi_peer_get(const umi_ep *ep, const umi_peer_claim *claim,
                        umi_peer **peer_p);

/* Its connections fail with CONNECTION_RESET. */
void umi_peer_close(umi_peer *peer);

/* And so do they, with that reason, which is static. */
void umi_peer_fail(umi_peer *peer, const char *reason);

/* What `old` belonged to at the other side is gone: a new one takes its place,
 * in the engine that the handshake of `ep` tells of. The connections of `old`
 * that are not bound yet go over, the others fail. Its endpoint stays as long
 * as the new one if nothing is under way there: UCX may have paired it with
 * what the other side has now. */
umx_status umi_peer_renew(umi_peer *old, const umi_ep *ep,
                          const umi_peer_claim *claim, umi_peer **peer_p);

void umi_peer_attach(umi_peer *peer, umi_ep *ep);

/* `ep` is over. `is_graceful`: the peer is well, so UCX's endpoint may stay for
 * the next connection; else it is closed if this was its last one, so that UCX
 * gives all buffers back. The end of a handshake says nothing of a peer that is
 * well. */
void umi_peer_detach(umi_ep *ep, bool is_graceful);

#endif
