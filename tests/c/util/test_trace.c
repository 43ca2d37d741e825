/* SPDX-License-Identifier: BSD-3-Clause */
/* link: tsan */
/* tests: util/latency */
#include "util/trace.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"
#include "util/latency.h"

enum {
    THREADS = 4,
    EVENTS  = 1000
};

static void
add(uint64_t operation)
{
    umx_trace_event *event = umi_trace_claim();

    assert_non_null(event);
    *event         = (umx_trace_event){.operation = operation};
    event->time_ns = event->begin_ns = umi_ticks();
    umi_trace_commit(event, UMX_TRACE_BEGIN);
}

static void
test_events_are_read_in_their_order(void **state)
{
    umx_trace_event events[8];
    umx_trace_info  info;

    (void)state;
    assert_int_equal(umx_trace_start(5), UMX_OK);
    assert_true(UMI_IS_OBSERVED());
    for (uint64_t i = 0; i < 3; i++) {
        add(i);
    }
    umx_trace_stop();
    assert_false(UMI_IS_OBSERVED());
    umx_trace_query(&info);
    assert_int_equal(info.num_events, 3);
    assert_int_equal(info.num_dropped, 0);
    assert_int_equal(umx_trace_read(events, 0, 8), 3);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(events[i].operation, i);
        assert_int_equal(events[i].kind, UMX_TRACE_BEGIN);
        assert_in_range(events[i].time_ns, info.begin_ns, info.end_ns);
    }
    assert_int_equal(umx_trace_read(events, 2, 8), 1);
    assert_int_equal(umx_trace_read(events, 3, 8), 0);
}

static void
test_the_last_events_stay(void **state)
{
    umx_trace_event events[8];
    umx_trace_info  info;

    (void)state;
    assert_int_equal(umx_trace_start(8), UMX_OK);
    for (uint64_t i = 0; i < 11; i++) {
        add(i);
    }
    umx_trace_stop();
    umx_trace_query(&info);
    assert_int_equal(info.num_events, 8);
    assert_int_equal(info.num_dropped, 3);
    assert_int_equal(umx_trace_read(events, 0, 8), 8);
    assert_int_equal(events[0].operation, 3);
    assert_int_equal(events[7].operation, 10);
}

static void
test_one_trace_at_a_time(void **state)
{
    umx_trace_info info;

    (void)state;
    umx_trace_stop(); /* nothing happens */
    assert_int_equal(umx_trace_start(0), UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_trace_start((1 << 26) + 1), UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_trace_start(8), UMX_OK);
    assert_int_equal(umx_trace_start(8), UMX_ERR_BUSY);
    umx_trace_query(&info); /* it has not ended */
    assert_int_equal(info.num_events, 0);
    umx_trace_stop();
    assert_int_equal(umx_trace_start(1 << 10), UMX_OK); /* a larger one */
    umx_trace_stop();
}

/* The pages of the ring that are in memory. */
static size_t
num_pages(const umi_trace_ring *ring)
{
    static unsigned char is_there[1024];
    size_t               size = (ring->mask + 1) * sizeof(*ring->events);
    size_t               page = (size_t)sysconf(_SC_PAGESIZE);
    size_t               n    = 0;

    assert_in_range(size, 1, sizeof(is_there) * page);
    assert_int_equal(mincore(ring->events, size, is_there), 0);
    for (size_t i = 0; i < (size + page - 1) / page; i++) {
        n += is_there[i] & 1u;
    }
    return n;
}

static void
test_memory_is_given_back(void **state)
{
    const umi_trace_ring *large, *small;
    umx_trace_info        info;

    (void)state;
    assert_int_equal(umx_trace_start(1 << 14), UMX_OK);
    large = umi_trace_current;
    assert_int_not_equal(num_pages(large), 0);
    umx_trace_release(); /* nothing happens: it is recorded */
    assert_int_not_equal(num_pages(large), 0);
    add(1);
    umx_trace_stop();

    assert_int_equal(umx_trace_start(1 << 10), UMX_OK);
    small = umi_trace_current;
    assert_ptr_not_equal(small, large);
    assert_int_equal(num_pages(large), 0);
    add(2);
    umx_trace_stop();
    umx_trace_query(&info);
    assert_int_equal(info.num_events, 1);
    umx_trace_release();
    umx_trace_query(&info);
    assert_int_equal(info.num_events, 0);
    assert_int_equal(num_pages(small), 0);
    add(3); /* a slow thread */

    assert_int_equal(umx_trace_start(1 << 14), UMX_OK);
    assert_ptr_equal(umi_trace_current, large);
    umx_trace_stop();
    umx_trace_release();
    umx_trace_release();
}

static void *
add_many(void *arg)
{
    for (uint64_t i = 0; i < EVENTS; i++) {
        add((uintptr_t)arg * EVENTS + i);
    }
    return NULL;
}

static void
test_threads_record_at_once(void **state)
{
    static umx_trace_event events[THREADS * EVENTS];
    static bool            seen[THREADS * EVENTS];
    pthread_t              threads[THREADS];

    (void)state;
    assert_int_equal(umx_trace_start(THREADS * EVENTS), UMX_OK);
    for (uintptr_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, (void *)i),
                         0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    umx_trace_stop();
    assert_int_equal(umx_trace_read(events, 0, THREADS * EVENTS),
                     THREADS * EVENTS);
    for (int i = 0; i < THREADS * EVENTS; i++) {
        assert_false(seen[events[i].operation]);
        seen[events[i].operation] = true;
    }
}

