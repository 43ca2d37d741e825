/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file moe.h  Layers of experts whose tokens and experts are on many ranks:
 * dispatch rows of tokens to the ranks of their experts, and combine what the
 * experts give.
 *
 * Every rank has the same number of experts: expert e is number e % n of rank
 * e / n, where n is umx_moe_params.num_experts divided by the size. Each rank
 * has a memory, in which there is room for two calls, of whose rows every rank
 * writes its own: see umx_moe_call_info(). A call takes these steps, on
 * every rank:
 *
 *   umx_moe_begin()         which rows go where
 *   umx_moe_count()         only of UMX_MOE_UNIQUE: the ranks tell how many
 *   umx_moe_pack()          writes rows where the peers have mapped memory
 *   umx_moe_dispatch()      complete when all rows have come here
 *   umx_moe_unpack()        puts what the experts gave where ranks read it; or
 *                           the experts write it there themselves
 *   umx_moe_combine()       complete when this rank can read what it needs
 *   umx_moe_sum()           the weighted sums, in a fixed order: the same rows
 *                           and weights give the same bytes
 *   umx_moe_call_destroy()
 *
 * No buffer of the caller's is used after the call that it was given to.
 *
 * Ranks begin and combine calls in the same order. A cancelled dispatch or
 * combine, and one that has failed, ends the whole umx_moe on all ranks.
 *
 * Thread: the worker's owner, if nothing else is said.
 */
#ifndef UMX_MOE_H
#define UMX_MOE_H

#include <umx/comm.h>
#include <umx/joint.h>
#include <umx/rma.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct umx_moe      umx_moe;
typedef struct umx_moe_call umx_moe_call;

enum {
    UMX_MOE_BLOCK       = 128, /* numbers of fp8 with one scale */
    UMX_MOE_TOPK_MAX    = 64,
    UMX_MOE_RANKS_MAX   = 1024,
    UMX_MOE_EXPERTS_MAX = 1 << 16,
    UMX_MOE_LIVE_MAX    = 2 /* calls */
};

/** Numbers of rows. */
typedef enum umx_moe_dtype {
    UMX_MOE_F32,
    UMX_MOE_BF16, /**< the upper half of F32 */
    UMX_MOE_FP8   /**< E4M3 without infinities; each UMX_MOE_BLOCK numbers have a
                       scale, a float by which they are multiplied */
} umx_moe_dtype;

/* ---- rows: thread: any --------------------------------------------------- */

/** Bytes of a number. */
UMX_API size_t umx_moe_dtype_size(umx_moe_dtype dtype);

/** Cast rows of F32 or BF16, which lie one after the other, to FP8. The scale
 * of a block is its largest finite magnitude, 1e-30 at least, divided by 448;
 * infinities become NaN. `hidden` is a multiple of UMX_MOE_BLOCK. */
UMX_API void umx_moe_to_fp8(uint8_t *to, float *scales, const void *from,
                            umx_moe_dtype dtype, size_t num_rows,
                            size_t hidden);

/** Cast back, to F32 or BF16. */
UMX_API void umx_moe_from_fp8(void *to, umx_moe_dtype dtype,
                              const uint8_t *from, const float *scales,
                              size_t num_rows, size_t hidden);

/* ---- where rows go: thread: any ------------------------------------------ */

/** The experts of tokens. */
typedef struct umx_moe_routing {
    const int64_t *topk_idx; /* num_tokens * num_topk; -1: none */
    size_t         num_tokens;
    size_t         num_topk;
    uint32_t       num_experts;
    int            num_ranks;
} umx_moe_routing;

/**
 * Count tokens. A token counts once for a rank, however many experts it has
 * there.
 *
 * @param[out] per_rank    of each rank
 * @param[out] per_expert  of each expert
 * @param[out] is_in_rank  num_tokens * num_ranks bytes, 0 or 1; or NULL
 * @return UMX_OK; UMX_ERR_OUT_OF_RANGE: there is no such expert;
 *         UMX_ERR_INVALID_PARAM: a token has an expert twice
 */
UMX_API UMX_MUST_CHECK umx_status umx_moe_layout(const umx_moe_routing *routing,
                                                 uint32_t *per_rank,
                                                 uint32_t *per_expert,
                                                 uint8_t  *is_in_rank);

/* ---- a group of experts -------------------------------------------------- */

enum umx_moe_field {
    UMX_MOE_FIELD_TIMEOUT = 1u << 0, /* absent: no limit for steps */
    UMX_MOE_FIELD_FLAGS   = 1u << 1  /* absent: 0 */
};

enum umx_moe_flags {
    /** A rank that has failed, or has not come in time, is masked, and the
     * others go on. Else that ends the umx_moe. */
    UMX_MOE_FLAG_MASK = 1u << 0
};

