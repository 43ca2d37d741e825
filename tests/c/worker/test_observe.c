/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
#include "worker/observe.h"

#include "pair.h"

#include <umx/observe.h>

enum {
    MAX_EVENTS = 1024
};

static umx_trace_event events[MAX_EVENTS];

static size_t
stop_and_read(void)
{
    umx_trace_stop();
    return umx_trace_read(events, 0, MAX_EVENTS);
}

/* The last event of that kind and name; NULL: there is none. */
static const umx_trace_event *
find(size_t n, umx_trace_kind kind, const char *name)
{
    while (n-- > 0) {
        if (events[n].kind == kind && events[n].name != NULL &&
            strcmp(events[n].name, name) == 0) {
            return &events[n];
        }
    }
    return NULL;
}

static void
test_an_operation_has_a_begin_and_an_end(void **state)
{
    pair                  *p = *state;
    char                   data[4];
    op                     recv;
    const umx_trace_event *begin, *end;
    size_t                 n;

    pair_open(p);
    assert_int_equal(umx_trace_start(MAX_EVENTS), UMX_OK);
    op_recv(&recv, p->server, 0, pair_tag(7), data, 4);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(7), "four", 4),
                     UMX_OK);
    assert_int_equal(op_wait(p, &recv), UMX_OK);
    n = stop_and_read();

    begin = find(n, UMX_TRACE_BEGIN, "recv");
    end   = find(n, UMX_TRACE_END, "recv");
    assert_non_null(begin);
    assert_non_null(end);
    assert_int_equal(begin->operation, end->operation);
    assert_int_equal(begin->time_ns, end->begin_ns);
    assert_true(end->time_ns >= end->begin_ns);
    assert_int_equal(end->endpoint, umx_ep_id(p->server));
    assert_int_equal(end->worker, umx_worker_number(p->server_worker));
    assert_int_equal(end->bytes, 4);
    assert_int_equal(end->tag, 7);
    assert_int_equal(end->status, UMX_OK);
    assert_int_equal(end->flags, 0);
    end = find(n, UMX_TRACE_END, "send");
    assert_non_null(end);
    assert_int_equal(end->bytes, 4);
    assert_int_equal(end->tag, 7);
}

static void
test_a_cancelled_operation_ends(void **state)
{
    pair                  *p = *state;
    char                   data[4];
    op                     recv;
    const umx_trace_event *end;

    pair_open(p);
    assert_int_equal(umx_trace_start(MAX_EVENTS), UMX_OK);
    op_recv(&recv, p->server, 0, pair_tag(7), data, 4);
    op_cancel(recv.req);
    assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
    end = find(stop_and_read(), UMX_TRACE_END, "recv");
    assert_non_null(end);
    assert_int_equal(end->status, UMX_ERR_CANCELED);
}

static void
test_what_began_before_a_trace_is_not_in_it(void **state)
{
    pair  *p = *state;
    char   data[4];
    op     recv;
    size_t n;

    pair_open(p);
    op_recv(&recv, p->server, 0, pair_tag(7), data, 4);
    assert_int_equal(umx_trace_start(MAX_EVENTS), UMX_OK);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(7), "four", 4),
                     UMX_OK);
    assert_int_equal(op_wait(p, &recv), UMX_OK);
    n = stop_and_read();
    assert_null(find(n, UMX_TRACE_END, "recv"));
    assert_non_null(find(n, UMX_TRACE_END, "send"));
}

static void
test_what_ends_after_a_trace_is_harmless(void **state)
{
    pair *p = *state;
    char  data[4];
    op    recv;

    pair_open(p);
    assert_int_equal(umx_trace_start(MAX_EVENTS), UMX_OK);
    op_recv(&recv, p->server, 0, pair_tag(7), data, 4);
    assert_non_null(find(stop_and_read(), UMX_TRACE_BEGIN, "recv"));
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(7), "four", 4),
                     UMX_OK);
    assert_int_equal(op_wait(p, &recv), UMX_OK);
}

static void
test_connections_and_wakeups_are_spans(void **state)
{
    pair                  *p = *state;
    const umx_trace_event *span;
    size_t                 n;

    assert_int_equal(umx_trace_start(MAX_EVENTS), UMX_OK);
    pair_open(p);
    pair_settle(p);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(7), "four", 4),
                     UMX_OK);
    while (p->server->stats.received_messages < 2) { /* one of pair_settle() */
        assert_true(umx_worker_drain(p->server_worker) >= 0);
    }
    n    = stop_and_read();
    span = find(n, UMX_TRACE_END, "connect");
    assert_non_null(span);
    assert_true(span->begin_ns < span->time_ns);
    assert_int_equal(span->endpoint, umx_ep_id(p->client));
    assert_non_null(find(n, UMX_TRACE_END, "accept"));
    assert_non_null(find(n, UMX_TRACE_SPAN, "wake-up"));
}

