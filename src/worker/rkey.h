/* SPDX-License-Identifier: BSD-3-Clause */
/* rkey.h: a peer's memory, as an endpoint reaches it. Thread: the worker's
 * owner, but for umx_rkey_retire(). */
#ifndef UMI_RKEY_H
#define UMI_RKEY_H

#include <umx/rma.h>

#include "keys/key.h"
#include "keys/segment.h"
#include "util/refcnt.h"
#include "worker/worker.h"

struct umx_rkey {
    umi_ep_base *ep;         /* held */
    char        *data;       /* the memory, if it is mapped */
    umi_segment *segment;    /* its header, likewise */
    bool         is_ordered; /* stores need no fence: wait.h */
    ucp_rkey_h   ucp;        /* for UCX's own put and get, or NULL */
    umi_node     node;       /* worker->rkeys, if it has that */
    umi_refs     refs;       /* the user's, and operations of UCX */
    uint64_t     rung; /* the last announcement that was rung for: wait.h */
    umi_key      key;
    bool         is_closed;
    bool         is_resolved; /* `ep` was known to be connected: it is mapped,
                                 or cannot be */
    bool       is_foreign;    /* not the peer's */
    bool       is_telling;    /* rma/ucx.c: the owner is being told ... */
    bool       is_tell_due;   /* ... and is to be told again */
    umi_retire retire;
    uint8_t    bytes[]; /* key.rkey */
};

static inline void
umi_rkey_hold(umx_rkey *rkey)
{
    umi_refs_get(&rkey->refs);
}

void umi_rkey_put(umx_rkey *rkey);

/* Give UCX's part of all keys back, before UCX's worker goes. */
void umi_rkeys_fini(umx_worker *worker);

/* Decide how to reach the memory, once the peer is known. */
void umi_rkey_resolve(umx_rkey *rkey);

#endif
