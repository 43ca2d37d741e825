/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file worker.h  A progress engine: everything under it moves only when its
 * owner calls one of the functions marked (P) here.
 *
 * Thread: the thread that created the worker owns it, until another adopts
 * it. All calls are the owner's unless marked "any thread".
 *
 * Callbacks: UCX's callbacks only queue. Your callbacks (request, accept,
 * endpoint state) run inside (P) calls after UCX has returned, and once each.
 * They may call anything here; a (P) function does nothing then, but for
 * umx_worker_destroy(), which is put off until the (P) call is at its end.
 */
#ifndef UMX_WORKER_H
#define UMX_WORKER_H

#include <umx/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Takes a reference on `context`. */
UMX_API UMX_MUST_CHECK umx_status umx_worker_create(umx_context *context,
                                                    umx_worker **worker_p);

/**
 * (P) Destroy the worker and all that is under it: listeners stop, endpoints
 * are closed by force, every pending request completes (its callback runs
 * here) with UMX_ERR_CANCELED. Bounded by UCX's own teardown. Endpoints,
 * listeners and messages in the caller's hands are still to be given back, and
 * good for nothing else; requests that were kept must have been released.
 * In a callback: the worker is destroyed when the (P) call that runs the
 * callback ends, and that call returns UMX_ERR_CLOSED where it returns a
 * status.
 * In a forked child: frees nothing of UCX, and returns.
 *
 * Calls of other threads have returned before: those that hand something to the
 * owner (umx_worker_submit(), umx_ep_retire()) wake it afterwards, and need the
 * worker for that. Those that callbacks make here are run here.
 * Callbacks run here: what they begin on the worker is refused with
 * UMX_ERR_CLOSED.
 *
 * UCX's own worker lasts as long as a message is in the caller's hands, and as
 * long as UCX has an operation that it has not given back (see
 * umx_op_params.on_lost), but no longer than the context. Networks that write
 * by themselves can reach the buffer of such an operation until then.
 */
UMX_API void umx_worker_destroy(umx_worker *worker);

/**
 * The event file descriptor: readable when the worker needs progress. Poll it
 * level-triggered, and only after umx_worker_drain() returned UMX_OK.
 */
UMX_API int umx_worker_fd(const umx_worker *worker);

/**
 * (P) Poll UCX once and run the completions that came. Fast path: a few ns
 * when there is nothing.
 * @return number of events UCX reported
 */
UMX_API unsigned umx_worker_poll(umx_worker *worker);

/**
 * (P) Progress until nothing is left, run completions and expired timers, and
 * arm the event fd, again if arming finds new events. Stops early after
 * `config.drain_ns`.
 * @return UMX_OK: idle and armed, the fd will become readable;
 *         UMX_INPROGRESS: time budget used up, call again soon;
 *         UMX_ERR_CLOSED: a callback has destroyed the worker;
 *         a failure of arming
 */
UMX_API UMX_MUST_CHECK umx_status umx_worker_drain(umx_worker *worker);

/**
 * Begin a turn of the owner's event loop. From the first turn on,
 * umx_worker_drain() and umx_worker_spin() share `config.drain_ns` until the
 * next turn begins, instead of having it each time: a drain takes half of it at
 * most, so that something is left for what the messages are for. Past the end
 * of the turn either polls once.
 */
UMX_API void umx_worker_begin_turn(umx_worker *worker);

/** In a turn that `parts` tasks have waited for: begin the part of one. */
UMX_API void umx_worker_divide_turn(umx_worker *worker, unsigned parts);

/** True if the turn has used up its time. */
UMX_API bool umx_worker_turn_is_over(const umx_worker *worker);

/** Give the turn `config.drain_ns` more, or `max_ns` if that is less: nothing
 * else waits for the event loop. */
UMX_API void umx_worker_extend_turn(umx_worker *worker, uint64_t max_ns);

/** True if the worker has been armed and nothing has been posted since: its fd
 * covers all that can happen. False: umx_worker_drain() is owed before the
 * thread sleeps. */
UMX_API bool umx_worker_is_armed(const umx_worker *worker);

/**
 * (P) Poll for at most the adaptive spin budget, until `*done_p`. The budget
 * starts at `config.spin_ns`, shrinks to nothing when spinning does not pay
 * and is probed again now and then; it is 0 with one CPU in the affinity mask.
 * @return *done_p
 */
UMX_API bool umx_worker_spin(umx_worker *worker, const volatile bool *done_p);

/** Next timer in nanoseconds of CLOCK_MONOTONIC, or UINT64_MAX. Sleep no
 * longer than that, then call umx_worker_drain(). */
UMX_API uint64_t umx_worker_deadline(const umx_worker *worker);

/** (P) Drain, then sleep until an event, a timer or `timeout_ns`, then drain.
 * For programs with no event loop. It returns when messages have come that no
 * receive is posted for, too; not reliably where a progress thread has taken
 * them: umx_tag_wait() is told of them always.
 * @return UMX_OK or UMX_ERR_TIMED_OUT */