typedef struct umx_moe_params {
    uint64_t      field_mask;
    uint32_t      num_experts; /* of all ranks: a multiple of their number */
    uint32_t      max_tokens;  /* of a rank in a call */
    uint32_t      max_topk;    /* experts of a token; UMX_MOE_TOPK_MAX at most */
    uint32_t      hidden;      /* numbers of a row */
    umx_moe_dtype dtype;       /* FP8: `hidden` is a multiple of the block */
    /* Of the creation, and each step that waits. Absent: that of the communicator
     * for the creation, and none for steps. */
    uint64_t timeout_ns;
    uint64_t      flags;
} umx_moe_params;

/** Bytes of memory that each of `num_ranks` ranks needs; 0: a number of
 * `params` makes no sense. */
UMX_API size_t umx_moe_memory_size(const umx_moe_params *params,
                                   int                   num_ranks);

/**
 * Make one on every rank of `comm`, with the same `params`. `memh` has
 * umx_moe_memory_size() bytes of host memory, zeros, and is used by nothing
 * else.
 *
 * Ownership: the caller's reference, which umx_moe_destroy() gives back, also
 *            if the request fails. `memh` is kept, not its being open.
 * Completion: UMX_OK; UMX_ERR_INVALID_PARAM: ranks give different `params`; as
 *             umx_region_create()
 * @return UMX_INPROGRESS; UMX_OK (one rank); UMX_ERR_INVALID_PARAM,
 *         UMX_ERR_OUT_OF_RANGE; as umx_region_create()
 */
UMX_API UMX_MUST_CHECK umx_status
umx_moe_create(umx_comm *comm, umx_memh *memh, const umx_moe_params *params,
               const umx_op_params *op, umx_moe **moe_p, umx_request **req_p);

/**
 * Wait until every rank calls this: then nobody needs the memory of this one any
 * more, and no call can begin.
 *
 * @return UMX_OK, UMX_INPROGRESS; umx_moe_state(); UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_moe_leave(umx_moe             *moe,
                                                const umx_op_params *op,
                                                umx_request        **req_p);

/** Give it back; operations under way end with UMX_ERR_CLOSED. Other ranks that
 * wait for this one fail, or mask it: umx_moe_leave() comes first. */
UMX_API void umx_moe_destroy(umx_moe *moe);

/** How it is made, and which rank has failed. It is the umx_moe's. */
UMX_API umx_joint *umx_moe_joint(umx_moe *moe);

/** Tell how many ranks it has. */
UMX_API int umx_moe_num_ranks(const umx_moe *moe);

/** UMX_OK; else why no call can begin or go on: UMX_ERR_CLOSED,
 * UMX_ERR_CANCELED, UMX_ERR_TIMED_OUT, UMX_ERR_RANK_FAILED, or what an
 * operation has failed with. */
UMX_API umx_status umx_moe_state(const umx_moe *moe);

/** The rank that did not come in time, or could not be reached; -1: none. */
UMX_API int umx_moe_failed_rank(const umx_moe *moe);

/** End it as a call that is cancelled does. */
UMX_API void umx_moe_cancel(umx_moe *moe);

/* ---- masks --------------------------------------------------------------- */

/**
 * Mask a rank, or take its mask away. This rank sends nothing to a masked one,
 * waits for nothing of it, and leaves its experts out of sums. A mask concerns
 * steps that begin later, and those that wait.
 *
 * @return UMX_OK; UMX_ERR_OUT_OF_RANGE: no such rank, or this one
 */
UMX_API UMX_MUST_CHECK umx_status umx_moe_set_mask(umx_moe *moe, int rank,
                                                   bool is_masked);
/** True if the rank is masked: nothing goes to it or comes from it. */
UMX_API bool umx_moe_is_masked(const umx_moe *moe, int rank);

/** A rank that has masked this one, and is not masked here; -1: there is none.
 * A step that waits ends with UMX_ERR_RANK_FAILED then. */
UMX_API int umx_moe_masked_by(const umx_moe *moe);

/* ---- calls --------------------------------------------------------------- */

enum umx_moe_call_flags {
    /** A row goes once to each rank that has an expert of its token, and its
     * sum is that of what these ranks give. Else it goes to each expert. */
    UMX_MOE_UNIQUE = 1u << 0,
    /** Rows are cast to FP8. */
    UMX_MOE_CAST_FP8 = 1u << 1
};

/**
 * Begin a call. `routing` has the numbers of experts and ranks of `moe`.
 *
 * Ownership: the caller's, until umx_moe_call_destroy(). It keeps `moe`.
 * @return UMX_OK; UMX_ERR_BUSY: two calls are live; UMX_ERR_OUT_OF_RANGE: more
 *         tokens or experts than umx_moe_params says, no such expert;
 *         UMX_ERR_INVALID_PARAM: an expert twice, what cannot be cast to FP8;
 *         umx_moe_state(); UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_moe_begin(umx_moe               *moe,
                                                const umx_moe_routing *routing,
                                                unsigned       flags,
                                                umx_moe_call **call_p);

/**
 * Begin a call whose rows go the way of those of `like`, which is UMX_MOE_UNIQUE
 * and has been counted: this call needs no umx_moe_count(). Every rank does so.
 *
 * @return as umx_moe_begin(); UMX_ERR_INVALID_PARAM: `like` is no such call
 */
