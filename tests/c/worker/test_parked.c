/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* A worker is destroyed while UCX has an operation of it that waits for another
 * worker of the context: both send from one piece of memory, whose registration
 * UCX gives up when the last of them has let go of it. */
#include "pair.h"

#include <stdlib.h>

enum {
    LARGE   = 1 << 20,
    WAIT_NS = 10000000
};

typedef struct sender {
    umx_worker *worker;
    umx_ep     *ep;
    umx_ep     *server; /* the other end */
    op          o;
} sender;

static void
open_sender(pair *p, umx_context *context, sender *s)
{
    struct sockaddr_storage addr;
    umx_connect_params      params = {.addr = (struct sockaddr *)&addr};

    params.addr_len = pair_address(p, &addr);
    assert_int_equal(umx_worker_create(context, &s->worker), UMX_OK);
    assert_int_equal(umx_ep_connect(s->worker, &params, &s->ep), UMX_OK);
    while (p->server == NULL || umx_ep_get_state(s->ep) == UMX_EP_CONNECTING) {
        assert_true(umx_worker_drain(p->server_worker) >= 0);
        if (umx_worker_wait(s->worker, WAIT_NS) == UMX_ERR_TIMED_OUT) {
            UNIT_IDLE();
        }
    }
    assert_int_equal(umx_ep_get_state(s->ep), UMX_EP_OPEN);
    s->server = p->server;
    p->server = NULL;
}

/* The peer does not take it: it makes no progress. */
static void
start_send(sender *s, const void *data)
{
    op_send(&s->o, s->ep, 0, pair_any, data, LARGE);
    assert_int_equal(s->o.status, UMX_INPROGRESS);
    for (int i = 0; i < 100; i++) {
        (void)umx_worker_poll(s->worker);
    }
    assert_int_equal(s->o.status, UMX_INPROGRESS);
}

static void
end_sender(sender *s)
{
    umx_worker_destroy(s->worker);
    assert_int_equal(s->o.status, UMX_ERR_CANCELED);
    umx_ep_destroy(s->ep);
    umx_ep_destroy(s->server);
}

static void
test_a_worker_goes_before_another_that_sends_the_same(void **state)
{
    pair        *p       = *state;
    char        *data    = calloc(1, LARGE);
    umx_context *context = pair_context(p->tls, &p->config);
    sender       senders[2];

    assert_non_null(data);
    pair_listen(p);
    for (int i = 0; i < 2; i++) {
        open_sender(p, context, &senders[i]);
    }
    for (int i = 0; i < 2; i++) {
        start_send(&senders[i], data);
    }
    end_sender(&senders[0]);
    end_sender(&senders[1]);
    umx_context_release(context);
    free(data);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_a_worker_goes_before_another_that_sends_the_same),
    };

    return UNIT_RUN(tests);
}
