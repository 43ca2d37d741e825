/* link: pair */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

enum {
    MIB = 1024 * 1024
};

static void
tag_send(op *o, umx_ep *ep, uint64_t tag, const void *data, size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buffer = umx_host_buffer(data, len);

    o->status = umx_tag_send(ep, tag, &buffer, &params, &o->req);
}

static void
tag_recv(op *o, umx_worker *worker, umx_ep *ep, uint64_t tag, uint64_t mask,
         void *data, size_t len)
{
    umx_op_params params = op_params(o);
    umx_buffer    buffer = umx_host_buffer(data, len);

    o->status = umx_tag_recv(worker, ep, tag, mask, &buffer, &params, &o->req,
                             &o->info);
}

static void
check_round(pair *p, size_t len, bool is_expected)
{
    char *out = malloc(len + 1), *in = calloc(1, len + 1);
    op    send_op, recv_op;

    assert_non_null(out);
    assert_non_null(in);
    fill_pattern(out, len, 6);
    if (is_expected) {
        tag_recv(&recv_op, p->server_worker, NULL, 0x10, 0xf0, in, len + 1);
    }
    tag_send(&send_op, p->client, 0x1234567800000012, out, len);
    if (!is_expected) {
        pair_settle(p);
        tag_recv(&recv_op, p->server_worker, NULL, 0x10, 0xf0, in, len + 1);
    }
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_int_equal(recv_op.info.length, len);
    assert_int_equal(recv_op.info.tag, 0x1234567800000012);
    check_pattern(in, len, 6);
    free(in);
    free(out);
}

static void
test_tagged_messages_arrive(void **state)
{
    static const size_t sizes[] = {0, 1, 128, 8192, 100 * 1024, MIB};
    pair               *p       = *state;

    pair_open(p);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        check_round(p, sizes[i], true);
        check_round(p, sizes[i], false);
    }
}

/* Rendezvous: on its way until the receiver takes it. */
static void
test_a_close_waits_for_a_send_in_flight(void **state)
{
    pair  *p   = *state;
    size_t len = 4 * MIB;
    char  *out = malloc(len), *in = calloc(1, len);
    op     send_op, recv_op, close_op;

    assert_non_null(out);
    assert_non_null(in);
    fill_pattern(out, len, 7);
    pair_open(p);
    tag_send(&send_op, p->client, 5, out, len);
    assert_int_equal(send_op.status, UMX_INPROGRESS);
    op_close(&close_op, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(close_op.status, UMX_INPROGRESS);
    tag_recv(&recv_op, p->server_worker, NULL, 5, UINT64_MAX, in, len);
    assert_int_equal(op_wait(p, &recv_op), UMX_OK);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
    assert_int_equal(op_wait(p, &close_op), UMX_OK);
    check_pattern(in, len, 7);
    free(in);
    free(out);
}

static void
test_a_longer_message_is_truncated(void **state)
{
    pair *p = *state;
    char  in[2];
    op    send_op, recv_op;

    pair_open(p);
    tag_recv(&recv_op, p->server_worker, NULL, 1, UINT64_MAX, in, 2);
    tag_send(&send_op, p->client, 1, "abc", 3);
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_MESSAGE_TRUNCATED);
    assert_int_equal(op_wait(p, &send_op), UMX_OK);
}

static void
test_a_receive_can_be_cancelled(void **state)
{
    pair *p = *state;
    char  byte;
    op    o;

    pair_open(p);
    tag_recv(&o, p->server_worker, NULL, 1, UINT64_MAX, &byte, 1);
    assert_int_equal(o.status, UMX_INPROGRESS);
    umx_request_cancel(o.req);
    umx_request_cancel(o.req);
    assert_int_equal(o.calls, 0);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
    tag_recv(&o, p->server_worker, p->server, 1, UINT64_MAX, &byte, 1);
    umx_request_cancel(o.req);
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED);
}

static void
test_bad_arguments(void **state)
{
    pair *p = *state;
    char  byte;
    op    o;

    pair_open(p);
    tag_send(&o, p->client, 1, NULL, 1);
    assert_int_equal(o.status, UMX_ERR_INVALID_PARAM);
    tag_recv(&o, p->server_worker, NULL, 1, 1, NULL, 1);
    assert_int_equal(o.status, UMX_ERR_INVALID_PARAM);
    umx_ep_abort(p->client);
    tag_send(&o, p->client, 1, &byte, 1);
    assert_int_equal(o.status, UMX_ERR_CLOSED);
    tag_recv(&o, p->client_worker, p->client, 1, 1, &byte, 1);
    assert_int_equal(o.status, UMX_ERR_CLOSED);
}

/* A receive that names an endpoint ends with it, in each way it can end; one
 * that does not waits on. */
static void
test_a_receive_ends_with_its_endpoint(void **state)
{
    pair *p = *state;
    char  byte;
    op    closed, reset, any, close_op;

    pair_open(p);
    tag_recv(&any, p->server_worker, NULL, 1, UINT64_MAX, &byte, 1);
    tag_recv(&reset, p->server_worker, p->server, 2, UINT64_MAX, &byte, 1);
    tag_recv(&closed, p->client_worker, p->client, 2, UINT64_MAX, &byte, 1);
    umx_ep_abort(p->client);
    assert_int_equal(op_wait(p, &closed), UMX_ERR_CANCELED);
    assert_int_equal(op_wait(p, &reset), UMX_ERR_CONNECTION_RESET);
    assert_false(op_is_done(&any));

    umx_ep_destroy(p->client);
    umx_ep_destroy(p->server);
    p->client = NULL;
    p->server = NULL;
    pair_connect(p, 0);
    PAIR_UNTIL(p,
               p->server != NULL && umx_ep_get_state(p->client) == UMX_EP_OPEN);
    tag_recv(&reset, p->server_worker, p->server, 2, UINT64_MAX, &byte, 1);
    tag_recv(&closed, p->client_worker, p->client, 2, UINT64_MAX, &byte, 1);
    op_close(&close_op, p->client, UMX_TIMEOUT_INFINITE);
    assert_int_equal(op_wait(p, &closed), UMX_ERR_PEER_CLOSED);
    assert_int_equal(op_wait(p, &reset), UMX_ERR_PEER_CLOSED);
    assert_int_equal(op_wait(p, &close_op), UMX_OK);
    assert_false(op_is_done(&any));
    umx_request_cancel(any.req);
    assert_int_equal(op_wait(p, &any), UMX_ERR_CANCELED);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_tagged_messages_arrive),
        PAIR_TEST(test_a_close_waits_for_a_send_in_flight),
        PAIR_TEST_ONCE(test_a_longer_message_is_truncated),
        PAIR_TEST_ONCE(test_a_receive_can_be_cancelled),
        PAIR_TEST_ONCE(test_bad_arguments),
        PAIR_TEST(test_a_receive_ends_with_its_endpoint),
    };

    return UNIT_RUN(tests);
}
