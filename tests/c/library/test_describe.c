/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair world port tsan */
/* tests: channel/describe comm/describe endpoint/describe endpoint/log */
/* tests: shuffle/describe */
#include "world.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "util/log.h"
#include "worker/guard.h"

/* The lines of a description, or of the log. */
static char   said[16384];
static size_t said_len;

static void
add_line(const char *line, void *arg)
{
    (void)arg;
    assert_null(strchr(line, '\n'));
    said_len += (size_t)snprintf(said + said_len, sizeof(said) - said_len,
                                 "%s\n", line);
    assert_true(said_len < sizeof(said));
}

static void
add_log_line(int level, const char *text, void *arg)
{
    (void)level;
    add_line(text, arg);
}

static void
forget(void)
{
    said_len = 0;
    said[0]  = '\0';
}

static void
expect_said(const char *text)
{
    if (strstr(said, text) == NULL) {
        fail_msg("there is no '%s' in:\n%s", text, said);
    }
}

static void
expect_not_said(const char *text)
{
    if (strstr(said, text) != NULL) {
        fail_msg("there is '%s' in:\n%s", text, said);
    }
}

static void
describe(const umx_worker *worker)
{
    forget();
    assert_int_equal(umx_worker_describe(worker, add_line, NULL), UMX_OK);
}

/* ---- endpoints -----------------------------------------------------------
 */

static void
test_posted_receives_are_described(void **state)
{
    pair *p = *state;
    char  bytes[16];
    op    tagged, untagged, any;

    pair_open(p);
    describe(p->server_worker);
    expect_said("listener on ");
    expect_said(": open, ");
    expect_said("    ways of messages: ");
    expect_not_said("a receive waits");

    op_recv(&tagged, p->server, 3, pair_tag(77), bytes, sizeof(bytes));
    op_recv(&untagged, p->server, 0, pair_untagged, bytes, sizeof(bytes));
    op_recv(&any, p->server, 4, pair_any, bytes, sizeof(bytes));
    describe(p->server_worker);
    expect_said("channel 3: a receive waits for a message (tag 77, 16 bytes)");
    expect_said("channel 0: a receive waits for a message (no tag, 16 bytes)");
    expect_said("channel 4: a receive waits for a message (any tag, 16 bytes)");
    op_cancel(tagged.req);
    op_cancel(untagged.req);
    op_cancel(any.req);
    PAIR_UNTIL(p, op_is_done(&tagged) && op_is_done(&untagged) &&
                      op_is_done(&any));
}

static void
test_a_description_is_bounded(void **state)
{
    enum {
        COUNT = 9
    };
    pair *p = *state;
    char  bytes[16];
    op    ops[COUNT];

    pair_open(p);
    for (unsigned i = 0; i < COUNT; i++) {
        op_recv(&ops[i], p->server, 3, pair_tag(i), bytes, sizeof(bytes));
    }
    describe(p->server_worker);
    expect_said("(tag 3, 16 bytes)");
    expect_not_said("(tag 4, 16 bytes)");
    expect_said("channel 3: 5 more receives wait");
    for (unsigned i = 0; i < COUNT; i++) {
        op_cancel(ops[i].req);
        PAIR_UNTIL(p, op_is_done(&ops[i]));
    }
}

static void
test_unread_messages_and_sends_without_credit_are_described(void **state)
{
    enum {
        CREDIT = 4,
        COUNT  = 64
    };
    pair *p = *state;
    op    ops[COUNT];
    char  byte = 'x';

    p->config.credit_messages = CREDIT;
    p->config.credit_rndv     = 2;
    pair_open(p);
    for (unsigned i = 0; i < COUNT; i++) {
        op_send(&ops[i], p->client, 5, pair_tag(i + 1), &byte, 1);
    }
    PAIR_UNTIL(p, p->server->stats.received_messages >= CREDIT);
    describe(p->client_worker);
    expect_said("channel 5: ");
    expect_said("wait for credit: the peer has not read what came before");
    describe(p->server_worker);
    expect_said("channel 5: no receive has asked for ");
    expect_said("; tags: 1, 2, 3, 4");
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(pair_recv(p, p->server, 5, pair_tag(i + 1), &byte, 1),
                         UMX_OK);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        PAIR_UNTIL(p, op_is_done(&ops[i]));
    }
    describe(p->client_worker);
    expect_not_said("wait for credit");
}

