/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file layer.h  What a library on top of libumx needs beside the other
 * headers: requests, timers and messages of its own.
 *
 * Thread: the worker's owner.
 */
#ifndef UMX_LAYER_H
#define UMX_LAYER_H

#include <umx/am.h>
#include <umx/endpoint.h>
#include <umx/rma.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- requests ------------------------------------------------------------
 */

enum {
    UMX_REQUEST_STATE_SIZE = 56 /* bytes */
};

/** A kind of operation. */
typedef struct umx_request_class {
    const char *name;
    /* umx_request_cancel() has been called on a request that is not complete:
     * complete it now, with any status, if nothing uses its buffers any more.
     * Else it is deferred, and completes later; umx_request_abandon() calls this
     * again. NULL: it is always deferred. */
    void (*cancel)(umx_request *req);
    /* The same of a request that is complete with `status`, and not reported
     * yet: give back what it has received, while its buffer still has it.
     * Returns the status to report. NULL: it is reported as it is. */
    umx_status (*cancel_complete)(umx_request *req, umx_status status);
} umx_request_class;

/**
 * Make a request that is in progress, for a posting call that returns
 * UMX_INPROGRESS. `params` are the user's, or NULL.
 *
 * Ownership: the caller's until umx_request_complete() or
 * umx_request_discard().
 * @return the request; NULL: out of memory
 */
UMX_API umx_request *umx_request_create(umx_worker              *worker,
                                        const umx_request_class *cls,
                                        const umx_op_params     *params);

/** UMX_REQUEST_STATE_SIZE bytes of the layer's, aligned for a pointer, with
 * zeros at first. They last as long as the request, so after `on_done` as well
 * if it is kept. */
UMX_API void *umx_request_state(const umx_request *req);

/** The class that `req` was made of; NULL: it is no layer's. */
UMX_API const umx_request_class *umx_request_get_class(const umx_request *req);

/** Has umx_request_cancel() been called? */
UMX_API bool umx_request_is_cancelled(const umx_request *req);

/** Has umx_request_abandon() been called: can the caller not wait? */
UMX_API bool umx_request_is_abandoned(const umx_request *req);

/** Note, once, the buffer of a request, for umx_request_class.cancel_complete().
 */
UMX_API void umx_request_set_buffer(umx_request *req, const umx_buffer *buf);

UMX_API const umx_buffer *umx_request_buffer(const umx_request *req);
UMX_API umx_worker       *umx_request_worker(const umx_request *req);

/** The operation is over. `on_done` runs in the (P) call that is under way, or
 * else in the next. */
UMX_API void umx_request_complete(umx_request *req, umx_status status);

/** Report the operation as lost: umx_op_params.on_lost. It completes later. */
UMX_API void umx_request_lose(umx_request *req, umx_status status);

/** Free a request that its posting call does not return. */
UMX_API void umx_request_discard(umx_request *req);

/* ---- giving buffers back -------------------------------------------------
 */

/**
 * Has a send of umx_layer_am_send() been sent? One that was cancelled has not
 * if it still waited for credit; then the peer never sees the message. It sees
 * one that was withdrawn. Until `on_done` has returned.
 */
UMX_API bool umx_request_was_sent(const umx_request *req);

/**
 * Give the buffer back that umx_message_recv() has begun to fill: the bytes land
 * in memory of the library's instead, together with those that have come. The
 * message stays the caller's, and the receive ends as before.
 *
 * @param is_forced    umx_config.cancel_bytes does not count
 * @param[out] data_p  the memory: umx_copy_free(), after `on_done`
 * @return UMX_OK: the buffer is the caller's. UMX_INPROGRESS: it stays lent until
 *         `on_done`, as with umx_request_cancel(). UMX_ERR_NO_MEMORY; what a
 *         device's driver says
 */
UMX_API UMX_MUST_CHECK umx_status umx_request_move(umx_request *req,
                                                   bool         is_forced,
                                                   void       **data_p);

/**
 * Give that buffer back: nobody wants the message any more.
 * @return UMX_OK: the buffer is the caller's, and `on_done` runs in the next (P)
 *         call; UMX_INPROGRESS: as above
 */
UMX_API umx_status umx_request_drop(umx_request *req);

/** Has the sender cancelled the message whose bytes umx_message_recv() has begun
 * to receive? Then that ends with UMX_ERR_WITHDRAWN. Before `on_done`. */
UMX_API bool umx_request_is_withdrawn(const umx_request *req);

