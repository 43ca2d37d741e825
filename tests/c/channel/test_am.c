/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

enum {
    ID        = 16,
    OTHER_ID  = UINT16_MAX,
    MAX_SIZE  = 1024 * 1024,
    MAX_HEARD = 64
};

/* Calls of a handler, and the arguments of the last one. */
typedef struct heard {
    unsigned     count;
    umx_message *messages[MAX_HEARD];
    umx_ep      *ep;
} heard;

static void
hear(umx_ep *ep, umx_message *message, void *arg)
{
    heard *h = arg;

    assert_true(h->count < MAX_HEARD);
    h->messages[h->count++] = message;
    h->ep                   = ep;
}

/* Return the one byte of the message, and give the message back. */
static int
take_byte(umx_message *message)
{
    int byte = *(const unsigned char *)umx_message_data(message);

    assert_int_equal(umx_message_info(message)->length, 1);
    umx_message_drop(message);
    return byte;
}

static void
check_header(const umx_message *message, const void *header, size_t len)
{
    size_t      got_len;
    const void *got = umx_message_header(message, &got_len);

    assert_int_equal(got_len, len);
    if (len != 0) {
        assert_memory_equal(got, header, len);
    }
}

static void
check_payload(pair *p, umx_message *message, size_t len, unsigned seed)
{
    const void *data = umx_message_data(message);
    char       *copy;
    op          o;

    assert_int_equal(umx_message_info(message)->length, len);
    if (data != NULL) {
        check_pattern(data, len, seed);
        umx_message_drop(message);
        return;
    }
    copy = malloc(len);
    assert_non_null(copy);
    op_message_recv(&o, message, copy, len);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    check_pattern(copy, len, seed);
    free(copy);
}

static void
test_header_and_payload_arrive(void **state)
{
    static const size_t sizes[]   = {0, 1, 120, 129, 9000, 40000, MAX_SIZE};
    static const size_t headers[] = {0, 1, 24, 128, 129, UMX_AM_HEADER_MAX};
    pair               *p         = *state;
    char                header[UMX_AM_HEADER_MAX];
    char               *data = malloc(MAX_SIZE);

    assert_non_null(data);
    fill_pattern(header, sizeof(header), 77);
    pair_open(p);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (unsigned j = 0; j < sizeof(headers) / sizeof(headers[0]); j++) {
            op sent;
            op got;

            fill_pattern(data, sizes[i], i);
            if (j % 2 == 0) {
                op_am_recv(&got, p->server, ID);
            }
            op_am_send(&sent, p->client, ID, header, headers[j], data,
                       sizes[i]);
            if (j % 2 != 0) {
                pair_settle(p);
                op_am_recv(&got, p->server, ID);
            }
            assert_int_equal(op_wait(p, &got), UMX_OK);
            check_header(got.message, header, headers[j]);
            check_payload(p, got.message, sizes[i], i);
            assert_int_equal(op_wait(p, &sent), UMX_OK);
        }
    }
    free(data);
}

/* The program may change it as soon as the call has returned. */
static void
test_the_header_is_copied(void **state)
{
    pair *p          = *state;
    char  header[40] = "first";
    char *data       = calloc(1, MAX_SIZE);
    op    sent;
    op    got;

    assert_non_null(data);
    pair_open(p);
    op_am_send(&sent, p->client, ID, header, sizeof(header), data, MAX_SIZE);
    memset(header, 'x', sizeof(header));
    op_am_recv(&got, p->server, ID);
    assert_int_equal(op_wait(p, &got), UMX_OK);
    assert_string_equal(umx_message_header(got.message, &(size_t){0}), "first");
    umx_message_drop(got.message);
    assert_int_equal(op_wait(p, &sent), UMX_OK);
    free(data);
}

static void
test_a_small_message_comes_into_the_callers_memory(void **state)
{
    pair *p = *state;
    char  small[8];
    op    sent;
    op    got;

    pair_open(p);
    for (size_t len = 0; len <= sizeof(small); len += 4) {
        op_am_recv_small(&got, p->server, ID, small, sizeof(small));
        op_am_send(&sent, p->client, ID, NULL, 0, "abcdefgh", len);
        assert_int_equal(op_wait(p, &got), UMX_OK);
        assert_null(got.message);
        assert_int_equal(got.info.length, len);
        assert_memory_equal(small, "abcdefgh", len);
    }
}

