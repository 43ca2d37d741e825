/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file rma.h  Memory that peers read and write: put, get, atomic operations.
 *
 * The owner of a memory makes a handle (umx_memh) and gives its key, bytes, to
 * peers by whatever way it likes. A peer opens the key on an endpoint to the
 * owner (umx_rkey) and reaches the memory through that. Three ways, chosen for
 * each key:
 *
 *   mapped   memory of umx_memh_alloc(), same host, same user: loads, stores
 *            and atomic instructions on shared memory. The owner does nothing.
 *   executed by the owner's library, when it makes progress: everything else.
 *            The owner checks each operation, so no key reaches memory that is
 *            not, or no longer, registered.
 *   UCX      UCX's own put and get, if `config.rma_ucx` asks for it: the network
 *            card's work where there is one. Atomic operations are executed by
 *            the owner.
 *
 * An operation is complete when the memory has been changed, or read: a put
 * whose request is done can be seen by everybody. Operations that are under way
 * at the same time are in no order, but for umx_ep_fence() and
 * umx_rma_put_signal().
 *
 * Cancelled, an operation that was sent is executed all the same, and flushes and
 * fences count it: a put takes effect with the bytes that it had, or not at all,
 * and before what is posted later on the endpoint. UCX's own put and get are
 * deferred until their bytes have moved.
 */
#ifndef UMX_RMA_H
#define UMX_RMA_H

#include <umx/memory.h>
#include <umx/request.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the owner's side: thread: any --------------------------------------- */

enum umx_memh_field {
    UMX_MEMH_FIELD_FLAGS   = 1u << 0, /* absent: 0 */
    UMX_MEMH_FIELD_ON_FREE = 1u << 1  /* absent: nothing is called */
};

enum umx_memh_flags {
    UMX_MEMH_FLAG_READONLY = 1u << 0 /* peers may get, no more */
};

typedef struct umx_memh_params {
    uint64_t field_mask;
    uint64_t flags;
    void (*on_free)(void *arg); /* the loan of the memory is over */
    void *arg;
} umx_memh_params;

/**
 * Allocate `len` bytes of zeros, which peers on this host can map: a segment of
 * the system (System V's), of which a host has a few thousands for all its
 * processes. For many small memories there are heaps (heap.h). Where the system
 * has no such segments at all the memory is as umx_memh_alloc_private() makes
 * it, and a warning in the log says so once.
 *
 * Ownership: the caller's reference; it and every transfer under way keep the
 *            memory. Takes a reference on `context`.
 * @return UMX_OK, UMX_ERR_SEGMENT_LIMIT (umx_segment_limits() tells which),
 *         UMX_ERR_NO_MEMORY, UMX_ERR_FORKED, what UCX says
 */
UMX_API UMX_MUST_CHECK umx_status umx_memh_alloc(umx_context *context,
                                                 size_t       len,
                                                 umx_memh   **memh_p);

enum {
    UMX_MEMH_PAGE = 4096 /* bytes */
};

/**
 * Allocate memory as umx_memh_alloc() does, whose address is half a
 * UMX_MEMH_PAGE behind a multiple of `align`, a power of two from UMX_MEMH_PAGE
 * on. So begins what umx_memh_alloc() gives in a page: copies from and to what
 * begins a page are fast then.
 *
 * @return as umx_memh_alloc(); UMX_ERR_INVALID_PARAM: `align`
 */
UMX_API UMX_MUST_CHECK umx_status umx_memh_alloc_aligned(umx_context *context,
                                                         size_t       len,
                                                         size_t       align,
                                                         umx_memh **memh_p);

/**
 * Allocate memory as umx_memh_alloc() does, which this process may write and
 * peers only read: they map it for reading, and no process of the same user
 * can map it for writing, unless that is the superuser. Where peers do not map
 * it this process refuses what writes.
 *
 * @return as umx_memh_alloc()
 */
UMX_API UMX_MUST_CHECK umx_status umx_memh_alloc_readonly(umx_context *context,
                                                          size_t       len,
                                                          umx_memh **memh_p);

/**
 * Allocate memory of this process alone: it is no segment of the system, and
 * peers do not map it. This process executes the operations of all peers.
 *
 * @return UMX_OK, UMX_ERR_NO_MEMORY, UMX_ERR_FORKED, what UCX says
 */
UMX_API UMX_MUST_CHECK umx_status umx_memh_alloc_private(umx_context *context,
                                                         size_t       len,
                                                         umx_memh   **memh_p);

/**
 * Allocate memory of NVIDIA's driver, which peers do not map: device memory
 * (CUDA), managed memory (CUDA_MANAGED) or host memory that is pinned (HOST).
 *
 * @param device  its ordinal; UMX_DEVICE_NONE: of the current context, or 0
 * @return as umx_memh_alloc(); UMX_ERR_UNSUPPORTED: no driver, no device;
 *         UMX_ERR_OUT_OF_RANGE, UMX_ERR_INVALID_PARAM; what the driver says
 */
