/* SPDX-License-Identifier: BSD-3-Clause */
/* quiet.c: order and completion of operations. What goes to a PE that is mapped
 * here is done when its call returns. For the others endpoints are fenced and
 * flushed, and operations without a request are counted. */
#include <stdatomic.h>
#include <stdlib.h>
#include <umx/collective.h>
#include <umx/endpoint.h>

#include "shmem/shmem.h"
#include "util/count.h"

typedef struct umi_shmem_quiet umi_shmem_quiet;

/* A flush of the endpoint of a PE. */
typedef struct umi_shmem_flush {
    umi_shmem_quiet *quiet;
    int              pe;
} umi_shmem_flush;

struct umi_shmem_quiet {
    umi_node        node;        /* shmem->quiets */
    umx_shmem      *shmem;       /* held */
    umx_request    *req;         /* NULL: it is cancelled */
    size_t          num_flushes; /* under way */
    umx_status      status;
    umi_shmem_flush flushes[]; /* of all PEs */
};

static bool
is_elsewhere(const umx_shmem *shmem, int pe)
{
    return pe != shmem->joint.rank && shmem->pes[pe].base == NULL;
}

/* ---- quiet ---------------------------------------------------------------
 */

static umx_status
take_nbi_status(umx_shmem *shmem)
{
    umx_status status = shmem->nbi_status;

    shmem->nbi_status = UMX_OK;
    return status;
}

static void
end_if_over(umi_shmem_quiet *quiet)
{
    umx_shmem *shmem = quiet->shmem;

    if (quiet->num_flushes != 0 || shmem->num_nbi != 0) {
        return;
    }
    umi_node_remove(&quiet->node);
    if (quiet->req != NULL) {
        umx_status status = take_nbi_status(shmem);

        umx_request_complete(
            quiet->req, (quiet->status == UMX_OK) ? status : quiet->status);
    }
    free(quiet);
    umi_shmem_put(shmem);
}

void
umi_shmem_nbi_done(umx_shmem *shmem, umx_status status)
{
    size_t    left = umi_list_count(&shmem->quiets);
    umi_node *node;

    if (status != UMX_OK && shmem->nbi_status == UMX_OK) {
        shmem->nbi_status = status;
    }
    UMI_DECREMENT(shmem->num_nbi);
    while ((node = umi_list_turn(&shmem->quiets, &left)) != NULL) {
        end_if_over(umi_container_of(node, umi_shmem_quiet, node));
    }
    umi_shmem_put(shmem);
}

static void
on_flushed(umx_request *part, umx_status status, void *arg)
{
    const umi_shmem_flush *flush = arg;
    umi_shmem_quiet       *quiet = flush->quiet;

    (void)part;
    status = umi_shmem_doubt(quiet->shmem, flush->pe, status);
    UMI_DECREMENT(quiet->num_flushes);
    if (status != UMX_OK && quiet->status == UMX_OK) {
        quiet->status = status;
    }
    end_if_over(quiet);
}

/* The flushes go on: they have no memory of the caller's. */
static void
cancel(umx_request *req)
{
    umi_shmem_quiet *quiet = UMX_REQUEST_OF(req, umi_shmem_quiet);

    quiet->req = NULL;
    umx_request_complete(req, UMX_ERR_CANCELED);
}

static const umx_request_class quiet_class = {.name   = "quiet",
                                              .cancel = cancel};

static umx_status
flush(umi_shmem_quiet *quiet, int pe)
{
    umx_op_params params = umx_layer_op_params(on_flushed, &quiet->flushes[pe]);
    umx_request  *part;
    umx_ep       *ep;
    umx_status    status = umx_comm_get_ep(quiet->shmem->joint.comm, pe, &ep);

    params.flags |= UMX_OP_FLAG_MEMORY;
    if (status == UMX_OK) {
        status = umx_ep_flush(ep, &params, &part);
    }
    if (status == UMX_INPROGRESS) {
        quiet->num_flushes++;
        return UMX_OK;
    }
    return umi_shmem_doubt(quiet->shmem, pe, status);
}

/* Post a flush of every endpoint that is used. */
static void
flush_all(umi_shmem_quiet *quiet)
{
    const umx_shmem *shmem = quiet->shmem;

    for (int i = 0; i < shmem->joint.size; i++) {
        umx_status status = is_elsewhere(shmem, i) ? flush(quiet, i) : UMX_OK;

        if (status != UMX_OK && quiet->status == UMX_OK) {
            quiet->status = status;
        }
    }
}

static umi_shmem_quiet *
new_quiet(umx_shmem *shmem)
{
    size_t           size  = (size_t)shmem->joint.size;
    umi_shmem_quiet *quiet = calloc(1, sizeof(*quiet) +
                                           size * sizeof(quiet->flushes[0]));

    if (quiet != NULL) {
        quiet->shmem = shmem;
        for (int i = 0; i < shmem->joint.size; i++) {
            quiet->flushes[i] = (umi_shmem_flush){.quiet = quiet, .pe = i};
        }
        umi_node_init(&quiet->node);
        umi_shmem_hold(shmem);
    }
    return quiet;
}

/* True if there is nothing to wait for. */
static bool
is_quiet(const umx_shmem *shmem)
{
    bool is_any = shmem->num_nbi != 0;

    for (int i = 0; i < shmem->joint.size; i++) {
        is_any |= is_elsewhere(shmem, i);
    }
    return !is_any;
}

