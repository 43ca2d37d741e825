/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/thread_limit.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

static void *
end_at_once(void *arg)
{
    return arg;
}

/* The system's limits do not tell: a control group, above this one too, counts
 * the threads of all its processes. */
bool
umi_thread_is_allowed(void)
{
    sigset_t  all, before;
    pthread_t thread;
    int       error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for others */
    error = pthread_create(&thread, NULL, end_at_once, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) {
        pthread_join(thread, NULL);
    }
    return error == 0;
}
