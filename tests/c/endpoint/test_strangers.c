/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
/* tests: worker/kinds_of_peers host/routes endpoint/address_kind ops/engines */
/* What peers cost that have no token and of which nothing has been received. */
#include "pair.h"
#include "prove.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <ucs/config/global_opts.h>
#include <umx/version.h>
#include <unistd.h>

#include "codec/ucx_address.h"
#include "worker/kinds_of_peers.h"
#include "worker/link.h"
#include "endpoint/address_kind.h"
#include "endpoint/strangers.h"
#include "endpoint/wireup.h"
#include "util/log.h"
#include "ops/engines.h"

enum {
    MAX_ADDRESS = 2048,
    MAX_PLACES  = 1024
};

typedef struct bytes {
    uint8_t data[MAX_ADDRESS + UMI_UCX_ADDRESS_PADDING];
    size_t  len;
} bytes;

/* ---- addresses -----------------------------------------------------------
 */

static void
address_of(umx_worker *worker, bytes *address)
{
    const void *data;

    memset(address, 0, sizeof(*address));
    assert_int_equal(
        umi_engine_address(worker->engine, true, &data, &address->len), UMX_OK);
    assert_in_range(address->len, 16, MAX_ADDRESS);
    memcpy(address->data, data, address->len);
}

/* Where UCX's number of the worker is. */
static uint8_t *
uuid_in(bytes *address)
{
    return address->data + ((address->data[0] & 0x0f) == 0 ? 1 : 2);
}

typedef struct places {
    const uint8_t *base;
    size_t         at[MAX_PLACES]; /* of bytes that are no part of addresses */
    size_t         count;
    size_t         devices[64]; /* where they begin */
    size_t         num_devices;
} places;

static void
note_places(const umi_ucx_piece *piece, void *arg)
{
    places *p = arg;

    for (size_t i = 0; i < piece->head_len; i++) {
        assert_true(p->count < MAX_PLACES);
        p->at[p->count++] = (size_t)(piece->head - p->base) + i;
    }
    if (piece->transport == NULL) {
        p->devices[p->num_devices++] = (size_t)(piece->head - p->base);
    }
}

static void
find_places(const bytes *address, places *p)
{
    memset(p, 0, sizeof(*p));
    p->base = address->data;
    umi_ucx_address_walk(address->data, address->len, note_places, p);
    assert_true(p->count > 16 && p->num_devices > 1);
}

/* ---- strangers -----------------------------------------------------------
 */

typedef struct visitor {
    umx_ep *ep;
    int     fd;
} visitor;

static void
connect_raw(pair *p, visitor *v)
{
    struct sockaddr_storage addr;
    socklen_t               len      = (socklen_t)pair_address(p, &addr);
    unsigned                in_hands = p->listener->num_handshakes;

    v->fd = socket(addr.ss_family, SOCK_STREAM, 0);
    assert_int_equal(connect(v->fd, (void *)&addr, len), 0);
    PAIR_UNTIL(p, p->listener->num_handshakes == in_hands + 1);
    v->ep = umi_endpoint_of(
        umi_container_of(p->server_worker->eps.prev, umi_ep_base, node));
}

/* Say HELLO as the worker `number`, whose address is the client's but for the
 * number of a memory domain, which makes it one of the kind `kind`. */
static void
visit(pair *p, visitor *v, uint8_t number, uint8_t kind)
{
    umi_control hello = {.kind = UMI_HELLO};
    bytes       address;
    uint8_t    *uuid;
    places      at;

    address_of(p->client_worker, &address);
    find_places(&address, &at);
    /* A device begins with the number of its memory domain. */
    address.data[at.devices[1]] =
        (uint8_t)((address.data[at.devices[1]] & 0x80) | kind);
    uuid    = uuid_in(&address);
    uuid[0] = number;
    uuid[1] ^= 0x55;
    stranger(number, &hello.u.hello.where);
    hello.u.hello.where.address     = address.data;
    hello.u.hello.where.address_len = (uint16_t)address.len;
    hello.u.hello.major             = UMX_WIRE_VERSION;
    hello.u.hello.features          = (uint64_t)p->client_context->queues
                             << UMI_FEATURE_QUEUES;
    hello.u.hello.channels = 1;
    hello.u.hello.limits   = (umi_limits){100, 100, 100};
    connect_raw(p, v);
    pair_hear(v->ep, &hello);
}

