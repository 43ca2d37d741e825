/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair memory */
/* How operations on memory end that the owner does not execute. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#include "channel/am.h"

enum {
    LEN = 1 << 20
};

/* ---- cancel --------------------------------------------------------------
 */

static void
test_cancelled_operations_end_and_the_next_work(void **state)
{
    static const size_t sizes[] = {8, LEN};

    pair    *p   = *state;
    char    *mem = calloc(1, LEN), *buffer = calloc(1, LEN);
    memory   m;
    op       put, get, add, flush;
    uint64_t old = 77;

    pair_open(p);
    m = memory_register(p, mem, LEN, 0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        start(&put, umx_rma_put, m.rkey, item_of(0, buffer, sizes[i]));
        start(&get, umx_rma_get, m.rkey, item_of(0, buffer, sizes[i]));
        start_atomic(&add, m.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 0, 1, 0},
                     &old);
        start_flush(&flush, p->client_worker, p->client);
        assert_non_null(put.req);
        assert_non_null(get.req);
        assert_non_null(add.req);
        assert_non_null(flush.req);
        op_cancel(flush.req); /* the flush waits for the others */
        op_cancel(put.req);
        op_cancel(get.req);
        op_cancel(add.req);
        assert_int_equal(op_wait(p, &get), UMX_ERR_CANCELED);
        assert_int_equal(op_wait(p, &add), UMX_ERR_CANCELED);
        assert_int_equal(op_wait(p, &put), UMX_ERR_CANCELED);
        assert_int_equal(op_wait(p, &flush), UMX_ERR_CANCELED);
        fill_pattern(buffer, LEN, 2);
        assert_int_equal(
            transfer(p, umx_rma_put, m.rkey, item_of(0, buffer, LEN)), UMX_OK);
        check_pattern(mem, LEN, 2);
    }
    assert_int_equal(old, 77);
    memory_free(&m);
    free(mem);
    free(buffer);
}

/* ---- ends ----------------------------------------------------------------
 */

static void
test_a_close_waits_for_operations(void **state)
{
    pair  *p   = *state;
    char  *mem = calloc(1, LEN), *out = malloc(LEN), *in = malloc(LEN);
    memory m;
    op     put, get, add, closing;

    pair_open(p);
    m = memory_register(p, mem, LEN, 0);
    fill_pattern(out, LEN, 4);
    start(&put, umx_rma_put, m.rkey, item_of(0, out, LEN));
    start(&get, umx_rma_get, m.rkey, item_of(0, in, LEN));
    start_atomic(&add, m.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 0, 0, 0}, NULL);
    op_close(&closing, p->client, 10 * SECOND_NS);
    assert_int_equal(op_wait(p, &closing), UMX_OK);
    assert_int_equal(op_wait(p, &put), UMX_OK);
    assert_int_equal(op_wait(p, &get), UMX_OK);
    assert_int_equal(op_wait(p, &add), UMX_OK);
    check_pattern(mem, LEN, 4);
    memory_free(&m);
    free(mem);
    free(out);
    free(in);
}

/* Each waits for the other's replies: neither may have to be late for that. */
static void
test_both_sides_close_while_operations_are_under_way(void **state)
{
    pair    *p   = *state;
    char    *mem = calloc(1, LEN), *out = malloc(LEN), *in[2];
    op       puts[2], gets[2], adds[2], closing[2];
    umx_ep  *eps[2];
    uint64_t counter = 0;
    memory   m;

    pair_open(p);
    eps[0] = p->client;
    eps[1] = p->server;
    m      = memory_register(p, mem, LEN, 0);
    fill_pattern(out, LEN, 4);
    for (int i = 0; i < 2; i++) {
        umx_rkey *rkey = m.rkey;

        in[i] = malloc(LEN);
        if (i == 1) {
            assert_int_equal(memory_open(eps[i], m.memh, &rkey), UMX_OK);
        }
        start(&puts[i], umx_rma_put, rkey, item_of(8, out + 8, LEN - 8));
        start(&gets[i], umx_rma_get, rkey, item_of(0, in[i], LEN));
        start_atomic(&adds[i], rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 0, 1, 0},
                     NULL);
        if (i == 1) {
            umx_rkey_destroy(rkey);
        }
    }
    for (int i = 0; i < 2; i++) {
        op_close(&closing[i], eps[i], UINT64_MAX);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(op_wait(p, &puts[i]), UMX_OK);
        assert_int_equal(op_wait(p, &gets[i]), UMX_OK);
        assert_int_equal(op_wait(p, &adds[i]), UMX_OK);
        assert_int_equal(op_wait(p, &closing[i]), UMX_OK);
        free(in[i]);
    }
    memcpy(&counter, mem, sizeof(counter));
    assert_int_equal(counter, 2);
    assert_memory_equal(mem + 8, out + 8, LEN - 8);
    memory_free(&m);
    free(mem);
    free(out);
}

