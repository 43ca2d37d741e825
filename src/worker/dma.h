/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* dma.h: copies between host and devices that nobody stands still for.
 *
 * A copy belongs to the request whose memory it reads or writes. It begins at
 * once and is done some time later: a worker that polls asks the driver, and
 * one that is about to sleep has the driver ring a bell, and sleeps for a short
 * time only, as a device that has failed rings none.
 *
 *   begin --> under way --the driver says so--> over --umi_dma_look()--> done()
 *                  `--umi_dma_settle()------^
 *
 * The memory of a request is the program's again once its copies are settled,
 * which is waited for: a copy is short, and needs no peer. Whatever ends a
 * request, or moves its bytes elsewhere, settles them (request.c, detach.c).
 * What a program has queued in a stream of its own, an operation may have to
 * wait for: that is asked after as if it was a copy, and umi_dma_settle()
 * forgets it instead, as nobody knows how long it takes. Thread: the worker's
 * owner. */
/* clang-format on */
#ifndef UMI_DMA_H
#define UMI_DMA_H

#include "mem/cuda_copy.h"
#include "worker/worker.h"

typedef struct umi_dma umi_dma;

/* `status`: how the copy ended. Never inside UCX. */
typedef void (*umi_dma_fn)(umi_dma *copy, umx_status status);

/* Lies in an object of its owner's, which keeps it until `done`. */
struct umi_dma {
    umi_node      node; /* worker->dmas */
    umi_cuda_copy cuda;
    umx_request  *req; /* NULL: it has its memory back */
    umi_dma_fn    done;
    umx_status    status;       /* UMX_INPROGRESS until it is over */
    bool          is_announced; /* the bell will ring */
};

void umi_dma_init(umx_worker *worker);

/* Wait for the copies that are under way, and call none's `done`. */
void umi_dma_fini(umx_worker *worker);

static inline bool
umi_dma_exists(const umx_worker *worker)
{
    return !umi_list_is_empty(&worker->dmas);
}

/* Begin a copy for `req`, of `count` runs of bytes; `device` is that of the
 * memory of a device. `done` hears of it if it cannot begin, too. */
void umi_dma_begin(umi_dma *copy, umx_request *req, int device,
                   umi_cuda_direction direction, const umi_cuda_move *moves,
                   size_t count, umi_dma_fn done);

/* Have `done` called with this status for what needs no copy, behind what is
 * over by now. */
void umi_dma_end(umi_dma *copy, umx_worker *worker, umx_status status,
                 umi_dma_fn done);

/* True if an operation is to wait for a stream. */
static inline bool
umi_dma_has_stream(const umx_op_params *params)
{
    return params != NULL && (params->field_mask & UMX_OP_FIELD_STREAM) != 0;
}

/* Have req->ops->ready called once the work is done that is queued in the
 * stream now; not if the request has ended by then. Until then req->num_dmas is
 * not 0. UMX_OK: it is done already, or will be; or umx_cuda_wait()'s. */
umx_status umi_dma_after(umx_request *req, const umx_op_params *params);

/* Call `done` of the copies that are over. True if there were any. */
bool umi_dma_look(umx_worker *worker);

/* The worker is about to sleep: have it woken by the copies that are under way.
 * True: some are over, and it must not sleep. */
bool umi_dma_announce(umx_worker *worker);

/* umi_dma_settle() of a request that has copies. */
void umi_dma_settle_some(umx_request *req);

/* Return when no copy uses the memory of `req` any more: few have any. */
static inline void
umi_dma_settle(umx_request *req)
{
    if (__builtin_expect(req->num_dmas != 0, 0)) {
        umi_dma_settle_some(req);
    }
}

/* Return when no copy is under way: memory goes that several of them use. */
void umi_dma_settle_all(umx_worker *worker);

#endif
