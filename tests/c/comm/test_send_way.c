/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port */
/* Which messages between ranks are to be lent. send.c is part of this file,
 * which looks at what it asks of the channel. */
#define _GNU_SOURCE /* sched_setaffinity() */
#include <umx/am.h>
#include <umx/layer.h>

static umx_status spy_am_send(umx_ep *ep, uint16_t id, const void *header,
                              size_t header_len, const umx_buffer *buf,
                              const umx_op_params *params, umx_request **req_p);

#define umx_layer_am_send spy_am_send
#include "comm/send.c"
#undef umx_layer_am_send

#include "world.h"

#include <sched.h>

#include "util/cpu.h"

enum {
    SMALL = UMI_COMM_LEND_MIN - 1,
    LARGE = UMI_COMM_LEND_MIN,
    HUGE  = LEND_UNWAITED
};

/* Was the last message to be lent? */
static bool is_lent;

static umx_status
spy_am_send(umx_ep *ep, uint16_t id, const void *header, size_t header_len,
            const umx_buffer *buf, const umx_op_params *params,
            umx_request **req_p)
{
    is_lent = (params->flags & UMX_OP_FLAG_LEND) != 0;
    return umx_layer_am_send(ep, id, header, header_len, buf, params, req_p);
}

/* Ranks that have, or do not have, a processor each. */
static void
open_with(world *w, int size, bool is_crowded)
{
    world_open(w, size);
    for (int i = 0; i < size; i++) {
        umi_comm_group *group = w->comms[i]->group;

        if (group->is_crowded != is_crowded) {
            umx_worker_crowd(w->workers[i], is_crowded);
            group->is_crowded = is_crowded;
        }
    }
}

/* Memory of both sides. */
static char bytes[2][HUGE];
static char got[2][HUGE];

static bool
post(world *w, int from, size_t len, job *j)
{
    is_lent = false;
    send_to(w, from, 1 - from, 0, bytes[from], len, j);
    return is_lent;
}

/* Send a message that nothing crosses. True: it was to be lent. */
static bool
send_alone(world *w, int from, size_t len)
{
    bool    is_to_be_lent;
    receipt r;
    job     j;

    recv_from(w, 1 - from, from, 0, 0, got[1 - from], len, &r);
    is_to_be_lent = post(w, from, len, &j);
    assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
    assert_int_equal(world_wait_one(w, &j), UMX_OK);
    assert_int_equal(w->comms[from]->num_large, 0);
    return is_to_be_lent;
}

/* Each rank sends one. True: both were to be lent. */
static bool
exchange(world *w, size_t len)
{
    bool    is_to_be_lent = true;
    receipt r[2];
    job     j[2];

    for (int i = 0; i < 2; i++) {
        recv_from(w, i, 1 - i, 0, 0, got[i], len, &r[i]);
        is_to_be_lent &= post(w, i, len, &j[i]);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(world_wait_one(w, &r[i].j), UMX_OK);
        assert_int_equal(world_wait_one(w, &j[i]), UMX_OK);
        assert_int_equal(w->comms[i]->num_large, 0);
    }
    return is_to_be_lent;
}

static void
test_a_message_that_is_alone_is_sent_unless_it_is_huge(void **state)
{
    world *w = *state;

    open_with(w, 2, false);
    for (int round = 0; round < 3; round++) {
        for (int from = 0; from < 2; from++) {
            assert_false(send_alone(w, from, 0));
            assert_false(send_alone(w, from, LARGE));
            assert_false(send_alone(w, from, HUGE - 1));
            assert_true(send_alone(w, from, HUGE));
        }
    }
}

/* The sender has nothing else to do with its processor. */
static void
test_a_huge_message_that_is_waited_for_is_sent(void **state)
{
    world        *w   = *state;
    umx_buffer    buf = umx_host_buffer(bytes[0], HUGE);
    umx_request  *req = NULL;
    umx_op_params params;
    receipt       r;
    job           j;

    open_with(w, 2, false);
    recv_from(w, 1, 0, 0, 0, got[1], HUGE, &r);
    params = job_params(&j);
    params.field_mask |= UMX_OP_FIELD_FLAGS;
    params.flags |= UMX_OP_FLAG_WAITED;
    is_lent = false;
    job_posted(&j, umx_comm_isend(w->comms[0], 1, 0, &buf, &params, &req),
               &req);
    assert_false(is_lent);
    assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
    assert_int_equal(world_wait_one(w, &j), UMX_OK);
    assert_int_equal(w->comms[0]->num_large, 0);
}

static void
test_many_messages_one_way_are_sent(void **state)
{
    world  *w = *state;
    receipt r[8];
    job     j[8];

    open_with(w, 2, false);
    for (int i = 0; i < 8; i++) {
        assert_false(post(w, 0, LARGE, &j[i]));
    }
    for (int i = 0; i < 8; i++) {
        recv_from(w, 1, 0, 0, 0, got[1], LARGE, &r[i]);
    }
    for (int i = 0; i < 8; i++) {
        assert_int_equal(world_wait_one(w, &r[i].j), UMX_OK);
        assert_int_equal(world_wait_one(w, &j[i]), UMX_OK);
    }
    assert_false(send_alone(w, 1, SMALL));
    assert_false(send_alone(w, 0, LARGE));
}

