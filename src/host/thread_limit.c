/* SPDX-License-Identifier: BSD-3-Clause */
#include "host/thread_limit.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

static void *
end_at_once(void *arg)
{
    return arg;
}

int
umi_thread_create(pthread_t *thread, void *(*fn)(void *arg), void *arg)
{
    sigset_t all, before;
    int      error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* The system's limits do not tell: a control group, above this one too, counts
 * the threads of all its processes. */
bool
umi_thread_is_allowed(void)
{
    pthread_t thread;
    int       error = umi_thread_create(&thread, end_at_once, NULL);

    if (error == 0) {
        pthread_join(thread, NULL);
    }
    return error == 0;
}
