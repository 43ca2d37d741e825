/* SPDX-License-Identifier: BSD-3-Clause */
/* thread_limit.h: threads of the library's. May the process start another one?
 * UCX aborts the process if it gets none for its events. Thread: any. */
#ifndef UMI_THREAD_LIMIT_H
#define UMI_THREAD_LIMIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* A number of the calling thread's, not 0; no call where the compiler knows. */
static inline uintptr_t
umi_thread_id(void)
{
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
    return (uintptr_t)__builtin_thread_pointer();
#else
    return (uintptr_t)pthread_self();
#endif
}

/* pthread_create() of a thread that gets no signals, which are for the threads
 * of the program. */
int umi_thread_create(pthread_t *thread, void *(*fn)(void *arg), void *arg);

/* True if the process may start one more thread now. This starts one, which
 * ends at once. */
bool umi_thread_is_allowed(void);

#endif
