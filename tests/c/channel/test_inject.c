/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair memory wrap=malloc */
/* Short messages that UCX takes in the call: they need no request, and come in
 * their order beside those that do. */
#include "memory.h"
#include "pair.h"

#include <string.h>

#include "channel/channel.h"

enum {
    LONGER = 1100, /* bytes, more than are injected */
    MANY   = 5000  /* messages, more than there is credit for */
};

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

static bool is_starved;

void *
__wrap_malloc(size_t size)
{
    return is_starved ? NULL : __real_malloc(size);
}

static umx_status
send_now(umx_ep *ep, uint64_t tag, const void *data, size_t len)
{
    umx_match    match = {.tag = tag};
    umx_buffer   buf   = umx_host_buffer((void *)(uintptr_t)data, len);
    umx_request *req   = NULL;

    return umx_channel_send(ep, 0, &match, &buf, NULL, &req);
}

/* From now on no request can be made. */
static void
starve_requests(umx_worker *worker)
{
    worker->requests.free_list  = NULL;
    worker->requests.num_fresh  = 0;
    worker->requests.next_count = 1;
    is_starved                  = true;
}

static void
test_no_memory_for_a_request(void **state)
{
    static const char longer[LONGER];

    pair    *p = *state;
    char     in[UMI_INJECT_MAX];
    op       recv_op;
    uint64_t sent;

    pair_open(p);
    pair_settle(p);
    sent = p->client->stats.sent_messages;
    starve_requests(p->client_worker);
    assert_int_equal(send_now(p->client, 3, "abc", 3), UMX_OK);
    assert_int_equal(send_now(p->client, 3, "", 0), UMX_OK);
    assert_int_equal(send_now(p->client, 3, longer, LONGER), UMX_ERR_NO_MEMORY);
    is_starved = false;
    assert_int_equal(p->client->stats.sent_messages, sent + 2);
    op_recv(&recv_op, p->server, 0, pair_tag(3), in, sizeof(in));
    PAIR_UNTIL(p, recv_op.status != UMX_INPROGRESS);
    assert_int_equal(recv_op.status, UMX_OK);
    assert_int_equal(recv_op.info.length, 3);
    assert_memory_equal(in, "abc", 3);
    op_recv(&recv_op, p->server, 0, pair_tag(3), in, sizeof(in));
    PAIR_UNTIL(p, recv_op.status != UMX_INPROGRESS);
    assert_int_equal(recv_op.info.length, 0);
}

/* Lengths on both sides of what is injected take turns; credit runs out in the
 * middle, and short messages queue behind longer ones then. */
static void
test_short_and_longer_messages_come_in_their_order(void **state)
{
    static char out[MANY][LONGER];
    static op   sends[MANY];

    pair    *p         = *state;
    unsigned at_once   = 0;
    unsigned num_waits = 0;

    pair_open(p);
    while (at_once == 0) { /* UCX has all its lanes then */
        pair_settle(p);
        op_send(&sends[0], p->client, 1, pair_tag(1), out[0], LONGER);
        at_once = sends[0].status == UMX_OK;
        PAIR_UNTIL(p, sends[0].status != UMX_INPROGRESS);
    }
    for (unsigned i = 0; i < MANY; i++) {
        memcpy(out[i], &i, sizeof(i));
        op_send(&sends[i], p->client, 0, pair_tag(1), out[i],
                (i % 3 == 0) ? LONGER : sizeof(i) + i % UMI_INJECT_MAX);
        at_once += sends[i].status == UMX_OK;
        num_waits += sends[i].status == UMX_INPROGRESS;
    }
    assert_true(at_once > 1);
    assert_true(num_waits > 0);
    for (unsigned i = 0; i < MANY; i++) {
        char     in[LONGER];
        unsigned number;
        op       recv_op;

        op_recv(&recv_op, p->server, 0, pair_tag(1), in, sizeof(in));
        PAIR_UNTIL(p, recv_op.status != UMX_INPROGRESS);
        assert_int_equal(recv_op.status, UMX_OK);
        memcpy(&number, in, sizeof(number));
        assert_int_equal(number, i);
    }
    for (unsigned i = 0; i < MANY; i++) {
        PAIR_UNTIL(p, sends[i].status != UMX_INPROGRESS);
        assert_int_equal(sends[i].status, UMX_OK);
    }
}

static void
test_a_closed_connection_says_so(void **state)
{
    pair *p = *state;

    pair_open(p);
    umx_ep_abort(p->client);
    assert_int_equal(send_now(p->client, 3, "abc", 3), UMX_ERR_CLOSED);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) != UMX_EP_OPEN);
    assert_true(send_now(p->server, 3, "abc", 3) < 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_memory_for_a_request,
                                        pair_setup, pair_teardown),
        cmocka_unit_test_setup_teardown(
            test_short_and_longer_messages_come_in_their_order, pair_setup,
            pair_teardown),
        cmocka_unit_test_setup_teardown(test_a_closed_connection_says_so,
                                        pair_setup, pair_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
