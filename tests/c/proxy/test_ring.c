/* SPDX-License-Identifier: BSD-3-Clause */
/* link: tsan */
/* The ring alone, with a consumer of the test's: umx/ring.h. */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <umx/ring.h>

enum {
    SHIFT     = 4,
    CAPACITY  = 1 << SHIFT,
    PRODUCERS = 3,
    COMMANDS  = 30000, /* of each producer */
    BATCH_MAX = 5
};

typedef struct fixture {
    umx_ring     ring;
    umx_ring_u64 tail;
    atomic_uint  wakes;
    _Alignas(128) unsigned char memory[UMX_RING_BYTES(CAPACITY)];
} fixture;

static void
open_ring(fixture *f, umx_ring_u32 kind, umx_ring_u64 first)
{
    memset(f, 0x5a, sizeof(*f));
    umx_ring_init(&f->ring, f->memory, SHIFT, kind, first);
    f->ring.yield = sched_yield;
    f->tail       = first;
    atomic_init(&f->wakes, 0);
}

/* Take a command, as a proxy does. */
static bool
take(fixture *f, umx_ring_command *command)
{
    umx_ring_command *place = &f->ring.commands[f->tail & f->ring.mask];

    command->w1 = umx_ring_load_acquire(&place->w1);
    if ((command->w1 & 1) != umx_ring_phase(&f->ring, f->tail)) {
        return false;
    }
    command->w0 = __atomic_load_n(&place->w0, __ATOMIC_RELAXED);
    umx_ring_store_release(&f->ring.words->retired, ++f->tail);
    return true;
}

/* A signal that says which command of which producer it is. */
static umx_ring_command
numbered(unsigned producer, umx_ring_u32 number, umx_ring_u32 left)
{
    return umx_ring_signal(producer, left, number, number, 0);
}

static void
test_commands_have_their_fields(void **state)
{
    umx_ring_command put = umx_ring_put(0xabcd, 0x12, 0xfffffff0, 0x7fffffff0,
                                        0xffffffff0);
    umx_ring_command signal = umx_ring_signal(1, 2, 0xffffffff, 0x7fffffff,
                                              UMX_RING_SET);

    (void)state;
    assert_int_equal(put.w0, UINT64_C(0xfffffff012abcd01));
    assert_int_equal(put.w1, UINT64_C(0xfffffffffffffffe));
    assert_int_equal(signal.w0, UINT64_C(0x02000112));
    assert_int_equal(signal.w1, UINT64_C(0xfffffffffffffffe));
    assert_int_equal(umx_ring_quiet().w0, UMX_RING_QUIET);
    assert_int_equal(umx_ring_barrier(7).w0, UMX_RING_BARRIER | UINT64_C(7)
                                                                    << 24);
    assert_int_equal(umx_ring_nop().w0, UMX_RING_NOP);
}

static void
test_what_a_command_cannot_hold_is_invalid(void **state)
{
    (void)state;
    assert_int_equal(umx_ring_put(0, 0, 1, 8, 0).w0 & 15, UMX_RING_INVALID);
    assert_int_equal(umx_ring_put(0, 0, 1, 0, 1).w0 & 15, UMX_RING_INVALID);
    assert_int_equal(umx_ring_put(0, 0, 1, UINT64_C(1) << 35, 0).w0 & 15,
                     UMX_RING_INVALID);
    assert_int_equal(umx_ring_put(0, 0, 1, 0, UINT64_C(1) << 36).w0 & 15,
                     UMX_RING_INVALID);
    assert_int_equal(umx_ring_signal(0, 0, 0, 0x80000000, 0).w0 & 15,
                     UMX_RING_INVALID);
}