static bool
is_welcome(const visitor *v)
{
    return v->ep->handshake->is_welcomed && !v->ep->handshake->is_rejected;
}

static void
leave(pair *p, visitor *v)
{
    unsigned in_hands = p->listener->num_handshakes;

    close(v->fd);
    PAIR_UNTIL(p, p->listener->num_handshakes < in_hands);
}

/* The worker looks now whether it needs a guest engine. */
static bool
has_guests(const pair *p)
{
    umi_strangers *strangers = p->server_worker->strangers;

    if (strangers->guest != NULL) {
        umi_timer_start(p->server_worker, &strangers->idle, 0);
    }
    return !umi_list_is_empty(&p->server_worker->other_engines);
}

/* ---- limits --------------------------------------------------------------
 */

/* Until as many kinds are in use as may be. */
static void
fill(pair *p, visitor visitors[UMI_STRANGERS_MAX])
{
    for (uint8_t i = 0; i < UMI_STRANGERS_MAX; i++) {
        visit(p, &visitors[i], i + 1, i + 8);
        assert_true(is_welcome(&visitors[i]));
    }
}

static void
drain(pair *p, visitor visitors[UMI_STRANGERS_MAX])
{
    for (int i = 0; i < UMI_STRANGERS_MAX; i++) {
        leave(p, &visitors[i]);
    }
    PAIR_UNTIL(p, !has_guests(p));
}

static void
check_refused_by_name(visitor *v)
{
    char    text[512] = "";
    ssize_t len       = recv(v->fd, text, sizeof(text) - 1, 0);
    bool    is_named  = false;

    assert_true(v->ep->handshake->is_rejected);
    for (ssize_t i = 0; i < len; i++) {
        is_named = is_named ||
                   strncmp(text + i, "16 kinds of UCX addresses", 25) == 0;
    }
    assert_true(is_named);
}

static void
test_strangers_of_many_kinds_are_refused_by_name(void **state)
{
    pair   *p = *state;
    visitor visitors[UMI_STRANGERS_MAX], next, same;

    pair_listen(p);
    fill(p, visitors);
    visit(p, &next, 100, 60);
    check_refused_by_name(&next);
    leave(p, &next);
    /* The kind is known, in the worker's engine and in a guest. */
    visit(p, &same, 101, 8);
    assert_true(is_welcome(&same));
    leave(p, &same);
    visit(p, &same, 102, 8 + UMI_STRANGERS_MAX - 1);
    assert_true(is_welcome(&same));
    leave(p, &same);
    /* There is room again. */
    leave(p, &visitors[7]);
    visit(p, &visitors[7], 103, 61);
    assert_true(is_welcome(&visitors[7]));
    visit(p, &next, 104, 62);
    check_refused_by_name(&next);
    leave(p, &next);
    drain(p, visitors);
}

/* Whoever comes and goes leaves nothing: there are more kinds than UCX has room
 * for. */
static void
test_strangers_leave_no_configurations(void **state)
{
    pair                    *p = *state;
    umi_configuration_counts counts;
    visitor                  v;

    pair_listen(p);
    for (int round = 0; round < 5; round++) {
        for (uint8_t kind = 8; kind < 64; kind++) {
            visit(p, &v, (uint8_t)(round * 64 + kind), kind);
            assert_true(is_welcome(&v));
            leave(p, &v);
        }
    }
    PAIR_UNTIL(p, !has_guests(p));
    umi_configurations_count(&p->server_worker->engine->configurations,
                             &counts);
    assert_in_range(counts.all, 1, 4);
    assert_int_equal(counts.in_use, 0);
}

