/* SPDX-License-Identifier: BSD-3-Clause */
/* moe.h: what the files of this room share. Thread: the worker's owner, or its
 * progress thread, under the worker's lock, if nothing else is said.
 *
 *   row      a row's place in the memory of a rank, counted from 0
 *   entry    where a row of a token goes
 *   call     a dispatch and its combine; its number is the same on every rank
 *   flag     a number in a memory that another rank sets to that of a call: it
 *            only grows, so that nothing has to be cleared
 *   area     one of the two halves of the memory, which calls use in turn
 *
 * Why areas can be used again: a rank begins call c + 2 when its call c has
 * been combined. So every rank has begun to combine call c, and needs none of
 * the rows that it got. And a rank that has got the rows of all ranks for call
 * c + 2 knows that they need none of its outputs of call c. */
#ifndef UMI_MOE_H
#define UMI_MOE_H

#include <stdatomic.h>
#include <umx/buffer.h>
#include <umx/moe.h>
#include <umx/wait.h>

#include "joint/joint.h"
#include "util/list.h"
#include "util/refcnt.h"

/* What a flag tells of the rank that sets it. */
typedef enum umi_moe_flag {
    UMI_MOE_COUNTED, /* how many rows it will send */
    UMI_MOE_SENT,    /* its rows are there */
    UMI_MOE_READY,   /* the outputs of its experts can be read */
    UMI_MOE_LEFT,    /* it takes part in nothing more: a umi_moe_left */
    UMI_MOE_MASKED,  /* it has masked the one whose memory that is: 1 */
    UMI_MOE_NUM_FLAGS
} umi_moe_flag;

/* Why a rank takes part in nothing more: from RANK_FAILED on, another one has
 * failed. */
enum {
    UMI_MOE_STAYS       = 0,
    UMI_MOE_LEAVES      = 1,
    UMI_MOE_RANK_FAILED = 2 /* and the rank */
};

/* Offsets of the parts of an area from its start, and their strides. */
typedef struct umi_moe_places {
    size_t num_rows;
    size_t counts; /* uint32_t: of each source `counts_len`, the last of which
                      is its number of experts of a token */
    size_t counts_len;
    size_t rows;
    size_t row_len; /* bytes of a row that is not cast */
    size_t scales;
    size_t scales_len; /* bytes of the scales of a row; 0: it cannot be cast */
    size_t topk;
    size_t outputs;
    size_t output_scales;
    size_t first; /* offset of the first area in the memory, after the flags */
    size_t len;   /* bytes of an area */
} umi_moe_places;

/* Write the offsets. False: the memory would be too large. */
bool umi_moe_find_places(const umx_moe_params *params, int num_ranks,
                         umi_moe_places *places);

/* Where the flag of a rank is in a memory. */
static inline size_t
umi_moe_flag_offset(int num_ranks, umi_moe_flag flag, int rank)
{
    return 64 * ((size_t)flag * (size_t)num_ranks + (size_t)rank);
}

/* ---- plan.c --------------------------------------------------------------
 */

/* Where a row of a token goes. */
typedef struct umi_moe_entry {
    int32_t  rank; /* -1: nowhere */
    uint32_t row;
} umi_moe_entry;

/* UMX_OK, UMX_ERR_OUT_OF_RANGE, UMX_ERR_INVALID_PARAM: see umx_moe_layout(). */
umx_status umi_moe_check_routing(const umx_moe_routing *routing);

/* Write an entry for each expert of each token, and count the rows of each
 * expert. `rank` is this one. At its owner each expert has a cell of
 * `max_tokens` rows for each rank that sends. */
void umi_moe_plan_experts(const umx_moe_routing *routing, int rank,
                          uint32_t max_tokens, umi_moe_entry *entries,
                          uint32_t *counts);

/* Write an entry for each rank and token, whose row is counted from 0 for each
 * rank, and count the rows of each rank. */
void umi_moe_plan_ranks(const umx_moe_routing *routing, umi_moe_entry *entries,
                        uint32_t *counts);

/* ---- moe.c ---------------------------------------------------------------
 */

typedef struct umi_moe_peer {
    char        *data; /* its memory, also this rank's own; NULL: not mapped */
    umx_rkey    *rkey; /* the region's; NULL: this rank */
    umx_ep      *ep;   /* as long as `rkey` is open */
    bool         is_masked;
    bool         has_left;
    umx_request *watch;
    umx_moe     *moe;
} umi_moe_peer;

struct umx_moe {
    umx_joint      joint;
    int            failed_rank;
    uint32_t       num_local; /* experts of a rank */
    umx_moe_params params;
    umi_moe_places places;
    umx_memh      *memh;
    char          *memory;
    umi_moe_peer  *peers;
    bool           has_left;  /* the others have been told */
    uint64_t       num_calls; /* begun */
    uint64_t       num_sent;
    uint64_t       num_combined;
    umx_moe_call  *live[UMX_MOE_LIVE_MAX];   /* by the area; borrowed */
    bool     is_abandoned[UMX_MOE_LIVE_MAX]; /* destroyed while it was live */
    umi_list waits;                          /* umx_moe_call.node */
    umx_lookout *lookout;
};

