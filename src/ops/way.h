/* SPDX-License-Identifier: BSD-3-Clause */
/* way.h: the ways in which the bytes of a message come, as the receiver sees
 * them. What arrives has a way and a pointer; the way knows what is behind the
 * pointer. How a sender chooses is in channel/offer.h. Thread: the worker's
 * owner. */
#ifndef UMI_WAY_H
#define UMI_WAY_H

#include "worker/request.h"

typedef struct umi_way {
    /* The bytes are with the sender until they are asked for, and the message
     * is charged as an announcement. */
    bool is_announced;
    /* Only plain messages may come so, and no parts of something else. */
    bool is_for_messages;
    /* True if the bytes can come straight into the memory of `req`: else they
     * come into memory of the library's first. NULL: into any memory. */
    bool (*suits)(const umx_request *req);
    /* Have `len` bytes written into `req->buf`, which is as long: UMX_OK,
     * UMX_INPROGRESS, a failure, or UMX_ERR_WITHDRAWN. Bytes that are neither
     * announced nor at hand have to be received before the handler of the
     * arrival returns. NULL: the bytes are at hand. */
    umx_status (*recv)(umx_request *req, void *desc, size_t len);
    /* Drop what was kept. NULL: nothing is kept. */
    void (*release)(const struct umi_ep_base *ep, void *desc);
} umi_way;

/* The bytes are at hand, in memory of UCX's. */
extern const umi_way umi_way_eager;

/* UCX's rendezvous moves them: ops/am.h. */
extern const umi_way umi_way_rndv;

#endif
