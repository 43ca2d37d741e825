/* SPDX-License-Identifier: BSD-3-Clause */
/* shmem.c: the life of a symmetric heap. It is made as a region is, whose
 * records say how long the heap of each rank is, and whether it could be
 * allocated: so all ranks fail alike. */
#include "shmem/shmem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL UINT64_C(0x6d656d6873) /* of the derived communicator */
#define ALLOC_LABEL UINT64_C(0x636f6c6c61)
#define NO_TAG UINT64_MAX /* nobody sends it */

/* What each rank tells the others. */
typedef struct record {
    uint64_t length;
    int64_t  status; /* of its allocation */
} record;

/* ---- references ----------------------------------------------------------
 */

static void
free_shmem(umx_shmem *shmem)
{
    umx_worker_detach(&shmem->dependent);
    if (shmem->region != NULL) {
        umx_region_destroy(shmem->region);
    }
    if (shmem->memh != NULL) {
        umx_memh_release(shmem->memh);
    }
    umi_shmem_blocks_fini(&shmem->blocks);
    free(shmem->pes);
    free(shmem->peers);
    free(shmem);
}

void
umi_shmem_hold(umx_shmem *shmem)
{
    shmem->refs++;
}

void
umi_shmem_put(umx_shmem *shmem)
{
    if (--shmem->refs == 0) {
        free_shmem(shmem);
    }
}

/* ---- failures ------------------------------------------------------------
 */

/* Keep what the communicator says of its failure: it may be given back. */
static void
learn_failure(umx_shmem *shmem)
{
    umx_comm_failure failure;

    if (shmem->is_told || shmem->comm == NULL ||
        !umx_comm_get_failure(shmem->comm, &failure)) {
        return;
    }
    shmem->is_told = true;
    if (failure.rank >= 0 || shmem->failure.rank < 0) {
        shmem->failure    = failure;
        shmem->failure.op = "";
        (void)snprintf(shmem->why, sizeof(shmem->why), "%s",
                       umx_comm_reason(shmem->comm));
    }
    __atomic_store_n(&shmem->is_lost, true, __ATOMIC_RELAXED);
}

umx_status
umi_shmem_blame(umx_shmem *shmem, int pe, umx_status status)
{
    if (status >= 0 || status == UMX_ERR_CANCELED || shmem->comm == NULL ||
        !umx_comm_doubt(shmem->comm, pe, status, NULL)) {
        return status;
    }
    learn_failure(shmem);
    if (shmem->failure.rank < 0 && !shmem->is_told) {
        shmem->failure.rank  = pe;
        shmem->failure.cause = status;
        (void)snprintf(shmem->why, sizeof(shmem->why),
                       "an operation with rank %d has failed: %s", pe,
                       umx_status_string(status));
    }
    __atomic_store_n(&shmem->is_lost, true, __ATOMIC_RELAXED);
    return UMX_ERR_RANK_FAILED;
}

umx_status
umx_shmem_doubt(umx_shmem *shmem, int pe, umx_status status)
{
    UMI_SHMEM_LOCK(shmem);
    return (umi_shmem_is_pe(shmem, pe) && pe != shmem->rank) ?
               umi_shmem_blame(shmem, pe, status) :
               status;
}

bool
umx_shmem_get_failure(umx_shmem *shmem, umx_comm_failure *failure,
                      const char **why_p)
{
    UMI_SHMEM_LOCK(shmem);

    learn_failure(shmem);
    *failure = shmem->failure;
    *why_p   = shmem->why;
    return shmem->is_lost;
}

const bool *
umx_shmem_lost(const umx_shmem *shmem)
{
    return &shmem->is_lost;
}

/* ---- the end -------------------------------------------------------------
 */

static void
complete_creation(umx_shmem *shmem, umx_status status)
{
    umx_request *req = shmem->create_req;

    shmem->create_req = NULL;
    if (req != NULL) {
        umx_request_complete(req, status);
    }
}

static void
leave(umx_comm *comm)
{
    if (comm != NULL) {
        umx_comm_close(comm);
        umx_comm_destroy(comm);
    }
}

