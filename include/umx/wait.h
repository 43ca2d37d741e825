/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file wait.h  Wait until a number in one's own memory has a value, or look
 * for whatever peers have stored there.
 *
 * A peer that maps a memory changes it without its owner. Who waits for such a
 * change polls while it has something to do anyway, and sleeps otherwise: the
 * peer then sends a wake-up. These wake the owner:
 *
 *   umx_rma_put(), umx_rma_put_many(), umx_rma_put_signal(), umx_rma_atomic()
 *                      of a peer, whichever way they reach the memory
 *   umx_rkey_notify()  of a peer that has stored by umx_rkey_pointer()
 *   umx_memh_notify()  in the owner's process, after stores of its own
 *   the end of a connection: a peer may have died before it could wake anybody
 *
 * A store that is followed by none of them is seen when the waiting worker next
 * makes progress, which may be never. To hear of a peer, the worker that the
 * peer's endpoint leads to must make progress; it need not be the one that
 * waits.
 */
#ifndef UMX_WAIT_H
#define UMX_WAIT_H

#include <umx/rma.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Numbers are unsigned. */
typedef enum umx_cmp {
    UMX_CMP_EQ,
    UMX_CMP_NE,
    UMX_CMP_GT,
    UMX_CMP_GE,
    UMX_CMP_LT,
    UMX_CMP_LE
} umx_cmp;

/** The number of `size` bytes at `offset` compares so to `value`. */
typedef struct umx_condition {
    umx_cmp  cmp;
    unsigned size;   /* 4 or 8 */
    uint64_t offset; /* a multiple of `size` */
    uint64_t value;  /* of 4 bytes: the lower ones count */
} umx_condition;

/**
 * Tell whether `until` is true, as umx_memh_wait_until() sees it.
 *
 * Thread: any.
 *
 * @return UMX_OK (it is true), UMX_INPROGRESS (it is not);
 *         UMX_ERR_OUT_OF_RANGE; UMX_ERR_INVALID_PARAM: comparison, size,
 *         alignment; UMX_ERR_UNSUPPORTED: memory of a device;
 *         UMX_ERR_STALE_KEY: it is closed
 */
UMX_API UMX_MUST_CHECK umx_status umx_memh_test(umx_memh            *memh,
                                                const umx_condition *until);

/**
 * Wait until `until` has been seen to be true. It may be false again when that
 * is reported: who needs more than one value of a number lets it only grow.
 * What was stored before the number can be read then.
 *
 * The request is `worker`'s, which is of the memory's context. Cancelling ends
 * it with UMX_ERR_CANCELED, as destroying the worker does. umx_memh_close()
 * ends it with UMX_ERR_STALE_KEY.
 *
 * Ownership: the request keeps the memory, not its being open.
 * Thread: the worker's owner.
 *
 * @return UMX_OK (it is true), UMX_INPROGRESS; UMX_ERR_OUT_OF_RANGE;
 *         UMX_ERR_INVALID_PARAM: comparison, size, alignment, another context's
 *         memory; UMX_ERR_UNSUPPORTED: memory of a device; UMX_ERR_STALE_KEY: it
 *         is closed; UMX_ERR_CLOSED: the worker is being destroyed;
 *         UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status
umx_memh_wait_until(umx_worker *worker, umx_memh *memh,
                    const umx_condition *until, const umx_op_params *params,
                    umx_request **req_p);

/** Conditions of which some are waited for. */
typedef struct umx_conditions {
    const umx_condition *until; /* `count` of them; copied */
    size_t               count;
    size_t at_least; /* so many must have been seen to be true; `count` and
                        more: all */
    /* Of each condition: 1 is stored here when it has been seen to be true. One
     * that is not 0 at first is not waited for, and does not count. Lent until
     * completion. */
    uint8_t *seen;
} umx_conditions;

/**
 * Wait as umx_memh_wait_until() does until `at_least` of the conditions have
 * been seen to be true, each at any time since the call, or all that are waited
 * for if those are fewer. A call that ends at once looks at all of them.
 *
 * @return as umx_memh_wait_until()
 */
UMX_API UMX_MUST_CHECK umx_status umx_memh_wait_until_many(
    umx_worker *worker, umx_memh *memh, const umx_conditions *conditions,
    const umx_op_params *params, umx_request **req_p);

/** Wake who waits for the memory, after stores in it. Thread: any. */
UMX_API void umx_memh_notify(umx_memh *memh);

/**
 * Wake who waits for the memory at its owner, after stores by
 * umx_rkey_pointer(). Nothing is sent unless somebody sleeps. Without a mapping
 * there is nothing to tell of: the operations have told.
 *
 * Thread: the worker's owner.
 * @return UMX_OK; as umx_rma_put() otherwise
 */
UMX_API UMX_MUST_CHECK umx_status umx_rkey_notify(umx_rkey *rkey);

/* ---- memory that peers change --------------------------------------------
 */

/** Who looks at a memory. */
typedef struct umx_lookout umx_lookout;

/** Look for something new, and take it. True if there was any. Runs in (P)
 * calls, at any time; it may stop lookouts, its own too. */
typedef bool (*umx_look_fn)(void *arg);

/**
 * Have `fn` called whenever `worker` makes progress, and before it sleeps. Who
 * stores to `memh` wakes it as described above. Stop it before the memory
 * is closed, or the worker destroyed.
 *
 * @return UMX_OK, UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_lookout_start(umx_worker *worker,
                                                    umx_memh   *memh,
                                                    umx_look_fn fn, void *arg,
                                                    umx_lookout **lookout_p);
/** Stop a lookout: its function is not called any more. */
UMX_API void                      umx_lookout_stop(umx_lookout *lookout);

#ifdef __cplusplus
}
#endif
#endif
