/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.h: memory of a pair's server, reached by its client. */
#ifndef MEMORY_H
#define MEMORY_H

#include "pair.h"

#include <umx/rma.h>

#include "rma/rma.h"

typedef struct memory {
    umx_memh *memh;
    umx_rkey *rkey;
    char     *data;
} memory;

umx_status memory_open(umx_ep *ep, const umx_memh *memh, umx_rkey **rkey_p);
/* Mapped, unless the pair has no shared memory. */
memory memory_alloc(pair *p, size_t len);
/* Memory of the test's own, which is not mapped. */
memory memory_register(pair *p, void *data, size_t len, uint64_t flags);
void   memory_free(memory *m);

umx_rma_item item_of(uint64_t offset, const void *data, size_t len);

typedef umx_status (*transfer_fn)(umx_rkey *, const umx_rma_item *,
                                  const umx_op_params *, umx_request **);

/* Post; and wait. */
void start(op *o, transfer_fn fn, umx_rkey *rkey, umx_rma_item item);
void start_signal(op *o, umx_rkey *rkey, umx_rma_item item, umx_atomic signal);
void start_atomic(op *o, umx_rkey *rkey, umx_atomic which, uint64_t *old);
/* `ep` NULL: the worker's. */
void       start_flush(op *o, umx_worker *worker, umx_ep *ep);
umx_status transfer(pair *p, transfer_fn fn, umx_rkey *rkey, umx_rma_item item);
umx_status atomic(pair *p, umx_rkey *rkey, umx_atomic which, uint64_t *old);

/* For umx_memh_params.on_free: counts its calls in an int. */
void count_call(void *arg);

#endif
