/* SPDX-License-Identifier: BSD-3-Clause */
/* shmem.h: what the files of this room share. Thread: the worker's owner, or
 * its progress thread, under the worker's lock. */
#ifndef UMI_SHMEM_H
#define UMI_SHMEM_H

#include <umx/buffer.h>
#include <umx/shmem.h>

#include "joint/joint.h"
#include "shmem/alloc.h"
#include "util/list.h"

/* What a callback is given that has to know which PE it is about. */
typedef struct umi_shmem_peer {
    umx_shmem *shmem;
    int        pe;
} umi_shmem_peer;

struct umx_shmem {
    umx_joint joint;
    char     *base;
    uint64_t  length; /* a multiple of UMX_SHMEM_ALIGN */
    uint64_t  given;  /* what the caller gave */
    umx_memh *memh;
    umx_comm *allocations; /* derived from joint.comm, owned: for these
                              only, as they may wait for their turn */
    umx_shmem_pe   *pes;
    umi_shmem_peer *peers; /* of all PEs */
    umi_list        waits; /* umi_shmem_wait.node */
    /* allocation */
    umi_shmem_blocks blocks;
    umi_list         proposals; /* umi_shmem_proposal.node; the first is under
                                   way */
    /* operations without a request */
    size_t     num_nbi; /* under way */
    umx_status nbi_status;
    umi_list   quiets; /* umi_shmem_quiet.node, those that wait for them */
};

#define UMI_SHMEM_LOCK(shmem) UMI_JOINT_LOCK(shmem)

static inline void
umi_shmem_hold(umx_shmem *shmem)
{
    umi_joint_hold(&shmem->joint);
}

static inline void
umi_shmem_put(umx_shmem *shmem)
{
    umi_joint_put(&shmem->joint);
}

/* UMX_OK, UMX_ERR_CLOSED. */
static inline umx_status
umi_shmem_status(const umx_shmem *shmem)
{
    return umi_joint_check(&shmem->joint);
}

/* Find the offset of an address; false if no `len` bytes of the heap are there.
 */
static inline bool
umi_shmem_offset(const umx_shmem *shmem, const void *address, uint64_t len,
                 uint64_t *offset_p)
{
    *offset_p = (uint64_t)((const char *)address - shmem->base);
    return *offset_p <= shmem->length && len <= shmem->length - *offset_p;
}

/* The key of a PE that is another one. */
static inline umx_rkey *
umi_shmem_rkey(const umx_shmem *shmem, int pe)
{
    return umx_region_rkey(shmem->joint.region, pe);
}

static inline bool
umi_shmem_is_pe(const umx_shmem *shmem, int pe)
{
    return pe >= 0 && pe < shmem->joint.size;
}

/* True if it is known that this PE has failed. */
static inline bool
umi_shmem_has_failed(const umx_shmem *shmem, int pe)
{
    return __builtin_expect(shmem->joint.has_failed, 0) &&
           pe == shmem->joint.failure.rank && pe != shmem->joint.rank;
}

/* Compute the status to report of an operation with `pe` that has ended with
 * `status`: UMX_ERR_RANK_FAILED if the communicator says that the PE has
 * failed, which ends the heap; else `status`. */
umx_status umi_shmem_doubt(umx_shmem *shmem, int pe, umx_status status);

/* ---- allocate.c ----------------------------------------------------------
 */

/* The heap is closed: end the allocations that wait for their turn. An
 * allocation that is under way ends when its exchange does. */
void umi_shmem_proposals_drop(umx_shmem *shmem);

/* ---- wait.c --------------------------------------------------------------
 */

/* End the waits. */
void umi_shmem_waits_end(umx_shmem *shmem, umx_status status);

/* ---- quiet.c -------------------------------------------------------------
 */

/* An operation without a request has ended. */
void umi_shmem_nbi_done(umx_shmem *shmem, umx_status status);

#endif