umx_status
umx_shmem_quiet(umx_shmem *shmem, const umx_op_params *op, umx_request **req_p)
{
    UMI_SHMEM_LOCK(shmem);
    umx_status       status = umi_shmem_status(shmem);
    umi_shmem_quiet *quiet;

    atomic_thread_fence(memory_order_seq_cst);
    if (status != UMX_OK) {
        return status;
    }
    if (is_quiet(shmem)) {
        return take_nbi_status(shmem);
    }
    quiet = new_quiet(shmem);
    if (quiet == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    flush_all(quiet);
    umi_list_append(&shmem->quiets, &quiet->node);
    if (quiet->num_flushes == 0 && shmem->num_nbi == 0) {
        status = (quiet->status != UMX_OK) ? quiet->status :
                                             take_nbi_status(shmem);
        end_if_over(quiet);
        return status;
    }
    quiet->req = umx_request_create(shmem->joint.worker, &quiet_class, op);
    if (quiet->req == NULL) {
        return UMX_ERR_NO_MEMORY; /* the flushes end it */
    }
    UMX_REQUEST_OF(quiet->req, umi_shmem_quiet) = quiet;
    *req_p                                      = quiet->req;
    return UMX_INPROGRESS;
}

umx_status
umx_shmem_fence(umx_shmem *shmem)
{
    UMI_SHMEM_LOCK(shmem);
    umx_status status = umi_shmem_status(shmem);

    atomic_thread_fence(memory_order_release);
    for (int i = 0; i < shmem->joint.size && status == UMX_OK; i++) {
        umx_ep *ep;

        if (is_elsewhere(shmem, i)) {
            status = umx_comm_get_ep(shmem->joint.comm, i, &ep);
            status = (status == UMX_OK) ? umx_ep_fence(ep) : status;
        }
    }
    return status;
}

/* ---- barrier -------------------------------------------------------------
 */

/* A barrier that begins with a quiet. */
typedef struct umi_shmem_barrier {
    umx_shmem   *shmem; /* held */
    umx_request *part;
} umi_shmem_barrier;

static void
end_barrier(umx_request *req, umx_status status)
{
    umi_shmem_barrier *barrier = umx_request_state(req);
    umx_shmem         *shmem   = barrier->shmem;

    if (status == UMX_ERR_RANK_FAILED && !shmem->joint.has_failed &&
        umi_shmem_status(shmem) != UMX_OK) {
        status = UMX_ERR_CLOSED; /* by this rank */
    }
    umx_request_complete(req, status);
    umi_shmem_put(shmem);
}

static void
on_met(umx_request *part, umx_status status, void *arg)
{
    (void)part;
    ((umi_shmem_barrier *)umx_request_state(arg))->part = NULL;
    end_barrier(arg, status);
}

static void
on_quiet(umx_request *part, umx_status status, void *arg)
{
    umx_request       *req     = arg;
    umi_shmem_barrier *barrier = umx_request_state(req);
    umx_op_params      params  = umx_layer_op_params(on_met, req);

    (void)part;
    barrier->part = NULL;
    if (status == UMX_OK) {
        status = umi_shmem_status(barrier->shmem);
    }
    if (status == UMX_OK) {
        status = umx_barrier(barrier->shmem->joint.comm, &params,
                             &barrier->part);
    }
    if (status != UMX_INPROGRESS) {
        barrier->part = NULL;
        end_barrier(req, status);
    }
}

static void
cancel_barrier(umx_request *req)
{
    umi_shmem_barrier *barrier = umx_request_state(req);

    if (barrier->part != NULL) {
        (void)umx_request_cancel(barrier->part);
    }
}

static const umx_request_class barrier_class = {.name   = "barrier",
                                                .cancel = cancel_barrier};

umx_status
umx_shmem_barrier(umx_shmem *shmem, const umx_op_params *op,
                  umx_request **req_p)
{
    UMI_SHMEM_LOCK(shmem);
    umx_status         status = umi_shmem_status(shmem);
    umx_op_params      params;
    umi_shmem_barrier *barrier;
    umx_request       *req;

    if (status != UMX_OK) {
        return status;
    }
    if (is_quiet(shmem)) {
        status = umx_shmem_quiet(shmem, NULL, req_p);
        return (status == UMX_OK) ? umx_barrier(shmem->joint.comm, op, req_p) :
                                    status;
    }
    req = umx_request_create(shmem->joint.worker, &barrier_class, op);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    barrier = umx_request_state(req);
    params  = umx_layer_op_params(on_quiet, req);
    status  = umx_shmem_quiet(shmem, &params, &barrier->part);
    if (status != UMX_INPROGRESS) {
        umx_request_discard(req);
        return (status == UMX_OK) ? umx_barrier(shmem->joint.comm, op, req_p) :
                                    status;
    }
    barrier->shmem = shmem;
    umi_shmem_hold(shmem);
    *req_p = req;
    return UMX_INPROGRESS;
}

umx_status
umx_shmem_sync(umx_shmem *shmem, const umx_op_params *op, umx_request **req_p)
{
    UMI_SHMEM_LOCK(shmem);
    umx_status status = umi_shmem_status(shmem);

    return (status == UMX_OK) ? umx_barrier(shmem->joint.comm, op, req_p) :
                                status;
}
