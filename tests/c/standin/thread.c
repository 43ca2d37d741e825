/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.c: the thread of a stream. After an error that stays, or when its
 * context has ended, nothing that is queued is done: marks are only reached. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "standin/internal.h"

enum {
    STEP        = 65536,
    WAIT_GEQ    = 0, /* of words */
    WAIT_EQ     = 1,
    WAIT_AND    = 2,
    POLL_US     = 50,
    SHORTEST_US = 60 /* a shorter sleep would not be one */
};

static bool
is_off(const cu_stream *stream)
{
    return standin_sticky != OK || stream->context->is_destroyed;
}

/* Nobody will do what is waited for. */
static bool
is_alone(const cu_stream *stream)
{
    return is_off(stream) || standin_is_orphan();
}

/* ---- time, without the lock ----------------------------------------------
 */

static double
now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void
sleep_us(double us)
{
    struct timespec t = {.tv_sec = (time_t)(us / 1e6)};

    t.tv_nsec = (long)((us - (double)t.tv_sec * 1e6) * 1e3);
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR) {
    }
}

/* ---- what is done --------------------------------------------------------
 */

/* Each step is made when its time has come: who cancels and looks at the memory
 * sees what is still written. */
static void
copy(const cu_stream *stream, const op *o)
{
    int    result = standin_next("copy");
    double start  = now_us();

    if (result != OK) {
        standin_sticky = result;
        return;
    }
    for (size_t done = 0; done < o->len && !is_off(stream); done += STEP) {
        size_t len     = (o->len - done < STEP) ? o->len - done : STEP;
        double step_us = standin_set.step_us, gbs = standin_set.gbs;

        standin_release_lock();
        if (step_us > 0) {
            sleep_us(step_us);
        }
        if (gbs > 0) {
            double early = start + (double)(done + len) / gbs / 1e3 - now_us();

            if (early > SHORTEST_US || (early > 0 && done + len == o->len)) {
                sleep_us(early);
            }
        }
        memmove(o->dst + done, o->src + done, len);
        standin_acquire();
    }
}

static void
fill(const op *o)
{
    standin_release_lock();
    memset(o->dst, (int)o->value, o->len);
    standin_acquire();
}

static void
run_kernel(const cu_stream *stream, const op *o)
{
    while (standin_set.is_held && !is_alone(stream)) {
        standin_await();
    }
    if (is_off(stream) || standin_set.is_held) {
        return;
    }
    standin_release_lock();
    if (o->delay_us > 0) {
        sleep_us(o->delay_us);
    }
    memset(o->dst, (int)o->value, o->len);
    standin_acquire();
}

/* Our kernel: all moves at once. */
static void
run_moves(const op *o)
{
    const standin_move *moves = (const standin_move *)(const void *)o->staged;

    if (o->flags != 0) {
        standin_sticky = ILLEGAL_ADDRESS;
        return;
    }
    standin_release_lock();
    if (standin_set.step_us > 0) {
        sleep_us(standin_set.step_us);
    }
    for (size_t i = 0; i < o->len; i++) {
        memmove((void *)(uintptr_t)moves[i].dst,
                (const void *)(uintptr_t)moves[i].src, moves[i].len);
    }
    standin_acquire();
}

static bool
is_value(const op *o)
{
    uint32_t word = __atomic_load_n((uint32_t *)(void *)o->dst,
                                    __ATOMIC_ACQUIRE);

    switch (o->flags & 3) {
    case WAIT_GEQ:
        return (int32_t)(word - o->value) >= 0;
    case WAIT_EQ:
        return word == o->value;
    case WAIT_AND:
        return (word & o->value) != 0;
    default:
        return ~(word | o->value) != 0;
    }
}

static void
wait_value(const cu_stream *stream, const op *o)
{
    while (!is_alone(stream) && !is_value(o)) {
        standin_release_lock();
        sleep_us(POLL_US);
        standin_acquire();
    }
}

static void
wait_mark(const cu_stream *stream, const op *o)
{
    while (!o->mark->is_done && !is_alone(stream)) {
        standin_await();
    }
    standin_release(o->mark);
}

/* A function of the program. */
void
standin_call(cu_stream *stream, const op *o)
{
    int result = standin_sticky;

    standin_release_lock();
    if (o->what == OP_HOST_FN) {
        o->function(o->arg);
    } else {
        o->callback(stream, result, o->arg);
    }
    standin_acquire();
}

static void
call(cu_stream *stream, op *o)
{
    if (standin_has_host()) {
        standin_ask_host(stream, o);
    } else {
        standin_call(stream, o);
    }
}

/* What an operation does that the device runs. */
static void
run(cu_stream *stream, op *o)
{
    switch (o->what) {
    case OP_COPY:
        copy(stream, o);
        break;
    case OP_FILL:
        fill(o);
        break;
    case OP_KERNEL:
        run_kernel(stream, o);
        break;
    case OP_HOST_FN:
        call(stream, o);
        break;
    case OP_WAIT_VALUE:
        wait_value(stream, o);
        break;
    case OP_WRITE_VALUE:
        __atomic_store_n((uint32_t *)(void *)o->dst, o->value,
                         __ATOMIC_RELEASE);
        break;
    case OP_MOVES:
        run_moves(o);
        break;
    case OP_FREE:
        (void)standin_drop(o->dst, KIND_DEVICE);
        break;
    default:
        break;
    }
}

static void
perform(cu_stream *stream, op *o)
{
    switch (o->what) {
    case OP_MARK:
        clock_gettime(CLOCK_MONOTONIC, &o->mark->time);
        o->mark->is_done = true;
        standin_release(o->mark);
        break;
    case OP_WAIT:
        wait_mark(stream, o);
        break;
    case OP_CALLBACK:
        call(stream, o);
        break;
    default:
        if (!is_off(stream)) {
            run(stream, o);
        }
    }
}

void
standin_serve(cu_stream *stream)
{
    standin_acquire();
    for (;;) {
        op *o;

        while (stream->head == NULL && !stream->is_dead &&
               !standin_is_orphan()) {
            standin_await();
        }
        o = stream->head;
        if (o == NULL) {
            break;
        }
        perform(stream, o);
        stream->head = o->next;
        stream->done++;
        if (o->staged != NULL) {
            standin_discard(o->staged);
        }
        standin_discard(o);
        standin_wake();
    }
    standin_unlink_stream(stream);
    stream->is_ended = true;
    standin_wake();
    standin_release_lock();
}
