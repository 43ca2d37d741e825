/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file request.h  One request per operation; its completion runs once.
 *
 * A posting call returns UMX_OK (done, no request, no callback), a failure (no
 * request, no callback), or UMX_INPROGRESS: then `on_done` will run exactly
 * once, inside a (P) call of the worker, whatever happens, and the buffer is
 * lent until that moment.
 *
 * A posting call writes `*req_p` if it returns UMX_INPROGRESS, and leaves it as
 * it was otherwise. So a program sets it to NULL before, and NULL afterwards
 * means that there is no request. The functions of this header take NULL: those
 * that return a status return UMX_ERR_INVALID_PARAM, umx_request_info() returns
 * NULL, and umx_request_release() does nothing.
 */
#ifndef UMX_REQUEST_H
#define UMX_REQUEST_H

#include <umx/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Runs once. The request is released when it returns, unless
 * UMX_OP_FLAG_KEEP was given: then umx_request_release() does it.
 */
typedef void (*umx_done_fn)(umx_request *req, umx_status status, void *arg);

enum umx_op_field {
    UMX_OP_FIELD_ON_DONE = 1u << 0, /* absent: wait with umx_request_wait() */
    UMX_OP_FIELD_FLAGS   = 1u << 1, /* absent: 0 */
    UMX_OP_FIELD_ON_LOST = 1u << 2, /* absent: `on_done` alone tells */
    UMX_OP_FIELD_STREAM  = 1u << 3  /* absent: the memory is ready */
};

enum umx_op_flags {
    UMX_OP_FLAG_KEEP = 1u << 0,
    /* A send over shared memory: the receiver reads the bytes from the sender's
     * memory, as it does up to umx_config.cma_max, whatever that is, if its
     * worker takes loans: by that setting, or by umx_worker_take_loans(). Pays
     * from 64 KiB or so. Without meaning elsewhere. */
    UMX_OP_FLAG_LEND = 1u << 1,
    /* A flush: operations on memory are waited for, messages that lack credit
     * are not. */
    UMX_OP_FLAG_MEMORY = 1u << 2,
    /* A hint: the calling thread does nothing but wait for the operation. A
     * long umx_comm_isend() is then sent by the processors of both processes,
     * instead of the receiver's alone. */
    UMX_OP_FLAG_WAITED = 1u << 3
};

typedef struct umx_op_params {
    uint64_t    field_mask;
    umx_done_fn on_done;
    void       *arg;
    uint64_t    flags;
    /* The endpoint has ended and UCX not given the operation back since then:
     * over shared memory it does not while the queue of a peer that died is
     * full. `status` is what `on_done` will be told, when the worker is
     * destroyed at the latest; until then the buffer stays lent. At most once;
     * inside a (P) call. */
    umx_done_fn on_lost;
    /* Of umx_channel_send() and umx_channel_recv(): a stream of a CUDA device, as
     * umx_cuda_wait() takes it. What has been queued there by now is done before
     * the operation begins: the call does not wait for it. Later operations of
     * the same kind on the same channel begin after this one. */
    uintptr_t stream;
    int       device;
} umx_op_params;

/**
 * End an operation, and the loan of its buffer, as early as that is possible.
 *
 * @return UMX_OK: the buffer is the caller's from now on, and `on_done` runs
 *         with UMX_ERR_CANCELED in the next (P) call, or has run. UMX_INPROGRESS:
 *         the operation is deferred, and the buffer stays lent until `on_done`,
 *         which is told the status with which the operation ends: UMX_OK or
 *         UMX_ERR_CANCELED.
 *
 * A send that has not been posted is taken off its list. One that was announced,
 * and of which no byte has gone, is withdrawn: the peer never receives it. Of
 * one whose bytes have begun to go the library sends a copy of the rest. A
 * receive that waits is taken off its list. One whose message is landing, or has
 * landed, gives its message back to its place in the queue: the library copies
 * what has come, and the rest lands in the copy.
 *
 * Deferred are: an operation whose copy would make those of the worker longer
 * than config.cancel_bytes; memory that UCX, or hardware, reads and writes by
 * itself: that of a device, and of the host where a connection has a network card
 * with RDMA. Without memory for a copy the connection fails.
 *
 * Idempotent. Owner thread. UMX_ERR_INVALID_PARAM if `req` is NULL.
 */
UMX_API umx_status umx_request_cancel(umx_request *req);

/**
 * umx_request_cancel() for a caller that cannot wait: a copy is made whatever
 * config.cancel_bytes is. UMX_INPROGRESS: it is memory that UCX reads and writes
 * by itself.
 */
UMX_API umx_status umx_request_abandon(umx_request *req);

/** Tell the status so far: UMX_INPROGRESS or the final one; UMX_ERR_INVALID_PARAM
 * if `req` is NULL. */
UMX_API umx_status umx_request_status(const umx_request *req);

/** The message that a receive got; valid in and after `on_done`. */
typedef struct umx_recv_info {
    uint64_t tag;
    size_t   length; /* bytes of the message, also when truncated */
    uint32_t seq;    /* its place in the channel */
    bool     is_untagged;
    bool     is_device; /* it was sent from memory of a GPU */
    uint32_t channel;   /* for umx_message_unrecv() */
} umx_recv_info;

/** Tell which message a receive has got; NULL if `req` is NULL. */
UMX_API const umx_recv_info *umx_request_info(const umx_request *req);

/**
 * (P) Make progress until the request is done, or `timeout_ns` have passed. For
 * requests that were posted with UMX_OP_FLAG_KEEP or without `on_done`.
 *
 * @return the status with which the operation has ended; UMX_ERR_TIMED_OUT: the
 *         request is still posted; UMX_ERR_INVALID_PARAM: `req` is NULL, as it
 *         is after a posting call that returned UMX_OK, or a failure
 */
UMX_API UMX_MUST_CHECK umx_status umx_request_wait(umx_request *req,
                                                   uint64_t     timeout_ns);

/** Give back a completed request that was kept. A request posted without
 * `on_done` is kept. Nothing happens if `req` is NULL. */
UMX_API void umx_request_release(umx_request *req);

#ifdef __cplusplus
}
#endif
#endif