static void
test_messages_that_cross_are_lent_until_no_more_do(void **state)
{
    world *w = *state;

    open_with(w, 2, false);
    assert_false(exchange(w, SMALL)); /* UCX connects: the next ones cross */
    assert_false(exchange(w, LARGE)); /* nobody could know */
    for (int i = 0; i < 3; i++) {
        assert_true(exchange(w, LARGE));
        assert_false(exchange(w, SMALL));
    }
    for (int i = 0; i < MAX_CROSSINGS; i++) {
        assert_true(send_alone(w, 0, LARGE)); /* 1 gets it */
    }
    assert_false(send_alone(w, 0, LARGE)); /* though nothing comes */
    assert_false(send_alone(w, 1, LARGE)); /* and does not lend any more, */
    for (int i = 1; i < MAX_CROSSINGS; i++) {
        (void)send_alone(w, 1, LARGE);
    }
    assert_false(send_alone(w, 0, LARGE)); /* nor does 0 */
}

static void
test_what_answers_a_message_does_not_cross_it(void **state)
{
    world *w = *state;
    job    j;

    open_with(w, 2, false);
    assert_false(send_alone(w, 0, LARGE));
    assert_false(post(w, 0, HUGE - 1, &j));
    umi_comm_send_note_crossing(w->comms[0]);
    assert_int_equal(w->comms[0]->crossings, MAX_CROSSINGS);
    w->comms[0]->crossings = 0;
    /* The send has ended, which the communicator hears of in the next call. */
    assert_int_equal(umx_request_cancel(j.req), UMX_OK);
    assert_int_equal(w->comms[0]->num_large, 1);
    umi_comm_send_note_crossing(w->comms[0]);
    assert_int_equal(w->comms[0]->crossings, 0);
    assert_int_equal(world_wait_one(w, &j), UMX_ERR_CANCELED);
}

static void
test_ranks_without_a_processor_each_lend(void **state)
{
    world *w = *state;

    open_with(w, 2, true);
    assert_false(send_alone(w, 0, SMALL));
    assert_true(send_alone(w, 0, LARGE));
    assert_true(send_alone(w, 1, LARGE));
}

static void
test_a_large_message_that_is_lost_or_cancelled_is_not_under_way(void **state)
{
    world *w = *state;
    job    j;

    open_with(w, 2, false);
    assert_false(send_alone(w, 0, LARGE));
    assert_false(post(w, 0, HUGE - 1, &j));
    assert_int_equal(w->comms[0]->num_large, 1);
    assert_int_equal(umx_request_cancel(j.req), UMX_OK);
    assert_int_equal(world_wait_one(w, &j), UMX_ERR_CANCELED);
    for (int i = 0; i < 30000 && w->comms[0]->num_large != 0; i++) {
        world_step(w);
    }
    assert_int_equal(w->comms[0]->num_large, 0);
}

/* The worker knows it, once for each group. */
static void
check_crowds(const world *w, int rank)
{
    assert_int_equal(w->workers[rank]->yields.num_crowds,
                     w->comms[rank]->group->is_crowded ? 1 : 0);
}

static void
test_ranks_are_crowded_if_they_outnumber_the_processors(void **state)
{
    world    *w = *state;
    cpu_set_t before, set;
    unsigned  added = 0;

    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    CPU_ZERO(&set);
    for (int i = 0; i < CPU_SETSIZE && added < 2; i++) {
        if (CPU_ISSET(i, &before)) {
            CPU_SET(i, &set);
            added++;
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof(set), &set), 0);
    world_open(w, 3);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    for (int i = 0; i < 3; i++) {
        /* Where there is but one processor, its mask does not count. */
        assert_int_equal(w->comms[i]->group->is_crowded,
                         added == 2 || umi_cpu_count() < 3);
        check_crowds(w, i);
    }
    for (int i = 0; i < 3; i++) {
        umx_comm_close(w->comms[i]);
    }
    for (int i = 0; i < 3; i++) {
        umx_comm_destroy(w->comms[i]);
        w->comms[i] = NULL;
    }
    for (int i = 0; i < 3; i++) {
        for (int n = 0; n < 30000 && w->workers[i]->yields.num_crowds != 0;
             n++) {
            world_step(w);
        }
        assert_int_equal(w->workers[i]->yields.num_crowds, 0);
    }
}

static void
test_ranks_that_have_a_processor_each_are_not_crowded(void **state)
{
    world *w = *state;

    world_open(w, 2);
    assert_int_equal(w->comms[0]->group->is_crowded, umi_cpu_count() < 2);
    assert_int_equal(w->comms[1]->group->is_crowded, umi_cpu_count() < 2);
    check_crowds(w, 0);
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        WORLD_TEST(test_a_message_that_is_alone_is_sent_unless_it_is_huge),
        WORLD_TEST(test_a_huge_message_that_is_waited_for_is_sent),
        WORLD_TEST(test_many_messages_one_way_are_sent),
        /* Over tcp what is sent is in the kernel at once, and does not cross.
         */
        {"test_messages_that_cross_are_lent_until_no_more_do",
         test_messages_that_cross_are_lent_until_no_more_do, world_setup,
         world_teardown, NULL},
        WORLD_TEST(test_what_answers_a_message_does_not_cross_it),
        WORLD_TEST(test_ranks_without_a_processor_each_lend),
        WORLD_TEST(
            test_a_large_message_that_is_lost_or_cancelled_is_not_under_way),
        WORLD_TEST(test_ranks_are_crowded_if_they_outnumber_the_processors),
        WORLD_TEST(test_ranks_that_have_a_processor_each_are_not_crowded),
    };

    return UNIT_RUN_ONCE(tests, NULL, NULL);
}
