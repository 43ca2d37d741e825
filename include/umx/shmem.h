/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file shmem.h  A symmetric heap: each rank of a communicator, called a PE
 * here, has as many bytes, in which all allocate alike.
 *
 * The names and rules are OpenSHMEM's. What one call of umx_shmem_malloc() has
 * allocated is at the same offset on every PE. So a PE names an object of
 * another one by the address of its own, the symmetric address: `dest`,
 * `source`, `target` and `signal` below.
 *
 * Calls that return a umx_status and take `op` are operations as in
 * umx/request.h. A put or an atomic operation is complete when it can be seen
 * at its PE. Those that are not complete are in no order, but for
 * umx_shmem_fence(). Where the memory of a PE is mapped here, they are done
 * when the call returns, and umx/shmem_direct.h does them without a call.
 *
 * A PE that waits sees what was stored by these calls, and by
 * umx_shmem_pointer() with umx_shmem_notify() after it.
 *
 * Thread: the worker's owner.
 */
#ifndef UMX_SHMEM_H
#define UMX_SHMEM_H

#include <umx/comm.h>
#include <umx/joint.h>
#include <umx/rma.h>
#include <umx/wait.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct umx_shmem umx_shmem;

#define UMX_SHMEM_SIZE_MAX ((uint64_t)1 << 46) /* bytes */

enum {
    UMX_SHMEM_ALIGN     = 64,  /* bytes: of what is allocated, at least */
    UMX_SHMEM_ALIGN_MAX = 65536 /* of addresses, on every rank */
};

/* ---- life ----------------------------------------------------------------
 */

/**
 * Make a heap of `size` bytes, of zeros, on every rank of `comm`; the size is
 * rounded up to UMX_SHMEM_ALIGN. Collective:
 * the ranks call it in the same order, among other calls of it; operations of
 * `comm` may come in between. Other ranks learn it if one fails.
 *
 * Ownership: the caller's reference, which umx_shmem_destroy() gives back, also
 *            if the request fails.
 * @param size  1 to UMX_SHMEM_SIZE_MAX, the same on every rank
 * @return UMX_INPROGRESS; UMX_OK (one rank). UMX_ERR_INVALID_PARAM: the sizes
 *         differ; what umx_memh_alloc() says, of any rank: umx_shmem_reason()
 *         says more. UMX_ERR_OUT_OF_RANGE (size), UMX_ERR_RANK_FAILED,
 *         UMX_ERR_CLOSED, UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_shmem_create(umx_comm            *comm,
                                                   uint64_t             size,
                                                   const umx_op_params *op,
                                                   umx_shmem  **shmem_p,
                                                   umx_request **req_p);

/** End the access: calls fail with UMX_ERR_CLOSED from now on, those of other
 * PEs that this one would have to execute with UMX_ERR_STALE_KEY. Memory stays
 * mapped until umx_shmem_destroy(). Others are told by umx_shmem_barrier()
 * before it. */
UMX_API void umx_shmem_close(umx_shmem *shmem);

/** Close it, and give it back. */
UMX_API void umx_shmem_destroy(umx_shmem *shmem);

/** How it is made, and which PE has failed. It is the heap's. */
UMX_API umx_joint *umx_shmem_joint(umx_shmem *shmem);

/** umx_joint_reason(): why the last collective call has failed on all PEs, for
 * people; or "". */
UMX_API const char *umx_shmem_reason(const umx_shmem *shmem);

/** Tell the rank of this process. */
UMX_API int      umx_shmem_my_pe(const umx_shmem *shmem);
/** Tell how many ranks the heap has. */
UMX_API int      umx_shmem_num_pes(const umx_shmem *shmem);
/** Tell where the heap of this process begins. */
UMX_API void    *umx_shmem_base(const umx_shmem *shmem);
/** Tell how many bytes the heap of each rank has. */
UMX_API uint64_t umx_shmem_size(const umx_shmem *shmem);

/** Bytes that are not allocated. */
UMX_API uint64_t umx_shmem_available(const umx_shmem *shmem);