static void
test_other_messages_leave_the_callers_memory_alone(void **state)
{
    pair *p        = *state;
    char *data     = calloc(1, MAX_SIZE);
    char  small[8] = "nothing";
    op    sent;
    op    got;

    assert_non_null(data);
    fill_pattern(data, MAX_SIZE, 3);
    pair_open(p);
    op_am_recv_small(&got, p->server, ID, small, sizeof(small));
    op_am_send(&sent, p->client, ID, NULL, 0, data, sizeof(small) + 1);
    assert_int_equal(op_wait(p, &got), UMX_OK);
    check_payload(p, got.message, sizeof(small) + 1, 3);

    op_am_recv_small(&got, p->server, ID, small, sizeof(small));
    op_am_send(&sent, p->client, ID, "h", 1, "a", 1);
    assert_int_equal(op_wait(p, &got), UMX_OK);
    check_header(got.message, "h", 1);
    assert_int_equal(take_byte(got.message), 'a');

    op_am_recv_small(&got, p->server, ID, small, sizeof(small));
    op_am_send(&sent, p->client, ID, NULL, 0, data, MAX_SIZE);
    assert_int_equal(op_wait(p, &got), UMX_OK);
    assert_null(umx_message_data(got.message));
    umx_message_drop(got.message);
    assert_int_equal(op_wait(p, &sent), UMX_OK);

    op_am_send(&sent, p->client, ID, NULL, 0, "b", 1); /* before the receive */
    pair_settle(p);
    op_am_recv_small(&got, p->server, ID, small, sizeof(small));
    assert_int_equal(op_wait(p, &got), UMX_OK);
    assert_int_equal(take_byte(got.message), 'b');
    assert_string_equal(small, "nothing");
    free(data);
}

static void
cancel_other(umx_request *req, umx_status status, void *arg)
{
    op *other = arg;

    (void)req;
    assert_int_equal(status, UMX_OK);
    op_cancel(other->req);
}

/* Two messages have both arrived when the first one is reported. */
static void
test_a_cancelled_receive_leaves_a_small_message(void **state)
{
    pair         *p = *state;
    char          first[8], second[8];
    umx_buffer    buf = umx_host_buffer(first, sizeof(first));
    umx_request  *req;
    umx_message  *message;
    umx_op_params params;
    op            cancelled;
    op            sent;
    op            got;

    pair_open(p);
    params         = op_params(&got);
    params.on_done = cancel_other;
    params.arg     = &cancelled;
    assert_int_equal(umx_am_recv(p->server, ID, &buf, &params, &req, &message),
                     UMX_INPROGRESS);
    op_am_recv_small(&cancelled, p->server, ID, second, sizeof(second));
    op_am_send(&sent, p->client, ID, NULL, 0, "a", 1);
    op_am_send(&sent, p->client, ID, NULL, 0, "b", 1);
    assert_int_equal(op_wait(p, &cancelled), UMX_ERR_CANCELED);
    assert_int_equal(first[0], 'a');
    op_am_recv(&got, p->server, ID);
    assert_int_equal(op_wait(p, &got), UMX_OK);
    assert_int_equal(take_byte(got.message), 'b');
}

static void
test_ids_and_channels_are_apart(void **state)
{
    pair *p = *state;
    char  byte;
    op    sent;
    op    first;
    op    second;

    pair_open(p);
    op_am_send(&sent, p->client, ID, NULL, 0, "a", 1);
    assert_int_equal(op_wait(p, &sent), UMX_OK);
    op_am_send(&sent, p->client, OTHER_ID, NULL, 0, "b", 1);
    assert_int_equal(op_wait(p, &sent), UMX_OK);
    op_am_send(&sent, p->client, UMX_AM_ID_PLAIN, NULL, 0, "c", 1);
    assert_int_equal(op_wait(p, &sent), UMX_OK);
    assert_int_equal(pair_send(p, p->client, ID, pair_untagged, "d", 1),
                     UMX_OK);
    op_am_recv(&first, p->server, OTHER_ID);
    op_am_recv(&second, p->server, UMX_AM_ID_PLAIN);
    assert_int_equal(op_wait(p, &first), UMX_OK);
    assert_int_equal(op_wait(p, &second), UMX_OK);
    assert_int_equal(take_byte(first.message), 'b');
    assert_int_equal(take_byte(second.message), 'c');
    assert_int_equal(pair_recv(p, p->server, ID, pair_any, &byte, 1), UMX_OK);
    assert_int_equal(byte, 'd');
    op_am_recv(&first, p->server, ID);
    assert_int_equal(op_wait(p, &first), UMX_OK);
    assert_int_equal(take_byte(first.message), 'a');
}

