/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair fake_ucp wrap=malloc wrap=calloc wrap=strndup */
/* tests: worker/request */
/* Flushes and others that UCX does not end. The sockets are real, UCX is not.
 */
#include "fake_ucp.h"
#include "pair.h"

#include "worker/link.h"

/* Flush a connection; UCX keeps the flush, for two polls in its queue. */
static umi_link *
flush_for_ever(pair *p, op *o)
{
    umx_op_params params = op_params(o);

    fake_reset();
    pair_open(p);
    fake.is_pending = true;
    fake.is_wedged  = true;
    assert_int_equal(umx_ep_flush(p->client, &params, &o->req), UMX_INPROGRESS);
    o->status         = UMX_INPROGRESS;
    fake.queued_polls = 2;
    return p->client->base.link;
}

static void
end_flush(void)
{
    fake.is_wedged  = false;
    fake.is_pending = false;
}

/* UCX 1.22 would use the endpoint that is gone. A flush that it never ends,
 * since the peer takes nothing, does not keep the endpoint. */
static void
test_an_endpoint_is_not_closed_while_a_flush_is_queued(void **state)
{
    pair     *p = *state;
    op        o;
    umi_link *link = flush_for_ever(p, &o);
    unsigned  live = fake.live;

    umi_link_break(link, UMX_ERR_CONNECTION_RESET, NULL);
    assert_int_equal(fake.live, live);
    for (int i = 0; i < 100 || fake.live == live; i++) {
        (void)!umx_worker_drain(p->client_worker);
    }
    assert_int_equal(fake.queued_polls, 0);
    assert_int_equal(fake.closed_in_flush, 0);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_FAILED);
    end_flush();
    while (!umi_list_is_empty(&p->client_worker->ending_links)) {
        (void)!umx_worker_drain(p->client_worker);
    }
    assert_int_equal(op_wait(p, &o), UMX_ERR_CANCELED); /* by the close */
}

static void
check_end_of_worker(pair *p, bool is_cancelled)
{
    op o;

    (void)flush_for_ever(p, &o);
    if (is_cancelled) {
        assert_int_equal(umx_request_cancel(o.req), UMX_OK);
        (void)!umx_worker_drain(p->client_worker);
        assert_int_equal(o.status, UMX_ERR_CANCELED);
    }
    umx_worker_destroy(p->client_worker);
    assert_int_equal(fake.queued_polls, 0);
    assert_int_equal(fake.closed_in_flush, 0);
    assert_int_equal(o.status, UMX_ERR_CANCELED);
    umx_ep_destroy(p->client);
    p->client = NULL;
    end_flush();
    assert_int_equal(umx_worker_create(p->client_context, &p->client_worker),
                     UMX_OK);
    umx_ep_abort(p->server);
}

static void
test_nor_where_the_worker_ends(void **state)
{
    check_end_of_worker(*state, false);
}

static void
test_nor_where_it_is_cancelled_and_the_worker_ends(void **state)
{
    check_end_of_worker(*state, true);
}

/* Its memory is found by its address when UCX gives it back. UCX has a copy of
 * shorter ones. */
static void
test_a_lost_control_message_keeps_its_memory(void **state)
{
    static const char text[1000];

    umi_control  info = {.kind = UMI_INFO, .u.info = {7, sizeof(text), text}};
    pair        *p    = *state;
    umx_request *req;
    void        *data;

    fake_reset();
    pair_open(p);
    fake.is_pending = true;
    fake.is_wedged  = true;
    assert_false(umi_endpoint_send_control(p->client, &info));
    req = umi_container_of(p->client->base.inflight.prev, umx_request, node);
    assert_true(req->is_movable);
    data                        = req->buf.data;
    p->client->base.is_outlived = true; /* another connection has the link */
    umi_request_lose(req, UMX_ERR_CONNECTION_RESET);
    assert_ptr_equal(req->buf.data, data);
    p->client->base.is_outlived = false;
    end_flush();
    PAIR_UNTIL(p, umi_list_is_empty(&p->client->base.inflight));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST_FAKE(test_an_endpoint_is_not_closed_while_a_flush_is_queued),
        PAIR_TEST_ONCE(test_nor_where_the_worker_ends),
        PAIR_TEST_ONCE(test_nor_where_it_is_cancelled_and_the_worker_ends),
        PAIR_TEST_FAKE(test_a_lost_control_message_keeps_its_memory),
    };

    return UNIT_RUN(tests);
}
