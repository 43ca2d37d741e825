/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
#include "pair.h"

#include <stdlib.h>

enum {
    MIB = 1 << 20
};

static void
op_drain(op *o, umx_ep *ep, uint64_t low)
{
    umx_op_params params = op_params(o);

    o->status = umx_ep_drain(ep, low, &params, &o->req);
    if (o->status != UMX_INPROGRESS) {
        o->req = NULL;
    }
}

static void
test_drain_waits_until_little_is_left(void **state)
{
    pair *p    = *state;
    char *data = calloc(1, MIB);
    op    sends[3], all, some, now, cancelled;

    assert_non_null(data);
    pair_open(p);
    op_drain(&now, p->client, 0);
    assert_int_equal(now.status, UMX_OK);
    for (int i = 0; i < 3; i++) {
        op_send(&sends[i], p->client, 0, pair_tag(1), data, MIB);
    }
    assert_int_equal(umx_ep_pending_bytes(p->client), 3 * MIB);
    op_drain(&now, p->client, 3 * MIB);
    assert_int_equal(now.status, UMX_OK);
    op_drain(&all, p->client, 0);
    op_drain(&some, p->client, 2 * MIB);
    op_drain(&cancelled, p->client, 0);
    op_cancel(cancelled.req);
    assert_int_equal(op_wait(p, &cancelled), UMX_ERR_CANCELED);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, data, MIB), UMX_OK);
    assert_int_equal(op_wait(p, &some), UMX_OK);
    assert_false(op_is_done(&all));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, data, MIB),
                         UMX_OK);
    }
    assert_int_equal(op_wait(p, &all), UMX_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
    assert_int_equal(umx_ep_pending_bytes(p->client), 0);
    free(data);
}

static void
test_drain_ends_with_the_endpoint(void **state)
{
    pair *p    = *state;
    char *data = calloc(1, MIB);
    op    sending, draining;

    assert_non_null(data);
    pair_open(p);
    op_send(&sending, p->client, 0, pair_tag(1), data, MIB);
    op_drain(&draining, p->client, 0);
    umx_ep_abort(p->server);
    assert_int_equal(op_wait(p, &draining), UMX_ERR_CONNECTION_RESET);
    (void)op_wait(p, &sending);
    op_drain(&draining, p->client, 0);
    assert_int_equal(draining.status, UMX_ERR_CONNECTION_RESET);
    free(data);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_drain_waits_until_little_is_left),
        PAIR_TEST(test_drain_ends_with_the_endpoint),
    };

    return UNIT_RUN(tests);
}