/** The memory of this PE, for umx/wait.h. It is the heap's. */
UMX_API umx_memh *umx_shmem_memh(const umx_shmem *shmem);

/** Is it a PE? */
UMX_API bool umx_shmem_pe_accessible(const umx_shmem *shmem, int pe);

/** Is it a symmetric address, and a PE? */
UMX_API bool umx_shmem_addr_accessible(const umx_shmem *shmem,
                                       const void *address, int pe);

/** Where the object `address` of `pe` can be loaded and stored, until the heap
 * is destroyed; NULL: that PE is not mapped here, or it is no such address. */
UMX_API void *umx_shmem_pointer(const umx_shmem *shmem, const void *address,
                                int pe);

/** Wake who waits at `pe`, after stores by umx_shmem_pointer().
 * @return as umx_rkey_notify() */
UMX_API umx_status umx_shmem_notify(umx_shmem *shmem, int pe);

/* ---- failures ------------------------------------------------------------
 */

/**
 * An operation with `pe` that had a request has ended with `status`: tell the
 * communicator if that means that the PE has failed, as umx_comm_doubt() does.
 *
 * @return UMX_ERR_RANK_FAILED then; else `status`
 */
UMX_API umx_status umx_shmem_doubt(umx_shmem *shmem, int pe, umx_status status);

/** umx_joint_get_failure(): who ends operations with UMX_ERR_RANK_FAILED. */
UMX_API bool umx_shmem_get_failure(umx_shmem *shmem, umx_comm_failure *failure,
                                   const char **why_p);

/** Where it can be read whether somebody has failed, until the heap is
 * destroyed: who makes no call, as umx/shmem_direct.h does, hears it so. Thread:
 * any, with an atomic load. */
UMX_API const bool *umx_shmem_lost(const umx_shmem *shmem);

/* ---- allocation ----------------------------------------------------------
 *
 * Every PE calls these in the same order and with the same arguments; several
 * may be under way, and are carried out in that order. They return
 * UMX_INPROGRESS, UMX_OK (one PE); UMX_ERR_INVALID_PARAM: the PEs give different
 * arguments, or free an address that is none: the same on every PE, with
 * umx_shmem_reason(), and nothing is changed; UMX_ERR_EXCEEDS_LIMIT: there is no
 * room; UMX_ERR_RANK_FAILED, UMX_ERR_CLOSED. Cancelling ends the heap's
 * collective calls on all PEs. */

/** What umx_shmem_allocate() is asked for. */
typedef struct umx_shmem_wish {
    uint64_t    size;      /* bytes */
    uint64_t    align;     /* of the address on every rank: a power of two up to
                              UMX_SHMEM_ALIGN_MAX; 0: UMX_SHMEM_ALIGN */
    bool        is_zeroed; /* fill them with zeros */
    bool        is_refused; /* this PE has bad arguments, and tells the others,
                               whose calls fail: `what` says which */
    const char *what; /* the call, for people: it is compared, too; or NULL */
} umx_shmem_wish;

/** Allocate as umx_shmem_malloc() does. */
UMX_API UMX_MUST_CHECK umx_status umx_shmem_allocate(
    umx_shmem *shmem, const umx_shmem_wish *wish, void **address_p,
    const umx_op_params *op, umx_request **req_p);

/**
 * Allocate `size` bytes.
 *
 * @param align      of the address on every rank: a power of two up to
 *                   UMX_SHMEM_ALIGN_MAX; 0: UMX_SHMEM_ALIGN. Where another rank
 *                   has it mapped a page is all that is aligned.
 * @param is_zeroed  fill them with zeros
 * @param[out] address_p  written when the operation succeeds; lent until then.
 *                        NULL if `size` is 0
 */
UMX_API UMX_MUST_CHECK umx_status
umx_shmem_malloc(umx_shmem *shmem, uint64_t size, uint64_t align,
                 bool is_zeroed, void **address_p, const umx_op_params *op,
                 umx_request **req_p);

