/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair wrap=malloc */
/* Memory runs out in the middle of a connection: it breaks, and says so; what
 * was lent comes back. */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

enum {
    MIB = 1024 * 1024
};

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

static bool is_starved;

void *
__wrap_malloc(size_t size)
{
    return is_starved ? NULL : __real_malloc(size);
}

/* From now on the pools have to ask. */
static void
starve(umx_worker *worker)
{
    worker->messages.free_list  = NULL;
    worker->messages.next_count = 1;
    is_starved                  = true;
}

/* `ep` has broken, and the other side has seen it. */
static void
check_broken(pair *p, umx_ep *ep, umx_ep *peer)
{
    PAIR_UNTIL(p, umx_ep_get_state(ep) != UMX_EP_OPEN);
    assert_int_equal(umx_ep_get_state(ep), UMX_EP_FAILED);
    assert_int_equal(umx_ep_error(ep), UMX_ERR_PROTOCOL);
    PAIR_UNTIL(p, umx_ep_get_state(peer) != UMX_EP_OPEN);
    assert_int_equal(umx_ep_get_state(peer), UMX_EP_FAILED);
}

static void
test_no_memory_for_the_channel_of_a_message(void **state)
{
    pair *p = *state;
    op    o;

    pair_open(p);
    op_send(&o, p->client, 7, pair_tag(1), "x", 1);
    is_starved = true;
    PAIR_UNTIL(p, umx_ep_get_state(p->server) != UMX_EP_OPEN);
    is_starved = false;
    check_broken(p, p->server, p->client);
}

static void
test_no_memory_for_a_message_that_lands_in_a_cancelled_receive(void **state)
{
    pair *p   = *state;
    char *out = malloc(MIB), *in = malloc(MIB);
    op    send_op, recv_op;

    assert_non_null(out);
    assert_non_null(in);
    pair_open(p);
    fill_pattern(out, MIB, 1);
    op_send(&send_op, p->client, 0, pair_tag(1), out, MIB);
    pair_settle(p);
    op_recv(&recv_op, p->server, 0, pair_any, in, MIB);
    assert_int_equal(recv_op.status, UMX_INPROGRESS);
    starve(p->server_worker);
    umx_request_cancel(recv_op.req);
    is_starved = false;
    assert_int_equal(op_wait(p, &recv_op), UMX_ERR_CANCELED);
    assert_int_equal(recv_op.calls, 1);
    check_broken(p, p->server, p->client);
    (void)op_wait(p, &send_op);
    assert_int_equal(send_op.calls, 1);
    free(in);
    free(out);
}

/* A message that was read and has to go back. */
static void
test_no_memory_for_a_message_that_goes_back(void **state)
{
    pair      *p      = *state;
    char       byte   = 0;
    umx_buffer buffer = umx_host_buffer(&byte, 1);
    op         o;

    pair_open(p);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "x", 1), UMX_OK);
    op_recv(&o, p->server, 0, pair_any, &byte, 1);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    starve(p->server_worker);
    assert_int_equal(umx_channel_unrecv(p->server, 0, &o.info, &buffer),
                     UMX_ERR_NO_MEMORY);
    is_starved = false;
    assert_int_equal(umx_channel_unrecv(p->server, 0, &o.info, &buffer),
                     UMX_OK);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &byte, 1), UMX_OK);
    assert_int_equal(byte, 'x');
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_no_memory_for_the_channel_of_a_message),
        PAIR_TEST(
            test_no_memory_for_a_message_that_lands_in_a_cancelled_receive),
        PAIR_TEST_ONCE(test_no_memory_for_a_message_that_goes_back),
    };

    return UNIT_RUN(tests);
}