/** Memory for the copy of a message, which counts in umx_config.cancel_bytes,
 * and may be beyond. NULL: out of memory. */
UMX_API void *umx_copy_new(umx_worker *worker, size_t len);

/** Free such memory. `worker`: NULL if it has been destroyed. */
UMX_API void umx_copy_free(umx_worker *worker, void *data);

/* ---- the progress thread -------------------------------------------------
 */

enum {
    /** umx_op_params.flags: the callbacks are of the layer, and run in the
     * progress thread, too. */
    UMX_OP_FLAG_LAYER = 1 << 30
};

/** The lock of a worker that has a progress thread. */
typedef struct umi_guard umx_guard;

/**
 * Keep the progress thread out until umx_worker_unlock(). A layer's callbacks
 * run in that thread as well, but for `on_done` and `on_lost` of operations
 * without UMX_OP_FLAG_LAYER, so its public functions lock what they share with
 * them. Calls nest.
 *
 * @param worker  or NULL
 * @return what to unlock, which may outlive the worker; NULL: there is no
 * thread
 */
UMX_API umx_guard *umx_worker_lock(umx_worker *worker);
UMX_API void       umx_worker_unlock(umx_guard *guard);

/** Is the calling thread the progress thread of `worker`? Then a layer calls
 * nothing of the program's. */
UMX_API bool umx_worker_is_in_thread(const umx_worker *worker);

/** umx_ep_set_on_state() of a layer's endpoint. */
UMX_API void umx_layer_ep_set_on_state(umx_ep *ep, umx_ep_state_fn fn,
                                       void *arg);

/* ---- timers --------------------------------------------------------------
 */

/** A timer, in memory of the layer's. All members are the library's. */
typedef struct umx_timer {
    void    *link[2];
    uint64_t deadline_ns;
    void (*fn)(struct umx_timer *timer);
} umx_timer;

UMX_API void umx_timer_init(umx_timer *timer, void (*fn)(umx_timer *timer));

/** Call `fn` in a (P) call, once, `timeout_ns` from now; a timer that runs is
 * started again. */
UMX_API void umx_timer_start(umx_worker *worker, umx_timer *timer,
                             uint64_t timeout_ns);

/** Stop it, if it runs. */
UMX_API void umx_timer_stop(umx_timer *timer);

/* ---- the worker's end ----------------------------------------------------
 */

/** Something that cannot go on without the worker. `link` is the library's. */
typedef struct umx_dependent {
    void *link[2];
    /* umx_worker_destroy() has begun: operations on endpoints complete after
     * this has returned. Called once. */
    void (*on_destroy)(struct umx_dependent *dependent);
    /* umx_worker_destroy() waits a tenth of a second at most while it says true
     * before it begins. NULL: it does not wait. */
    bool (*is_busy)(const struct umx_dependent *dependent);
} umx_dependent;

UMX_API void umx_worker_attach(umx_worker *worker, umx_dependent *dependent);
UMX_API void umx_worker_detach(umx_dependent *dependent);

/** Something to do for a worker. Members but `fn` are the library's. */
typedef struct umx_errand {
    void *link;
    void (*fn)(struct umx_errand *errand);
} umx_errand;

/** Call `errand->fn` in the worker's next (P) call, in its progress thread,
 * too. Thread: any. */
UMX_API void umx_worker_post(umx_worker *worker, umx_errand *errand);

/** Keep a memory, which its user may close meanwhile. Thread: any. */
UMX_API void umx_memh_hold(umx_memh *memh);
UMX_API void umx_memh_put(umx_memh *memh);

/** What umx_take_errno() gives next. Thread: any; its own. */
UMX_API void umx_set_errno(int error);

/** The context that `worker` was made of. */
UMX_API umx_context *umx_worker_get_context(const umx_worker *worker);

/** Take loans of peers (UMX_OP_FLAG_LEND), also if umx_config.cma_max is 0. */
UMX_API void umx_worker_take_loans(umx_worker *worker);

/** Memory that a peer on this host may read. */
typedef struct umx_loan {
    uint64_t id;
    uint64_t len; /* bytes */
    uint32_t slot;
    uint32_t zero;
} umx_loan;

/**
 * Lend memory to the peer of `ep`, which must be told the loan somehow.
 *
 * Ownership: lent until umx_loan_end(), or the end of `ep`
 * @return UMX_OK; UMX_ERR_UNSUPPORTED: the peer does not read it, or not yet
 */
