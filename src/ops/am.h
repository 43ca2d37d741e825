/* SPDX-License-Identifier: BSD-3-Clause */
/* am.h: active messages. Thread: the worker's owner. */
#ifndef UMI_AM_H
#define UMI_AM_H

#include "ops/way.h"
#include "worker/worker.h"

/* UCX's ids of active messages. */
enum {
    UMI_AM_DATA           = 0, /* the layer above's, like the next */
    UMI_AM_CONTROL        = 1,
    UMI_AM_LENT           = 2, /* lend/note.h's, like the next */
    UMI_AM_NOTE           = 3,
    UMI_AM_PROBE          = 4, /* queue.h's */
    UMI_AM_FOLLOWED       = 5, /* follow.h's */
    UMI_AM_TRANSFER       = 6, /* transfer.h's, like the next */
    UMI_AM_PIECE          = 7,
    UMI_AM_ASK            = 8,
    UMI_AM_OFFERED        = 9, /* bounce/bounce.h's, like the next */
    UMI_AM_BOUNCE         = 10,
    UMI_AM_HANDED         = 11, /* bounce/hand.c's */
    UMI_AM_OFFERED_DEVICE = 12 /* as OFFERED: the sender's memory is a device's,
                                  or managed */
};

/* A message as it arrives, inside UCX's callback. */
typedef struct umi_am_arrival {
    const void    *header;
    size_t         header_len;
    const umi_way *way;
    void          *data;     /* the bytes, or what the way knows them by */
    size_t         len;      /* bytes of the message */
    bool           can_keep; /* `data` may be kept */
    ucp_ep_h       reply_ep; /* the sender's, if it wants that; else NULL */
} umi_am_arrival;

/* True if the bytes are at `data`. */
static inline bool
umi_am_is_at_hand(const umi_am_arrival *arrival)
{
    return arrival->way == &umi_way_eager;
}

/* True if the bytes are with the sender until they are asked for. */
static inline bool
umi_am_is_announced(const umi_am_arrival *arrival)
{
    return !umi_am_is_at_hand(arrival) && arrival->way->is_announced;
}

/* True if the bytes can come straight into the memory of `req`. */
static inline bool
umi_am_suits(const umi_am_arrival *arrival, const umx_request *req)
{
    return umi_am_is_at_hand(arrival) || arrival->way->suits == NULL ||
           arrival->way->suits(req);
}

typedef enum umi_am_verdict {
    UMI_AM_CONSUMED, /* the callee is done with `data` */
    UMI_AM_KEPT,     /* umi_am_release() or umi_am_recv() later */
    UMI_AM_REFUSED   /* rendezvous: the sender's operation fails */
} umi_am_verdict;

/* Returns a umi_am_verdict. */
typedef int (*umi_am_fn)(umx_worker *worker, const umi_am_arrival *arrival);

umx_status umi_am_set_handler(umx_worker *worker, unsigned id, umi_am_fn fn);

/* Refuse whatever arrives from now on. */
void umi_am_refuse_all(umx_worker *worker);

/* Set the handlers of its worker for `engine`, too. */
umx_status umi_am_copy_handlers(umi_engine *engine);

/* Send `req->buf` with an optional header, which must live as long as `req`,
 * to `req->ep`. `is_rndv` decides the protocol: the bytes stay here until they
 * are asked for. UMX_OK, UMX_INPROGRESS or a failure. */
umx_status umi_am_send(umx_request *req, unsigned id, const void *header,
                       size_t header_len, bool is_rndv);

/* Send few bytes of the host's memory without a request, if UCX sends them at
 * once; nothing of them or of the header is read later. UMX_INPROGRESS: it does
 * not, and nothing has been sent. */
umx_status umi_am_inject(const umi_ep_base *ep, unsigned id, const void *header,
                         size_t header_len, const void *data, size_t len);

/* Receive the bytes of an announced message, into `req->buf`, of exactly `len`
 * bytes. From inside the arrival callback or for a kept descriptor. */
umx_status umi_am_recv(umx_request *req, void *desc, size_t len);

/* Drop kept data of `ep`. A dropped announcement completes its sender with
 * success. */
void umi_am_release(const umi_ep_base *ep, void *data);

#endif