static void
shut(umx_shmem *shmem)
{
    umx_comm *comm = shmem->comm, *allocations = shmem->allocations;

    if (shmem->state == UMI_SHMEM_CLOSED) {
        return;
    }
    learn_failure(shmem);
    shmem->state = UMI_SHMEM_CLOSED;
    umi_shmem_hold(shmem);
    umi_shmem_waits_end(shmem, UMX_ERR_CLOSED);
    umi_shmem_proposals_drop(shmem);
    if (shmem->watch != NULL) {
        (void)umx_request_cancel(shmem->watch);
    }
    shmem->allocations = NULL;
    leave(allocations);
    shmem->comm = NULL;
    leave(comm);
    if (shmem->memh != NULL) {
        umx_memh_close(shmem->memh);
    }
    umi_shmem_put(shmem);
}

static void
on_destroy(umx_dependent *dependent)
{
    umx_shmem *shmem = umi_container_of(dependent, umx_shmem, dependent);

    umi_shmem_hold(shmem);
    shut(shmem);
    shmem->worker = NULL;
    umi_shmem_put(shmem);
}

void
umx_shmem_close(umx_shmem *shmem)
{
    UMI_SHMEM_LOCK(shmem);

    if (shmem->create_part != NULL) { /* its end finds the heap closed */
        (void)umx_request_cancel(shmem->create_part);
    }
    shut(shmem);
}

void
umx_shmem_destroy(umx_shmem *shmem)
{
    UMI_SHMEM_LOCK(shmem);

    umx_shmem_close(shmem);
    umi_shmem_put(shmem);
}

/* ---- creation ------------------------------------------------------------
 */

static void
on_watched(umx_request *part, umx_status status, void *arg)
{
    umx_shmem *shmem = arg;

    (void)part;
    shmem->watch = NULL;
    if (status != UMX_ERR_CANCELED) {
        __atomic_store_n(&shmem->is_lost, true, __ATOMIC_RELAXED);
        learn_failure(shmem);
    }
    umi_shmem_waits_end(shmem, (status == UMX_ERR_CANCELED) ?
                                   UMX_ERR_CLOSED :
                                   UMX_ERR_RANK_FAILED);
    umi_shmem_put(shmem);
}

static umx_status
watch(umx_shmem *shmem)
{
    umx_op_params   params = umx_layer_op_params(on_watched, shmem);
    umx_buffer      none   = umx_host_buffer(NULL, 0);
    umx_comm_status got;
    umx_status      status;

    if (shmem->size == 1) {
        return UMX_OK;
    }
    status = umx_comm_irecv(shmem->comm, UMX_ANY_SOURCE, NO_TAG, UINT64_MAX,
                            &none, &params, &shmem->watch, &got);
    if (status != UMX_INPROGRESS) {
        shmem->watch = NULL;
        return status;
    }
    umi_shmem_hold(shmem);
    return UMX_OK;
}

static const record *
record_of(const umx_shmem *shmem, int rank)
{
    size_t        len;
    const record *it = umx_region_record(shmem->region, rank, &len);

    return (len == sizeof(*it)) ? it : NULL;
}

/* Compare what the ranks have told. The result is the same on all. */
static umx_status
compare_records(umx_shmem *shmem)
{
    record first = {0};

    for (int i = 0; i < shmem->size; i++) {
        record it;

        if (record_of(shmem, i) == NULL) {
            return UMX_ERR_PROTOCOL;
        }
        memcpy(&it, record_of(shmem, i), sizeof(it));
        first = (i == 0) ? it : first;
        if (it.length != first.length) {
            (void)snprintf(shmem->reason, sizeof(shmem->reason),
                           "rank 0 gives %" PRIu64
                           " bytes, and rank %d %" PRIu64,
                           first.length, i, it.length);
            return UMX_ERR_INVALID_PARAM;
        }
        if (it.status != UMX_OK) {
            (void)snprintf(shmem->reason, sizeof(shmem->reason),
                           "rank %d cannot allocate %" PRIu64 " bytes: %s", i,
                           it.length, umx_status_string((umx_status)it.status));
            return (umx_status)it.status;
        }
    }
    return UMX_OK;
}

