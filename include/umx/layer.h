/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file layer.h  What a library on top of libumx needs beside the other
 * headers: requests, timers and active messages of its own, and the lock of a
 * worker that has a progress thread.
 *
 * Thread: the worker's owner.
 */
#ifndef UMX_LAYER_H
#define UMX_LAYER_H

#include <umx/address.h>
#include <umx/am.h>
#include <umx/describe.h>
#include <umx/worker.h>

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
     * Else it is deferred, and completes later; umx_request_abandon() calls
     * this again. NULL: it is always deferred. */
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

/** What the state of a request points to, where it is a pointer to a `type`: the
 * layer's own object. An lvalue. */
#define UMX_REQUEST_OF(req, type) (*(type **)umx_request_state(req))

/** Has umx_request_cancel() been called? */
UMX_API bool umx_request_is_cancelled(const umx_request *req);

/** Has umx_request_abandon() been called: can the caller not wait? */
UMX_API bool umx_request_is_abandoned(const umx_request *req);

/** Is the operation over, though `on_done` may not have been called yet? Until
 * `on_done` has returned. */
UMX_API bool umx_request_is_over(const umx_request *req);

/** Note, once, the buffer of a request, for
 * umx_request_class.cancel_complete().
 */
UMX_API void umx_request_set_buffer(umx_request *req, const umx_buffer *buf);

/** Tell the buffer that umx_request_set_buffer() has noted. */
UMX_API const umx_buffer *umx_request_buffer(const umx_request *req);
/** Tell the worker of the request. */
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
 * Give the buffer back that umx_message_recv() has begun to fill: the bytes
 * land in memory of the library's instead, together with those that have come.
 * The message stays the caller's, and the receive ends as before.
 *
 * @param is_forced    umx_config.cancel_bytes does not count
 * @param[out] data_p  the memory: umx_copy_free(), after `on_done`
 * @return UMX_OK: the buffer is the caller's. UMX_INPROGRESS: it stays lent
 * until `on_done`, as with umx_request_cancel(). UMX_ERR_NO_MEMORY; what a
 *         device's driver says
 */
UMX_API UMX_MUST_CHECK umx_status umx_request_move(umx_request *req,
                                                   bool         is_forced,
                                                   void       **data_p);

/**
 * Give that buffer back: nobody wants the message any more.
 * @return UMX_OK: the buffer is the caller's, and `on_done` runs in the next
 * (P) call; UMX_INPROGRESS: as above
 */
UMX_API umx_status umx_request_drop(umx_request *req);

/** Has the sender cancelled the message whose bytes umx_message_recv() has
 * begun to receive? Then that ends with UMX_ERR_WITHDRAWN. Before `on_done`. */
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

/** The parameters of a part of an operation of a layer. */
static inline umx_op_params
umx_layer_op_params(umx_done_fn on_done, void *arg)
{
    umx_op_params params = {UMX_OP_FIELD_FLAGS | UMX_OP_FIELD_ON_DONE, on_done,
                            arg, UMX_OP_FLAG_LAYER, NULL, 0, 0};

    return params;
}

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
/** Undo one umx_worker_lock(), with what that has returned. */
UMX_API void       umx_worker_unlock(umx_guard *guard);

static inline void
umx_layer_unlock(umx_guard *const *guard_p)
{
    if (*guard_p != NULL) {
        umx_worker_unlock(*guard_p);
    }
}

/** Keep the progress thread of `worker` out until the end of the block. Public
 * functions of a layer begin with it. */
#define UMX_LAYER_LOCK(worker)                         \
    __attribute__((cleanup(umx_layer_unlock), unused)) \
    umx_guard *const umx_layer_guard = umx_worker_lock(worker)

/** Is the calling thread the progress thread of `worker`? Then a layer calls
 * nothing of the program's. */
UMX_API bool umx_worker_is_in_thread(const umx_worker *worker);

/**
 * Count (`is_one_more`), or stop counting, processes that exchange messages with
 * this worker and outnumber the processors of this host. While there are such,
 * a wait gives the processor away many times before it sleeps: it is up to the
 * system which of the processes gets it, and how soon.
 */
UMX_API void umx_worker_crowd(umx_worker *worker, bool is_one_more);

/** umx_ep_set_on_state() of a layer's endpoint. */
UMX_API void umx_layer_ep_set_on_state(umx_ep *ep, umx_ep_state_fn fn,
                                       void *arg);

/** What the system says of a process. */
typedef enum umx_process_state {
    UMX_PROCESS_UNKNOWN, /**< it is of another host, or the system is silent */
    UMX_PROCESS_RUNS,    /**< or could, if there was something to do */
    UMX_PROCESS_STOPPED, /**< by a signal, or a debugger */
    UMX_PROCESS_ENDED    /**< also if its parent has not been told yet */
} umx_process_state;

/** True if the peer has hung up, which the next (P) call will find: for those
 * that have made no progress for long, and are about to send. A system call. */
UMX_API bool umx_ep_is_hung_up(const umx_ep *ep);

/** Say how long the host of the peer may be silent, instead of
 * umx_config.keepalive_ns; 0: for ever. */
UMX_API void umx_ep_set_keepalive(umx_ep *ep, uint64_t keepalive_ns);

/** Count the signs of life that have come from the peer: all that arrives is
 * one. The count wraps. */
UMX_API unsigned umx_ep_count_signs(const umx_ep *ep);

/** Ask the peer for a sign of life, over the socket: it overtakes all that is
 * being sent. Nothing happens while the endpoint is not open, or while an answer
 * is on its way. */
UMX_API void umx_ep_ask(umx_ep *ep);

/** Ask the system about the peer's process, if it is one of this host. */
UMX_API umx_process_state umx_ep_peer_process(const umx_ep *ep);

/* ---- timers --------------------------------------------------------------
 */

/** A timer, in memory of the layer's. All members are the library's. */
typedef struct umx_timer {
    void    *link[2];
    uint64_t deadline_ns;
    void (*fn)(struct umx_timer *timer);
} umx_timer;

/** Prepare a timer, which calls `fn` when it runs out. */
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
    /* Add to umx_worker_describe(), which may run in a thread that is not the
     * worker's owner: it reads only, and takes no lock. NULL: nothing. */
    void (*describe)(const struct umx_dependent *dependent, umx_line_fn fn,
                     void *arg);
} umx_dependent;

/** Have `dependent` told of the end of the worker. */
UMX_API void umx_worker_attach(umx_worker *worker, umx_dependent *dependent);
/** Undo umx_worker_attach(). */
UMX_API void umx_worker_detach(umx_dependent *dependent);

/** Something to do for a worker. Members but `fn` are the library's. */
typedef struct umx_errand {
    void *link;
    void (*fn)(struct umx_errand *errand);
} umx_errand;

/** Call `errand->fn` in the worker's next (P) call, in its progress thread,
 * too. Thread: any. */
UMX_API void umx_worker_post(umx_worker *worker, umx_errand *errand);

/* ---- active messages of layers -------------------------------------------
 */

enum {
    UMX_AM_ID_LAYER_MIN = 8, /* to 15: ids of layers */
    UMX_AM_ID_COMM      = 8, /* umx/comm.h */
    UMX_AM_ID_OUTPUTS   = 9  /* umx/outputs.h */
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

#ifdef __cplusplus
}
#endif
#endif
