/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port rings tsan */
/* tests: proxy/create proxy/thread proxy/process proxy/fence proxy/wait */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rings.h"

/* ---- making one ----------------------------------------------------------
 */

static void
test_a_proxy_of_one_rank_is_made(void **state)
{
    rings r;

    open_rings(&r, *state, 1);
    assert_string_equal(umx_proxy_reason(r.proxies[0]), "");
    close_rings(&r);
}

static void
test_a_cpu_that_is_not_there_is_refused_on_all_ranks(void **state)
{
    umx_proxy_params params = {.field_mask = UMX_PROXY_FIELD_CPU, .cpu = 4000};
    rings            r      = {.w = *state};
    job              jobs[2];

    world_open(r.w, 2);
    for (int i = 0; i < 2; i++) {
        umx_op_params how = job_params(&jobs[i]);
        umx_request  *req = NULL;

        job_posted(&jobs[i],
                   umx_proxy_create(r.w->comms[i], (i == 1) ? &params : NULL,
                                    &how, &r.proxies[i], &req),
                   &req);
    }
    world_wait(r.w, jobs, 2, UMX_ERR_OUT_OF_RANGE);
    for (int i = 0; i < 2; i++) {
        assert_non_null(strstr(umx_proxy_reason(r.proxies[i]), "rank 1"));
        umx_proxy_destroy(r.proxies[i]);
    }
}

static void
test_a_pinned_thread_carries_out_commands(void **state)
{
    rings     r;
    cpu_set_t set;
    unsigned  cpu = 0;

    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    while (!CPU_ISSET(cpu, &set)) {
        cpu++;
    }
    r.params = (umx_proxy_params){
        .field_mask = UMX_PROXY_FIELD_CPU | UMX_PROXY_FIELD_SPIN, .cpu = cpu};
    open_rings_with(&r, *state, 2, true);
    push(&r, 0, umx_ring_put(1, 0, 16, 0, 64));
    expect_quiet(&r, 0, UMX_OK);
    assert_memory_equal(r.data[1] + 64, r.data[0], 16);
    close_rings(&r);
}

static void
test_a_rank_that_gives_up_ends_the_making_on_all(void **state)
{
    rings        r = {.w = *state};
    job          jobs[2];
    umx_request *req = NULL;

    world_open(r.w, 2);
    for (int i = 0; i < 2; i++) {
        umx_op_params how = job_params(&jobs[i]);

        req = NULL;
        job_posted(
            &jobs[i],
            umx_proxy_create(r.w->comms[i], NULL, &how, &r.proxies[i], &req),
            &req);
        if (i == 0) {
            assert_int_equal(umx_request_cancel(req), UMX_OK);
        }
    }
    assert_int_equal(world_wait_one(r.w, &jobs[0]), UMX_ERR_CANCELED);
    assert_int_equal(world_wait_one(r.w, &jobs[1]), UMX_ERR_RANK_FAILED);
    umx_proxy_destroy(r.proxies[0]);
    umx_proxy_destroy(r.proxies[1]);
}

static void
test_one_that_is_being_made_can_be_destroyed(void **state)
{
    rings         r = {.w = *state};
    job           j;
    umx_op_params how = job_params(&j);
    umx_request  *req = NULL;

    world_open(r.w, 2);
    job_posted(&j,
               umx_proxy_create(r.w->comms[0], NULL, &how, &r.proxies[0], &req),
               &req);
    umx_proxy_destroy(r.proxies[0]);
    assert_int_equal(world_wait_one(r.w, &j), UMX_ERR_CANCELED);
}

static void
test_a_rank_that_does_not_come_is_not_waited_for(void **state)
{
    umx_proxy_params params = {.field_mask = UMX_PROXY_FIELD_TIMEOUT,
                               .timeout_ns = SECOND_NS / 20};
    rings            r      = {.w = *state};
    umx_request     *req    = NULL;
    umx_op_params    how;
    job              j;

    world_open(r.w, 2);
    for (int i = 0; i < 2; i++) {
        how = job_params(&j);
        req = NULL;
        job_posted(&j,
                   umx_proxy_create(r.w->comms[i], (i == 0) ? &params : NULL,
                                    &how, &r.proxies[i], &req),
                   &req);
        assert_int_equal(world_wait_one(r.w, &j),
                         (i == 0) ? UMX_ERR_TIMED_OUT : UMX_ERR_RANK_FAILED);
        assert_non_null(
            strstr(umx_proxy_reason(r.proxies[i]), "not all ranks"));
        umx_proxy_destroy(r.proxies[i]);
    }
}

/* ---- the end -------------------------------------------------------------
 */

