/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file region.h  A region: a memory of each rank of a communicator, with the
 * keys of all, so that every rank reaches every other one's.
 *
 * Symmetric heaps (shmem.h), proxies (proxy.h), layers of experts (moe.h) and the
 * table of outputs of maps (outputs.h) are made of regions. Thread: the worker's
 * owner.
 */
#ifndef UMX_REGION_H
#define UMX_REGION_H

#include <umx/comm.h>
#include <umx/rma.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct umx_region umx_region;

enum {
    UMX_REGION_RECORD_MAX = 1024 /* bytes */
};

/**
 * Tell every other rank the key of `memh`, and `record`, and open the keys of
 * all. The ranks call this in the same order, among other calls of it; collective
 * operations of `comm` may come in between in any order. The lengths of memories
 * and records may differ. Once it is complete, each rank has an endpoint to
 * each, and what can be mapped is mapped.
 *
 * Ownership: the caller's reference, which umx_region_destroy() gives back, also
 *            if the request fails. The region keeps `memh`, not its being open;
 *            `record` is copied.
 * @param memh    NULL: this rank has no memory in it
 * Completion: also UMX_ERR_RANK_FAILED: umx_region_get_failure()
 * @return UMX_INPROGRESS; UMX_OK (one rank); UMX_ERR_OUT_OF_RANGE: `len`;
 *         UMX_ERR_RANK_FAILED, UMX_ERR_CLOSED, UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_region_create(
    umx_comm *comm, umx_memh *memh, const void *record, size_t len,
    const umx_op_params *op, umx_region **region_p, umx_request **req_p);

/** Who has kept it from being made, and why, for people: false if nobody has.
 * `*why_p` lasts as long as the region. */
UMX_API bool umx_region_get_failure(const umx_region *region,
                                    umx_comm_failure *failure,
                                    const char      **why_p);

/** Write to `late` the ranks that have not come while it is being made, as
 * umx_comm_find_late() does. */
UMX_API int umx_region_find_late(umx_region *region, int *late);

/** Give it back: its keys are closed, operations under way go on. */
UMX_API void umx_region_destroy(umx_region *region);

/** The key of `rank`; NULL: this rank's own, or a rank without memory. It is
 * the region's. */
UMX_API umx_rkey *umx_region_rkey(const umx_region *region, int rank);

/** Where the memory of `rank` is, this one's own included; NULL: it has none,
 * or it is not mapped here. */
UMX_API void *umx_region_pointer(const umx_region *region, int rank);

/** Bytes of the memory of `rank`; 0: it has none. */
UMX_API uint64_t umx_region_length(const umx_region *region, int rank);

/** What `rank` has told. It is the region's. */
UMX_API const void *umx_region_record(const umx_region *region, int rank,
                                      size_t *len_p);

#ifdef __cplusplus
}
#endif
#endif