/* A peer is no stranger once the program has received something of it. */
static void
test_who_was_heard_is_no_stranger(void **state)
{
    pair                    *p = *state;
    umi_configuration_counts counts;
    visitor                  visitors[UMI_STRANGERS_MAX];
    umi_engine              *engine;
    char                     in;

    pair_open(p);
    engine = p->server_worker->engine;
    umi_links_note_trust(p->server_worker);
    umi_configurations_count(&engine->configurations, &counts);
    assert_int_equal(counts.in_use, 1);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "a", 1), UMX_OK);
    pair_settle(p);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &in, 1), UMX_OK);
    umi_links_note_trust(p->server_worker);
    umi_configurations_count(&engine->configurations, &counts);
    assert_int_equal(counts.in_use, 0);
    assert_int_equal(counts.all, 1);
    fill(p, visitors);
    drain(p, visitors);
}

/* Peers whose kind is known connect while strangers use all there is. */
static void
test_known_peers_connect_beside_strangers(void **state)
{
    pair   *p = *state;
    visitor visitors[UMI_STRANGERS_MAX];
    umx_ep *client, *server;
    char    in;

    pair_open(p);
    client = p->client;
    server = p->server;
    assert_int_equal(pair_send(p, client, 0, pair_tag(1), "a", 1), UMX_OK);
    assert_int_equal(pair_recv(p, server, 0, pair_any, &in, 1), UMX_OK);
    fill(p, visitors);
    p->server = NULL;
    pair_connect(p, 0);
    PAIR_UNTIL(p, p->server != NULL);
    assert_int_equal(umx_ep_get_state(p->client), UMX_EP_OPEN);
    drain(p, visitors);
    umx_ep_destroy(client);
    umx_ep_destroy(server);
}

/* A peer that finds no room in the worker's own engine lives in another, and
 * all works there. */
static void
test_a_guest_can_do_all(void **state)
{
    pair   *p = *state;
    visitor visitors[4];
    char    in = 0, large[1 << 18], copy[1 << 18];
    op      o;

    pair_listen(p);
    for (uint8_t i = 0; i < 4; i++) {
        visit(p, &visitors[i], i + 1, i + 8);
    }
    pair_connect(p, 0);
    PAIR_UNTIL(p, p->server != NULL);
    assert_ptr_not_equal(p->server->base.engine, p->server_worker->engine);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "a", 1), UMX_OK);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &in, 1), UMX_OK);
    assert_int_equal(in, 'a');
    fill_pattern(large, sizeof(large), 3);
    op_recv(&o, p->client, 0, pair_any, copy, sizeof(copy));
    assert_int_equal(
        pair_send(p, p->server, 0, pair_tag(2), large, sizeof(large)), UMX_OK);
    assert_int_equal(op_wait(p, &o), UMX_OK);
    check_pattern(copy, sizeof(copy), 3);
    for (int i = 0; i < 4; i++) {
        leave(p, &visitors[i]);
    }
    assert_true(has_guests(p));
    umx_ep_abort(p->client);
    PAIR_UNTIL(p, umx_ep_get_state(p->server) == UMX_EP_FAILED);
    umx_ep_destroy(p->server);
    p->server = NULL;
    PAIR_UNTIL(p, !has_guests(p));
}

/* With a token nobody is a stranger. */
static void
test_peers_that_know_the_token_are_no_strangers(void **state)
{
    static const uint8_t token[] = "secret";

    pair                    *p    = *state;
    umi_control              auth = {.kind = UMI_AUTH};
    umi_configuration_counts counts;
    visitor                  visitors[UMI_STRANGERS_MAX + 4];

    p->config.token     = token;
    p->config.token_len = sizeof(token);
    pair_listen(p);
    for (uint8_t i = 0; i < UMI_STRANGERS_MAX + 4; i++) {
        visit(p, &visitors[i], i + 1, i + 8);
        assert_false(visitors[i].ep->handshake->is_welcomed);
        prove(visitors[i].ep, &auth);
        pair_hear(visitors[i].ep, &auth);
        assert_true(is_welcome(&visitors[i]));
    }
    assert_false(has_guests(p));
    umi_configurations_count(&p->server_worker->engine->configurations,
                             &counts);
    assert_int_equal(counts.all, UMI_STRANGERS_MAX + 4);
    assert_int_equal(counts.strangers, 0);
    for (int i = 0; i < UMI_STRANGERS_MAX + 4; i++) {
        leave(p, &visitors[i]);
    }
}

/* UCX has no room for another configuration in the worker's engine: that is
 * replaced, and connections go on. */