static void
test_closing_carries_out_what_the_rings_hold(void **state)
{
    rings r;

    open_rings(&r, *state, 2);
    for (unsigned i = 0; i < 500; i++) {
        push(&r, 0, umx_ring_put(1, 0, 16, 0, 16 * (uint64_t)i));
    }
    expect_close(&r, 0, 20 * SECOND_NS, UMX_OK);
    for (unsigned i = 0; i < 500; i++) {
        assert_memory_equal(r.data[1] + 16 * i, r.data[0], 16);
    }
    expect_error(&r, 0, UMX_ERR_CLOSED, -1, "closed");
    expect_quiet(&r, 0, UMX_ERR_CLOSED);
    close_rings(&r);
}

static void
test_closing_gives_up_what_does_not_end_in_time(void **state)
{
    rings r;

    open_rings(&r, *state, 2);
    push(&r, 0, umx_ring_barrier(3));
    expect_close(&r, 0, SECOND_NS / 20, UMX_ERR_TIMED_OUT);
    expect_error(&r, 0, UMX_ERR_CLOSED, -1, "time");
    close_rings(&r);
}

/* Open one rank, with a ring that has room for a lot of work. */
static void
open_large_ring(rings *r, world *w)
{
    umx_proxy_ring_params params = {.capacity = 4096};

    open_rings(r, w, 1);
    umx_proxy_ring_destroy(r->rings[0]);
    assert_int_equal(
        umx_proxy_ring_create(r->proxies[0], &params, &r->rings[0]), UMX_OK);
    umx_ring_producer_init(&r->producers[0], umx_proxy_ring_get(r->rings[0]));
}

/* It is busy all the time, and for much longer than it has. */
static void
test_closing_gives_up_while_there_is_work(void **state)
{
    rings r;

    open_large_ring(&r, *state);
    for (int i = 0; i < 4096; i++) {
        push(&r, 0, umx_ring_put(0, 0, REGION_BYTES / 2, 0, REGION_BYTES / 2));
    }
    expect_close(&r, 0, 0, UMX_ERR_TIMED_OUT);
    expect_error(&r, 0, UMX_ERR_CLOSED, -1, "time");
    close_rings(&r);
}

/* Write until the ring has ended. */
static void *
write_to_the_end(void *arg)
{
    rings           *r   = arg;
    umx_ring_command put = umx_ring_put(0, 0, REGION_BYTES / 2, 0,
                                        REGION_BYTES / 2);
    umx_ring_u64     error;

    do {
        error = umx_ring_push(&r->producers[0], &put, 1);
    } while (error == 0);
    return (void *)(intptr_t)UMX_RING_STATUS(error);
}

static void
test_what_is_written_while_it_closes_does_not_delay_it(void **state)
{
    pthread_t thread;
    void     *error;
    rings     r;

    open_large_ring(&r, *state);
    assert_int_equal(pthread_create(&thread, NULL, write_to_the_end, &r), 0);
    while (!umx_ring_is_retired(&r.producers[0].ring, 64)) {
        usleep(100);
    }
    expect_close(&r, 0, 20 * SECOND_NS, UMX_OK);
    assert_int_equal(pthread_join(thread, &error), 0);
    assert_int_equal((intptr_t)error, UMX_ERR_CLOSED);
    close_rings(&r);
}

static void
test_a_proxy_can_be_destroyed_with_commands_in_its_rings(void **state)
{
    rings        r;
    job          j;
    umx_request *req = NULL;

    open_rings(&r, *state, 2);
    push(&r, 0, umx_ring_barrier(0));
    push(&r, 0, umx_ring_put(1, 0, 16, 0, 0));
    post_quiet(&r, 0, &j, &req);
    umx_proxy_destroy(r.proxies[0]);
    r.proxies[0] = NULL;
    assert_int_equal(world_wait_one(r.w, &j), UMX_ERR_CLOSED);
    expect_error(&r, 0, UMX_ERR_CLOSED, -1, "ended by abort()");
    close_rings(&r);
}

static void
test_a_worker_that_is_destroyed_ends_its_proxy(void **state)
{
    rings r;
    job   j;

    open_rings(&r, *state, 2);
    push(&r, 0, umx_ring_barrier(0));
    post_quiet(&r, 0, &j, NULL);
    umx_comm_destroy(r.w->comms[0]);
    r.w->comms[0] = NULL;
    umx_worker_destroy(r.w->workers[0]);
    r.w->workers[0] = NULL;
    assert_int_equal(j.status, UMX_ERR_CANCELED);
    expect_error(&r, 0, UMX_ERR_CLOSED, -1, "ended by abort()");
    close_rings(&r);
}