UMX_API UMX_MUST_CHECK umx_status
umx_memh_alloc_cuda(umx_context *context, umx_memtype memtype, int device,
                    size_t len, umx_memh **memh_p);

/**
 * Let peers reach memory of the caller's, lent until `on_free`, which may run
 * in any thread that drops a reference.
 *
 * @return UMX_OK, UMX_ERR_UNSUPPORTED (a layout; no driver), UMX_ERR_INVALID_PARAM,
 *         UMX_ERR_NO_MEMORY, what UCX says; `on_free` has not run then
 */
UMX_API UMX_MUST_CHECK umx_status
umx_memh_register(umx_context *context, const umx_buffer *buf,
                  const umx_memh_params *params, umx_memh **memh_p);

/** Give the memory of a handle, as a buffer. */
UMX_API const umx_buffer *umx_memh_buffer(const umx_memh *memh);

/** The key, as long as `memh` lives. Who has it can read and, unless READONLY,
 * write the memory over any connection to a worker of the context. */
UMX_API const void *umx_memh_key(const umx_memh *memh, size_t *len_p);

/**
 * Spare peers that map the memory a fence after each store: whoever waits for
 * it begins with a membarrier of the system's, which takes a microsecond. Call
 * it before the key is given to anybody; memory that nobody can map is left as
 * it is.
 *
 * @return UMX_OK; UMX_ERR_UNSUPPORTED: the system has none, and peers fence
 */
UMX_API umx_status umx_memh_order_stores(umx_memh *memh);

/** Has umx_memh_close() been called? Any thread. */
UMX_API bool umx_memh_is_closed(const umx_memh *memh);

/** Can peers on this host map the memory? */
UMX_API bool umx_memh_is_shared(const umx_memh *memh);

/**
 * Has any process mapped the memory, beside this one's own mapping of it? The
 * system counts: a process that has ended has not, and a forked child of this
 * process or of a peer has. Of a memory in a heap (heap.h): or any other of the
 * same slab. A peer's mapping ends when its key and all views have been given
 * back and it has made progress.
 */
UMX_API bool umx_memh_is_mapped_elsewhere(const umx_memh *memh);

/** End of access: from now on the key is stale. Transfers under way go on. */
UMX_API void umx_memh_close(umx_memh *memh);

/** Close, and give the reference back. */
UMX_API void umx_memh_release(umx_memh *memh);

/** Keep a memory, which its user may close meanwhile. Thread: any. */
UMX_API void umx_memh_hold(umx_memh *memh);
/** Give back what umx_memh_hold() keeps. Thread: any. */
UMX_API void umx_memh_put(umx_memh *memh);

/* ---- the peer's side: thread: the worker's owner ------------------------- */

/**
 * Open a key of the peer's on `ep`. Nothing is sent: that the memory is gone
 * may be known only to the first operation.
 *
 * Ownership: the caller's reference, given back by umx_rkey_destroy() or
 *            umx_rkey_retire(). It keeps `ep`'s memory, not the connection.
 * @return UMX_OK; UMX_ERR_INVALID_KEY: damaged, or of another process;
 *         UMX_ERR_STALE_KEY; what a failed or closed endpoint says;
 *         UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_rkey_open(umx_ep     *ep,
                                                const void *key, size_t len,
                                                umx_rkey **rkey_p);

/** Bytes of the memory. */
UMX_API uint64_t umx_rkey_length(const umx_rkey *rkey);

/** True if the memory may only be read. */
UMX_API bool umx_rkey_is_readonly(const umx_rkey *rkey);

/** The memory itself where it is mapped, else NULL; until `rkey` is destroyed,
 * whatever becomes of the endpoint, the worker, and the owner. For any thread;
 * a key that was opened before the endpoint was open is mapped by the first
 * call in the worker's thread, or the first operation. Stores there are told by
 * umx_rkey_notify() to who waits for them. */
UMX_API void *umx_rkey_pointer(umx_rkey *rkey);

enum {
    /** The bits of `*umx_rkey_waiters()` that are 0 while nobody sleeps. */
    UMX_WAITERS_MASK = (1 << 24) - 1
};

/**
 * Where a program that stores by umx_rkey_pointer() sees whether somebody who
 * waits for the memory sleeps, for those who make these steps in line:
 *
 *   store
 *   fence: __atomic_thread_fence(__ATOMIC_SEQ_CST), or, if `*is_ordered_p`,
 *          __atomic_signal_fence(__ATOMIC_SEQ_CST), which is no instruction
 *   load the number, __ATOMIC_RELAXED; unless (number & UMX_WAITERS_MASK) is
 *          0, umx_rkey_notify()
 *
 * `*is_ordered_p` is true if the owner has called umx_memh_order_stores() and
 * the system lets this process take part. It holds for children of this process
 * that are forked later, and as long as `rkey`.
 *
 * Thread: the worker's owner.
 * @return NULL: the memory is not mapped
 */
