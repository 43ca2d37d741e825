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

/* What each rank tells the others. */
typedef struct record {
    uint64_t length;
    int64_t  status; /* of its allocation */
} record;

/* ---- references ----------------------------------------------------------
 */

static void
free_shmem(umx_joint *joint)
{
    umx_shmem *shmem = umi_container_of(joint, umx_shmem, joint);

    if (shmem->memh != NULL) {
        umx_memh_release(shmem->memh);
    }
    umi_shmem_blocks_fini(&shmem->blocks);
    free(shmem->pes);
    free(shmem->peers);
    free(shmem);
}

/* ---- failures ------------------------------------------------------------
 */

umx_status
umi_shmem_doubt(umx_shmem *shmem, int pe, umx_status status)
{
    /* What is under way with a PE that has failed is cancelled where the
     * communicator hears of it first. */
    if (status >= 0 || shmem->joint.comm == NULL ||
        (status == UMX_ERR_CANCELED && !umi_joint_learn(&shmem->joint)) ||
        !umx_comm_doubt(shmem->joint.comm, pe, status, NULL)) {
        return status;
    }
    umi_joint_note_failure(&shmem->joint, pe, status,
                           "an operation with rank %d has failed: %s", pe,
                           umx_status_string(status));
    return UMX_ERR_RANK_FAILED;
}

umx_status
umx_shmem_doubt(umx_shmem *shmem, int pe, umx_status status)
{
    UMI_SHMEM_LOCK(shmem);
    return (umi_shmem_is_pe(shmem, pe) && pe != shmem->joint.rank) ?
               umi_shmem_doubt(shmem, pe, status) :
               status;
}

bool
umx_shmem_get_failure(umx_shmem *shmem, umx_comm_failure *failure,
                      const char **why_p)
{
    return umx_joint_get_failure(&shmem->joint, failure, why_p);
}

const bool *
umx_shmem_lost(const umx_shmem *shmem)
{
    return &shmem->joint.has_failed;
}

/* ---- the end -------------------------------------------------------------
 */

static void
on_end(umx_joint *joint, umx_status status, bool was_open)
{
    umx_shmem *shmem       = umi_container_of(joint, umx_shmem, joint);
    umx_comm  *allocations = shmem->allocations;

    (void)status;
    (void)was_open;
    umi_shmem_waits_end(shmem, UMX_ERR_CLOSED);
    umi_shmem_proposals_drop(shmem);
    shmem->allocations = NULL;
    if (allocations != NULL) {
        umx_comm_close(allocations);
        umx_comm_destroy(allocations);
    }
    if (shmem->memh != NULL) {
        umx_memh_close(shmem->memh);
    }
}

void
umx_shmem_close(umx_shmem *shmem)
{
    UMI_SHMEM_LOCK(shmem);

    umi_joint_end(&shmem->joint, UMX_ERR_CLOSED);
}

void
umx_shmem_destroy(umx_shmem *shmem)
{
    UMI_SHMEM_LOCK(shmem);

    umi_joint_end(&shmem->joint, UMX_ERR_CLOSED);
    umi_shmem_put(shmem);
}

/* ---- creation ------------------------------------------------------------
 */

static const record *
record_of(const umx_shmem *shmem, int rank)
{
    size_t        len;
    const record *it = umx_region_record(shmem->joint.region, rank, &len);

    return (len == sizeof(*it)) ? it : NULL;
}

/* Compare what the ranks have told. The result is the same on all. */
static umx_status
compare_records(umx_shmem *shmem)
{
    record first = {0};

    for (int i = 0; i < shmem->joint.size; i++) {
        record it;

        if (record_of(shmem, i) == NULL) {
            return UMX_ERR_PROTOCOL;
        }
        memcpy(&it, record_of(shmem, i), sizeof(it));
        first = (i == 0) ? it : first;
        if (it.length != first.length) {
            return umi_joint_refuse(&shmem->joint, UMX_ERR_INVALID_PARAM,
                                    "rank 0 gives %" PRIu64
                                    " bytes, and rank %d %" PRIu64,
                                    first.length, i, it.length);
        }
        if (it.status != UMX_OK) {
            return umi_joint_refuse(
                &shmem->joint, (umx_status)it.status,
                "rank %d cannot allocate %" PRIu64 " bytes: %s", i, it.length,
                umx_status_string((umx_status)it.status));
        }
    }
    return UMX_OK;
}