UMX_API UMX_MUST_CHECK umx_status umx_loan_begin(umx_ep           *ep,
                                                 const umx_buffer *buf,
                                                 umx_loan         *loan);

/** Nobody may read any more. */
UMX_API void umx_loan_end(umx_ep *ep, const umx_loan *loan);

/**
 * Read what the peer of `ep` lends; `loan` is what it has told, true or not.
 * @return UMX_OK; UMX_ERR_WITHDRAWN: it lends no such thing, or no longer, and
 *         `buf` holds zeros; UMX_ERR_CONNECTION_RESET: it is gone;
 *         UMX_ERR_NO_MEMORY; what a device's driver says
 */
UMX_API UMX_MUST_CHECK umx_status umx_loan_read(umx_ep           *ep,
                                                const umx_loan   *loan,
                                                const umx_buffer *buf);

/* ---- memory that peers change --------------------------------------------
 */

/** Who looks at a memory. */
typedef struct umx_lookout umx_lookout;

/** Look for something new, and take it. True if there was any. Runs in (P)
 * calls, at any time; it may stop lookouts, its own too. */
typedef bool (*umx_look_fn)(void *arg);

/**
 * Have `fn` called whenever `worker` makes progress, and before it sleeps. Who
 * stores to `memh` wakes it as described in wait.h. Stop it before the memory
 * is closed, or the worker destroyed.
 *
 * @return UMX_OK, UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_lookout_start(umx_worker *worker,
                                                    umx_memh   *memh,
                                                    umx_look_fn fn, void *arg,
                                                    umx_lookout **lookout_p);
UMX_API void                      umx_lookout_stop(umx_lookout *lookout);

/** Copy `len` bytes of the host's memory to a buffer, of a device, too.
 * UMX_OK, or what the driver says. */
UMX_API UMX_MUST_CHECK umx_status umx_buffer_write(const umx_buffer *buf,
                                                   const void       *data,
                                                   size_t            len);

/** Copy the first `len` bytes of a buffer to the host's memory. */
UMX_API UMX_MUST_CHECK umx_status umx_buffer_read(const umx_buffer *buf,
                                                  void *data, size_t len);

/* ---- active messages of layers -------------------------------------------
 */

enum {
    UMX_AM_ID_LAYER_MIN = 8, /* to 15: ids of layers */
    UMX_AM_ID_COMM      = 8  /* umx/comm.h */
};

/** umx_am_send() for ids of layers, whose channels count against no limit. */
UMX_API UMX_MUST_CHECK umx_status umx_layer_am_send(
    umx_ep *ep, uint16_t id, const void *header, size_t header_len,
    const umx_buffer *buf, const umx_op_params *params, umx_request **req_p);

/**
 * umx_worker_set_am_handler() for ids of layers. `fn` is called for messages on
 * endpoints that the program has not taken yet, too.
 */
UMX_API UMX_MUST_CHECK umx_status umx_worker_set_layer(umx_worker *worker,
                                                       uint16_t    id,
                                                       umx_am_fn fn, void *arg);

/** The `arg` of umx_worker_set_layer(); NULL: it has not been called. */
UMX_API void *umx_worker_get_layer(const umx_worker *worker, uint16_t id);

/**
 * Take an endpoint that a peer has made from the worker's address, as
 * umx_worker_take_addressed() does, wherever it is in the queue.
 * @return true: the caller has a reference; false: it is not in the queue
 */
UMX_API bool umx_ep_claim(umx_ep *ep);

/**
 * Find an endpoint that a peer has made from the worker's address and that
 * nobody has taken yet; it stays in the queue.
 * @param worker_id of the peer, UMX_WORKER_ID_SIZE bytes
 * @param after     the endpoint that was found before, or NULL
 * @return NULL: there is no other
 */
UMX_API umx_ep *umx_worker_find_addressed(const umx_worker *worker,
                                          const uint8_t    *worker_id,
                                          const umx_ep     *after);

enum {
    UMX_WORKER_ID_SIZE = 16 /* bytes */
};

/** The number of the peer's worker, which the handshake has proved to be the
 * peer's. False: `ep` is not open. */
UMX_API bool umx_ep_peer_worker_id(const umx_ep *ep, uint8_t *id);

/** The number of the worker whose address it is. False: it is no address. */
UMX_API bool umx_address_worker_id(const void *address, size_t len,
                                   uint8_t *id);

#ifdef __cplusplus
}
#endif
#endif