UMX_API UMX_MUST_CHECK umx_status umx_moe_begin_like(umx_moe_call  *like,
                                                     unsigned       flags,
                                                     umx_moe_call **call_p);

/**
 * Tell the other ranks how many rows they will get. Complete when they have
 * told this one.
 *
 * @return UMX_OK, UMX_INPROGRESS; UMX_ERR_INVALID_PARAM: not now;
 *         umx_moe_state(); UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_moe_count(umx_moe_call        *call,
                                                const umx_op_params *op,
                                                umx_request        **req_p);

/** What goes with rows: of UMX_MOE_UNIQUE the experts of the tokens, which are
 * those of the routing, and their weights. */
typedef struct umx_moe_rows {
    const void  *data;    /* num_tokens rows */
    const float *scales;  /* of FP8; else NULL */
    const float *weights; /* num_tokens * num_topk; or NULL */
} umx_moe_rows;

/**
 * Write the rows: to the memory of peers where that is mapped, else to memory
 * of the library's.
 *
 * Thread: any, while no other function is called with `call`.
 * @return UMX_OK; UMX_ERR_INVALID_PARAM: not now; UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_moe_pack(umx_moe_call       *call,
                                               const umx_moe_rows *rows);

/**
 * Tell the peers that their rows are there. Complete when all ranks have told
 * this one.
 *
 * @return as umx_moe_count()
 */
UMX_API UMX_MUST_CHECK umx_status umx_moe_dispatch(umx_moe_call        *call,
                                                   const umx_op_params *op,
                                                   umx_request        **req_p);

/** What has come, and where, in the memory of this rank. */
typedef struct umx_moe_info {
    umx_moe_dtype dtype; /* of the rows that have come */
    /* Offsets in the memory. Rows: [expert][source][slot], of which there are
     * experts of this rank * size * max_tokens; UMX_MOE_UNIQUE: one after the
     * other, by source and token. */
    size_t rows;
    size_t scales; /* of FP8: floats, hidden / UMX_MOE_BLOCK of each row */
    /* Outputs of the experts, where the rows are, in the dtype of the
     * umx_moe; scales as above if that is FP8. Other ranks may read those of an
     * earlier call there until umx_moe_dispatch() is complete. */
    size_t outputs;
    size_t output_scales;
    /* UMX_MOE_UNIQUE: of each row max_topk numbers of experts of this rank
     * (int32_t), -1: another rank's, or none; and their weights (float). */
    size_t topk_idx;
    size_t topk_weights;
    /* Rows that have come: [expert][source]; UMX_MOE_UNIQUE: [source]. As long
     * as the call. */
    const uint32_t *counts;
    uint32_t        num_topk; /* UMX_MOE_UNIQUE: the largest of any rank */
    bool            has_topk; /* UMX_MOE_UNIQUE: not begun like another call */
} umx_moe_info;

/** Thread: any, once umx_moe_dispatch() is complete. */
UMX_API void umx_moe_call_info(const umx_moe_call *call, umx_moe_info *info);

/**
 * Copy what the experts gave to umx_moe_info.outputs: rows that have come only.
 * `data` has as many rows as that, in the same places, and so has `scales`. What
 * is there already is not copied.
 *
 * Thread: any, while no other function is called with `call`.
 * @return UMX_OK; UMX_ERR_INVALID_PARAM: not now
 */
UMX_API UMX_MUST_CHECK umx_status umx_moe_unpack(umx_moe_call *call,
                                                 const void   *data,
                                                 const float  *scales);

/**
 * Tell the peers that they can read the outputs. Complete when all ranks have
 * told this one, and outputs of memory that is not mapped have been read.
 *
 * @return as umx_moe_count()
 */
UMX_API UMX_MUST_CHECK umx_status umx_moe_combine(umx_moe_call        *call,
                                                  const umx_op_params *op,
                                                  umx_request        **req_p);

/**
 * Write the sum of each token to a row of `out`, F32 or BF16. Summed in F32 in
 * the order of topk_idx; UMX_MOE_UNIQUE: of ranks. The call is not live after
 * this.
 *
 * Where a rank has masked this one meanwhile, the outputs may have been those of
 * later calls: `out` is worth nothing then.
 *
 * Thread: any, while no other function is called with `call`.
 * @param weights  num_tokens * num_topk; NULL: 1, as it is for UMX_MOE_UNIQUE
 * @return UMX_OK; UMX_ERR_INVALID_PARAM: not now, dtype; UMX_ERR_RANK_FAILED:
 *         umx_moe_masked_by(); UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_moe_sum(umx_moe_call  *call,
                                              const float   *weights,
                                              umx_moe_dtype dtype, void *out);

/** Give a call back. It stays live unless umx_moe_combine() is complete. */
UMX_API void umx_moe_call_destroy(umx_moe_call *call);

#ifdef __cplusplus
}
#endif
#endif