static inline void
umi_moe_hold(umx_moe *moe)
{
    umi_joint_hold(&moe->joint);
}

static inline void
umi_moe_put(umx_moe *moe)
{
    umi_joint_put(&moe->joint);
}

/* The flag of a rank, in this one's memory. */
uint64_t umi_moe_flag_value(const umx_moe *moe, umi_moe_flag flag, int rank);

/* End everything, and tell the other ranks. `rank` is whose fault that is, or
 * -1. */
void umi_moe_fail(umx_moe *moe, umx_status status, int rank);

/* A rank cannot be reached, or has not come: mask it, or end everything. */
void umi_moe_mask_or_fail(umx_moe *moe, int rank, umx_status status);

/* Is any rank masked? */
bool umi_moe_has_mask(const umx_moe *moe);

/* Keep the progress thread out until the end of the block. */
#define UMI_MOE_LOCK(moe) UMI_JOINT_LOCK(moe)

/* ---- call.c --------------------------------------------------------------
 */

/*   BEGUN --count()--> COUNTING --> COUNTED --pack()--> PACKED
 *     |                                ^                  | dispatch()
 *     +--- not unique, or begun like --+                  v
 *   SUMMED <--sum()-- READY <-- COMBINING <--combine()-- RECEIVED <-- SENDING
 */
typedef enum umi_moe_step {
    UMI_MOE_BEGUN,
    UMI_MOE_COUNTING,
    UMI_MOE_COUNTED_ALL,
    UMI_MOE_PACKED,
    UMI_MOE_SENDING,
    UMI_MOE_RECEIVED,
    UMI_MOE_COMBINING,
    UMI_MOE_READY_ALL,
    UMI_MOE_SUMMED,
    UMI_MOE_LEAVING /* what umx_moe_leave() waits with */
} umi_moe_step;

/* Rows for a rank whose memory is not mapped, or that come from there. */
typedef struct umi_moe_parcel {
    char         *data;
    umx_rma_item *items;
    size_t        num_items;
} umi_moe_parcel;

struct umx_moe_call {
    umx_moe       *moe;
    umi_refs       refs; /* operations under way count */
    umi_moe_step   step;
    unsigned       flags;
    uint64_t       number; /* from 1 */
    size_t         area;   /* offset in the memory */
    umx_moe_dtype  dtype;  /* of the rows that are sent */
    size_t         row_len;
    size_t         num_tokens;
    size_t         num_topk;
    size_t         most_topk; /* UNIQUE: of any rank */
    size_t         width;     /* entries of a token */
    int64_t       *topk_idx;
    umi_moe_entry *entries;
    uint32_t      *sent; /* rows: of each expert; UNIQUE: of each rank, and then
                            num_topk */
    uint32_t       *received;
    uint32_t       *matrix;      /* UNIQUE: [source][destination] */
    bool            has_counted; /* the other ranks know how many rows come */
    bool            is_like;     /* begun like another call */
    bool           *is_skipped;  /* of each rank: it was masked */
    bool           *is_fetched;  /* its outputs are on their way, or here */
    umi_moe_parcel *parcels;     /* of each rank that has not mapped memory */
    umi_moe_parcel  fetched;     /* all outputs of such ranks, by entry */
    /* the step that waits */
    umi_node     node; /* moe->waits */
    umx_request *req;
    uint32_t    *num_pending; /* of each rank: operations under way */
    bool         has_failed;  /* one of them: the end of everything comes */
    uint64_t     deadline_ns;
    umx_timer    timer;
};

/* A call without a number; NULL: out of memory. */
umx_moe_call *umi_moe_new_call(umx_moe *moe, unsigned flags, size_t num_tokens,
                               size_t num_topk);
void          umi_moe_call_put(umx_moe_call *call);

/* Does a row go once to each rank? Leaving is the same to all calls. */
static inline bool
umi_moe_is_unique(const umx_moe_call *call)
{
    return (call->flags & UMX_MOE_UNIQUE) != 0;
}

/* Is there a row for a rank that is to get it? */
static inline bool
umi_moe_is_wanted(const umx_moe_call *call, const umi_moe_entry *entry)
{
    return entry->rank >= 0 && !call->is_skipped[entry->rank];
}

/* Bytes of an output with its scales. */
static inline size_t
umi_moe_output_len(const umx_moe *moe)
{
    return moe->places.row_len +
           ((moe->params.dtype == UMX_MOE_FP8) ? moe->places.scales_len : 0);
}

/* ---- pack.c --------------------------------------------------------------
 */

void umi_moe_free_parcels(umx_moe_call *call);

/* Make room for the outputs that are fetched. False: out of memory. */
bool umi_moe_make_fetched(umx_moe_call *call);

/* ---- wait.c --------------------------------------------------------------
 */

/* Look whether calls can go on. */
bool umi_moe_look(umx_moe *moe);

/* End the step that waits, and what else waits for it. */
void umi_moe_end_wait(umx_moe_call *call, umx_status status);

#endif