static void
test_a_handler_gets_what_nobody_waits_for(void **state)
{
    pair *p = *state;
    heard h = {0};
    op    sent;
    op    got;

    pair_open(p);
    op_am_send(&sent, p->client, ID, NULL, 0, "a", 1); /* before the handler */
    assert_int_equal(op_wait(p, &sent), UMX_OK);
    pair_settle(p);
    assert_int_equal(umx_worker_set_am_handler(p->server_worker, ID, hear, &h),
                     UMX_OK);
    PAIR_UNTIL(p, h.count == 1);
    op_am_recv(&got, p->server, ID);
    op_am_send(&sent, p->client, ID, NULL, 0, "b", 1); /* for `got` */
    assert_int_equal(op_wait(p, &sent), UMX_OK);
    op_am_send(&sent, p->client, ID, NULL, 0, "c", 1);
    assert_int_equal(op_wait(p, &sent), UMX_OK);
    PAIR_UNTIL(p, h.count == 2);
    assert_int_equal(op_wait(p, &got), UMX_OK);
    assert_ptr_equal(h.ep, p->server);
    assert_int_equal(take_byte(h.messages[0]), 'a');
    assert_int_equal(take_byte(h.messages[1]), 'c');
    assert_int_equal(take_byte(got.message), 'b');
}

static void
test_a_handler_is_for_endpoints_to_come(void **state)
{
    pair *p = *state;
    heard h = {0};
    op    sent;

    pair_listen(p);
    assert_int_equal(umx_worker_set_am_handler(p->server_worker, ID, hear, &h),
                     UMX_OK);
    pair_connect(p, 0);
    op_am_send(&sent, p->client, ID, NULL, 0, "a", 1); /* still connecting */
    PAIR_UNTIL(p, h.count == 1);
    assert_int_equal(op_wait(p, &sent), UMX_OK);
    assert_ptr_equal(h.ep, p->server);
    assert_int_equal(take_byte(h.messages[0]), 'a');
}

static void
hear_once(umx_ep *ep, umx_message *message, void *arg)
{
    umx_worker *worker = arg;

    (void)ep;
    umx_message_drop(message);
    assert_int_equal(umx_worker_set_am_handler(worker, ID, NULL, NULL), UMX_OK);
}

static void
test_a_handler_may_take_itself_away(void **state)
{
    pair *p = *state;
    op    sent;
    op    got;

    pair_open(p);
    for (const char *byte = "ab"; *byte != '\0'; byte++) {
        op_am_send(&sent, p->client, ID, NULL, 0, byte, 1);
        assert_int_equal(op_wait(p, &sent), UMX_OK);
    }
    pair_settle(p);
    assert_int_equal(umx_worker_set_am_handler(p->server_worker, ID, hear_once,
                                               p->server_worker),
                     UMX_OK);
    pair_settle(p);
    op_am_recv(&got, p->server, ID);
    assert_int_equal(op_wait(p, &got), UMX_OK);
    assert_int_equal(take_byte(got.message), 'b');
}