/** Free what was allocated, once all PEs have called it. NULL: nothing. */
UMX_API UMX_MUST_CHECK umx_status umx_shmem_free(umx_shmem           *shmem,
                                                 void                *address,
                                                 const umx_op_params *op,
                                                 umx_request        **req_p);

/* ---- put and get ---------------------------------------------------------
 *
 * Memory of the caller's is lent until completion. They return UMX_OK,
 * UMX_INPROGRESS; UMX_ERR_OUT_OF_RANGE (no PE, no symmetric address),
 * UMX_ERR_CLOSED; UMX_ERR_RANK_FAILED and others if the PE cannot be reached:
 * umx_shmem_doubt() judges what a request ends with. */

/** Write `len` bytes to `dest` of `pe`. */
UMX_API UMX_MUST_CHECK umx_status
umx_shmem_put(umx_shmem *shmem, void *dest, const void *source, size_t len,
              int pe, const umx_op_params *op, umx_request **req_p);

/** Read `len` bytes from `source` of `pe`. */
UMX_API UMX_MUST_CHECK umx_status
umx_shmem_get(umx_shmem *shmem, void *dest, const void *source, size_t len,
              int pe, const umx_op_params *op, umx_request **req_p);

/** Fill `dest`, memory of the host that may have a layout, from `source` of
 * `pe`. */
UMX_API UMX_MUST_CHECK umx_status umx_shmem_get_buffer(
    umx_shmem *shmem, const umx_buffer *dest, const void *source, int pe,
    const umx_op_params *op, umx_request **req_p);

/** Begin the same without a request: umx_shmem_quiet() waits for it, tells
 * whether it has failed, and ends the loan of the memory.
 * @return UMX_OK (begun, or done), or a failure */
UMX_API UMX_MUST_CHECK umx_status umx_shmem_put_nbi(umx_shmem  *shmem,
                                                    void       *dest,
                                                    const void *source,
                                                    size_t len, int pe);
/** Read, as umx_shmem_put_nbi() writes. */
UMX_API UMX_MUST_CHECK umx_status umx_shmem_get_nbi(umx_shmem  *shmem,
                                                    void       *dest,
                                                    const void *source,
                                                    size_t len, int pe);

/** Items at distances. */
typedef struct umx_shmem_stride {
    size_t  size;   /* bytes of an item */
    size_t  count;  /* items */
    int64_t dest;   /* items from one to the next in `dest`; at least 1 */
    int64_t source; /* likewise */
} umx_shmem_stride;

/** Write items: item i from source[i * stride->source].
 * @return also UMX_ERR_INVALID_PARAM: a stride below 1 */
UMX_API UMX_MUST_CHECK umx_status
umx_shmem_iput(umx_shmem *shmem, void *dest, const void *source,
               const umx_shmem_stride *stride, int pe, const umx_op_params *op,
               umx_request **req_p);
/** Read, as umx_shmem_iput() writes. */
UMX_API UMX_MUST_CHECK umx_status
umx_shmem_iget(umx_shmem *shmem, void *dest, const void *source,
               const umx_shmem_stride *stride, int pe, const umx_op_params *op,
               umx_request **req_p);

/* ---- signals and atomic operations ---------------------------------------
 */

/**
 * umx_shmem_put(), then set the number of 8 bytes `signal` of the same PE to
 * `value` (UMX_ATOMIC_SWAP), or add `value` to it (UMX_ATOMIC_ADD): who sees
 * the signal sees the bytes.
 * @return also UMX_ERR_INVALID_PARAM: another `how`, alignment
 */
UMX_API UMX_MUST_CHECK umx_status umx_shmem_put_signal(
    umx_shmem *shmem, void *dest, const void *source, size_t len,
    uint64_t *signal, uint64_t value, umx_atomic_op how, int pe,
    const umx_op_params *op, umx_request **req_p);