static void
test_a_full_engine_is_replaced(void **state)
{
    pair       *p = *state;
    umi_engine *full;
    umx_ep     *client, *server;
    char        in;

    pair_open(p);
    client        = p->client;
    server        = p->server;
    full          = p->server_worker->engine;
    full->is_full = true;
    p->server     = NULL;
    pair_connect(p, 0);
    PAIR_UNTIL(p, p->server != NULL);
    assert_ptr_not_equal(p->server_worker->engine, full);
    assert_ptr_equal(p->server->base.engine, p->server_worker->engine);
    assert_int_equal(pair_send(p, client, 0, pair_tag(1), "a", 1), UMX_OK);
    assert_int_equal(pair_recv(p, server, 0, pair_any, &in, 1), UMX_OK);
    assert_int_equal(pair_send(p, p->client, 0, pair_tag(1), "b", 1), UMX_OK);
    assert_int_equal(pair_recv(p, p->server, 0, pair_any, &in, 1), UMX_OK);
    assert_int_equal(in, 'b');
    umx_ep_abort(client);
    umx_ep_destroy(client);
    umx_ep_destroy(server);
    PAIR_UNTIL(p, !has_guests(p)); /* the full one is gone */
}

/* ---- kinds and UCX's configurations --------------------------------------
 */

static unsigned num_configurations; /* that UCX has logged */

static void
count_configurations(int level, const char *text, void *arg)
{
    (void)level;
    (void)arg;
    num_configurations += (strstr(text, " cfg#") != NULL);
}

typedef struct checker {
    pair    *p;
    unsigned num_in_engine;
    unsigned num_checked;
    unsigned num_new;
} checker;

/* True if this process may give the address to UCX. */
static bool
is_harmless(const bytes *address)
{
    umi_ucx_address decoded;
    const char     *why;

    return umi_ucx_address_decode(&decoded, address->data, address->len,
                                  &why) &&
           decoded.version <= 2;
}

/* UCX makes a configuration for an address of a new kind only. */
static void
check(checker *c, bytes *address)
{
    umx_worker    *worker = c->p->server_worker;
    umi_ep_base    ep     = {.worker = worker};
    umi_peer_claim claim  = {.address     = address->data,
                             .address_len = address->len};
    unsigned       before = num_configurations;
    umi_link      *link;
    bool           is_known;

    if (!is_harmless(address)) {
        return;
    }
    if (c->num_in_engine >= 100) {
        assert_int_equal(umi_ops_engines_renew(worker), UMX_OK);
        c->num_in_engine = 0;
    }
    assert_true(umi_random_bytes(uuid_in(address), 8));
    memcpy(&claim.uuid, uuid_in(address), 8);
    ep.engine = worker->engine;
    umi_endpoint_address_kind(worker, claim.address, claim.address_len,
                              claim.kind);
    is_known = umi_configuration_find(&ep.engine->configurations, claim.kind) !=
               NULL;
    c->num_checked++;
    if (umi_link_get(&ep, &claim, 1, &link) == UMX_OK) {
        link->is_proven = false; /* it is closed at once */
        umi_link_close(link);
    }
    if (is_known) {
        assert_int_equal(num_configurations, before);
    } else {
        c->num_in_engine += num_configurations - before;
        c->num_new += num_configurations - before;
    }
    if (c->num_checked % 16 == 0) {
        pair_step(c->p);
    }
}

/* A device's number and flags, paths and system device; a transport's name,
 * attributes and flags. */
static void
check_bytes(checker *c, const bytes *base, const places *at)
{
    static const uint8_t changes[] = {0x01, 0x02, 0x10, 0x20, 0x40, 0x80, 0xff};

    for (size_t i = 0; i < at->count; i++) {
        for (size_t k = 0; k < sizeof(changes); k++) {
            bytes changed = *base;

            changed.data[at->at[i]] ^= changes[k];
            check(c, &changed);
        }
    }
}

static void
check_pairs(checker *c, const bytes *base, const places *at)
{
    for (size_t i = 0; i < at->count; i++) {
        for (size_t j = i + 1; j < at->count; j++) {
            bytes    changed = *base;
            unsigned turn    = (unsigned)(i + j) % 7;

            changed.data[at->at[i]] ^= (uint8_t)(1u << turn);
            changed.data[at->at[j]] ^= (uint8_t)(1u << (7 - turn));
            check(c, &changed);
        }
    }
}

