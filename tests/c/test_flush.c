/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
#include "pair.h"

#include <stdlib.h>

enum {
    LEN = 100 * 1024
};

static void
post_flush(op *o, pair *p, bool is_worker)
{
    umx_op_params params = op_params(o);

    o->status = is_worker ?
                    umx_worker_flush(p->client_worker, &params, &o->req) :
                    umx_ep_flush(p->client, &params, &o->req);
    if (o->status != UMX_INPROGRESS) {
        o->req = NULL;
    }
}

static void
check_flush(pair *p, bool is_worker)
{
    char *out = malloc(LEN), *in = malloc(LEN);
    op    sends[10], flush_op;

    assert_non_null(out);
    assert_non_null(in);
    fill_pattern(out, LEN, 1);
    post_flush(&flush_op, p, is_worker); /* nothing to flush */
    assert_int_equal(op_wait(p, &flush_op), UMX_OK);
    for (int i = 0; i < 10; i++) {
        op_send(&sends[i], p->client, 0, pair_tag(1), out, LEN);
    }
    post_flush(&flush_op, p, is_worker);
    assert_int_equal(op_wait(p, &flush_op), UMX_OK);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, LEN), UMX_OK);
        check_pattern(in, LEN, 1);
        assert_int_equal(op_wait(p, &sends[i]), UMX_OK);
    }
    free(in);
    free(out);
}

static void
test_flushing_an_endpoint(void **state)
{
    pair_open(*state);
    check_flush(*state, false);
}

static void
test_flushing_a_worker(void **state)
{
    pair_open(*state);
    check_flush(*state, true);
}

static void
test_flushing_what_is_closed(void **state)
{
    pair *p = *state;
    op    o;

    pair_open(p);
    umx_ep_abort(p->client);
    post_flush(&o, p, false);
    assert_int_equal(o.status, UMX_ERR_CLOSED);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_flushing_an_endpoint),
        PAIR_TEST(test_flushing_a_worker),
        PAIR_TEST_ONCE(test_flushing_what_is_closed),
    };

    return UNIT_RUN(tests);
}
