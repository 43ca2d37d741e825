/* SPDX-License-Identifier: BSD-3-Clause */
/* fork.h: what a fork() leaves a child with. Thread: any. */
#ifndef UMI_FORK_H
#define UMI_FORK_H

#include <umx/worker.h>

struct umi_guard;

extern unsigned umi_forks; /* for the next */

/* Give the number of forks that led to this process: an object of another
 * generation is the parent's. */
static inline unsigned
umi_fork_generation(void)
{
    return umi_forks;
}

/* Around the life of each context of UCX. */
umx_status umi_fork_enter(void);
void       umi_fork_leave(void);

/* Around the life of each worker: its sockets are closed in a child. */
void umi_fork_add_worker(umx_worker *worker);
void umi_fork_remove_worker(umx_worker *worker);

/* Change worker->guard: a fork() waits for the thread that it is for. */
void umi_fork_set_guard(umx_worker *worker, struct umi_guard *guard);

/* exit(): no progress thread is in UCX any more, or will be. */
void umi_fork_stop_threads(void);

#endif