static void
test_a_child_of_fork_is_told(void **state)
{
    rings r;
    int   status;
    pid_t child;

    open_rings(&r, *state, 2);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        umx_ring_command nops[RING_CAPACITY + 1] = {{0, 0}};
        umx_request     *req;
        bool             is_told;

        is_told =
            umx_ring_push(&r.producers[0], nops, RING_CAPACITY + 1) ==
                UMX_RING_FORKED &&
            umx_proxy_quiet(&r.rings[0], 1, NULL, &req) == UMX_ERR_FORKED &&
            umx_proxy_quiet_wait(&r.rings[0], 1, SECOND_NS) == UMX_ERR_FORKED &&
            umx_proxy_close(r.proxies[0], 0, NULL, &req) == UMX_ERR_FORKED;
        umx_proxy_ring_destroy(r.rings[0]);
        umx_proxy_destroy(r.proxies[0]);
        _exit(is_told ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    push(&r, 0, umx_ring_put(1, 0, 16, 0, 64));
    expect_quiet(&r, 0, UMX_OK);
    assert_memory_equal(r.data[1] + 64, r.data[0], 16);
    close_rings(&r);
}

/* ---- sleep ---------------------------------------------------------------
 */

static void
wait_until_asleep(umx_proxy *proxy)
{
    umx_proxy_stats stats;
    uint64_t        before;

    umx_proxy_query(proxy, &stats);
    before = stats.sleeps;
    for (int i = 0; i < 20000 && stats.sleeps == before; i++) {
        usleep(1000);
        umx_proxy_query(proxy, &stats);
    }
}

static void
test_producers_wake_a_proxy_that_sleeps(void **state)
{
    rings r;

    r.params = (umx_proxy_params){.field_mask = UMX_PROXY_FIELD_SPIN};
    open_rings_with(&r, *state, 2, true);
    for (unsigned i = 0; i < 200; i++) {
        umx_ring_u64 number;

        number = push(&r, 0, umx_ring_put(1, 0, 16, 0, 16 * (uint64_t)i));
        assert_int_equal(
            umx_proxy_ring_wait(r.rings[0], number, 20 * SECOND_NS), UMX_OK);
    }
    close_rings(&r);
}

/* The processor's time of a thread does not grow while nothing comes. */
static void
test_an_idle_proxy_sleeps(void **state)
{
    umx_proxy_stats before, after;
    rings           r;

    open_rings(&r, *state, 2);
    push(&r, 0, umx_ring_put(1, 0, 16, 0, 0));
    expect_quiet(&r, 0, UMX_OK);
    wait_until_asleep(r.proxies[0]);
    umx_proxy_query(r.proxies[0], &before);
    usleep(200000);
    umx_proxy_query(r.proxies[0], &after);
    assert_in_range(after.sleeps - before.sleeps, 0, 50);
    close_rings(&r);
}

static void
test_a_ring_of_a_device_is_looked_at_from_time_to_time(void **state)
{
    umx_proxy_ring_params params = {.field_mask = UMX_PROXY_RING_FIELD_DEVICE |
                                                  UMX_PROXY_RING_FIELD_MEMORY,
                                    .capacity  = RING_CAPACITY,
                                    .is_device = true};
    const umx_ring       *view;
    rings                 r;

    open_rings(&r, *state, 2);
    assert_int_equal(umx_memh_alloc(r.w->context, UMX_RING_BYTES(RING_CAPACITY),
                                    &params.memh),
                     UMX_OK);
    umx_proxy_ring_destroy(r.rings[0]);
    assert_int_equal(umx_proxy_ring_create(r.proxies[0], &params, &r.rings[0]),
                     UMX_OK);
    umx_memh_release(params.memh);
    view = umx_proxy_ring_get(r.rings[0]);
    for (unsigned i = 0; i < 20; i++) {
        usleep(2000); /* the proxy is likely to sleep */
        umx_ring_write(view, i, umx_ring_put(1, 0, 16, 0, 16 * i));
        assert_int_equal(umx_ring_wait(view, i), 0);
        assert_memory_equal(r.data[1] + 16 * i, r.data[0], 16);
    }
    close_rings(&r);
}

/* ---- waits ---------------------------------------------------------------
 */

static void
test_a_quiet_of_several_rings_waits_for_each(void **state)
{
    umx_proxy_ring_params params = {.capacity = RING_CAPACITY};
    umx_proxy_ring       *all[2];
    umx_ring_producer     second;
    umx_ring_command      barrier = umx_ring_barrier(1);
    umx_op_params         how;
    umx_request          *req = NULL;
    rings                 r;
    job                   j;

    open_rings(&r, *state, 2);
    all[0] = r.rings[0];
    assert_int_equal(umx_proxy_ring_create(r.proxies[0], &params, &all[1]),
                     UMX_OK);
    umx_ring_producer_init(&second, umx_proxy_ring_get(all[1]));
    push(&r, 0, umx_ring_put(1, 0, 16, 0, 0));
    assert_int_equal(umx_ring_push(&second, &barrier, 1), 0);
    how = job_params(&j);
    job_posted(&j, umx_proxy_quiet(all, 2, &how, &req), &req);
    assert_int_equal(umx_proxy_quiet_wait(&all[0], 1, 20 * SECOND_NS), UMX_OK);
    assert_int_equal(umx_proxy_quiet_wait(all, 2, SECOND_NS / 100),
                     UMX_ERR_TIMED_OUT);
    world_step(r.w);
    assert_int_equal(j.status, UMX_INPROGRESS);
    push(&r, 1, barrier);
    assert_int_equal(world_wait_one(r.w, &j), UMX_OK);
    umx_proxy_ring_destroy(all[1]);
    close_rings(&r);
}

static void
test_a_quiet_can_be_cancelled(void **state)
{
    umx_request *req = NULL;
    rings        r;
    job          j;

    open_rings(&r, *state, 2);
    push(&r, 0, umx_ring_barrier(0));
    post_quiet(&r, 0, &j, &req);
    assert_int_equal(umx_request_cancel(req), UMX_OK);
    assert_int_equal(world_wait_one(r.w, &j), UMX_ERR_CANCELED);
    push(&r, 1, umx_ring_barrier(0));
    expect_quiet(&r, 0, UMX_OK);
    close_rings(&r);
}

typedef struct writing {
    rings      *r;
    atomic_bool is_stop_due;
} writing;

static void *
write_on(void *arg)
{
    writing *self = arg;

    while (!atomic_load(&self->is_stop_due)) {
        push(self->r, 0, umx_ring_put(1, 0, 16, 0, 0));
    }
    return NULL;
}

static void
test_a_quiet_ends_while_others_go_on_writing(void **state)
{
    writing   self = {.is_stop_due = false};
    pthread_t thread;
    rings     r;

    r.params.field_mask = 0;
    open_rings_with(&r, *state, 2, false);
    self.r = &r;
    assert_int_equal(pthread_create(&thread, NULL, write_on, &self), 0);
    for (int i = 0; i < 20; i++) {
        expect_quiet(&r, 0, UMX_OK);
        assert_int_equal(umx_proxy_quiet_wait(&r.rings[0], 1, 20 * SECOND_NS),
                         UMX_OK);
    }
    atomic_store(&self.is_stop_due, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close_rings(&r);
}

static void
test_rings_of_two_proxies_have_no_common_quiet(void **state)
{
    umx_request    *req;
    umx_proxy_ring *all[2];
    rings           r;

    open_rings(&r, *state, 2);
    all[0] = r.rings[0];
    all[1] = r.rings[1];
    assert_int_equal(umx_proxy_quiet(all, 2, NULL, &req),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_proxy_quiet(all, 0, NULL, &req), UMX_OK);
    assert_int_equal(umx_proxy_quiet_wait(all, 0, 0), UMX_OK);
    close_rings(&r);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_a_proxy_of_one_rank_is_made),
        WORLD_TEST(test_a_cpu_that_is_not_there_is_refused_on_all_ranks),
        RINGS_TEST(test_a_pinned_thread_carries_out_commands),
        RINGS_TEST(test_a_rank_that_gives_up_ends_the_making_on_all),
        RINGS_TEST(test_a_rank_that_does_not_come_is_not_waited_for),
        RINGS_TEST(test_one_that_is_being_made_can_be_destroyed),
        WORLD_TEST(test_closing_carries_out_what_the_rings_hold),
        RINGS_TEST(test_closing_gives_up_what_does_not_end_in_time),
        RINGS_TEST(test_closing_gives_up_while_there_is_work),
        RINGS_TEST(test_what_is_written_while_it_closes_does_not_delay_it),
        RINGS_TEST(test_a_proxy_can_be_destroyed_with_commands_in_its_rings),
        RINGS_TEST(test_a_worker_that_is_destroyed_ends_its_proxy),
        RINGS_TEST(test_a_child_of_fork_is_told),
        RINGS_TEST(test_producers_wake_a_proxy_that_sleeps),
        RINGS_TEST(test_an_idle_proxy_sleeps),
        RINGS_TEST(test_a_ring_of_a_device_is_looked_at_from_time_to_time),
        RINGS_TEST(test_a_quiet_of_several_rings_waits_for_each),
        RINGS_TEST(test_a_quiet_can_be_cancelled),
        RINGS_TEST(test_a_quiet_ends_while_others_go_on_writing),
        RINGS_TEST(test_rings_of_two_proxies_have_no_common_quiet),
    };

    return UNIT_RUN(tests);
}