static void
test_messages_in_hand_hold_the_sender_back(void **state)
{
    enum {
        LIMIT = 4
    };
    pair *p = *state;
    heard h = {0};
    op    sent[2 * LIMIT];

    p->config.credit_messages = LIMIT;
    pair_open(p);
    assert_int_equal(umx_worker_set_am_handler(p->server_worker, ID, hear, &h),
                     UMX_OK);
    for (int i = 0; i < 2 * LIMIT; i++) {
        char header = (char)i;

        op_am_send(&sent[i], p->client, ID, &header, 1, NULL, 0);
    }
    PAIR_UNTIL(p, h.count == LIMIT);
    pair_settle(p);
    assert_int_equal(h.count, LIMIT);
    for (unsigned i = 0; i < 2 * LIMIT; i++) {
        char header = (char)i;

        PAIR_UNTIL(p, h.count > i);
        check_header(h.messages[i], &header, 1);
        umx_message_drop(h.messages[i]);
    }
    for (int i = 0; i < 2 * LIMIT; i++) {
        assert_int_equal(op_wait(p, &sent[i]), UMX_OK);
    }
}

static void
test_a_cancelled_receive_leaves_the_message(void **state)
{
    pair *p = *state;
    op    sent;
    op    got;

    pair_open(p);
    op_am_recv(&got, p->server, ID);
    assert_int_equal(got.status, UMX_INPROGRESS);
    op_cancel(got.req);
    assert_int_equal(op_wait(p, &got), UMX_ERR_CANCELED);
    op_am_send(&sent, p->client, ID, "h", 1, "a", 1);
    assert_int_equal(op_wait(p, &sent), UMX_OK);
    pair_settle(p);
    op_am_recv(&got, p->server, ID);
    assert_int_equal(op_wait(p, &got), UMX_OK);
    umx_message_return(got.message);
    op_am_recv(&got, p->server, ID);
    assert_int_equal(op_wait(p, &got), UMX_OK);
    check_header(got.message, "h", 1);
    assert_int_equal(take_byte(got.message), 'a');
}

static void
test_probe_tells_the_length(void **state)
{
    pair         *p = *state;
    umx_recv_info info;
    op            sent;
    op            got;

    pair_open(p);
    assert_int_equal(umx_am_probe(p->server, ID, &info), UMX_ERR_NO_MESSAGE);
    op_am_send(&sent, p->client, ID, "h", 1, "abc", 3);
    assert_int_equal(op_wait(p, &sent), UMX_OK);
    pair_settle(p);
    assert_int_equal(umx_am_probe(p->server, ID, &info), UMX_OK);
    assert_int_equal(info.length, 3);
    op_am_recv(&got, p->server, ID);
    assert_int_equal(op_wait(p, &got), UMX_OK);
    umx_message_drop(got.message);
    assert_int_equal(umx_am_probe(p->server, ID, &info), UMX_ERR_NO_MESSAGE);
}

static void
test_a_close_ends_waiting_receives(void **state)
{
    pair *p = *state;
    op    closed;
    op    got;

    pair_open(p);
    op_am_recv(&got, p->server, ID);
    op_close(&closed, p->client, SECOND_NS);
    assert_int_equal(op_wait(p, &got), UMX_ERR_PEER_CLOSED);
    assert_int_equal(op_wait(p, &closed), UMX_OK);
}

/* A close of the sender waits for what the reader has announced to it. */
static void
test_a_close_waits_for_an_announced_message_in_hand(void **state)
{
    pair *p    = *state;
    char *data = malloc(MAX_SIZE);
    op    sent;
    op    got;
    op    closed;

    assert_non_null(data);
    fill_pattern(data, MAX_SIZE, 5);
    p->config.goodbye_bytes = 0;
    pair_open(p);
    op_am_send(&sent, p->client, ID, NULL, 0, data, MAX_SIZE);
    op_am_recv(&got, p->server, ID);
    assert_int_equal(op_wait(p, &got), UMX_OK);
    op_close(&closed, p->client, 20 * SECOND_NS);
    PAIR_UNTIL(p, umx_ep_is_peer_closed(p->server));
    check_payload(p, got.message, MAX_SIZE, 5);
    assert_int_equal(op_wait(p, &closed), UMX_OK);
    assert_true(op_is_done(&sent));
    free(data);
}