static void
fill_pes(umx_shmem *shmem)
{
    for (int i = 0; i < shmem->size; i++) {
        umx_shmem_pe *pe = &shmem->pes[i];

        pe->base = umx_region_pointer(shmem->region, i);
        if (i != shmem->rank && pe->base != NULL) {
            pe->waiters = umx_rkey_waiters(umi_shmem_rkey(shmem, i),
                                           &pe->is_ordered);
        }
    }
}

static umx_status
end_creation(umx_shmem *shmem, umx_status status)
{
    if (status == UMX_OK) {
        status = (shmem->state == UMI_SHMEM_CREATED && shmem->worker != NULL) ?
                     compare_records(shmem) :
                     UMX_ERR_CANCELED;
    }
    if (status == UMX_OK) {
        fill_pes(shmem);
        status = watch(shmem);
    }
    if (status == UMX_OK) {
        shmem->state = UMI_SHMEM_OPEN;
    }
    return status;
}

static void
on_made(umx_request *part, umx_status status, void *arg)
{
    umx_shmem *shmem = arg;

    (void)part;
    shmem->create_part = NULL;
    complete_creation(shmem, end_creation(shmem, status));
    umi_shmem_put(shmem);
}

/* The other ranks learn it, as the region is not made. */
static void
cancel_create(umx_request *req)
{
    umx_shmem *shmem = *(umx_shmem **)umx_request_state(req);

    if (shmem->create_part != NULL) {
        (void)umx_request_cancel(shmem->create_part);
    }
}

static const umx_request_class create_class = {.name   = "create",
                                               .cancel = cancel_create};

static umx_status
make_region(umx_shmem *shmem, umx_comm *comm, const umx_op_params *op,
            umx_request **req_p)
{
    umx_op_params params = umx_layer_op_params(on_made, shmem);
    record        told   = {.length = shmem->given};
    umx_status    status;

    told.status = umx_memh_alloc_aligned(umx_worker_get_context(shmem->worker),
                                         shmem->length, UMX_SHMEM_ALIGN_MAX,
                                         &shmem->memh);
    if (told.status == UMX_OK) {
        shmem->base = umx_memh_buffer(shmem->memh)->data;
        umi_shmem_blocks_init(&shmem->blocks,
                              (uintptr_t)shmem->base % UMX_SHMEM_ALIGN_MAX,
                              shmem->length);
        (void)umx_memh_order_stores(shmem->memh); /* else putters fence */
    }
    status = umx_region_create(comm, shmem->memh, &told, sizeof(told), &params,
                               &shmem->region, &shmem->create_part);
    if (status != UMX_INPROGRESS) {
        shmem->create_part = NULL;
        status             = end_creation(shmem, status);
        if (status == UMX_OK || shmem->reason[0] == '\0') {
            return status;
        }
    } else {
        umi_shmem_hold(shmem);
    }
    shmem->create_req = umx_request_create(shmem->worker, &create_class, op);
    if (shmem->create_req == NULL) {
        if (shmem->create_part != NULL) {
            (void)umx_request_cancel(shmem->create_part);
        }
        return UMX_ERR_NO_MEMORY;
    }
    *(umx_shmem **)umx_request_state(shmem->create_req) = shmem;
    *req_p                                              = shmem->create_req;
    if (shmem->create_part == NULL) { /* the caller can ask for the reason */
        complete_creation(shmem, status);
    }
    return UMX_INPROGRESS;
}

static umx_shmem *
new_shmem(umx_comm *comm, uint64_t size)
{
    umx_shmem *shmem = calloc(1, sizeof(*shmem));
    int        ranks = umx_comm_size(comm);

    if (shmem == NULL) {
        return NULL;
    }
    shmem->pes   = calloc((size_t)ranks, sizeof(*shmem->pes));
    shmem->peers = calloc((size_t)ranks, sizeof(*shmem->peers));
    if (shmem->pes == NULL || shmem->peers == NULL) {
        free(shmem->pes);
        free(shmem->peers);
        free(shmem);
        return NULL;
    }
    for (int i = 0; i < ranks; i++) {
        shmem->peers[i] = (umi_shmem_peer){.shmem = shmem, .pe = i};
    }
    shmem->refs   = 1;
    shmem->worker = umx_comm_get_worker(comm);
    shmem->rank   = umx_comm_rank(comm);
    shmem->size   = ranks;
    shmem->given  = size;
    shmem->length = (size + UMX_SHMEM_ALIGN - 1) / UMX_SHMEM_ALIGN *
                    UMX_SHMEM_ALIGN;
    shmem->failure = (umx_comm_failure){
        .rank = -1, .op = "", .cause = UMX_ERR_PEER_CLOSED, .member = -1};
    shmem->dependent.on_destroy = on_destroy;
    umi_node_init((umi_node *)(void *)&shmem->dependent);
    umi_list_init(&shmem->waits);
    umi_list_init(&shmem->quiets);
    umi_list_init(&shmem->proposals);
    umx_worker_attach(shmem->worker, &shmem->dependent);
    return shmem;
}

