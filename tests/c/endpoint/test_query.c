/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair wrap=strndup */
/* tests: endpoint/info util/process */
#include "pair.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/process.h"

typedef umx_status (*ask_fn)(umx_ep *ep, const umx_op_params *params,
                             umx_request **req_p);

static const ask_fn asks[] = {umx_ep_ping, umx_ep_peer_info,
                              umx_ep_close_listener};
enum {
    NUM_ASKS = sizeof(asks) / sizeof(*asks),
    MANY     = 100 /* more than are asked at a time */
};

char *__real_strndup(const char *text, size_t len);
char *__wrap_strndup(const char *text, size_t len);

static bool is_starved;

char *
__wrap_strndup(const char *text, size_t len)
{
    return is_starved ? NULL : __real_strndup(text, len);
}

static void
op_ask(op *o, umx_ep *ep, ask_fn ask)
{
    umx_op_params params = op_params(o);

    o->status = ask(ep, &params, &o->req);
}

static umx_status
pair_ask(pair *p, umx_ep *ep, ask_fn ask)
{
    op o;

    op_ask(&o, ep, ask);
    return op_wait(p, &o);
}

/* ---- answers -------------------------------------------------------------
 */

static void
test_a_ping_takes_time(void **state)
{
    pair        *p = *state;
    umx_request *req;

    pair_open(p);
    assert_int_equal(umx_ep_ping(p->client, NULL, &req), UMX_INPROGRESS);
    PAIR_UNTIL(p, umx_request_status(req) != UMX_INPROGRESS);
    assert_int_equal(umx_request_status(req), UMX_OK);
    assert_in_range(umx_request_time_ns(req), 1, 60 * SECOND_NS);
    umx_request_release(req);
    assert_int_equal(pair_ask(p, p->server, umx_ep_ping), UMX_OK);
}

static void
test_the_peer_says_what_it_is(void **state)
{
    pair       *p = *state;
    char        pid[32], *text;
    const char *keys[] = {"\"umx\"",       "\"ucx\"",    "\"host\"",
                          "\"rss\"",       "\"peak\"",   "\"total\"",
                          "\"available\"", "\"worker\"", "\"transports\""};

    pair_open(p);
    assert_null(umx_ep_peer_info_text(p->client));
    assert_int_equal(pair_ask(p, p->client, umx_ep_peer_info), UMX_OK);
    assert_non_null(umx_ep_peer_info_text(p->client));
    text = strdup(umx_ep_peer_info_text(p->client));
    assert_non_null(text);
    snprintf(pid, sizeof(pid), "\"pid\": %ld,", (long)getpid());
    assert_non_null(strstr(text, pid));
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
        assert_non_null(strstr(text, keys[i]));
    }
    assert_int_equal(text[strlen(text) - 2], ']');
    assert_int_equal(text[strlen(text) - 1], '}');
    free(text);
    assert_int_equal(pair_ask(p, p->client, umx_ep_peer_info), UMX_OK);
}

static void
test_an_answer_that_cannot_be_kept_is_an_error(void **state)
{
    pair       *p = *state;
    const char *text;

    pair_open(p);
    is_starved = true;
    assert_int_equal(pair_ask(p, p->client, umx_ep_peer_info),
                     UMX_ERR_NO_MEMORY);
    is_starved = false;
    assert_null(umx_ep_peer_info_text(p->client));
    assert_int_equal(pair_ask(p, p->client, umx_ep_peer_info), UMX_OK);
    text = umx_ep_peer_info_text(p->client);
    assert_non_null(text);
    is_starved = true;
    assert_int_equal(pair_ask(p, p->client, umx_ep_peer_info),
                     UMX_ERR_NO_MEMORY);
    is_starved = false;
    assert_ptr_equal(umx_ep_peer_info_text(p->client), text);
}

static void
test_info_is_cut_to_its_limit_and_stays_whole(void **state)
{
    pair  *p = *state;
    char   text[UMI_TEXT_MAX], cut[UMI_TEXT_MAX];
    size_t whole, len, no_transports;

    pair_open(p);
    whole = umi_info_write(p->server, text, sizeof(text));
    assert_int_equal(strlen(text), whole);
    no_transports = (size_t)(strstr(text, "[[") - text) + 1;
    for (size_t size = whole + 1; size > no_transports + 3; size--) {
        len = umi_info_write(p->server, cut, size);
        assert_true(len < size);
        assert_string_equal(cut + len - 2, "]}");
    }
    assert_int_equal(len, no_transports + 2);
}