UMX_API UMX_MUST_CHECK umx_status umx_worker_wait(umx_worker *worker,
                                                  uint64_t    timeout_ns);

/** Make the fd readable. Any thread. */
UMX_API void umx_worker_signal(umx_worker *worker);

/** @param status UMX_OK, or UMX_ERR_CANCELED: the worker is being destroyed */
typedef void (*umx_call_fn)(umx_worker *worker, umx_status status, void *arg);

/**
 * Have the owner call `fn`, inside a (P) call; wakes it. The calls of one
 * thread run in their order. Any thread, and no lock is taken; not after
 * umx_worker_destroy() has been called.
 * @return UMX_OK: `fn` will be called, once; UMX_ERR_NO_MEMORY; UMX_ERR_FORKED
 */
UMX_API UMX_MUST_CHECK umx_status umx_worker_submit(umx_worker *worker,
                                                    umx_call_fn fn, void *arg);

/** Make the calling thread the owner. The one before has ended, or will not
 * call anything any more that is the owner's; the program sees to it that this
 * happened before. */
UMX_API void umx_worker_adopt(umx_worker *worker);

/** Make every thread an owner, until one adopts the worker. The program sees to
 * it that the threads call one after the other, as with a lock of its own. */
UMX_API void umx_worker_share(umx_worker *worker);

/** True for the owner thread in the owner process. Any thread. */
UMX_API bool umx_worker_is_owner(const umx_worker *worker);

/**
 * (P) Tell, for tests, whether the owner has been left asleep. To be called now
 * and then from where it could sleep, at intervals that are long against the
 * travel of a message: what comes during the call itself looks like work that
 * nobody announced.
 * @return true if the worker has been armed since the call before, its fd is
 * not readable, and there was work; some of it is done now, so drain
 */
UMX_API bool umx_worker_overslept(umx_worker *worker);

/** Wait until all that was sent by every endpoint has reached the peers'
 * memory. See umx_ep_flush() for the callback's meaning. */
struct umx_op_params;
UMX_API UMX_MUST_CHECK umx_status
umx_worker_flush(umx_worker *worker, const struct umx_op_params *params,
                 umx_request **req_p);

/** Number of endpoints whose close is not finished (background closes
 * included): a program that is about to exit waits for 0. */
UMX_API unsigned umx_worker_num_closing(const umx_worker *worker);

typedef struct umx_worker_stats {
    uint64_t requests_in_use; /* posted and not released */
    uint64_t requests_peak;
    uint64_t requests_lost; /* in use, but see umx_op_params.on_lost */
    uint64_t endpoints;     /* alive, the library's hidden ones included */
    uint64_t listeners;
    uint64_t unexpected_messages;
    uint64_t unexpected_bytes;
    uint64_t protocol_errors; /* malformed frames, dropped connections */
    uint64_t stray_messages;  /* refused: for an endpoint that never was */
    uint64_t wakeups;         /* umx_worker_drain() calls that found events */
    uint64_t spins;           /* umx_worker_spin() calls that polled */
    uint64_t spin_hits;       /* ... that ended with *done_p */
    uint64_t loans;           /* messages lent: umx_config.cma_max */
    uint64_t renewals;        /* of UCX's worker: docs/design.md */
    uint64_t extended_turns;  /* umx_worker_extend_turn() */
    uint64_t sent_messages;   /* umx_ep_stats of all endpoints there were */
    uint64_t sent_bytes;
    uint64_t received_messages;
    uint64_t received_bytes;
    uint64_t pending_sends; /* posted, and not complete */
    uint64_t pending_bytes;
    uint64_t waiting_sends; /* of those: for credit or the handshake's end */
    uint64_t rendezvous;    /* of sent_messages: announced first, or lent */
    /* Operations that were under way, by their ends: with an error that is none
     * of the next two, and no close of either side; by a limit in time of the
     * library's; by umx_request_cancel(). */
    uint64_t failed_operations;
    uint64_t timed_out_operations;
    uint64_t cancelled_operations;
    uint64_t failed_connections; /* endpoints that failed, also at connecting */
    uint64_t refused_connections; /* a listener's: refused, or not completed */
    uint64_t missed_heartbeats;   /* questions that a silent peer left open */
} umx_worker_stats;

/** Fill in what the worker has counted so far. */
UMX_API void umx_worker_query(const umx_worker *worker,
                              umx_worker_stats *stats);

/** UCX's own description of the worker; free() the text. */
UMX_API UMX_MUST_CHECK umx_status umx_worker_info(const umx_worker *worker,
                                                  char            **text_p);

/** UCX's `ucp_worker_h`: of now, see umx_worker_stats.renewals. */
UMX_API void *umx_worker_handle(const umx_worker *worker);

/** The context that `worker` was made of. */
UMX_API umx_context *umx_worker_get_context(const umx_worker *worker);

#ifdef __cplusplus
}
#endif
#endif
