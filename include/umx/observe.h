/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file observe.h  What can be seen of the workers of a process while it runs.
 *
 * Thread: any, whatever the workers do meanwhile.
 */
#ifndef UMX_OBSERVE_H
#define UMX_OBSERVE_H

#include <umx/worker.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- counters ------------------------------------------------------------
 */

/** What a worker has done. Each number is right by itself; two of them may be
 * of two moments. */
typedef struct umx_worker_numbers {
    uint64_t         number;     /**< of the worker in this process, from 1 */
    uint64_t         begun_ns;   /**< when it was made: CLOCK_REALTIME */
    uint64_t         drained_ns; /**< its last umx_worker_drain(); 0: none */
    umx_worker_stats stats;     /**< the requests are those of the last drain */
    uint64_t         rank;      /**< umx_observe_rank() */
    uint64_t         num_ranks; /**< 0: the worker is no rank */
    char             communicator[64]; /**< its name */
} umx_worker_numbers;

/**
 * Read the counters of all workers of this process, at most `max`.
 * @return how many workers there are
 */
UMX_API size_t umx_observe_workers(umx_worker_numbers *numbers, size_t max);

/**
 * Say to those who read the counters of `worker` that it is `rank` of the
 * `num_ranks` ranks of the communicator `name`, of which 63 bytes are kept.
 * umx_comm_create() does.
 *
 * Thread: the worker's owner.
 */
UMX_API void umx_observe_rank(umx_worker *worker, const char *name, int rank,
                              int num_ranks);

/** The number of a worker: umx_worker_numbers.number. */
UMX_API uint64_t umx_worker_number(const umx_worker *worker);

#ifdef __cplusplus
}
#endif
#endif
