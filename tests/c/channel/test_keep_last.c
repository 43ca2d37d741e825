/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

#include <umx/frames.h>

enum {
    COUNT = 20,
    LAST  = 3,
    LONG  = 1 << 20
};

static umx_ep_stats
stats_of(const umx_ep *ep)
{
    umx_ep_stats stats;

    umx_ep_query(ep, &stats);
    return stats;
}

static void
keep_last(umx_ep *ep, uint16_t number, uint32_t count)
{
    assert_int_equal(umx_channel_keep_last(ep, number, count), UMX_OK);
}

/* Send COUNT messages, whose tags are their numbers. */
static void
send_all(pair *p, op *sends, const char *data, size_t len, uint16_t number)
{
    for (unsigned i = 0; i < COUNT; i++) {
        op_send(&sends[i], p->client, number, pair_tag(i), data, len);
        assert_true(sends[i].status >= 0);
    }
}

static void
receive(pair *p, uint16_t number, char *in, size_t len, unsigned tag)
{
    op o;

    op_recv(&o, p->server, number, pair_any, in, len);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    assert_int_equal(o.info.tag, tag);
    assert_int_equal(o.info.length, len);
}

static void
test_earlier_messages_are_dropped_as_newer_ones_come(void **state)
{
    static const size_t lens[] = {0, 1, 5000, 60000, LONG};
    pair               *p      = *state;
    char               *data = calloc(1, LONG), *in = calloc(1, LONG);

    assert_non_null(data);
    assert_non_null(in);
    pair_open(p);
    for (size_t k = 0; k < sizeof(lens) / sizeof(lens[0]); k++) {
        uint16_t number  = (uint16_t)k; /* channel 0, too */
        uint64_t dropped = stats_of(p->server).dropped_messages;
        op       sends[COUNT];

        keep_last(p->server, number, LAST);
        send_all(p, sends, data, lens[k], number);
        PAIR_UNTIL(p, stats_of(p->server).dropped_messages ==
                          dropped + COUNT - LAST);
        for (unsigned i = 0; i < COUNT - LAST; i++) {
            assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
        }
        for (unsigned i = COUNT - LAST; i < COUNT; i++) {
            receive(p, number, in, lens[k], i);
            assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
        }
        assert_int_equal(stats_of(p->server).unexpected_messages, 0);
    }
    free(in);
    free(data);
}

static void
test_what_is_there_is_dropped_at_once(void **state)
{
    pair *p       = *state;
    char  data[8] = "", in[8];
    op    sends[COUNT];

    pair_open(p);
    send_all(p, sends, data, 8, 0);
    PAIR_UNTIL(p, stats_of(p->server).unexpected_messages == COUNT);
    keep_last(p->server, 0, 1);
    assert_int_equal(stats_of(p->server).unexpected_messages, 1);
    receive(p, 0, in, 8, COUNT - 1);
    keep_last(p->server, 0, 0);
    send_all(p, sends, data, 8, 0);
    for (unsigned i = 0; i < COUNT; i++) {
        receive(p, 0, in, 8, i);
    }
}

/* A receive that is cancelled gives its message back, which is too old. */
static void
test_what_is_given_back_is_dropped(void **state)
{
    pair *p    = *state;
    char *data = calloc(1, LONG), *in = calloc(1, LONG);
    op    sends[COUNT], o;

    assert_non_null(data);
    assert_non_null(in);
    pair_open(p);
    keep_last(p->server, 0, 1);
    op_recv(&o, p->server, 0, pair_any, in, LONG);
    send_all(p, sends, data, LONG, 0);
    PAIR_UNTIL(p, stats_of(p->server).dropped_messages != 0);
    (void)!umx_request_cancel(o.req);
    (void)op_wait(p, &o);
    PAIR_UNTIL(p, stats_of(p->server).unexpected_messages == 1);
    receive(p, 0, in, LONG, COUNT - 1);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
    free(in);
    free(data);
}

/* Three frames: in the head, or as parts. */
static void
check_frames(pair *p, const char *data, size_t len, uint16_t number)
{
    uint64_t   before = stats_of(p->server).dropped_messages;
    umx_buffer buffers[3];
    op         sends[COUNT];

    for (size_t i = 0; i < 3; i++) {
        buffers[i] = umx_host_buffer(data, len);
    }
    keep_last(p->server, number, LAST);
    for (unsigned i = 0; i < COUNT; i++) {
        umx_op_params params = op_params(&sends[i]);

        sends[i].status = umx_frames_send(p->client, number, &i, sizeof(i),
                                          buffers, 3, &params, &sends[i].req);
        assert_true(sends[i].status >= 0);
        if (sends[i].status != UMX_INPROGRESS) {
            sends[i].req = NULL;
        }
    }
    PAIR_UNTIL(p,
               stats_of(p->server).dropped_messages == before + COUNT - LAST);
    pair_settle(p);
    for (unsigned i = 0; i < COUNT - LAST; i++) {
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
    keep_last(p->server, number, 1);
    assert_int_equal(stats_of(p->server).dropped_messages, before + COUNT - 1);
    for (unsigned i = COUNT - LAST; i < COUNT - 1; i++) {
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
    if (sends[COUNT - 1].req != NULL) { /* nobody receives it */
        (void)!umx_request_cancel(sends[COUNT - 1].req);
        (void)op_wait(p, &sends[COUNT - 1]);
    }
}

static void
test_messages_of_frames_are_dropped_whole(void **state)
{
    pair *p    = *state;
    char *data = calloc(1, LONG);

    assert_non_null(data);
    pair_open(p);
    check_frames(p, data, 10, 0);
    check_frames(p, data, LONG, 5);
    free(data);
}

/* The peer may have fewer messages unread than are kept, and than one of them
 * has parts. */
static void
test_a_narrow_window_does_not_hold_the_sender_up(void **state)
{
    pair *p    = *state;
    char *data = calloc(1, LONG), in[8];
    op    sends[COUNT];

    assert_non_null(data);
    p->window = (umx_window){.messages = 1};
    pair_open(p);
    check_frames(p, data, 10, 0);
    check_frames(p, data, LONG, 5);
    keep_last(p->server, 1, LAST);
    send_all(p, sends, data, 8, 1);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
    for (unsigned i = COUNT - LAST; i < COUNT; i++) {
        receive(p, 1, in, 8, i);
    }
    free(data);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_earlier_messages_are_dropped_as_newer_ones_come),
        PAIR_TEST(test_what_is_there_is_dropped_at_once),
        PAIR_TEST(test_what_is_given_back_is_dropped),
        PAIR_TEST(test_messages_of_frames_are_dropped_whole),
        PAIR_TEST(test_a_narrow_window_does_not_hold_the_sender_up),
    };

    return UNIT_RUN(tests);
}