static void
test_a_full_ring_takes_no_more_until_one_is_retired(void **state)
{
    static fixture    f;
    umx_ring_producer p;
    umx_ring_command  many[CAPACITY + 3], got;
    umx_ring_u32      kinds[] = {0, UMX_RING_SEVERAL};

    (void)state;
    for (unsigned i = 0; i < CAPACITY + 3; i++) {
        many[i] = numbered(0, i, 0);
    }
    for (int k = 0; k < 2; k++) {
        open_ring(&f, kinds[k], 5);
        umx_ring_producer_init(&p, &f.ring);
        assert_false(take(&f, &got));
        assert_int_equal(umx_ring_try_push(&p, many, CAPACITY + 3), CAPACITY);
        assert_int_equal(p.head, 5 + CAPACITY);
        assert_int_equal(umx_ring_try_push(&p, many, 1), 0);
        assert_false(umx_ring_is_retired(&f.ring, 5));
        assert_true(take(&f, &got));
        assert_int_equal(got.w0, many[0].w0);
        assert_true(umx_ring_is_retired(&f.ring, 5));
        assert_false(umx_ring_is_retired(&f.ring, 6));
        assert_int_equal(umx_ring_try_push(&p, many + CAPACITY, 3), 1);
        for (unsigned i = 1; i <= CAPACITY; i++) {
            assert_true(take(&f, &got));
            assert_int_equal(got.w1 >> 1, many[i].w1 >> 1);
        }
        assert_false(take(&f, &got));
    }
}

static void
test_a_ring_that_has_ended_holds_no_producer(void **state)
{
    static fixture    f;
    umx_ring_producer p;
    umx_ring_command  nops[CAPACITY + 1] = {{0, 0}};
    umx_ring_u32      forks              = 3;

    (void)state;
    open_ring(&f, 0, 0);
    umx_ring_producer_init(&p, &f.ring);
    f.ring.words->error = (umx_ring_u64)(uint32_t)-25 | UINT64_C(8) << 32;
    assert_int_equal(UMX_RING_STATUS(umx_ring_push(&p, nops, CAPACITY + 1)),
                     -25);
    assert_int_equal(UMX_RING_RANK(umx_ring_wait(&f.ring, 0)), 7);

    open_ring(&f, 0, 0);
    f.ring.forks   = &forks;
    f.ring.made_in = 2;
    umx_ring_producer_init(&p, &f.ring);
    assert_int_equal(umx_ring_push(&p, nops, CAPACITY + 1), UMX_RING_FORKED);
}

static void
on_wake(void *arg)
{
    atomic_fetch_add(&((fixture *)arg)->wakes, 1);
}

static void
test_a_producer_wakes_a_proxy_that_sleeps_once(void **state)
{
    static fixture    f;
    umx_ring_producer p;
    umx_ring_command  nop     = umx_ring_nop();
    umx_ring_u32      kinds[] = {0, UMX_RING_FENCE};

    (void)state;
    for (int k = 0; k < 2; k++) {
        open_ring(&f, kinds[k], 0);
        f.ring.wake = on_wake;
        f.ring.arg  = &f;
        umx_ring_producer_init(&p, &f.ring);
        assert_int_equal(umx_ring_push(&p, &nop, 1), 0);
        assert_int_equal(f.wakes, 0);
        f.ring.words->doze = 1;
        assert_int_equal(umx_ring_push(&p, &nop, 1), 0);
        assert_int_equal(umx_ring_push(&p, &nop, 1), 0);
        assert_int_equal(f.wakes, 1);
    }
}

static void
test_a_producer_that_cannot_wake_leaves_it_to_others(void **state)
{
    static fixture    f;
    umx_ring_producer without, with;
    umx_ring_command  nop = umx_ring_nop();

    (void)state;
    open_ring(&f, UMX_RING_SEVERAL, 0);
    umx_ring_producer_init(&without, &f.ring);
    f.ring.wake = on_wake;
    f.ring.arg  = &f;
    umx_ring_producer_init(&with, &f.ring);
    f.ring.words->doze = 1;
    assert_int_equal(umx_ring_push(&without, &nop, 1), 0);
    assert_int_equal(f.ring.words->doze, 1);
    assert_int_equal(umx_ring_push(&with, &nop, 1), 0);
    assert_int_equal(f.wakes, 1);
}

/* ---- threads -------------------------------------------------------------
 */

typedef struct producing {
    fixture  *f;
    unsigned  number;
    unsigned  batch; /* at most */
    pthread_t thread;
} producing;

