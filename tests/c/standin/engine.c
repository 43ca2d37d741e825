/* SPDX-License-Identifier: BSD-3-Clause */
/* engine.c: streams that go on when their process is stopped or killed, as the
 * copies of a device do, if the environment asks for that.
 *
 * What serves a stream is a process then that shares the memory of the first
 * one. It has the thread-local variables of a thread there, its host, which
 * sleeps but for calling host functions. Of the process's files it has none. It
 * must need no thread that may be stopped: it waits for the lock a while at a
 * time, and frees nothing. */
#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "standin/internal.h"

enum {
    STACK   = 1 << 20,
    TURN_NS = 20000000
};

static pthread_mutex_t    lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned           changes;
static void              *discarded; /* a list by their first words */
static _Thread_local bool is_engine; /* of the host, too */
static _Thread_local int  host_pid, host_tid;

/* ---- the lock ------------------------------------------------------------
 */

void
standin_acquire(void)
{
    struct timespec until;

    if (!is_engine) {
        pthread_mutex_lock(&lock);
        return;
    }
    do {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += TURN_NS;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
    } while (pthread_mutex_timedlock(&lock, &until) != 0 &&
             !standin_is_orphan());
}

void
standin_release_lock(void)
{
    pthread_mutex_unlock(&lock);
}

/* A counter: that of pthreads would wait for who waits and is stopped. */
void
standin_wake(void)
{
    __atomic_add_fetch(&changes, 1, __ATOMIC_RELEASE);
    (void)syscall(SYS_futex, &changes, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL,
                  0);
}

void
standin_await(void)
{
    struct timespec turn = {.tv_nsec = TURN_NS};
    unsigned        seen = __atomic_load_n(&changes, __ATOMIC_ACQUIRE);

    standin_release_lock();
    (void)syscall(SYS_futex, &changes, FUTEX_WAIT_PRIVATE, seen,
                  is_engine ? &turn : NULL, NULL, 0);
    standin_acquire();
}

void
standin_discard(void *memory)
{
    *(void **)memory = discarded;
    discarded        = memory;
}

void
standin_free_discarded(void)
{
    while (discarded != NULL) {
        void *memory = discarded;

        discarded = *(void **)memory;
        free(memory);
    }
}

/* ---- processes -----------------------------------------------------------
 */

bool
standin_is_orphan(void)
{
    return is_engine && syscall(SYS_tgkill, host_pid, host_tid, 0) != 0;
}

bool
standin_has_host(void)
{
    return is_engine;
}

static int
run_engine(void *arg)
{
    (void)syscall(SYS_close_range, 0u, ~0u, 0u);
    (void)setpgid(0, 0);
    standin_serve(arg);
    (void)syscall(SYS_exit_group, 0);
    return 0;
}

/* Have the host call what is at the head of the stream. */
void
standin_ask_host(cu_stream *stream, op *o)
{
    stream->asked = o;
    standin_wake();
    while (stream->asked != NULL && !standin_is_orphan()) {
        standin_await();
    }
}

static void
answer(cu_stream *stream)
{
    standin_acquire();
    while (!stream->is_ended) {
        if (stream->asked == NULL) {
            standin_await();
            continue;
        }
        standin_call(stream, stream->asked);
        stream->asked = NULL;
        standin_wake();
    }
    standin_release_lock();
}

static void *
host(void *arg)
{
    cu_stream *stream = arg;
    char      *stack  = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigset_t   all;
    pid_t      pid;

    if (stack == MAP_FAILED) {
        abort();
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    is_engine = true;
    host_pid  = getpid();
    host_tid  = (int)syscall(SYS_gettid);
    pid       = clone(run_engine, stack + STACK, CLONE_VM, stream);
    if (pid < 0) {
        abort();
    }
    answer(stream);
    (void)waitpid(pid, NULL, __WALL);
    munmap(stack, STACK);
    free(stream);
    return NULL;
}

static void *
serve(void *arg)
{
    standin_serve(arg);
    free(arg);
    return NULL;
}

void
standin_start_stream(cu_stream *stream)
{
    pthread_attr_t attr;
    pthread_t      thread;

    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attr, standin_set.has_engine ? host : serve,
                       stream) != 0) {
        abort();
    }
    pthread_attr_destroy(&attr);
}
