/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* The table of ways: its rows are whole, and what a sender knows of a message
 * decides which of them it goes by. */
#include "pair.h"

#include <string.h>

#include "ops/follow.h"
#include "ops/transfer.h"
#include "worker/request.h"

enum {
    LONG = 100000 /* is announced */
};

/* ---- the table -----------------------------------------------------------
 */

static void
test_each_row_has_what_sender_and_receiver_need(void **state)
{
    (void)state;
    for (int id = 0; id < UMI_NUM_OFFERS; id++) {
        const umi_offer *offer = &umi_offers[id];

        assert_non_null(offer->name);
        assert_non_null(offer->how);
        assert_non_null(offer->send);
        assert_true(offer->unasked != NULL || offer->announced != NULL);
        if (offer->unasked != NULL) {
            assert_false(offer->unasked->is_announced);
        }
        if (offer->announced != NULL) {
            assert_true(offer->announced->is_announced);
            assert_non_null(offer->announced->recv);
            assert_non_null(offer->announced->release);
        }
    }
}

static void
test_the_last_rows_take_any_message(void **state)
{
    (void)state;
    assert_int_equal(UMI_OFFER_EAGER, UMI_NUM_OFFERS - 1);
    assert_int_equal(UMI_OFFER_RNDV, UMI_NUM_OFFERS - 2);
    assert_null(umi_offers[UMI_OFFER_RNDV].may);
    assert_non_null(umi_offers[UMI_OFFER_RNDV].announced);
    assert_null(umi_offers[UMI_OFFER_EAGER].may);
    assert_non_null(umi_offers[UMI_OFFER_EAGER].unasked);
}

/* ---- what a sender offers ------------------------------------------------
 */

/* A send of `len` bytes on `channel`, which is not posted. */
static umx_request *
send_of(umx_ep *ep, umi_channel *channel, size_t len)
{
    static char bytes[LONG];

    umx_request *req = umi_request_new(ep->base.worker, &ep->base,
                                       &umi_channel_send_ops, NULL);

    assert_non_null(req);
    assert_true(len <= sizeof(bytes));
    req->buf = umx_host_buffer(bytes, len);
    memset(umi_send_of(req), 0, sizeof(umi_send));
    umi_send_of(req)->channel    = channel;
    umi_send_of(req)->header_len = UMI_HEADER_MIN;
    return req;
}

static void
check_way(umx_ep *ep, size_t len, umi_offer_id unasked, umi_offer_id announced)
{
    umx_request *req = send_of(ep, &umi_channels_of(ep)->channel0, len);

    assert_int_equal(umi_offer_choose(req, false), unasked);
    assert_int_equal(umi_offer_choose(req, true), announced);
    umi_request_free(req);
}

static void
limit(umx_ep *ep, umi_offer_id id, size_t min)
{
    umi_offer_limit(ep, id, (umi_lengths){.min = min, .max = SIZE_MAX});
}

static void
test_over_a_network_long_messages_go_in_pieces(void **state)
{
    pair *p = *state;

    pair_open(p);
    limit(p->client, UMI_OFFER_PIECES, UMI_TRANSFER_MIN);
    check_way(p->client, 0, UMI_OFFER_EAGER, UMI_OFFER_RNDV);
    check_way(p->client, UMI_TRANSFER_MIN - 1, UMI_OFFER_EAGER, UMI_OFFER_RNDV);
    check_way(p->client, UMI_TRANSFER_MIN, UMI_OFFER_PIECES, UMI_OFFER_PIECES);
}

static void
test_over_shared_memory_bytes_follow_their_header(void **state)
{
    pair *p = *state;

    pair_open(p);
    limit(p->client, UMI_OFFER_FOLLOW, UMI_FOLLOW_MIN);
    check_way(p->client, UMI_FOLLOW_MIN - 1, UMI_OFFER_EAGER, UMI_OFFER_BOUNCE);
    check_way(p->client, UMI_FOLLOW_MIN, UMI_OFFER_FOLLOW, UMI_OFFER_BOUNCE);
    limit(p->client, UMI_OFFER_BOUNCE, SIZE_MAX); /* a peer that has none */
    check_way(p->client, UMI_FOLLOW_MIN, UMI_OFFER_FOLLOW, UMI_OFFER_RNDV);
}

/* Active messages, streams and frames: their kinds take no bytes that follow.
 */
static void
test_only_plain_messages_follow(void **state)
{
    pair        *p = *state;
    umi_channel *channel;
    umx_request *req;

    pair_open(p);
    limit(p->client, UMI_OFFER_FOLLOW, UMI_FOLLOW_MIN);
    channel = umi_channel_get(p->client,
                              umi_header_channel_id(UMI_KIND_AM, 100));
    assert_non_null(channel);
    req = send_of(p->client, channel, UMI_FOLLOW_MIN);
    assert_int_equal(umi_offer_choose(req, false), UMI_OFFER_EAGER);
    umi_request_free(req);
}

static void
test_long_messages_and_those_of_devices_are_announced(void **state)
{
    pair        *p = *state;
    umx_request *req;

    pair_open(p);
    limit(p->client, UMI_OFFER_RNDV, 1000);
    req = send_of(p->client, &umi_channels_of(p->client)->channel0, 999);
    assert_false(umi_offer_must_announce(req));
    req->buf.len = 1000;
    assert_true(umi_offer_must_announce(req));
    limit(p->client, UMI_OFFER_RNDV, SIZE_MAX);
    assert_false(umi_offer_must_announce(req));
    req->buf.memtype = UMX_MEMTYPE_CUDA;
    req->buf.len     = UMI_COPIED_MAX + 1;
    assert_true(umi_offer_must_announce(req));
    umi_request_free(req);
}