UMX_API const uint64_t *umx_rkey_waiters(umx_rkey *rkey, bool *is_ordered_p);

/** Close a key: no further operations. Those under way go on. */
UMX_API void umx_rkey_close(umx_rkey *rkey);

/** Close, and give the reference back. */
UMX_API void umx_rkey_destroy(umx_rkey *rkey);

/** umx_rkey_destroy() for any thread. */
UMX_API void umx_rkey_retire(umx_rkey *rkey);

/** A piece of the memory, at `offset`, and of the caller's. */
typedef struct umx_rma_item {
    uint64_t   offset; /* bytes from the memory's start */
    umx_buffer buf;
} umx_rma_item;

/**
 * Write, or read, `item->buf->len` bytes.
 *
 * Ownership: `item->buf` is lent until completion; `item` is not.
 * @return UMX_OK, UMX_INPROGRESS; UMX_ERR_OUT_OF_RANGE, UMX_ERR_READONLY,
 *         UMX_ERR_STALE_KEY, UMX_ERR_CLOSED, UMX_ERR_PEER_CLOSED, the status of
 *         a failed endpoint, UMX_ERR_NO_MEMORY. After an error a put may have
 *         been done in part.
 */
UMX_API UMX_MUST_CHECK umx_status umx_rma_put(umx_rkey            *rkey,
                                              const umx_rma_item  *item,
                                              const umx_op_params *params,
                                              umx_request        **req_p);
/** Read `item->buf->len` bytes, as umx_rma_put() writes them. */
UMX_API UMX_MUST_CHECK umx_status umx_rma_get(umx_rkey            *rkey,
                                              const umx_rma_item  *item,
                                              const umx_op_params *params,
                                              umx_request        **req_p);

/**
 * Put `count` items, with one completion; the first failure is its status.
 * Neighbours are moved together. If one item is out of range nothing is done.
 */
UMX_API UMX_MUST_CHECK umx_status umx_rma_put_many(umx_rkey           *rkey,
                                                   const umx_rma_item *items,
                                                   size_t              count,
                                                   const umx_op_params *params,
                                                   umx_request **req_p);
/** Get `count` items, as umx_rma_put_many() puts them. */
UMX_API UMX_MUST_CHECK umx_status umx_rma_get_many(umx_rkey           *rkey,
                                                   const umx_rma_item *items,
                                                   size_t              count,
                                                   const umx_op_params *params,
                                                   umx_request **req_p);

typedef enum umx_atomic_op {
    UMX_ATOMIC_ADD,
    UMX_ATOMIC_AND,
    UMX_ATOMIC_OR,
    UMX_ATOMIC_XOR,
    UMX_ATOMIC_SWAP, /* store `value` */
    UMX_ATOMIC_CSWAP /* store `value` if it is `compare` */
} umx_atomic_op;

/**
 * An atomic operation on a number of `size` bytes in the owner's byte order.
 */
typedef struct umx_atomic {
    umx_atomic_op op;
    unsigned      size;   /* 4 or 8 */
    uint64_t      offset; /* a multiple of `size` */
    uint64_t      value;  /* of 4 bytes: the lower ones count */
    uint64_t      compare;
} umx_atomic;

/**
 * Change a number in one step: whoever else uses these operations on it, or
 * atomic instructions, sees it before or after.
 *
 * @param[out] old  NULL, or written before completion: what was there. Lent
 *                  until completion.
 * @return as umx_rma_put(); UMX_ERR_INVALID_PARAM: size, alignment
 */
UMX_API UMX_MUST_CHECK umx_status umx_rma_atomic(umx_rkey            *rkey,
                                                 const umx_atomic    *atomic,
                                                 uint64_t            *old,
                                                 const umx_op_params *params,
                                                 umx_request        **req_p);

/** umx_rma_put(), then `signal`: who sees the signal sees the bytes. */
UMX_API UMX_MUST_CHECK umx_status
umx_rma_put_signal(umx_rkey *rkey, const umx_rma_item *item,
                   const umx_atomic *signal, const umx_op_params *params,
                   umx_request **req_p);

/**
 * The same, with the signal in another memory of the same peer: `signal_rkey`
 * has been opened on the endpoint of `rkey`.
 *
 * @return UMX_ERR_INVALID_PARAM: it has not
 */
UMX_API UMX_MUST_CHECK umx_status
umx_rma_put_signal_to(umx_rkey *rkey, const umx_rma_item *item,
                      umx_rkey *signal_rkey, const umx_atomic *signal,
                      const umx_op_params *params, umx_request **req_p);

/** Operations on `ep` that come later are executed after those before.
 * Thread: the worker's owner. */
UMX_API UMX_MUST_CHECK umx_status umx_ep_fence(umx_ep *ep);

/** umx_ep_fence() for every endpoint of `worker`. */
UMX_API UMX_MUST_CHECK umx_status umx_worker_fence(umx_worker *worker);

#ifdef __cplusplus
}
#endif
#endif