static void
check_end(pair *p, void (*end)(pair *), umx_status expected)
{
    char           *mem = calloc(1, LEN), *buffer = calloc(1, LEN);
    int             freed  = 0;
    umx_buffer      buf    = umx_host_buffer(mem, LEN);
    umx_memh_params params = {.field_mask = UMX_MEMH_FIELD_ON_FREE,
                              .on_free    = count_call,
                              .arg        = &freed};
    memory          m;
    op              put, get, add, flush;

    assert_int_equal(umx_memh_register(p->context, &buf, &params, &m.memh),
                     UMX_OK);
    assert_int_equal(memory_open(p->client, m.memh, &m.rkey), UMX_OK);
    start(&put, umx_rma_put, m.rkey, item_of(0, buffer, LEN));
    start(&get, umx_rma_get, m.rkey, item_of(0, buffer, LEN));
    start_atomic(&add, m.rkey, (umx_atomic){UMX_ATOMIC_ADD, 8, 0, 0, 0}, NULL);
    start_flush(&flush, p->client_worker, p->client);
    end(p);
    assert_int_equal(op_wait(p, &put), expected);
    assert_int_equal(op_wait(p, &get), expected);
    assert_int_equal(op_wait(p, &add), expected);
    assert_int_not_equal(op_wait(p, &flush), UMX_OK);
    assert_int_equal(
        transfer(p, umx_rma_put, m.rkey, item_of(0, buffer, 1)) >= 0, 0);
    memory_free(&m);
    PAIR_UNTIL(p, freed == 1); /* bytes may still land in it */
    free(mem);
    free(buffer);
}

static void
abort_client(pair *p)
{
    umx_ep_abort(p->client);
}

static void
abort_server(pair *p)
{
    umx_ep_abort(p->server);
}

static void
close_server(pair *p)
{
    op closing;

    op_close(&closing, p->server, 10 * SECOND_NS);
    assert_int_equal(op_wait(p, &closing), UMX_OK);
}

static void
test_an_abort_cancels_operations(void **state)
{
    pair_open(*state);
    check_end(*state, abort_client, UMX_ERR_CANCELED);
}

static void
test_the_peers_abort_resets_operations(void **state)
{
    pair_open(*state);
    check_end(*state, abort_server, UMX_ERR_CONNECTION_RESET);
}

static void
test_the_peers_close_ends_operations(void **state)
{
    pair_open(*state);
    check_end(*state, close_server, UMX_ERR_PEER_CLOSED);
}

/* A memory that goes while bytes land in it stays until they have. */
static void
test_memory_under_transfer_stays(void **state)
{
    pair           *p   = *state;
    char           *mem = calloc(1, LEN), *out = calloc(1, LEN);
    int             calls  = 0;
    umx_buffer      buf    = umx_host_buffer(mem, LEN);
    umx_memh_params params = {.field_mask = UMX_MEMH_FIELD_ON_FREE,
                              .on_free    = count_call,
                              .arg        = &calls};
    umx_memh       *memh;
    umx_rkey       *rkey;
    op              get;

    pair_open(p);
    assert_int_equal(umx_memh_register(p->context, &buf, &params, &memh),
                     UMX_OK);
    assert_int_equal(memory_open(p->client, memh, &rkey), UMX_OK);
    start(&get, umx_rma_get, rkey, item_of(0, out, LEN));
    PAIR_UNTIL(p, p->server->rma != NULL && p->server->rma->num_serving != 0);
    umx_memh_release(memh);
    assert_int_equal(calls, 0);
    assert_int_equal(op_wait(p, &get), UMX_OK);
    PAIR_UNTIL(p, calls == 1);
    umx_rkey_destroy(rkey);
    free(mem);
    free(out);
}

