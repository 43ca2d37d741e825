/* SPDX-License-Identifier: BSD-3-Clause */
/* object.h: what the pool of a worker's bounce buffers holds. Thread: the
 * worker's owner. */
#ifndef UMI_BOUNCE_OBJECT_H
#define UMI_BOUNCE_OBJECT_H

#include "bounce/bounce.h"
#include "bounce/direct.h"
#include "bounce/movable.h"
#include "bounce/note.h"

/* The header of a message that is handed over: hand.c. */
typedef struct umi_handed_header {
    uint64_t endpoint;
    uint64_t fetch;
} umi_handed_header;

/* A message of ours that its receiver fetches. */
typedef struct umi_fill {
    umi_node         node;      /* umi_bounce_ep.fills */
    umi_node         wait_node; /* umi_bounce_slots.waiting */
    umi_ep_base     *ep;
    umx_request     *req;
    uint64_t         id;
    size_t           len;
    umi_bounce_pool *pool;
    size_t           filled; /* where the bytes of the next slot begin */
    size_t           step;   /* bytes of a slot that are used */
    uint64_t
        since; /* umi_clock_ns(): the peer has slots, and has emptied none */
    unsigned          num_slots;
    int               device; /* UMX_DEVICE_NONE: not known */
    const void       *pinned; /* the host memory that a device reads; or NULL */
    umi_direct       *direct; /* lent to the receiver; or NULL */
    umi_handed_header handed;
    bool              is_handed; /* UCX has the memory: hand.c */
} umi_fill;

/* A message of the peer's that may be fetched; what umi_way_bounce knows it by.
 */
typedef struct umi_offered {
    void    *desc; /* UCX's */
    uint32_t channel;
    uint32_t seq;
    bool     is_device;  /* its sender's memory */
    bool     is_fetched; /* a receive has it */
} umi_offered;

/* A message that is being fetched. */
typedef struct umi_fetch {
    umi_node     node; /* umi_bounce_ep.fetches */
    umi_ep_base *ep;
    umx_request *req;
    umi_offered *what;
    uint64_t     id;
    size_t       len;
    size_t       filled;    /* where the bytes of the next slot begin */
    size_t       drained;   /* how many bytes are here for good */
    int          device;    /* UMX_DEVICE_NONE: not known */
    const void  *pinned;    /* the host memory that a device writes; or NULL */
    umi_direct  *direct;    /* it is read; or NULL */
    bool         is_handed; /* UCX has the memory */
} umi_fetch;

/* A slot of the peer's that a copy reads. */
typedef struct umi_drain {
    umi_dma     copy;
    umx_worker *worker;
    umi_fetch  *fetch; /* NULL: it has been stopped */
    const char *table; /* of turns; NULL: it reads fetch->direct */
    uint32_t    slot;
    uint32_t    turn;
    size_t      len;
} umi_drain;

typedef union umi_bounce_object {
    umi_fill    fill;
    umi_offered offered;
    umi_fetch   fetch;
    umi_drain   drain;
} umi_bounce_object;

#endif