/** Begin the same as umx_shmem_put_nbi() does. */
UMX_API UMX_MUST_CHECK umx_status umx_shmem_put_signal_nbi(
    umx_shmem *shmem, void *dest, const void *source, size_t len,
    uint64_t *signal, uint64_t value, umx_atomic_op how, int pe);

/** Read a signal of this PE: what was put before it can be read then.
 * Thread: any. */
UMX_API uint64_t umx_shmem_signal_fetch(const uint64_t *signal);

/**
 * Change the number `target` of `pe` as umx_rma_atomic() does;
 * `atomic->offset` is not read.
 *
 * @param[out] old  as there: fetching forms give it. To fetch only, add 0.
 * @return also UMX_ERR_INVALID_PARAM: operation, size, alignment
 */
UMX_API UMX_MUST_CHECK umx_status
umx_shmem_atomic(umx_shmem *shmem, void *target, const umx_atomic *atomic,
                 uint64_t *old, int pe, const umx_op_params *op,
                 umx_request **req_p);

/* ---- waiting -------------------------------------------------------------
 */

/**
 * Wait until `until` is true of this PE's memory; its offset is from
 * umx_shmem_base(). Ends with UMX_ERR_RANK_FAILED when the communicator fails:
 * who would store may have ended.
 * @return as umx_memh_wait_until(); UMX_ERR_RANK_FAILED
 */
UMX_API UMX_MUST_CHECK umx_status umx_shmem_wait_until(
    umx_shmem *shmem, const umx_condition *until, const umx_op_params *op,
    umx_request **req_p);

/** Wait until so many of several conditions have been seen to be true.
 * @return as umx_shmem_wait_until() */
UMX_API UMX_MUST_CHECK umx_status umx_shmem_wait_until_many(
    umx_shmem *shmem, const umx_conditions *conditions,
    const umx_op_params *op, umx_request **req_p);

/** Is it true? Thread: any.
 * @return UMX_OK, UMX_INPROGRESS (no); as umx_memh_test() */
UMX_API UMX_MUST_CHECK umx_status
umx_shmem_test(const umx_shmem *shmem, const umx_condition *until);

/* ---- order and completion ------------------------------------------------
 */

/** Operations that are begun later reach each PE after those before. */
UMX_API UMX_MUST_CHECK umx_status umx_shmem_fence(umx_shmem *shmem);

/** Complete when all operations of this PE are.
 * @return UMX_OK, UMX_INPROGRESS; the first failure of one without a request;
 *         UMX_ERR_RANK_FAILED, UMX_ERR_CLOSED, UMX_ERR_NO_MEMORY */
UMX_API UMX_MUST_CHECK umx_status umx_shmem_quiet(umx_shmem           *shmem,
                                                  const umx_op_params *op,
                                                  umx_request        **req_p);

/** umx_shmem_quiet(), then complete when every PE has come here. Collective. */
UMX_API UMX_MUST_CHECK umx_status umx_shmem_barrier(umx_shmem           *shmem,
                                                    const umx_op_params *op,
                                                    umx_request        **req_p);

/** umx_shmem_barrier() without the quiet. */
UMX_API UMX_MUST_CHECK umx_status umx_shmem_sync(umx_shmem           *shmem,
                                                 const umx_op_params *op,
                                                 umx_request        **req_p);

/* ---- for umx/shmem_direct.h ----------------------------------------------
 */

/** Of the structs below. */
#define UMX_SHMEM_LAYOUT 1u

/** A PE, as this process reaches it. */
typedef struct umx_shmem_pe {
    char *base; /* of its heap; NULL: it is not mapped here */
    /* Who sleeps there; NULL: umx_shmem_notify() looks. */
    const uint64_t *waiters;
    bool            is_ordered; /* stores need no fence before that look */
} umx_shmem_pe;

/** An entry for each PE, until the heap is destroyed; NULL: `layout` is not
 * the library's, or the heap is not made. */
UMX_API const umx_shmem_pe *umx_shmem_get_pes(const umx_shmem *shmem,
                                              unsigned         layout);

#ifdef __cplusplus
}
#endif
#endif