static void
test_memory_is_known(void **state)
{
    umi_memory memory;

    (void)state;
    umi_process_memory(&memory);
    assert_in_range(memory.rss, 1, memory.peak + (UINT64_C(1) << 24));
    assert_in_range(memory.available, 1, memory.total);
}

static void
test_both_know_who_the_other_is(void **state)
{
    pair       *p = *state;
    umx_peer_id peer;

    pair_listen(p);
    pair_connect(p, 0);
    assert_int_equal(umx_ep_peer_id(p->client, &peer), UMX_ERR_NOT_CONNECTED);
    PAIR_UNTIL(p,
               p->server != NULL && umx_ep_get_state(p->client) == UMX_EP_OPEN);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(umx_ep_peer_id(i ? p->server : p->client, &peer),
                         UMX_OK);
        assert_int_equal(peer.pid, getpid());
        assert_int_equal(peer.version[0], UMX_VERSION_MAJOR);
        assert_int_equal(peer.version[1], UMX_VERSION_MINOR);
        assert_int_equal(peer.version[2], UMX_VERSION_PATCH);
    }
}

static void
test_questions_of_a_connecting_endpoint_wait(void **state)
{
    pair *p = *state;
    op    o[NUM_ASKS];

    pair_listen(p);
    pair_connect(p, 0);
    for (int i = 0; i < 2; i++) {
        op_ask(&o[i], p->client, asks[i]);
        assert_int_equal(o[i].status, UMX_INPROGRESS);
    }
    assert_int_equal(op_wait(p, &o[0]), UMX_OK);
    assert_int_equal(op_wait(p, &o[1]), UMX_OK);
}

/* ---- many ----------------------------------------------------------------
 */

static void
test_more_questions_than_a_peer_takes_at_a_time(void **state)
{
    pair *p = *state;
    op    o[MANY];

    pair_open(p);
    for (int i = 0; i < MANY; i++) {
        op_ask(&o[i], p->client, asks[i % 2]);
        assert_int_equal(o[i].status, UMX_INPROGRESS);
    }
    assert_in_range(p->client->num_asked, 1, 32);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(op_wait(p, &o[i]), UMX_OK);
    }
    assert_int_equal(p->client->num_asked, 0);
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_OPEN);
}

/* Questions given up and asked again must not add up at a peer that does not
 * answer. */
static void
test_questions_given_up_count_until_they_are_answered(void **state)
{
    pair *p = *state;
    op    o;

    pair_open(p);
    for (int i = 0; i < MANY; i++) {
        op_ask(&o, p->client, umx_ep_ping);
        op_cancel(o.req);
        while (!op_is_done(&o)) { /* the server makes no progress */
            (void)umx_worker_poll(p->client_worker);
        }
        assert_int_equal(o.status, UMX_ERR_CANCELED);
    }
    assert_in_range(p->client->num_asked, 1, 32);
    assert_int_equal(pair_ask(p, p->client, umx_ep_ping), UMX_OK);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_OPEN);
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_OPEN);
}

/* ---- listeners -----------------------------------------------------------
 */

static void
on_accept(umx_listener *listener, umx_ep *ep, void *arg)
{
    pair *p = arg;

    (void)listener;
    p->server = ep;
}

static unsigned num_closed;

static void
on_remote_close(umx_listener *listener, void *arg)
{
    struct sockaddr_storage addr;
    size_t                  len = sizeof(addr);

    assert_non_null(arg);
    assert_int_equal(
        umx_listener_address(listener, (struct sockaddr *)&addr, &len),
        UMX_ERR_CLOSED);
    num_closed++;
}

static void
listen_closable(pair *p)
{
    struct sockaddr_in  addr   = {.sin_family = AF_INET};
    umx_listener_params params = {
        .field_mask      = UMX_LISTENER_FIELD_ON_REMOTE_CLOSE,
        .addr            = (struct sockaddr *)&addr,
        .addr_len        = sizeof(addr),
        .on_accept       = on_accept,
        .on_remote_close = on_remote_close,
        .arg             = p,
    };

    num_closed           = 0;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    pair_workers(p);
    assert_int_equal(
        umx_listener_create(p->server_worker, &params, &p->listener), UMX_OK);
}