static void
fill_pes(umx_shmem *shmem)
{
    for (int i = 0; i < shmem->joint.size; i++) {
        umx_shmem_pe *pe = &shmem->pes[i];

        pe->base = umx_region_pointer(shmem->joint.region, i);
        if (i != shmem->joint.rank && pe->base != NULL) {
            pe->waiters = umx_rkey_waiters(umi_shmem_rkey(shmem, i),
                                           &pe->is_ordered);
        }
    }
}

static umx_status
on_met(umx_joint *joint)
{
    umx_shmem *shmem  = umi_container_of(joint, umx_shmem, joint);
    umx_status status = compare_records(shmem);

    if (status == UMX_OK) {
        status = umx_comm_derive(joint->comm, ALLOC_LABEL, &shmem->allocations);
    }
    if (status == UMX_OK) {
        fill_pes(shmem);
        status = umi_joint_watch(joint);
    }
    return status;
}

/* End the waits: nobody is left who would store what they wait for. */
static void
on_failed(umx_joint *joint, bool has_failed)
{
    if (!has_failed) {
        umi_joint_note_failure(joint, -1, UMX_ERR_PEER_CLOSED,
                               "all other ranks have left the heap");
    }
    umi_shmem_waits_end(umi_container_of(joint, umx_shmem, joint),
                        UMX_ERR_RANK_FAILED);
}

static const umi_joint_class shmem_class = {.name      = "heap",
                                            .label     = LABEL,
                                            .on_met    = on_met,
                                            .on_end    = on_end,
                                            .on_failed = on_failed,
                                            .free      = free_shmem};

static umx_status
meet(umx_shmem *shmem, const umx_op_params *op, umx_request **req_p)
{
    record          told  = {.length = shmem->given};
    umi_joint_offer offer = {.record = &told, .len = sizeof(told)};

    told.status = umx_memh_alloc_aligned(
        umx_worker_get_context(shmem->joint.worker), shmem->length,
        UMX_SHMEM_ALIGN_MAX, &shmem->memh);
    if (told.status == UMX_OK) {
        shmem->base = umx_memh_buffer(shmem->memh)->data;
        umi_shmem_blocks_init(&shmem->blocks,
                              (uintptr_t)shmem->base % UMX_SHMEM_ALIGN_MAX,
                              shmem->length);
        (void)umx_memh_order_stores(shmem->memh); /* else putters fence */
    }
    offer.memh = shmem->memh;
    return umi_joint_meet(&shmem->joint, &offer, op, req_p);
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
    shmem->given  = size;
    shmem->length = (size + UMX_SHMEM_ALIGN - 1) / UMX_SHMEM_ALIGN *
                    UMX_SHMEM_ALIGN;
    umi_list_init(&shmem->waits);
    umi_list_init(&shmem->quiets);
    umi_list_init(&shmem->proposals);
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
    status = umi_joint_init(&shmem->joint, &shmem_class, comm);
    if (status != UMX_OK) {
        umx_shmem_destroy(shmem);
        return status;
    }
    status = meet(shmem, op, req_p);
    if (status == UMX_OK || status == UMX_INPROGRESS) {
        *shmem_p = shmem;
    }
    return status;
}

/* ---- what is known -------------------------------------------------------
 */

umx_joint *
umx_shmem_joint(umx_shmem *shmem)
{
    return &shmem->joint;
}

const char *
umx_shmem_reason(const umx_shmem *shmem)
{
    return shmem->joint.reason;
}

int
umx_shmem_my_pe(const umx_shmem *shmem)
{
    return shmem->joint.rank;
}

int
umx_shmem_num_pes(const umx_shmem *shmem)
{
    return shmem->joint.size;
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
    return (layout == UMX_SHMEM_LAYOUT &&
            shmem->joint.state != UMI_JOINT_MEETING) ?
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
    if (pe == shmem->joint.rank) {
        umx_memh_notify(shmem->memh);
        return UMX_OK;
    }
    if (umi_shmem_has_failed(shmem, pe)) {
        return UMX_ERR_RANK_FAILED;
    }
    return umi_shmem_doubt(shmem, pe,
                           umx_rkey_notify(umi_shmem_rkey(shmem, pe)));
}