umx_status
umx_shmem_create(umx_comm *comm, uint64_t size, const umx_op_params *op,
                 umx_shmem **shmem_p, umx_request **req_p)
{
    umx_worker *worker = umx_comm_get_worker(comm);
    umx_shmem  *shmem;
    umx_status  status;

    if (worker == NULL || umx_comm_rank(comm) < 0) {
        return UMX_ERR_CLOSED;
    }
    if (size == 0 || size > UMX_SHMEM_SIZE_MAX) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    UMX_LAYER_LOCK(worker);
    shmem = new_shmem(comm, size);
    if (shmem == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = umx_comm_derive(comm, LABEL, &shmem->comm);
    if (status == UMX_OK) {
        status = umx_comm_derive(shmem->comm, ALLOC_LABEL, &shmem->allocations);
    }
    if (status == UMX_OK) {
        status = make_region(shmem, comm, op, req_p);
    }
    if (status != UMX_OK && status != UMX_INPROGRESS) {
        umx_shmem_destroy(shmem);
        return status;
    }
    *shmem_p = shmem;
    return status;
}

/* ---- what is known -------------------------------------------------------
 */

const char *
umx_shmem_reason(const umx_shmem *shmem)
{
    return shmem->reason;
}

int
umx_shmem_my_pe(const umx_shmem *shmem)
{
    return shmem->rank;
}

int
umx_shmem_num_pes(const umx_shmem *shmem)
{
    return shmem->size;
}

void *
umx_shmem_base(const umx_shmem *shmem)
{
    return shmem->base;
}

uint64_t
umx_shmem_size(const umx_shmem *shmem)
{
    return shmem->length;
}

uint64_t
umx_shmem_available(const umx_shmem *shmem)
{
    UMI_SHMEM_LOCK(shmem);
    return shmem->blocks.available;
}

umx_memh *
umx_shmem_memh(const umx_shmem *shmem)
{
    return shmem->memh;
}

bool
umx_shmem_pe_accessible(const umx_shmem *shmem, int pe)
{
    return umi_shmem_is_pe(shmem, pe);
}

bool
umx_shmem_addr_accessible(const umx_shmem *shmem, const void *address, int pe)
{
    uint64_t offset;

    return umi_shmem_is_pe(shmem, pe) &&
           umi_shmem_offset(shmem, address, 1, &offset);
}

void *
umx_shmem_pointer(const umx_shmem *shmem, const void *address, int pe)
{
    uint64_t offset;

    if (!umi_shmem_is_pe(shmem, pe) || shmem->pes[pe].base == NULL ||
        !umi_shmem_offset(shmem, address, 0, &offset)) {
        return NULL;
    }
    return shmem->pes[pe].base + offset;
}

const umx_shmem_pe *
umx_shmem_get_pes(const umx_shmem *shmem, unsigned layout)
{
    return (layout == UMX_SHMEM_LAYOUT && shmem->state != UMI_SHMEM_CREATED) ?
               shmem->pes :
               NULL;
}

umx_status
umx_shmem_notify(umx_shmem *shmem, int pe)
{
    if (!umi_shmem_is_pe(shmem, pe)) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    if (umi_shmem_status(shmem) != UMX_OK) {
        return UMX_ERR_CLOSED;
    }
    if (pe == shmem->rank) {
        umx_memh_notify(shmem->memh);
        return UMX_OK;
    }
    if (umi_shmem_has_failed(shmem, pe)) {
        return UMX_ERR_RANK_FAILED;
    }
    return umi_shmem_blame(shmem, pe,
                           umx_rkey_notify(umi_shmem_rkey(shmem, pe)));
}