static void
test_bytes_in_hand_outlive_the_worker(void **state)
{
    static const size_t sizes[] = {1, 1000, 40000, MAX_SIZE};
    pair               *p       = *state;
    heard               h       = {0};
    char               *data    = malloc(MAX_SIZE);
    op                  sent[4];
    char                byte;
    umx_buffer          buf = {.data = &byte, .memtype = UMX_MEMTYPE_HOST};

    assert_non_null(data);
    fill_pattern(data, MAX_SIZE, 9);
    pair_open(p);
    assert_int_equal(umx_worker_set_am_handler(p->server_worker, ID, hear, &h),
                     UMX_OK);
    for (int i = 0; i < 4; i++) {
        op_am_send(&sent[i], p->client, ID, data, 200, data, sizes[i]);
    }
    PAIR_UNTIL(p, h.count == 4);
    umx_listener_destroy(p->listener);
    p->listener = NULL;
    umx_worker_destroy(p->server_worker);
    assert_int_equal(umx_worker_create(p->context, &p->server_worker), UMX_OK);
    for (int i = 0; i < 3; i++) {
        check_header(h.messages[i], data, 200);
        assert_non_null(umx_message_data(h.messages[i]));
        check_pattern(umx_message_data(h.messages[i]), sizes[i], 9);
    }
    umx_message_drop(h.messages[0]);
    umx_message_return(h.messages[1]);
    assert_int_equal(umx_message_recv(&h.messages[2], &buf, NULL, NULL),
                     UMX_ERR_CLOSED);
    assert_null(h.messages[2]);
    assert_null(umx_message_data(h.messages[3])); /* was with the sender */
    umx_message_drop(h.messages[3]);
    umx_ep_destroy(p->server);
    p->server = NULL;
    umx_ep_abort(p->client);
    for (int i = 0; i < 4; i++) {
        while (!op_is_done(&sent[i])) {
            (void)umx_worker_poll(p->client_worker);
        }
    }
    free(data);
}

static void
test_bad_arguments_are_refused(void **state)
{
    pair         *p = *state;
    heard         h = {0};
    char          header[UMX_AM_HEADER_MAX + 1];
    umx_recv_info info;
    op            o;

    pair_open(p);
    memset(header, 0, sizeof(header));
    op_am_send(&o, p->client, ID, header, sizeof(header), "a", 1);
    assert_int_equal(o.status, UMX_ERR_OUT_OF_RANGE);
    op_am_send(&o, p->client, ID, NULL, 1, "a", 1);
    assert_int_equal(o.status, UMX_ERR_INVALID_PARAM);
    op_am_send(&o, p->client, ID, NULL, 0, NULL, 1);
    assert_int_equal(o.status, UMX_ERR_INVALID_PARAM);
    for (uint16_t id = 1; id < UMX_AM_ID_MIN; id++) {
        op_am_send(&o, p->client, id, NULL, 0, "a", 1);
        assert_int_equal(o.status, UMX_ERR_OUT_OF_RANGE);
        op_am_recv(&o, p->client, id);
        assert_int_equal(o.status, UMX_ERR_OUT_OF_RANGE);
        op_am_recv_small(&o, p->client, id, header, 1);
        assert_int_equal(o.status, UMX_ERR_OUT_OF_RANGE);
        assert_int_equal(umx_am_probe(p->client, id, &info),
                         UMX_ERR_OUT_OF_RANGE);
        assert_int_equal(
            umx_worker_set_am_handler(p->client_worker, id, hear, &h),
            UMX_ERR_OUT_OF_RANGE);
    }
}

/* ---- messages that wait to be taken -----------------------------------------
 */

static void
count_ready(umx_worker *worker, uint16_t id, void *arg)
{
    unsigned *count = arg;

    (void)worker;
    assert_int_equal(id, ID);
    (*count)++;
}

static void
send_bytes(pair *p, const char *bytes)
{
    for (; *bytes != '\0'; bytes++) {
        op sent;

        op_am_send(&sent, p->client, ID, NULL, 0, bytes, 1);
        assert_int_equal(op_wait(p, &sent), UMX_OK);
    }
    pair_settle(p);
}