static void
open_closable(pair *p)
{
    listen_closable(p);
    pair_connect(p, 0);
    PAIR_UNTIL(p,
               p->server != NULL && umx_ep_get_state(p->client) == UMX_EP_OPEN);
}

static void
test_a_listener_that_allows_it_is_closed(void **state)
{
    pair *p = *state;

    open_closable(p);
    assert_int_equal(pair_ask(p, p->client, umx_ep_close_listener), UMX_OK);
    assert_int_equal(num_closed, 1);
    assert_true(p->listener->is_destroyed);
    assert_int_equal(pair_ask(p, p->client, umx_ep_close_listener), UMX_OK);
    assert_int_equal(num_closed, 1);
    pair_settle(p); /* open endpoints live on */
}

static void
test_a_listener_that_does_not_allow_it_stays(void **state)
{
    pair *p = *state;

    pair_open(p);
    assert_int_equal(pair_ask(p, p->client, umx_ep_close_listener),
                     UMX_ERR_REJECTED);
    assert_false(p->listener->is_destroyed);
}

static void
test_the_connecting_side_has_no_listener_to_close(void **state)
{
    pair *p = *state;

    pair_open(p);
    assert_int_equal(pair_ask(p, p->server, umx_ep_close_listener),
                     UMX_ERR_INVALID_PARAM);
}

static void
test_a_listener_whose_owner_has_let_go_is_not_told(void **state)
{
    pair *p = *state;

    open_closable(p);
    umx_listener_set_on_accept(p->listener, NULL, NULL);
    assert_int_equal(pair_ask(p, p->client, umx_ep_close_listener),
                     UMX_ERR_REJECTED);
    assert_int_equal(num_closed, 0);
}

/* ---- the end -------------------------------------------------------------
 */

static void
test_pending_questions_end_with_a_close(void **state)
{
    pair *p = *state;
    op    mine[NUM_ASKS], theirs[NUM_ASKS], o;

    pair_open(p);
    for (int i = 0; i < NUM_ASKS; i++) {
        op_ask(&mine[i], p->client, asks[i]);
        op_ask(&theirs[i], p->server, asks[i]);
    }
    op_close(&o, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    for (int i = 0; i < NUM_ASKS; i++) {
        assert_int_equal(op_wait(p, &mine[i]), UMX_ERR_PEER_CLOSED);
        assert_true(op_wait(p, &theirs[i]) <= 0);
    }
    op_ask(&o, p->client, umx_ep_ping);
    assert_int_equal(o.status, UMX_ERR_CLOSED);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_CLOSED);
    op_ask(&o, p->server, umx_ep_ping);
    assert_int_equal(o.status, UMX_ERR_PEER_CLOSED);
}

static void
test_pending_questions_end_with_an_abort(void **state)
{
    pair *p = *state;
    op    o;

    pair_open(p);
    op_ask(&o, p->client, umx_ep_ping);
    umx_ep_abort(p->client);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    op_ask(&o, p->server, umx_ep_ping);
    assert_int_equal(o.status, UMX_ERR_CONNECTION_RESET);
}

/* ---- peers that lie ------------------------------------------------------
 */

static void
check_dropped(pair *p, const char *why)
{
    PAIR_UNTIL(p, umx_ep_get_state(p->client) == UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(p->client), UMX_ERR_PROTOCOL);
    assert_string_equal(umx_ep_reason(p->client), why);
}

static void
test_an_answer_to_nothing_is_refused(void **state)
{
    pair       *p      = *state;
    umi_control answer = {.kind = UMI_PONG, .u.ask.token = 1};

    pair_open(p);
    pair_feed_control(p->client, &answer);
    check_dropped(p, "an answer to nothing");
}

static void
test_an_answer_to_what_was_never_asked_is_refused(void **state)
{
    pair       *p      = *state;
    umi_control answer = {.kind = UMI_PONG, .u.ask.token = 2};
    op          o;

    pair_open(p);
    op_ask(&o, p->client, umx_ep_ping);
    pair_feed_control(p->client, &answer);
    check_dropped(p, "an answer to nothing");
    assert_int_equal(op_wait(p, &o), UMX_ERR_PROTOCOL);
}