static void
test_few_bytes_of_a_device_are_copied(void **state)
{
    pair        *p = *state;
    umi_channel *channel;
    umx_request *req;

    pair_open(p);
    req              = send_of(p->client, &umi_channels_of(p->client)->channel0,
                               UMI_COPIED_MAX);
    req->buf.memtype = UMX_MEMTYPE_CUDA;
    assert_false(umi_offer_must_announce(req));
    assert_int_equal(umi_offer_choose(req, false), UMI_OFFER_COPIED);
    assert_int_equal(umi_offer_choose(req, true), UMI_OFFER_BOUNCE);
    for (unsigned id = 0; id <= UMI_AM_USER; id += UMI_AM_USER) {
        channel = umi_channel_get(
            p->client, umi_header_channel_id(UMI_KIND_AM, (uint16_t)id));
        assert_non_null(channel);
        umi_send_of(req)->channel = channel;
        assert_true(umi_offer_must_announce(req));
    }
    channel = umi_channel_get(p->client, UMI_CHANNEL_REPLIES);
    assert_non_null(channel);
    umi_send_of(req)->channel = channel;
    assert_false(umi_offer_must_announce(req));
    p->client->base.does_bounce = false; /* a peer that cannot fetch */
    assert_true(umi_offer_must_announce(req));
    umi_request_free(req);
}

/* Of the ways of a connection, the one that the shortest messages go by. */
static void
test_shorter_messages_are_not_looked_at(void **state)
{
    pair         *p        = *state;
    umi_channels *channels = NULL;

    pair_open(p);
    channels = umi_channels_of(p->client);
    for (int id = 0; id < UMI_OFFER_EAGER; id++) {
        limit(p->client, (umi_offer_id)id, SIZE_MAX);
    }
    assert_true(channels->plain_below == SIZE_MAX);
    limit(p->client, UMI_OFFER_RNDV, 70000);
    assert_int_equal(channels->plain_below, 70000);
    limit(p->client, UMI_OFFER_LOAN, 50000);
    assert_int_equal(channels->plain_below, 50000);
    limit(p->client, UMI_OFFER_PIECES, UMI_TRANSFER_MIN);
    assert_int_equal(channels->plain_below, UMI_TRANSFER_MIN);
    limit(p->client, UMI_OFFER_PIECES, SIZE_MAX);
    assert_int_equal(channels->plain_below, 50000);
}

static void
test_the_choice_is_kept_in_the_send(void **state)
{
    static char out[LONG], in[LONG];

    pair *p = *state;
    op    sent;

    pair_open(p);
    limit(p->client, UMI_OFFER_RNDV, LONG);
    limit(p->client, UMI_OFFER_LOAN, SIZE_MAX);
    limit(p->client, UMI_OFFER_BOUNCE, SIZE_MAX);
    op_send(&sent, p->client, 0, pair_tag(1), out, LONG);
    assert_int_equal(sent.status, UMX_INPROGRESS);
    assert_int_equal(umi_send_of(sent.req)->way, UMI_OFFER_RNDV);
    assert_true(umi_send_of(sent.req)->is_rndv);
    assert_true(umi_send_of(sent.req)->must_announce);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, in, LONG), UMX_OK);
    PAIR_UNTIL(p, op_is_done(&sent));
}

/* ---- for people ----------------------------------------------------------
 */

static void
test_the_ways_are_told(void **state)
{
    pair *p = *state;
    char  text[UMI_OFFERS_TEXT];

    pair_open(p);
    for (int id = 0; id < UMI_OFFER_EAGER; id++) {
        limit(p->client, (umi_offer_id)id, SIZE_MAX);
    }
    umi_offer_text(p->client, text);
    assert_string_equal(text, "eager");
    limit(p->client, UMI_OFFER_PIECES, 16384);
    limit(p->client, UMI_OFFER_RNDV, 70000);
    umi_offer_limit(p->client, UMI_OFFER_LOAN,
                    (umi_lengths){.min = 100, .max = 200});
    umi_offer_text(p->client, text);
    assert_string_equal(text, "pieces from 16384 bytes, "
                              "loan from 100 to 200 bytes, "
                              "rendezvous from 70000 bytes, else eager");
    umi_offer_limit(p->client, UMI_OFFER_LOAN,
                    (umi_lengths){.min = 200, .max = 100});
    umi_offer_text(p->client, text);
    assert_null(strstr(text, "loan"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_row_has_what_sender_and_receiver_need),
        cmocka_unit_test(test_the_last_rows_take_any_message),
        {"test_over_a_network_long_messages_go_in_pieces",
         test_over_a_network_long_messages_go_in_pieces, pair_setup,
         pair_teardown, (void *)"tcp"},
        PAIR_TEST_ONCE(test_over_shared_memory_bytes_follow_their_header),
        PAIR_TEST_ONCE(test_only_plain_messages_follow),
        PAIR_TEST_ONCE(test_long_messages_and_those_of_devices_are_announced),
        PAIR_TEST_ONCE(test_few_bytes_of_a_device_are_copied),
        PAIR_TEST_ONCE(test_shorter_messages_are_not_looked_at),
        PAIR_TEST(test_the_choice_is_kept_in_the_send),
        PAIR_TEST_ONCE(test_the_ways_are_told),
    };

    return UNIT_RUN_ONCE(tests, NULL, NULL);
}