/* A number of paths or of a system device comes in. */
static void
check_insertions(checker *c, const bytes *base, const places *at)
{
    for (size_t d = 1; d < at->num_devices; d++) {
        for (unsigned flag = 0x20; flag <= 0x40; flag *= 2) {
            size_t pos     = at->devices[d] + 1;
            bytes  changed = *base;

            if (changed.data[pos] & flag) {
                continue;
            }
            changed.data[pos] |= (uint8_t)flag;
            memmove(changed.data + pos + 2, base->data + pos + 1,
                    base->len - pos - 1);
            changed.len++;
            for (unsigned value = 0; value < 256; value += 5) {
                bytes copy = changed;

                copy.data[pos + 1] = (uint8_t)value;
                check(c, &copy);
            }
        }
    }
}

/* Devices are left out: each of them, and any two. */
static void
check_omissions(checker *c, const bytes *base, const places *at)
{
    size_t num = at->num_devices - 2; /* but for the header and the last */

    for (unsigned out = 1; out < (1u << num); out++) {
        bytes  changed = *base;
        size_t len     = at->devices[1];

        for (size_t d = 0; d <= num; d++) {
            size_t from = at->devices[d + 1];
            size_t end  = (d + 2 < at->num_devices) ? at->devices[d + 2] :
                                                      base->len;

            if (d == num || !(out & (1u << d))) {
                memcpy(changed.data + len, base->data + from, end - from);
                len += end - from;
            }
        }
        memset(changed.data + len, 0, sizeof(changed.data) - len);
        changed.len = len;
        check(c, &changed);
    }
}

static void
test_equal_kinds_need_one_configuration(void **state)
{
    checker c = {.p = *state};
    bytes   base;
    places  at;

    pair_listen(c.p);
    address_of(c.p->client_worker, &base);
    find_places(&base, &at);
    assert_int_equal(ucs_global_opts_set_value("LOG_LEVEL", "info"), 0);
    umi_log_set_sink(count_configurations, NULL);
    check(&c, &base);
    assert_int_equal(c.num_new, 1);
    check(&c, &base);
    assert_int_equal(c.num_new, 1);
    check_omissions(&c, &base, &at);
    check_insertions(&c, &base, &at);
    check_bytes(&c, &base, &at);
    check_pairs(&c, &base, &at);
    umi_log_set_sink(NULL, NULL);
    assert_int_equal(ucs_global_opts_set_value("LOG_LEVEL", "warn"), 0);
    print_message("%u addresses, %u configurations\n", c.num_checked,
                  c.num_new);
    assert_true(c.num_checked > 1000 && c.num_new > 10);
}

/* ---- the connecting side -------------------------------------------------
 */

static void
test_an_engine_goes_with_what_began_anew_in_it(void **state)
{
    pair *p = *state;

    pair_listen(p);
    pair_connect(p, 0);
    assert_int_equal(umi_strangers_begin_anew(p->client), UMX_OK);
    assert_false(umi_list_is_empty(&p->client_worker->other_engines));
    umx_ep_abort(p->client);
    umx_ep_destroy(p->client);
    p->client = NULL;
    PAIR_UNTIL(p, umi_list_is_empty(&p->client_worker->other_engines));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_an_engine_goes_with_what_began_anew_in_it),
        PAIR_TEST(test_strangers_of_many_kinds_are_refused_by_name),
        PAIR_TEST(test_strangers_leave_no_configurations),
        PAIR_TEST(test_who_was_heard_is_no_stranger),
        PAIR_TEST(test_known_peers_connect_beside_strangers),
        PAIR_TEST(test_a_guest_can_do_all),
        PAIR_TEST(test_peers_that_know_the_token_are_no_strangers),
        PAIR_TEST(test_a_full_engine_is_replaced),
        PAIR_TEST(test_equal_kinds_need_one_configuration),
    };

    unsetenv("UCX_NET_DEVICES"); /* addresses of all devices: run.sh has one */
    return UNIT_RUN(tests);
}