typedef struct found {
    uint64_t worker;
    uint64_t sends;
} found;

static void
note(uint64_t worker, const char *name, const umx_histogram *histogram,
     void *arg)
{
    found *to = arg;

    if (strcmp(name, "send") == 0) {
        to->worker = worker;
        to->sends += histogram->count;
    }
}

static void
test_latencies_go_with_their_worker(void **state)
{
    pair *p = *state;
    char  data[4];
    found it = {0};

    pair_open(p);
    umx_latency_enable(true);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(7), "four", 4),
                     UMX_OK);
    assert_int_equal(pair_recv(p, p->server, 0, pair_tag(7), data, 4), UMX_OK);
    umx_latency_enable(false);
    umx_latency_each(note, &it);
    assert_int_equal(it.sends, 1);
    assert_int_equal(it.worker, umx_worker_number(p->client_worker));
}

static void
test_counters_are_those_of_the_worker(void **state)
{
    pair              *p = *state;
    char               data[4];
    umx_worker_numbers numbers[2];
    size_t             i;

    pair_open(p);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(7), "four", 4),
                     UMX_OK);
    assert_int_equal(pair_recv(p, p->server, 0, pair_tag(7), data, 4), UMX_OK);
    assert_int_equal(umx_observe_workers(numbers, 2), 2);
    i = numbers[0].number != umx_worker_number(p->client_worker);
    assert_int_equal(numbers[i].number, umx_worker_number(p->client_worker));
    assert_int_equal(numbers[i].stats.sent_bytes, 4);
    assert_int_equal(numbers[!i].stats.received_messages, 1);
    assert_true(numbers[i].drained_ns >= numbers[i].begun_ns);
}

static umx_worker_stats
stats_of(const umx_worker *worker)
{
    umx_worker_stats stats;

    umx_worker_query(worker, &stats);
    return stats;
}

static void
test_operations_that_end_badly_are_counted(void **state)
{
    pair            *p = *state;
    char             data[4];
    op               recv;
    umx_worker_stats stats;

    pair_open(p);
    op_recv(&recv, p->server, 0, pair_tag(7), data, 4);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(7), "four", 4),
                     UMX_OK);
    assert_int_equal(op_wait(p, &recv), UMX_OK);
    stats = stats_of(p->server_worker);
    assert_int_equal(stats.failed_operations, 0);
    assert_int_equal(stats.cancelled_operations, 0);

    op_recv(&recv, p->server, 0, pair_tag(7), data, 4);
    op_cancel(recv.req);
    assert_int_equal(op_wait(p, &recv), UMX_ERR_CANCELED);
    op_recv(&recv, p->server, 0, pair_tag(7), data, 1);
    (void)pair_send(p, p->client, 0, pair_tag(7), "four", 4);
    assert_int_equal(op_wait(p, &recv), UMX_ERR_MESSAGE_TRUNCATED);
    stats = stats_of(p->server_worker);
    assert_int_equal(stats.failed_operations, 1);
    assert_int_equal(stats.cancelled_operations, 1);
    assert_int_equal(stats.timed_out_operations, 0);
}

static void
test_what_a_close_ends_has_not_failed(void **state)
{
    pair            *p = *state;
    char             data[4];
    op               recv, close;
    umx_worker_stats stats;

    pair_open(p);
    op_recv(&recv, p->server, 0, pair_tag(7), data, 4);
    op_close(&close, p->client, SECOND_NS);
    assert_int_equal(op_wait(p, &recv), UMX_ERR_PEER_CLOSED);
    assert_int_equal(op_wait(p, &close), UMX_OK);
    stats = stats_of(p->server_worker);
    assert_int_equal(stats.failed_operations, 0);
    assert_int_equal(stats.failed_connections, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_an_operation_has_a_begin_and_an_end),
        PAIR_TEST_ONCE(test_a_cancelled_operation_ends),
        PAIR_TEST_ONCE(test_what_began_before_a_trace_is_not_in_it),
        PAIR_TEST_ONCE(test_what_ends_after_a_trace_is_harmless),
        PAIR_TEST_ONCE(test_connections_and_wakeups_are_spans),
        PAIR_TEST_ONCE(test_latencies_go_with_their_worker),
        PAIR_TEST_ONCE(test_counters_are_those_of_the_worker),
        PAIR_TEST_ONCE(test_operations_that_end_badly_are_counted),
        PAIR_TEST_ONCE(test_what_a_close_ends_has_not_failed),
    };

    return UNIT_RUN(tests);
}