static void
test_messages_wait_to_be_taken(void **state)
{
    pair        *p         = *state;
    unsigned     num_ready = 0;
    umx_ep      *ep        = NULL;
    umx_message *message;

    pair_open(p);
    send_bytes(p, "a"); /* before there is anybody */
    assert_int_equal(
        umx_worker_set_am_ready(p->server_worker, ID, count_ready, &num_ready),
        UMX_OK);
    send_bytes(p, "bc");
    assert_true(num_ready >= 1);
    for (const char *byte = "abc"; *byte != '\0'; byte++) {
        message = umx_worker_take_am(p->server_worker, ID, &ep);
        assert_non_null(message);
        assert_ptr_equal(ep, p->server);
        assert_int_equal(take_byte(message), *byte);
    }
    assert_null(umx_worker_take_am(p->server_worker, ID, &ep));
    num_ready = 0;
    send_bytes(p, "d");
    assert_int_equal(num_ready, 1);
    message = umx_worker_take_am(p->server_worker, ID, &ep);
    assert_int_equal(take_byte(message), 'd');
}

static void
test_a_receive_may_come_before_the_taker(void **state)
{
    pair    *p         = *state;
    unsigned num_ready = 0;
    umx_ep  *ep;
    op       got;

    pair_open(p);
    assert_int_equal(
        umx_worker_set_am_ready(p->server_worker, ID, count_ready, &num_ready),
        UMX_OK);
    send_bytes(p, "a");
    assert_int_equal(num_ready, 1);
    op_am_recv(&got, p->server, ID);
    assert_int_equal(op_wait(p, &got), UMX_OK);
    assert_int_equal(take_byte(got.message), 'a');
    assert_null(umx_worker_take_am(p->server_worker, ID, &ep));
}

static void
test_nothing_is_taken_of_an_endpoint_that_has_gone(void **state)
{
    pair    *p         = *state;
    unsigned num_ready = 0;
    umx_ep  *ep;

    pair_open(p);
    assert_int_equal(
        umx_worker_set_am_ready(p->server_worker, ID, count_ready, &num_ready),
        UMX_OK);
    send_bytes(p, "ab");
    assert_int_equal(num_ready, 1);
    umx_ep_destroy(p->server);
    p->server = NULL;
    PAIR_UNTIL(p, umx_ep_is_peer_closed(p->client));
    assert_null(umx_worker_take_am(p->server_worker, ID, &ep));
}

static void
test_without_a_taker_messages_wait_again(void **state)
{
    pair    *p         = *state;
    unsigned num_ready = 0;
    umx_ep  *ep;
    op       got;

    pair_open(p);
    assert_int_equal(
        umx_worker_set_am_ready(p->server_worker, ID, count_ready, &num_ready),
        UMX_OK);
    send_bytes(p, "a");
    assert_int_equal(umx_worker_set_am_ready(p->server_worker, ID, NULL, NULL),
                     UMX_OK);
    assert_null(umx_worker_take_am(p->server_worker, ID, &ep));
    op_am_recv(&got, p->server, ID);
    assert_int_equal(op_wait(p, &got), UMX_OK);
    assert_int_equal(take_byte(got.message), 'a');
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_header_and_payload_arrive),
        PAIR_TEST(test_the_header_is_copied),
        PAIR_TEST(test_a_small_message_comes_into_the_callers_memory),
        PAIR_TEST(test_other_messages_leave_the_callers_memory_alone),
        PAIR_TEST(test_a_cancelled_receive_leaves_a_small_message),
        PAIR_TEST(test_ids_and_channels_are_apart),
        PAIR_TEST(test_a_handler_gets_what_nobody_waits_for),
        PAIR_TEST(test_a_handler_is_for_endpoints_to_come),
        PAIR_TEST(test_a_handler_may_take_itself_away),
        PAIR_TEST(test_messages_in_hand_hold_the_sender_back),
        PAIR_TEST(test_a_cancelled_receive_leaves_the_message),
        PAIR_TEST(test_probe_tells_the_length),
        PAIR_TEST(test_a_close_ends_waiting_receives),
        PAIR_TEST(test_a_close_waits_for_an_announced_message_in_hand),
        PAIR_TEST(test_bytes_in_hand_outlive_the_worker),
        PAIR_TEST(test_messages_wait_to_be_taken),
        PAIR_TEST(test_a_receive_may_come_before_the_taker),
        PAIR_TEST(test_nothing_is_taken_of_an_endpoint_that_has_gone),
        PAIR_TEST(test_without_a_taker_messages_wait_again),
        PAIR_TEST_ONCE(test_bad_arguments_are_refused),
    };

    return UNIT_RUN(tests);
}