static void
test_an_answer_of_another_kind_is_refused(void **state)
{
    pair       *p      = *state;
    umi_control answer = {.kind = UMI_INFO, .u.info.token = 1};
    op          o;

    answer.u.info.text = "{}";
    pair_open(p);
    op_ask(&o, p->client, umx_ep_ping);
    pair_feed_control(p->client, &answer);
    check_dropped(p, "an answer to another question");
    assert_int_equal(op_wait(p, &o), UMX_ERR_PROTOCOL);
    assert_null(umx_ep_peer_info_text(p->client));
}

/* A peer asks and never takes the answers. Over tcp both sides then end with
 * full sockets. */
static void
test_a_peer_that_takes_no_answers_is_dropped(void **state)
{
    pair       *p   = *state;
    umi_control ask = {.kind = UMI_INFO_REQUEST, .u.ask.token = 1};

    pair_open(p);
    pair_settle(p);
    for (int i = 0; umx_ep_get_state(p->server) == UMX_EP_OPEN; i++) {
        assert_true(i < 100000);
        (void)pair_feed_control(p->server, &ask);
        assert_true(umx_worker_drain(p->server_worker) >= UMX_OK);
    }
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_PROTOCOL);
    assert_string_equal(umx_ep_reason(p->server),
                        "questions whose answers are not taken");
}

/* ---- what is unread ------------------------------------------------------
 */

static void
check_unread(pair *p, umx_unread_kind kind, uint16_t number)
{
    umx_unread unread;

    PAIR_UNTIL(p, umx_ep_unread(p->server, &unread));
    assert_int_equal(unread.kind, kind);
    assert_int_equal(unread.number, number);
}

static void
test_a_message_that_no_receive_has_asked_for_is_told(void **state)
{
    pair      *p    = *state;
    char       in[] = "....";
    umx_unread unread;
    op         send_op, recv_op;

    pair_open(p);
    assert_false(umx_ep_unread(p->server, &unread));
    op_send(&send_op, p->client, 7, pair_tag(3), "text", 4);
    check_unread(p, UMX_UNREAD_MESSAGE, 7);
    assert_true(umx_ep_unread(p->server, &unread));
    assert_int_equal(unread.tag, 3);
    assert_false(unread.is_untagged);
    op_recv(&recv_op, p->server, 7, pair_any, in, 4);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_false(umx_ep_unread(p->server, &unread));
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
}

static void
test_frames_that_are_unread_are_told(void **state)
{
    pair         *p    = *state;
    umx_buffer    data = umx_host_buffer("text", 4);
    op            send_op;
    umx_op_params params = op_params(&send_op);
    umx_unread    unread;

    pair_open(p);
    send_op.status = umx_frames_send(p->client, 2, NULL, 0, &data, 1, &params,
                                     &send_op.req);
    check_unread(p, UMX_UNREAD_FRAMES, 2);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_true(umx_ep_unread(p->server, &unread));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_a_ping_takes_time),
        PAIR_TEST(test_the_peer_says_what_it_is),
        PAIR_TEST_ONCE(test_an_answer_that_cannot_be_kept_is_an_error),
        PAIR_TEST(test_info_is_cut_to_its_limit_and_stays_whole),
        cmocka_unit_test(test_memory_is_known),
        PAIR_TEST(test_both_know_who_the_other_is),
        PAIR_TEST(test_questions_of_a_connecting_endpoint_wait),
        PAIR_TEST(test_more_questions_than_a_peer_takes_at_a_time),
        PAIR_TEST(test_questions_given_up_count_until_they_are_answered),
        PAIR_TEST_ONCE(test_a_listener_that_allows_it_is_closed),
        PAIR_TEST_ONCE(test_a_listener_that_does_not_allow_it_stays),
        PAIR_TEST_ONCE(test_the_connecting_side_has_no_listener_to_close),
        PAIR_TEST_ONCE(test_a_listener_whose_owner_has_let_go_is_not_told),
        PAIR_TEST(test_pending_questions_end_with_a_close),
        PAIR_TEST(test_pending_questions_end_with_an_abort),
        PAIR_TEST_ONCE(test_an_answer_to_nothing_is_refused),
        PAIR_TEST_ONCE(test_an_answer_to_what_was_never_asked_is_refused),
        PAIR_TEST_ONCE(test_an_answer_of_another_kind_is_refused),
        PAIR_TEST(test_a_peer_that_takes_no_answers_is_dropped),
        PAIR_TEST(test_a_message_that_no_receive_has_asked_for_is_told),
        PAIR_TEST(test_frames_that_are_unread_are_told),
    };

    return UNIT_RUN(tests);
}
