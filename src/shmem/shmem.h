/* SPDX-License-Identifier: BSD-3-Clause */
/* shmem.h: what the files of this room share. Thread: the worker's owner, or
 * its progress thread, under the worker's lock. */
#ifndef UMI_SHMEM_H
#define UMI_SHMEM_H

#include <umx/buffer.h>
#include <umx/layer.h>
#include <umx/region.h>
#include <umx/shmem.h>

#include "shmem/alloc.h"
#include "util/list.h"

enum {
    UMI_SHMEM_REASON = 320 /* bytes */
};

/*   CREATED --all ranks have come--> OPEN --close(), destroy()--> CLOSED
 *      |                                                            ^
 *      +-------------- destroy(), or it could not be made ----------+  */
typedef enum umi_shmem_state {
    UMI_SHMEM_CREATED,
    UMI_SHMEM_OPEN,
    UMI_SHMEM_CLOSED
} umi_shmem_state;

/* What a callback is given that has to know which PE it is about. */
typedef struct umi_shmem_peer {
    umx_shmem *shmem;
    int        pe;
} umi_shmem_peer;

struct umx_shmem {
    umx_dependent   dependent;
    umx_worker     *worker; /* NULL: it is being destroyed */
    umi_shmem_state state;
    int             rank;
    int             size;
    unsigned        refs; /* the user's, and of parts under way */
    char           *base;
    uint64_t        length; /* a multiple of UMX_SHMEM_ALIGN */
    uint64_t        given;  /* what the caller gave */
    umx_memh       *memh;
    umx_region     *region;
    umx_comm       *comm;        /* derived, owned; NULL once it is closed */
    umx_comm       *allocations; /* likewise, from `comm`: for these only, as
                                    they may wait for their turn */
    umx_shmem_pe   *pes;
    umi_shmem_peer *peers; /* of all PEs */
    umx_request    *create_req;
    umx_request    *create_part;
    /* The heap ends its waits when the communicator fails: this receive, of
     * what nobody sends, fails then. */
    umx_request *watch;
    umi_list     waits; /* umi_shmem_wait.node */
    /* what operations end with UMX_ERR_RANK_FAILED for */
    bool             is_lost; /* somebody has failed, as far as is known */
    bool             is_told; /* the communicator has said who */
    umx_comm_failure failure; /* of `is_lost`; rank -1: none that is known */
    char             why[UMI_SHMEM_REASON];
    /* allocation */
    umi_shmem_blocks blocks;
    umi_list         proposals; /* umi_shmem_proposal.node; the first is under
                                   way */
    /* operations without a request */
    size_t     num_nbi; /* under way */
    umx_status nbi_status;
    umi_list   quiets; /* umi_shmem_quiet.node, those that wait for them */
    char       reason[UMI_SHMEM_REASON];
};

#define UMI_SHMEM_LOCK(shmem) UMX_LAYER_LOCK((shmem)->worker)

void umi_shmem_hold(umx_shmem *shmem);
void umi_shmem_put(umx_shmem *shmem);

/* UMX_OK, UMX_ERR_CLOSED. */
static inline umx_status
umi_shmem_status(const umx_shmem *shmem)
{
    return (shmem->state == UMI_SHMEM_OPEN && shmem->worker != NULL) ?
               UMX_OK :
               UMX_ERR_CLOSED;
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
    return umx_region_rkey(shmem->region, pe);
}

static inline bool
umi_shmem_is_pe(const umx_shmem *shmem, int pe)
{
    return pe >= 0 && pe < shmem->size;
}

/* Is it known that this PE has failed? */
static inline bool
umi_shmem_has_failed(const umx_shmem *shmem, int pe)
{
    return __builtin_expect(shmem->is_lost, 0) && pe == shmem->failure.rank &&
           pe != shmem->rank;
}

/* An operation with `pe` has ended so: has that failed? Then the status says
 * that a rank has. */
umx_status umi_shmem_blame(umx_shmem *shmem, int pe, umx_status status);

/* ---- allocate.c ----------------------------------------------------------
 */

/* End the allocations: the heap is closed. */
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