static pid_t (*volatile real_fork)(void) = fork;

static void
test_a_child_records_nothing_of_its_parents(void **state)
{
    int   status;
    pid_t pid;

    (void)state;
    assert_int_equal(umx_trace_start(8), UMX_OK);
    pid = real_fork();
    if (pid == 0) {
        _exit(UMI_IS_OBSERVED() || umx_trace_start(8) != UMX_OK);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(UMI_IS_OBSERVED());
    umx_trace_stop();
}

/* ---- latencies -----------------------------------------------------------
 */

typedef struct found {
    uint64_t worker;
    unsigned num;
    uint64_t counts[2]; /* of "a" and "b" */
    uint64_t max_ns;
} found;

static void
note(uint64_t worker, const char *name, const umx_histogram *histogram,
     void *arg)
{
    found *to = arg;

    to->worker = worker;
    to->num++;
    to->counts[name[0] - 'a'] = histogram->count;
    if (name[0] == 'a') {
        to->max_ns = histogram->max_ns;
    }
}

static void
test_latencies_are_counted_by_name(void **state)
{
    umi_latency *latency = umi_latency_new(7);
    found        it      = {0};

    (void)state;
    assert_non_null(latency);
    umi_latency_record(latency, "a", umi_ticks_from_ns(1000000));
    umi_latency_record(latency, "b", 0);
    umi_latency_record(latency, "b", 1);
    umx_latency_each(note, &it);
    assert_int_equal(it.worker, 7);
    assert_int_equal(it.num, 2);
    assert_int_equal(it.counts[0], 1);
    assert_int_equal(it.counts[1], 2);
    assert_in_range(it.max_ns, 990000, 1010000);
    umi_latency_free(latency);
    it = (found){0};
    umx_latency_each(note, &it);
    assert_int_equal(it.num, 0);
    umi_latency_free(NULL);
}

static void *
record_many(void *arg)
{
    for (uint64_t i = 1; i <= EVENTS; i++) {
        umi_latency_record(arg, "a", i);
    }
    return NULL;
}

/* What is read is of one moment, or of later ones: never less. */
static void
look(uint64_t worker, const char *name, const umx_histogram *histogram,
     void *arg)
{
    umx_histogram copy;
    uint64_t     *seen = arg, sum = 0;

    assert_int_equal(worker, 3);
    assert_string_equal(name, "a");
    umx_histogram_init(&copy);
    umx_histogram_merge(&copy, histogram);
    for (size_t i = 0; i < UMX_HISTOGRAM_BUCKETS; i++) {
        sum += copy.counts[i];
    }
    assert_in_range(copy.count, *seen, sum);
    if (copy.count != 0) {
        assert_in_range(copy.min_ns, 0, copy.max_ns);
    }
    *seen = copy.count;
}

static void
test_latencies_are_read_while_they_grow(void **state)
{
    umi_latency *latency = umi_latency_new(3);
    uint64_t     seen    = 0;
    pthread_t    thread;

    (void)state;
    assert_non_null(latency);
    assert_int_equal(pthread_create(&thread, NULL, record_many, latency), 0);
    for (int i = 0; i < EVENTS && seen != EVENTS; i++) {
        umx_latency_each(look, &seen);
    }
    pthread_join(thread, NULL);
    umx_latency_each(look, &seen);
    assert_int_equal(seen, EVENTS);
    umi_latency_free(latency);
}

static void
test_more_names_than_there_is_room_for_are_left_out(void **state)
{
    static const char names[100][2] = {{'a', '\0'}};
    umi_latency      *latency       = umi_latency_new(1);
    found             it            = {0};

    (void)state;
    assert_non_null(latency);
    for (int i = 0; i < 100; i++) {
        umi_latency_record(latency, (i == 0) ? names[0] : &names[i][1], 5);
    }
    umi_latency_record(latency, names[0], 5);
    umi_latency_free(latency);
    umx_latency_each(note, &it);
    assert_int_equal(it.num, 0);
}

static void
test_measuring_is_turned_on_and_off(void **state)
{
    (void)state;
    assert_false(umx_latency_is_enabled());
    umx_latency_enable(true);
    assert_true(umx_latency_is_enabled());
    assert_true(UMI_IS_OBSERVED());
    umx_latency_enable(false);
    assert_false(UMI_IS_OBSERVED());
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_are_read_in_their_order),
        cmocka_unit_test(test_the_last_events_stay),
        cmocka_unit_test(test_one_trace_at_a_time),
        cmocka_unit_test(test_memory_is_given_back),
        cmocka_unit_test(test_threads_record_at_once),
        cmocka_unit_test(test_a_child_records_nothing_of_its_parents),
        cmocka_unit_test(test_latencies_are_counted_by_name),
        cmocka_unit_test(test_latencies_are_read_while_they_grow),
        cmocka_unit_test(test_more_names_than_there_is_room_for_are_left_out),
        cmocka_unit_test(test_measuring_is_turned_on_and_off),
    };

    return UNIT_RUN(tests);
}
