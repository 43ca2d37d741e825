/* SPDX-License-Identifier: BSD-3-Clause */
/* addressed.h: the worker's own address, and the endpoints that peers make from
 * it. Thread: the worker's owner. */
#ifndef UMI_ENDPOINT_ADDRESSED_H
#define UMI_ENDPOINT_ADDRESSED_H

#include "codec/address.h"
#include "endpoint/endpoint.h"

typedef struct umi_addressed {
    umx_worker      *worker;
    umi_put_off      put_off;  /* of `fn` */
    umx_listener    *listener; /* NULL once withdrawn */
    umi_list         waiting;  /* umx_ep.untaken_node: not taken */
    bool             is_withdrawn;
    unsigned         num_ended; /* of `waiting` */
    umx_addressed_fn fn;
    void            *arg;
    size_t           len;
    uint8_t          bytes[UMX_ADDRESS_MAX];
} umi_addressed;

/* umx_ep_claim(). */
bool umi_addressed_claim(umx_ep *ep);

/* The first in the queue of those that nobody has taken, or the one after `ep`;
 * or NULL. */
umx_ep *umi_addressed_next(const umx_worker *worker, const umx_ep *ep);

/* umi_worker_destroy(): drop what was not taken. */
void umi_addressed_abort(umx_worker *worker);
void umi_addressed_fini(umx_worker *worker);

#endif
