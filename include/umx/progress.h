/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file progress.h  A thread that makes progress for a worker whose owner does
 * not call: one that computes, or holds a lock that others wait for.
 *
 * The thread answers peers: their puts and gets, rendezvous, pings, heartbeats,
 * connections and closes. It moves what the owner has posted, operations of
 * communicators as well. It calls nothing of the program's: a callback that is due waits for the owner's next (P) call,
 * and runs in that. So nothing changes for callbacks, and a request that was
 * posted with `on_done` is done when that has run.
 *
 * The thread sleeps while the owner makes (P) calls, and takes over what has
 * been left undone for a millisecond. An owner that waits makes progress itself, at
 * the same speed as without the thread.
 *
 * Each call of the owner's takes a lock; it waits for the thread to leave UCX,
 * mostly for less than 50 us. One long copy of UCX's can take longer.
 *
 * Thread: the worker's owner.
 */
#ifndef UMX_PROGRESS_H
#define UMX_PROGRESS_H

#include <umx/worker.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Start the thread. umx_worker_destroy() stops it. In a forked child there is
 * none.
 * @return UMX_OK; UMX_ERR_BUSY: it has one; UMX_ERR_UNSUPPORTED: a callback
 *         calls; UMX_ERR_THREAD_LIMIT; UMX_ERR_NO_RESOURCE: the
 *         system has no descriptor left; UMX_ERR_NO_MEMORY
 */
UMX_API UMX_MUST_CHECK umx_status umx_progress_start(umx_worker *worker);

/** Stop it, and wait until it has ended. Callbacks that are due run in the next
 * (P) call. Nothing happens if there is none. */
UMX_API void umx_progress_stop(umx_worker *worker);

/** True if the worker has the thread. */
UMX_API bool umx_progress_is_running(const umx_worker *worker);

/**
 * A second descriptor to sleep on beside umx_worker_fd(): readable when
 * callbacks are due, until the next (P) call. umx_worker_wait() sleeps on both.
 * @return -1: there is no thread
 */
UMX_API int umx_progress_fd(const umx_worker *worker);

/**
 * Keep the thread out of UCX until the next call, for a millisecond at most: a
 * call follows that is not to wait. A thread with a lock that others want tries
 * with `may_wait` false, gives its lock up, and waits.
 * @return false: the thread is in UCX
 */
UMX_API bool umx_progress_hold_off(umx_worker *worker, bool may_wait);

#ifdef __cplusplus
}
#endif
#endif