static void
test_a_close_that_waits_is_described(void **state)
{
    pair *p = *state;
    op    closing;

    pair_open(p);
    op_close(&closing, p->client, SECOND_NS);
    describe(p->client_worker);
    expect_said("closing, waits for");
    expect_said("1 calls of close() wait");
    PAIR_UNTIL(p, op_is_done(&closing));
}

/* ---- threads -------------------------------------------------------------
 */

static void *
describe_elsewhere(void *arg)
{
    describe(arg);
    return NULL;
}

static void
test_another_thread_may_ask_while_the_owner_sleeps(void **state)
{
    pair     *p = *state;
    pthread_t thread;

    pair_open(p);
    assert_int_equal(
        pthread_create(&thread, NULL, describe_elsewhere, p->client_worker), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    expect_said(": open, ");
}

/* The lock of a progress thread is not waited for longer than a while. */
static void
test_a_lock_that_is_held_is_given_up(void **state)
{
    pair      *p = *state;
    umi_guard *guard;

    pair_open(p);
    assert_int_equal(umx_progress_start(p->client_worker), UMX_OK);
    describe(p->client_worker);
    guard = p->client_worker->guard;
    PAIR_UNTIL(p, pthread_mutex_trylock(&guard->lock) == 0);
    assert_int_equal(umx_worker_describe(p->client_worker, add_line, NULL),
                     UMX_ERR_BUSY);
    pthread_mutex_unlock(&guard->lock);
    umx_progress_stop(p->client_worker);
}

/* ---- communicators -------------------------------------------------------
 */

static void
post_barrier(world *w, int rank, job *j)
{
    umx_op_params params = job_params(j);
    umx_request  *req;

    job_posted(j, umx_barrier(w->comms[rank], &params, &req), &req);
}

static void
test_the_ranks_that_are_waited_for_are_named(void **state)
{
    world  *w = *state;
    job     jobs[3], sent;
    receipt r;
    char    byte = 'x';

    world_open(w, 3);
    post_barrier(w, 0, &jobs[0]);
    post_barrier(w, 1, &jobs[1]);
    for (int i = 0; i < 50; i++) {
        world_step(w);
    }
    recv_from(w, 1, 2, 5, UINT64_MAX, &byte, 1, &r);
    describe(w->workers[1]);
    expect_said("communicator '");
    expect_said("': rank 1 of 3");
    expect_said("barrier #1 waits for ranks ");
    expect_said("a receive waits for a message of rank 2 with tag 5");

    post_barrier(w, 2, &jobs[2]);
    send_to(w, 2, 1, 5, &byte, 1, &sent);
    world_wait(w, jobs, 3, UMX_OK);
    assert_int_equal(world_wait_one(w, &sent), UMX_OK);
    assert_int_equal(world_wait_one(w, &r.j), UMX_OK);
    describe(w->workers[1]);
    expect_not_said("waits for");
    expect_said("1 collective operations so far");
}

static void
test_a_late_rank_is_logged(void **state)
{
    world *w = *state;
    job    jobs[2];

    world_open(w, 2);
    forget();
    umx_log_set(add_log_line, NULL);
    umx_log_set_level(UMI_LOG_INFO);
    post_barrier(w, 0, &jobs[0]);
    while (strstr(said, "has waited for") == NULL) {
        world_step(w);
    }
    expect_said("rank 0 of 2: barrier #1 has waited for 1.5 s for ranks 1");
    post_barrier(w, 1, &jobs[1]);
    world_wait(w, jobs, 2, UMX_OK);
    umx_log_set(NULL, NULL);
    umx_log_set_level(-1);
}

static void
test_a_communicator_that_is_being_made_names_who_is_missing(void **state)
{
    world          *w = *state;
    umx_comm_params params;
    umx_op_params   on_end;
    job             j;
    umx_request    *req;

    world_workers(w, 2);
    params = world_params(w, 0);
    on_end = job_params(&j);
    job_posted(
        &j,
        umx_comm_create(w->workers[0], &params, &on_end, &w->comms[0], &req),
        &req);
    world_step(w);
    describe(w->workers[0]);
    expect_said("is being made: 1 of 2 ranks have come; it waits for ranks 1");
    umx_comm_abort(w->comms[0], NULL);
    while (j.req != NULL) {
        world_step(w);
    }
}

static void
test_a_shuffle_is_described(void **state)
{
    world              *w      = *state;
    umx_shuffler_params params = {
        .field_mask = 0, .op_id = 9, .num_partitions = 4};
    umx_shuffler *ranks[2];

    world_open(w, 2);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(umx_shuffler_create(w->comms[r], &params, &ranks[r]),
                         UMX_OK);
    }
    describe(w->workers[0]);
    expect_said("shuffle, rank 0 of 2: 0 of 2 partitions of this rank are "
                "complete");
    expect_said("not finished by ranks 1");
    expect_said("4 partitions are not finished by this rank itself");
    for (int r = 0; r < 2; r++) {
        umx_shuffler_destroy(ranks[r]);
    }
}