static void *
produce(void *arg)
{
    producing        *self = arg;
    umx_ring_producer p;
    unsigned          batch = 1;

    umx_ring_producer_init(&p, &self->f->ring);
    for (unsigned done = 0; done < COMMANDS; done += batch) {
        umx_ring_command commands[BATCH_MAX];

        batch = done % self->batch + 1;
        batch = (batch > COMMANDS - done) ? COMMANDS - done : batch;
        for (unsigned i = 0; i < batch; i++) {
            commands[i] = numbered(self->number, done + i, batch - 1 - i);
        }
        assert_int_equal(umx_ring_push(&p, commands, batch), 0);
    }
    return (void *)(uintptr_t)umx_ring_wait(&p.ring, p.head - 1);
}

/* Each producer's commands come in their order, and batches whole. */
static void
consume(fixture *f, unsigned producers)
{
    unsigned next[PRODUCERS] = {0}, left = 0, last = 0;

    for (unsigned total = 0; total < producers * COMMANDS;) {
        umx_ring_command command;
        unsigned         producer;

        if (!take(f, &command)) {
            sched_yield();
            continue;
        }
        producer = command.w0 >> 8 & 0xffff;
        assert_in_range(producer, 0, producers - 1);
        assert_int_equal(command.w1 >> 32, next[producer]);
        assert_int_equal(command.w1 >> 1 & 0x7fffffff, next[producer]);
        next[producer]++;
        total++;
        if (left != 0) {
            assert_int_equal(producer, last);
            assert_int_equal(command.w0 >> 24 & 0xff, left - 1);
        }
        left = command.w0 >> 24 & 0xff;
        last = producer;
    }
}

static void
run_producers(unsigned producers, unsigned batch, umx_ring_u64 first)
{
    static fixture f;
    producing      all[PRODUCERS];
    void          *error;

    open_ring(&f, (producers > 1) ? UMX_RING_SEVERAL : 0, first);
    for (unsigned i = 0; i < producers; i++) {
        all[i] = (producing){.f = &f, .number = i, .batch = batch};
        assert_int_equal(pthread_create(&all[i].thread, NULL, produce, &all[i]),
                         0);
    }
    consume(&f, producers);
    for (unsigned i = 0; i < producers; i++) {
        assert_int_equal(pthread_join(all[i].thread, &error), 0);
        assert_null(error);
    }
    assert_int_equal(f.tail - first, producers * COMMANDS);
}

static void
test_commands_of_one_producer_come_in_their_order(void **state)
{
    (void)state;
    run_producers(1, 1, 0);
    run_producers(1, BATCH_MAX, 0);
}

static void
test_batches_of_three_producers_come_whole(void **state)
{
    (void)state;
    run_producers(PRODUCERS, 1, 0);
    run_producers(PRODUCERS, BATCH_MAX, 0);
}

static void
test_numbers_go_beyond_32_and_64_bits(void **state)
{
    (void)state;
    run_producers(1, BATCH_MAX, (UINT64_C(1) << 32) - 1000);
    run_producers(PRODUCERS, BATCH_MAX, (UINT64_C(1) << 32) - 1003);
    run_producers(1, BATCH_MAX, UINT64_MAX - 1000);
    run_producers(PRODUCERS, BATCH_MAX, UINT64_MAX - 1003);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands_have_their_fields),
        cmocka_unit_test(test_what_a_command_cannot_hold_is_invalid),
        cmocka_unit_test(test_a_full_ring_takes_no_more_until_one_is_retired),
        cmocka_unit_test(test_a_ring_that_has_ended_holds_no_producer),
        cmocka_unit_test(test_a_producer_wakes_a_proxy_that_sleeps_once),
        cmocka_unit_test(test_a_producer_that_cannot_wake_leaves_it_to_others),
        cmocka_unit_test(test_commands_of_one_producer_come_in_their_order),
        cmocka_unit_test(test_batches_of_three_producers_come_whole),
        cmocka_unit_test(test_numbers_go_beyond_32_and_64_bits),
    };

    return UNIT_RUN(tests);
}