/* ---- a peer that breaks the protocol --------------------------------------
 */

static void
check_malformed(pair *p, uint16_t id, const void *header, size_t len,
                size_t payload_len)
{
    static char payload[64];

    umx_buffer    buf = umx_host_buffer(payload, payload_len);
    op            o;
    umx_op_params params = op_params(&o);

    o.status = umi_channel_am_send(p->client, id, header, len, &buf, &params,
                                   &o.req);
    assert_true(o.status >= 0);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) != UMX_EP_OPEN);
    assert_int_equal(umx_ep_error(p->server), UMX_ERR_PROTOCOL);
    (void)op_wait(p, &o);
}

static void
test_a_malformed_request_ends_the_connection(void **state)
{
    umi_rma_request request = {.op = UMI_RMA_GET, .atomic = 1};

    pair_open(*state);
    check_malformed(*state, UMI_AM_ID_RMA_REQUEST, &request, sizeof(request),
                    0);
}

static void
test_a_malformed_reply_ends_the_connection(void **state)
{
    umi_rma_reply reply = {.status = 1};

    pair_open(*state);
    check_malformed(*state, UMI_AM_ID_RMA_REPLY, &reply, sizeof(reply), 0);
}

static void
test_a_reply_of_a_wrong_length_ends_the_connection(void **state)
{
    pair         *p     = *state;
    umi_rma_reply reply = {0};
    memory        m;
    char          in[8];
    op            get;

    pair_open(p);
    /* The server asks, the client answers what it was not asked for. */
    assert_int_equal(umi_channel_am_set_user(p->client_worker,
                                             UMI_AM_ID_RMA_REQUEST, NULL, NULL),
                     UMX_OK);
    assert_int_equal(umx_memh_alloc(p->context, 8, &m.memh), UMX_OK);
    assert_int_equal(memory_open(p->server, m.memh, &m.rkey), UMX_OK);
    m.rkey->data = NULL; /* not by way of the mapping */
    start(&get, umx_rma_get, m.rkey, item_of(0, in, 8));
    reply.id = 1; /* the first one's */
    check_malformed(p, UMI_AM_ID_RMA_REPLY, &reply, sizeof(reply), 3);
    assert_int_equal(op_wait(p, &get), UMX_ERR_PROTOCOL);
    memory_free(&m);
}

static void
test_a_reply_to_nothing_is_ignored(void **state)
{
    pair         *p     = *state;
    umi_rma_reply reply = {.id = 5};
    umx_buffer    none  = {0};
    op            o;
    umx_op_params params = op_params(&o);

    pair_open(p);
    o.status = umi_channel_am_send(p->client, UMI_AM_ID_RMA_REPLY, &reply,
                                   sizeof(reply), &none, &params, &o.req);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    pair_settle(p);
    assert_int_equal(umx_ep_get_state(p->server), UMX_EP_OPEN);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_cancelled_operations_end_and_the_next_work),
        PAIR_TEST(test_a_close_waits_for_operations),
        PAIR_TEST(test_both_sides_close_while_operations_are_under_way),
        PAIR_TEST(test_an_abort_cancels_operations),
        PAIR_TEST(test_the_peers_abort_resets_operations),
        PAIR_TEST(test_the_peers_close_ends_operations),
        PAIR_TEST(test_memory_under_transfer_stays),
        PAIR_TEST(test_a_malformed_request_ends_the_connection),
        PAIR_TEST(test_a_malformed_reply_ends_the_connection),
        PAIR_TEST(test_a_reply_of_a_wrong_length_ends_the_connection),
        PAIR_TEST(test_a_reply_to_nothing_is_ignored),
    };

    return UNIT_RUN(tests);
}
