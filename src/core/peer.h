/* SPDX-License-Identifier: BSD-3-Clause */
/* peer.h: UCX's endpoint to another worker. All connections between two
 * workers share it; it is made for the first one, from the other's worker
 * address, and stays for a while after the last one has ended well.
 *
 * Both sides must agree on which endpoint of theirs belongs to which of the
 * other's: over tcp they are two ends of one connection. Each has a number
 * that grows; the handshake compares them (see umi_peer_bind()). Thread: the
 * worker's owner. */
#ifndef UMI_PEER_H
#define UMI_PEER_H

#include <ucp/api/ucp.h>

#include "core/worker.h"

typedef struct umi_peer {
    umi_link    link; /* worker->peers */
    umx_worker *worker;
    ucp_ep_h    handle;
    uint64_t    id;        /* ours: not 0, grows */
    uint64_t    remote_id; /* of its counterpart; 0: not known yet */
    uint8_t     worker_id[UMI_WORKER_ID_SIZE]; /* the peer's */
    umi_list    eps;                           /* umi_ep.peer_link */
    umi_timer   linger;
    bool        is_failed; /* UCX's error handler ran */
    bool        has_shm;
    bool        has_rdma;
    /* What ops/cma_agree.c keeps of the peer; NULL until it does. */
    struct umi_cma *cma;
    void (*end_cma)(struct umi_peer *peer); /* frees that */
} umi_peer;

/* The peer of that worker; NULL if there is none, or it has failed. */
umi_peer *umi_peer_find(umx_worker *worker, const uint8_t *worker_id);

/* The same, made from the worker's address if need be. */
umx_status umi_peer_get(umx_worker *worker, const uint8_t *worker_id,
                        const void *address, umi_peer **peer_p);

/* Its connections fail with CONNECTION_RESET. */
void umi_peer_close(umi_peer *peer);

/* What `old` belonged to at the other side is gone: a new one takes its place.
 * `old` is closed but for the connections that are not bound yet: they go over.
 */
umx_status umi_peer_renew(umi_peer *old, const void *address,
                          umi_peer **peer_p);

void umi_peer_attach(umi_peer *peer, umi_ep *ep);

/* `ep` is over. `is_graceful`: the peer is well, so UCX's endpoint may stay for
 * the next connection; else it is closed if this was its last one, so that UCX
 * gives all buffers back. */
void umi_peer_detach(umi_ep *ep, bool is_graceful);

#endif
