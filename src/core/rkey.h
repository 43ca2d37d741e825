/* rkey.h: a peer's memory, as an endpoint reaches it. Thread: the worker's
 * owner, but for umx_rkey_retire(). */
#ifndef UMI_RKEY_H
#define UMI_RKEY_H

#include <umx/rma.h>

#include "core/key.h"
#include "core/segment.h"
#include "core/worker.h"

struct umx_rkey {
    umi_ep      *ep;      /* held */
    char        *data;    /* the memory, if it is mapped */
    umi_segment *segment; /* likewise */
    umi_key      key;     /* without the rkey */
    bool         is_closed;
    bool         is_resolved; /* `ep` was known to be connected: it is mapped,
                                 or cannot be */
    bool       is_foreign;    /* not the peer's */
    umi_retire retire;
};

/* Decide how to reach the memory, once the peer is known. */
void umi_rkey_resolve(umx_rkey *rkey);

#endif
