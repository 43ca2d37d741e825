/* SPDX-License-Identifier: BSD-3-Clause */
/* thread_limit.h: threads of the library's. May the process start another one?
 * UCX aborts the process if it gets none for its events. Thread: any. */
#ifndef UMI_THREAD_LIMIT_H
#define UMI_THREAD_LIMIT_H

#include <pthread.h>
#include <stdbool.h>

/* pthread_create() of a thread that gets no signals, which are for the threads
 * of the program. */
int umi_thread_create(pthread_t *thread, void *(*fn)(void *arg), void *arg);

/* True if the process may start one more thread now. This starts one, which
 * ends at once. */
bool umi_thread_is_allowed(void);

#endif