/* ---- the log -------------------------------------------------------------
 */

static void
test_the_life_of_a_connection_is_logged(void **state)
{
    pair  *p = *state;
    char  *bytes;
    op     sent, closing;
    size_t len = 4 << 20;

    forget();
    umx_log_set(add_log_line, NULL);
    pair_open(p);
    expect_said("listener on ");
    expect_said(": connecting");
    expect_said(": connected after ");
    expect_said(": accepted after ");
    expect_said(" ms, by ");
    expect_said(": ways of messages: ");

    bytes = calloc(1, len);
    assert_non_null(bytes);
    op_send(&sent, p->client, 0, pair_tag(1), bytes, len);
    assert_int_equal(pair_recv(p, p->server, 0, pair_tag(1), bytes, len),
                     UMX_OK);
    PAIR_UNTIL(p, op_is_done(&sent));
    free(bytes);
    expect_said("messages such as one of 4194304 bytes are ");

    op_close(&closing, p->client, SECOND_NS);
    PAIR_UNTIL(p, op_is_done(&closing) &&
                      umx_ep_get_state(p->server) == UMX_EP_CLOSED);
    expect_said(": closed by this side");
    expect_said(": closed by the peer");
    umx_log_set(NULL, NULL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST_ONCE(test_posted_receives_are_described),
        PAIR_TEST_ONCE(test_a_description_is_bounded),
        PAIR_TEST_ONCE(
            test_unread_messages_and_sends_without_credit_are_described),
        PAIR_TEST_ONCE(test_a_close_that_waits_is_described),
        PAIR_TEST_ONCE(test_another_thread_may_ask_while_the_owner_sleeps),
        PAIR_TEST_ONCE(test_a_lock_that_is_held_is_given_up),
        PAIR_TEST(test_the_life_of_a_connection_is_logged),
        cmocka_unit_test_setup_teardown(
            test_the_ranks_that_are_waited_for_are_named, world_setup,
            world_teardown),
        cmocka_unit_test_setup_teardown(test_a_late_rank_is_logged, world_setup,
                                        world_teardown),
        cmocka_unit_test_setup_teardown(
            test_a_communicator_that_is_being_made_names_who_is_missing,
            world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(test_a_shuffle_is_described,
                                        world_setup, world_teardown),
    };

    return UNIT_RUN(tests);
}
