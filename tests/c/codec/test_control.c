/* SPDX-License-Identifier: BSD-3-Clause */
#include "codec/control.h"
#include "codec/header.h"

#include "unit.h"

#include <stdlib.h>
#include <string.h>
#include <umx/version.h>

enum {
    HEADER_SIZE = 8,
    KIND_AT     = 4,
    FLAGS_AT    = 5,
    LENGTH_AT   = 6,
    FIRST_KIND  = UMI_HELLO,
    LAST_KIND   = UMI_WITHDRAW
};

static uint8_t address[UMI_ADDRESS_MAX + 1];
static char    text[UMI_TEXT_MAX + 1];

/* ---- helpers ---- */

static void
fill(void *data, size_t len, uint8_t first)
{
    for (size_t i = 0; i < len; i++) {
        ((uint8_t *)data)[i] = (uint8_t)(first + i);
    }
}

static const umi_limits limits = {0x0102030405060708u, 0x11121314u,
                                  0x21222324u};

static const umi_where where = {{1, 2, 3, 4, 5, 6, 7, 8, 9},
                                {0xd1, 0xd2, 0xd3},
                                0x3334353637383930u,
                                0xb1b2b3b4u,
                                0xe1e2e3e4u,
                                0xc1c2c3c4u,
                                5,
                                address};

/* A message of `kind` whose every field is set, each to a value of its own. */
static umi_control
make(int kind)
{
    umi_control c;

    memset(&c, 0, sizeof(c));
    c.kind = (umi_control_kind)kind;
    switch (c.kind) {
    case UMI_HELLO:
        c.u.hello.major    = UMX_WIRE_VERSION;
        c.u.hello.channels = 0x35363738;
        c.u.hello.minor    = 0x0304;
        c.u.hello.features = 0x3132333435363738u;
        c.u.hello.limits   = limits;
        c.u.hello.where    = where;
        fill(c.u.hello.nonce, UMI_NONCE_SIZE, 0x40);
        break;
    case UMI_CHALLENGE:
        fill(c.u.challenge.nonce, UMI_NONCE_SIZE, 0x50);
        break;
    case UMI_AUTH:
        fill(c.u.auth.mac, UMI_MAC_SIZE, 0x60);
        break;
    case UMI_WELCOME:
        c.u.welcome.major    = UMX_WIRE_VERSION;
        c.u.welcome.channels = 0x35363738;
        c.u.welcome.minor    = 0x0304;
        c.u.welcome.features = 0x3132333435363738u;
        c.u.welcome.limits   = limits;
        c.u.welcome.where    = where;
        c.u.welcome.peer     = 0x9192939495969798u;
        c.u.welcome.made     = 0xa1a2a3a4a5a6a7a8u;
        fill(c.u.welcome.nonce, UMI_NONCE_SIZE, 0x50);
        fill(c.u.welcome.mac, UMI_MAC_SIZE, 0x70);
        break;
    case UMI_REJECT:
        c.u.reject.reason   = -205;
        c.u.reject.text     = text;
        c.u.reject.text_len = 7;
        break;
    case UMI_GOODBYE:
        c.u.goodbye.code       = -25;
        c.u.goodbye.raw_tags   = 0x4142434445464748u;
        c.u.goodbye.count      = 2;
        c.u.goodbye.is_last    = true;
        c.u.goodbye.entries[0] = (umi_goodbye_entry){0x010102, 0x51525354};
        c.u.goodbye.entries[1] = (umi_goodbye_entry){0x3ffff, 0xfffffffe};
        break;
    case UMI_CREDIT:
        c.u.credit.channel = 0x020506;
        c.u.credit.limits  = limits;
        c.u.credit.reserve = 0x31323334;
        break;
    case UMI_PING:
    case UMI_PONG:
    case UMI_INFO_REQUEST:
    case UMI_CLOSE_LISTENER:
        c.u.ask.token = 0x6162636465666768u;
        break;
    case UMI_CLOSE_AFTER_N:
        c.u.close_after_n.n = 0x7172737475767778u;
        break;
    case UMI_LISTENER_CLOSED:
        c.u.listener_closed.token  = 0x9192939495969798u;
        c.u.listener_closed.status = -14;
        break;
    case UMI_NOTIFY:
        c.u.notify.memory = 0xb1b2b3b4b5b6b7b8u;
        break;
    case UMI_WITHDRAW:
        c.u.withdraw.channel = 0x00010203u;
        c.u.withdraw.seq     = 0xc1c2c3c4u;
        break;
    case UMI_INFO:
        c.u.info.token    = 0x8182838485868788u;
        c.u.info.text     = text;
        c.u.info.text_len = 9;
        break;
    case UMI_OPEN:
        c.u.open.peer = 0x8182838485868788u;
        fill(c.u.open.mac, UMI_MAC_SIZE, 0x70);
        break;
    case UMI_GOODBYE_ACK:
        break;
    }
    return c;
}

/* From a heap copy of exactly `len` bytes, so that ASan sees a read past it;
 * pointers are made to lead into `data`. */
static bool
decode(umi_control *control, const uint8_t *data, size_t len,
       const char **why_p)
{
    uint8_t *copy = malloc(len != 0 ? len : 1);
    bool     is_good;

    assert_non_null(copy);
    memcpy(copy, data, len);
    memset(control, 0xa5, sizeof(*control));
    *why_p  = NULL;
    is_good = umi_control_decode(control, copy, len, why_p);
    if (is_good && control->kind == UMI_HELLO) {
        if (control->u.hello.major == UMX_WIRE_VERSION) {
            control->u.hello.where.address =
                data + (control->u.hello.where.address - copy);
        } else {
            control->u.hello.rest.data = data +
                                         (control->u.hello.rest.data - copy);
        }
    } else if (is_good && control->kind == UMI_WELCOME) {
        if (control->u.welcome.major == UMX_WIRE_VERSION) {
            control->u.welcome.where.address =
                data + (control->u.welcome.where.address - copy);
        } else {
            control->u.welcome.rest.data =
                data + (control->u.welcome.rest.data - copy);
        }
    } else if (is_good && control->kind == UMI_REJECT) {
        control->u.reject.text = (const char *)data +
                                 (control->u.reject.text - (char *)copy);
    } else if (is_good && control->kind == UMI_INFO) {
        control->u.info.text = (const char *)data +
                               (control->u.info.text - (char *)copy);
    }
    free(copy);
    return is_good;
}

static void
assert_decoded(umi_control *control, const uint8_t *data, size_t len)
{
    const char *why;

    if (!decode(control, data, len, &why)) {
        fail_msg("refused: %s", why);
    }
}

static void
assert_refused(const uint8_t *data, size_t len, const char *expected)
{
    umi_control control;
    const char *why;

    assert_false(decode(&control, data, len, &why));
    assert_non_null(why);
    if (expected != NULL) {
        assert_string_equal(why, expected);
    }
}

static void
set_body_len(uint8_t *data, size_t len)
{
    data[LENGTH_AT]     = (uint8_t)len;
    data[LENGTH_AT + 1] = (uint8_t)(len >> 8);
}

/* Write a message with this body; returns its length. */
static size_t
frame(uint8_t *data, int kind, const void *body, size_t len)
{
    static const uint8_t header[HEADER_SIZE] = {'U', 'M', 'X', '1'};

    memcpy(data, header, sizeof(header));
    data[KIND_AT] = (uint8_t)kind;
    set_body_len(data, len);
    memcpy(data + HEADER_SIZE, body, len);
    return HEADER_SIZE + len;
}

static void
assert_limits_equal(const umi_limits *a, const umi_limits *b)
{
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->messages, b->messages);
    assert_int_equal(a->rndv, b->rndv);
}

static void
assert_where_equal(const umi_where *a, const umi_where *b)
{
    assert_memory_equal(a->worker_id, b->worker_id, UMI_WHERE_ID_SIZE);
    assert_memory_equal(a->key, b->key, UMI_KEY_SIZE);
    assert_int_equal(a->endpoint, b->endpoint);
    assert_int_equal(a->pid, b->pid);
    assert_int_equal(a->process_ns, b->process_ns);
    assert_int_equal(a->version, b->version);
    assert_int_equal(a->address_len, b->address_len);
    assert_memory_equal(a->address, b->address, a->address_len);
}

static void
assert_hello_equal(const umi_control *a, const umi_control *b)
{
    assert_int_equal(a->u.hello.major, b->u.hello.major);
    assert_int_equal(a->u.hello.minor, b->u.hello.minor);
    assert_int_equal(a->u.hello.features, b->u.hello.features);
    assert_memory_equal(a->u.hello.nonce, b->u.hello.nonce, UMI_NONCE_SIZE);
    assert_limits_equal(&a->u.hello.limits, &b->u.hello.limits);
    assert_int_equal(a->u.hello.channels, b->u.hello.channels);
    assert_where_equal(&a->u.hello.where, &b->u.hello.where);
}

static void
assert_welcome_equal(const umi_control *a, const umi_control *b)
{
    assert_int_equal(a->u.welcome.major, b->u.welcome.major);
    assert_int_equal(a->u.welcome.minor, b->u.welcome.minor);
    assert_int_equal(a->u.welcome.features, b->u.welcome.features);
    assert_limits_equal(&a->u.welcome.limits, &b->u.welcome.limits);
    assert_memory_equal(a->u.welcome.nonce, b->u.welcome.nonce, UMI_NONCE_SIZE);
    assert_memory_equal(a->u.welcome.mac, b->u.welcome.mac, UMI_MAC_SIZE);
    assert_int_equal(a->u.welcome.channels, b->u.welcome.channels);
    assert_where_equal(&a->u.welcome.where, &b->u.welcome.where);
    assert_int_equal(a->u.welcome.peer, b->u.welcome.peer);
    assert_int_equal(a->u.welcome.made, b->u.welcome.made);
}

static void
assert_goodbye_equal(const umi_control *a, const umi_control *b)
{
    assert_int_equal(a->u.goodbye.code, b->u.goodbye.code);
    assert_int_equal(a->u.goodbye.raw_tags, b->u.goodbye.raw_tags);
    assert_int_equal(a->u.goodbye.is_last, b->u.goodbye.is_last);
    assert_int_equal(a->u.goodbye.count, b->u.goodbye.count);
    for (int i = 0; i < a->u.goodbye.count; i++) {
        assert_int_equal(a->u.goodbye.entries[i].channel,
                         b->u.goodbye.entries[i].channel);
        assert_int_equal(a->u.goodbye.entries[i].next_seq,
                         b->u.goodbye.entries[i].next_seq);
    }
}

static void
assert_control_equal(const umi_control *a, const umi_control *b)
{
    assert_int_equal(a->kind, b->kind);
    switch (a->kind) {
    case UMI_HELLO:
        assert_hello_equal(a, b);
        break;
    case UMI_CHALLENGE:
        assert_memory_equal(a->u.challenge.nonce, b->u.challenge.nonce,
                            UMI_NONCE_SIZE);
        break;
    case UMI_AUTH:
        assert_memory_equal(a->u.auth.mac, b->u.auth.mac, UMI_MAC_SIZE);
        break;
    case UMI_WELCOME:
        assert_welcome_equal(a, b);
        break;
    case UMI_REJECT:
        assert_int_equal(a->u.reject.reason, b->u.reject.reason);
        assert_int_equal(a->u.reject.text_len, b->u.reject.text_len);
        assert_memory_equal(a->u.reject.text, b->u.reject.text,
                            a->u.reject.text_len);
        break;
    case UMI_GOODBYE:
        assert_goodbye_equal(a, b);
        break;
    case UMI_CREDIT:
        assert_int_equal(a->u.credit.channel, b->u.credit.channel);
        assert_limits_equal(&a->u.credit.limits, &b->u.credit.limits);
        assert_int_equal(a->u.credit.reserve, b->u.credit.reserve);
        break;
    case UMI_PING:
    case UMI_PONG:
    case UMI_INFO_REQUEST:
    case UMI_CLOSE_LISTENER:
        assert_int_equal(a->u.ask.token, b->u.ask.token);
        break;
    case UMI_CLOSE_AFTER_N:
        assert_int_equal(a->u.close_after_n.n, b->u.close_after_n.n);
        break;
    case UMI_LISTENER_CLOSED:
        assert_int_equal(a->u.listener_closed.token,
                         b->u.listener_closed.token);
        assert_int_equal(a->u.listener_closed.status,
                         b->u.listener_closed.status);
        break;
    case UMI_NOTIFY:
        assert_int_equal(a->u.notify.memory, b->u.notify.memory);
        break;
    case UMI_WITHDRAW:
        assert_int_equal(a->u.withdraw.channel, b->u.withdraw.channel);
        assert_int_equal(a->u.withdraw.seq, b->u.withdraw.seq);
        break;
    case UMI_INFO:
        assert_int_equal(a->u.info.token, b->u.info.token);
        assert_int_equal(a->u.info.text_len, b->u.info.text_len);
        assert_memory_equal(a->u.info.text, b->u.info.text, a->u.info.text_len);
        break;
    case UMI_OPEN:
        assert_int_equal(a->u.open.peer, b->u.open.peer);
        assert_memory_equal(a->u.open.mac, b->u.open.mac, UMI_MAC_SIZE);
        break;
    case UMI_GOODBYE_ACK:
        break;
    }
}

static size_t
assert_round_trip(const umi_control *control)
{
    uint8_t     data[UMI_CONTROL_MAX];
    umi_control decoded;
    size_t      len = umi_control_encode(control, data);

    assert_true(len >= HEADER_SIZE);
    assert_decoded(&decoded, data, len);
    assert_control_equal(control, &decoded);
    return len;
}

/* ---- what is accepted ---- */

static void
test_round_trip_of_every_kind(void **state)
{
    (void)state;
    for (int kind = FIRST_KIND; kind <= LAST_KIND; kind++) {
        umi_control control = make(kind);

        assert_round_trip(&control);
    }
}

static void
test_sizes_are_frozen(void **state)
{
    enum {
        WHERE_SIZE = 16 + 32 + 8 + 4 + 4 + 4 + 8 + 2 + 5
    };
    /* Of the messages that make() makes. */
    static const size_t sizes[LAST_KIND + 1] = {
        [UMI_HELLO]     = HEADER_SIZE + 2 + 2 + 8 + 16 + 16 + 4 + WHERE_SIZE,
        [UMI_CHALLENGE] = HEADER_SIZE + 16,
        [UMI_AUTH]      = HEADER_SIZE + 32,
        [UMI_WELCOME]   = HEADER_SIZE + 2 + 2 + 8 + 16 + 16 + 4 + 32 +
                        WHERE_SIZE + 16,
        [UMI_REJECT]          = HEADER_SIZE + 4 + 2 + 7,
        [UMI_GOODBYE]         = HEADER_SIZE + 4 + 8 + 2 + 1 + 2 * 8,
        [UMI_GOODBYE_ACK]     = HEADER_SIZE,
        [UMI_CREDIT]          = HEADER_SIZE + 4 + 16 + 4,
        [UMI_PING]            = HEADER_SIZE + 8,
        [UMI_PONG]            = HEADER_SIZE + 8,
        [UMI_CLOSE_AFTER_N]   = HEADER_SIZE + 8,
        [UMI_INFO_REQUEST]    = HEADER_SIZE + 8,
        [UMI_INFO]            = HEADER_SIZE + 8 + 2 + 9,
        [UMI_OPEN]            = HEADER_SIZE + 8 + 32,
        [UMI_CLOSE_LISTENER]  = HEADER_SIZE + 8,
        [UMI_LISTENER_CLOSED] = HEADER_SIZE + 8 + 4,
        [UMI_NOTIFY]          = HEADER_SIZE + 8,
        [UMI_WITHDRAW]        = HEADER_SIZE + 4 + 4,
    };

    (void)state;
    for (int kind = FIRST_KIND; kind <= LAST_KIND; kind++) {
        umi_control control = make(kind);

        assert_int_equal(assert_round_trip(&control), sizes[kind]);
    }
}

/* Golden bytes: wire version 4 must not change under a peer. */
static void
test_bytes_of_hello_are_frozen(void **state)
{
    static const uint8_t expected[] = {
        'U',  'M',  'X',  '1',  1,    0,    131,  0,    /* header */
        4,    0,    0x04, 0x03,                         /* version */
        0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, /* features */
        0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, /* nonce */
        0x48, 0x49, 0x4a, 0x4b, 0x4c, 0x4d, 0x4e, 0x4f, 0x08, 0x07, 0x06,
        0x05, 0x04, 0x03, 0x02, 0x01, /* limits */
        0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 0x38, 0x37, 0x36,
        0x35,                                        /* channels */
        1,    2,    3,    4,    5,    6,    7,    8, /* worker id */
        9,    0,    0,    0,    0,    0,    0,    0,    0xd1, 0xd2, 0xd3,
        0,    0,    0,    0,    0, /* key */
        0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,
        0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,
        0,    0,    0x30, 0x39, 0x38, 0x37, 0x36, 0x35, 0x34, 0x33, /* endpoint
                                                                     */
        0xb4, 0xb3, 0xb2, 0xb1, 0xe4, 0xe3, 0xe2, 0xe1, /* pid, its namespace */
        0xc4, 0xc3, 0xc2, 0xc1,                         /* version */
        0x25, 0xb6, 0x6a, 0x0b, 0xd8, 0xae, 0xf2, 0x6c, /* sum */
        5,    0,    0x80, 0x81, 0x82, 0x83, 0x84,       /* address */
    };
    umi_control control = make(UMI_HELLO);
    uint8_t     data[UMI_CONTROL_MAX];

    (void)state;
    assert_int_equal(umi_control_encode(&control, data), sizeof(expected));
    assert_memory_equal(data, expected, sizeof(expected));
}

static void
test_bytes_of_goodbye_are_frozen(void **state)
{
    static const uint8_t expected[] = {
        'U',  'M',  'X',  '1',  6,    0,    31,   0,    /* header */
        0xe7, 0xff, 0xff, 0xff,                         /* code */
        0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41, /* raw tags */
        2,    0,    1,                                  /* count, is_last */
        0x02, 0x01, 0x01, 0x00, 0x54, 0x53, 0x52, 0x51, /* entries */
        0xff, 0xff, 0x03, 0x00, 0xfe, 0xff, 0xff, 0xff,
    };
    umi_control control = make(UMI_GOODBYE);
    uint8_t     data[UMI_CONTROL_MAX];

    (void)state;
    assert_int_equal(umi_control_encode(&control, data), sizeof(expected));
    assert_memory_equal(data, expected, sizeof(expected));
}

static void
test_kinds_are_frozen(void **state)
{
    (void)state;
    assert_int_equal(UMI_HELLO, 1);
    assert_int_equal(UMI_CHALLENGE, 2);
    assert_int_equal(UMI_AUTH, 3);
    assert_int_equal(UMI_WELCOME, 4);
    assert_int_equal(UMI_REJECT, 5);
    assert_int_equal(UMI_GOODBYE, 6);
    assert_int_equal(UMI_GOODBYE_ACK, 7);
    assert_int_equal(UMI_CREDIT, 8);
    assert_int_equal(UMI_PING, 9);
    assert_int_equal(UMI_PONG, 10);
    assert_int_equal(UMI_CLOSE_AFTER_N, 11);
    assert_int_equal(UMI_INFO_REQUEST, 12);
    assert_int_equal(UMI_INFO, 13);
    assert_int_equal(UMI_OPEN, 14);
    assert_int_equal(UMI_CLOSE_LISTENER, 15);
    assert_int_equal(UMI_LISTENER_CLOSED, 16);
    assert_int_equal(UMI_NOTIFY, 17);
    assert_int_equal(UMI_WITHDRAW, 18);
}

static void
test_empty_lengths(void **state)
{
    umi_control reject  = make(UMI_REJECT);
    umi_control goodbye = make(UMI_GOODBYE);
    umi_control info    = make(UMI_INFO);

    (void)state;
    reject.u.reject.text_len  = 0;
    goodbye.u.goodbye.count   = 0;
    goodbye.u.goodbye.is_last = false;
    info.u.info.text_len      = 0;
    assert_round_trip(&reject);
    assert_round_trip(&goodbye);
    assert_round_trip(&info);
}

/* Where nobody can be: without an address, or a number. */
static void
test_decode_refuses_nowhere(void **state)
{
    umi_control hellos[2] = {make(UMI_HELLO), make(UMI_HELLO)};

    (void)state;
    hellos[0].u.hello.where.address_len = 0;
    hellos[1].u.hello.where.endpoint    = 0;
    for (int i = 0; i < 2; i++) {
        uint8_t     data[UMI_CONTROL_MAX];
        umi_control decoded;
        const char *why;
        size_t      len = umi_control_encode(&hellos[i], data);

        assert_false(umi_control_decode(&decoded, data, len, &why));
        assert_string_equal(why, "an endpoint that is nowhere");
    }
}

static void
test_decode_refuses_no_channels(void **state)
{
    umi_control controls[2] = {make(UMI_HELLO), make(UMI_WELCOME)};

    (void)state;
    controls[0].u.hello.channels   = 0;
    controls[1].u.welcome.channels = 0;
    for (int i = 0; i < 2; i++) {
        uint8_t data[UMI_CONTROL_MAX];
        size_t  len = umi_control_encode(&controls[i], data);

        assert_refused(data, len, "no channels");
    }
}

/* The version in a hello can be read whatever else another version puts
 * there. */
static void
test_of_another_version_only_that_is_read(void **state)
{
    umi_control hello = {.kind = UMI_HELLO}, decoded;
    uint8_t     data[UMI_CONTROL_MAX], again[UMI_CONTROL_MAX];
    const char *why;
    size_t      len;

    (void)state;
    hello.u.hello.major = UMX_WIRE_VERSION + 1;
    hello.u.hello.rest  = (umi_rest){(const uint8_t *)"anything", 8};
    len                 = umi_control_encode(&hello, data);
    assert_int_equal(len, 8 + 2 + 8);
    assert_true(umi_control_decode(&decoded, data, len, &why));
    assert_int_equal(decoded.u.hello.major, UMX_WIRE_VERSION + 1);
    assert_int_equal(umi_control_encode(&decoded, again), len);
    assert_memory_equal(again, data, len);
}

/* UCX aborts the process over some addresses that are none. */
static void
test_decode_refuses_each_damaged_bit_of_an_address(void **state)
{
    umi_control hello = make(UMI_HELLO);
    uint8_t     data[UMI_CONTROL_MAX];
    size_t      len   = umi_control_encode(&hello, data);
    size_t      first = len - hello.u.hello.where.address_len;

    (void)state;
    for (size_t bit = 8 * first; bit < 8 * len; bit++) {
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_refused(data, len, "worker address is damaged");
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void
test_longest_messages_fit(void **state)
{
    umi_control hello   = make(UMI_HELLO);
    umi_control reject  = make(UMI_REJECT);
    umi_control goodbye = make(UMI_GOODBYE);
    umi_control info    = make(UMI_INFO);

    (void)state;
    hello.u.hello.where.address_len = UMI_ADDRESS_MAX;
    reject.u.reject.text_len        = UMI_TEXT_MAX;
    goodbye.u.goodbye.count         = UMI_GOODBYE_MAX;
    info.u.info.text_len            = UMI_TEXT_MAX;
    for (unsigned i = 0; i < UMI_GOODBYE_MAX; i++) {
        goodbye.u.goodbye.entries[i].channel  = UMI_CHANNEL_0 + 257 * i;
        goodbye.u.goodbye.entries[i].next_seq = 0x01010101u * i;
    }
    assert_round_trip(&hello);
    assert_round_trip(&reject);
    assert_round_trip(&goodbye);
    assert_round_trip(&info);
}

/* ---- what the encoder refuses ---- */

static void
test_encode_refuses_long_lengths(void **state)
{
    umi_control hello   = make(UMI_HELLO);
    umi_control reject  = make(UMI_REJECT);
    umi_control goodbye = make(UMI_GOODBYE);
    umi_control info    = make(UMI_INFO);
    uint8_t     data[UMI_CONTROL_MAX];

    (void)state;
    hello.u.hello.where.address_len = UMI_ADDRESS_MAX + 1;
    reject.u.reject.text_len        = UMI_TEXT_MAX + 1;
    goodbye.u.goodbye.count         = UMI_GOODBYE_MAX + 1;
    info.u.info.text_len            = UMI_TEXT_MAX + 1;
    assert_int_equal(umi_control_encode(&hello, data), 0);
    assert_int_equal(umi_control_encode(&reject, data), 0);
    assert_int_equal(umi_control_encode(&goodbye, data), 0);
    assert_int_equal(umi_control_encode(&info, data), 0);
}

static void
test_encode_refuses_unknown_kinds(void **state)
{
    umi_control control = make(UMI_PING);
    uint8_t     data[UMI_CONTROL_MAX];

    (void)state;
    control.kind = (umi_control_kind)0;
    assert_int_equal(umi_control_encode(&control, data), 0);
    control.kind = (umi_control_kind)(LAST_KIND + 1);
    assert_int_equal(umi_control_encode(&control, data), 0);
}

/* ---- what the decoder refuses ---- */

/* Cut short as it is, and with a body length that agrees with the cut. */
static void
test_every_truncation_is_refused(void **state)
{
    (void)state;
    for (int kind = FIRST_KIND; kind <= LAST_KIND; kind++) {
        umi_control control = make(kind);
        uint8_t     data[UMI_CONTROL_MAX];
        size_t      len = umi_control_encode(&control, data);

        for (size_t cut = 0; cut < len; cut++) {
            assert_refused(data, cut,
                           (cut < HEADER_SIZE) ?
                               "too short for a header" :
                               "body length is not what arrived");
        }
        for (size_t cut = HEADER_SIZE; cut < len; cut++) {
            set_body_len(data, cut - HEADER_SIZE);
            assert_refused(data, cut, "body too short");
        }
    }
}

static void
test_every_extra_byte_is_refused(void **state)
{
    (void)state;
    for (int kind = FIRST_KIND; kind <= LAST_KIND; kind++) {
        umi_control control = make(kind);
        uint8_t     data[UMI_CONTROL_MAX];
        size_t      len = umi_control_encode(&control, data);

        data[len] = 0;
        assert_refused(data, len + 1, "body length is not what arrived");
        set_body_len(data, len + 1 - HEADER_SIZE);
        assert_refused(data, len + 1, "bytes left over");
    }
}

static void
test_every_flipped_header_bit_is_refused(void **state)
{
    (void)state;
    for (int kind = FIRST_KIND; kind <= LAST_KIND; kind++) {
        umi_control control = make(kind);
        uint8_t     data[UMI_CONTROL_MAX];
        size_t      len = umi_control_encode(&control, data);

        for (size_t bit = 0; bit < 8 * HEADER_SIZE; bit++) {
            const char *why = "body length is not what arrived";

            if (bit / 8 == KIND_AT) {
                continue; /* may be another kind: see the next test */
            }
            if (bit / 8 < KIND_AT) {
                why = "wrong magic";
            } else if (bit / 8 == FLAGS_AT) {
                why = "unknown flags";
            }
            data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
            assert_refused(data, len, why);
            data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        }
    }
}

static void
test_every_unknown_kind_is_refused(void **state)
{
    uint8_t data[UMI_CONTROL_MAX];

    (void)state;
    for (int kind = 0; kind <= UINT8_MAX; kind++) {
        size_t len = frame(data, kind, address, 8);

        if (kind < FIRST_KIND || kind > LAST_KIND) {
            assert_refused(data, len, "unknown kind");
        }
    }
}

/* Lengths that promise more than the limit, with all the bytes there, so that
 * the limit is what refuses them. */
static void
test_decode_refuses_long_lengths(void **state)
{
    static uint8_t body[UMI_CONTROL_MAX];
    static uint8_t data[HEADER_SIZE + UMI_CONTROL_MAX];

    (void)state;
    memset(body, 0, sizeof(body));
    body[0]   = UMX_WIRE_VERSION;
    body[44]  = 1; /* channels */
    body[124] = (UMI_ADDRESS_MAX + 1) & 0xff;
    body[125] = (UMI_ADDRESS_MAX + 1) >> 8;
    assert_refused(data,
                   frame(data, UMI_HELLO, body, 126 + UMI_ADDRESS_MAX + 1),
                   "worker address too long");

    memset(body, 0, sizeof(body));
    body[3] = 0x80;
    body[4] = (UMI_TEXT_MAX + 1) & 0xff;
    body[5] = (UMI_TEXT_MAX + 1) >> 8;
    assert_refused(data, frame(data, UMI_REJECT, body, 6 + UMI_TEXT_MAX + 1),
                   "text too long");

    memset(body, 0, sizeof(body));
    body[12] = (UMI_GOODBYE_MAX + 1) & 0xff;
    body[13] = (UMI_GOODBYE_MAX + 1) >> 8;
    assert_refused(
        data, frame(data, UMI_GOODBYE, body, 15 + 6 * (UMI_GOODBYE_MAX + 1)),
        "too many channels");

    memset(body, 0, sizeof(body));
    body[8] = (UMI_TEXT_MAX + 1) & 0xff;
    body[9] = (UMI_TEXT_MAX + 1) >> 8;
    assert_refused(data, frame(data, UMI_INFO, body, 10 + UMI_TEXT_MAX + 1),
                   "text too long");
}

static void
test_decode_refuses_is_last_above_1(void **state)
{
    uint8_t body[15] = {0};
    uint8_t data[HEADER_SIZE + sizeof(body)];

    (void)state;
    for (int is_last = 0; is_last <= UINT8_MAX; is_last++) {
        umi_control control;
        size_t      len;

        body[14] = (uint8_t)is_last;
        len      = frame(data, UMI_GOODBYE, body, sizeof(body));
        if (is_last <= 1) {
            assert_decoded(&control, data, len);
            assert_int_equal(control.u.goodbye.is_last, is_last);
        } else {
            assert_refused(data, len, "is_last is neither 0 nor 1");
        }
    }
}

static void
test_decode_refuses_a_reason_that_is_no_failure(void **state)
{
    umi_control control = make(UMI_REJECT);
    uint8_t     data[UMI_CONTROL_MAX];

    (void)state;
    control.u.reject.reason = 0;
    assert_refused(data, umi_control_encode(&control, data),
                   "reject reason is not a failure");
    control.u.reject.reason = INT32_MAX;
    assert_refused(data, umi_control_encode(&control, data),
                   "reject reason is not a failure");
    control.u.reject.reason = INT32_MIN;
    assert_round_trip(&control);
}

/* Unknown kinds are refused: otherwise a peer could have any number of channels
 * kept. */
static void
test_decode_refuses_unknown_kinds_of_channels(void **state)
{
    static const uint32_t channels[] = {0, 0xffff, 0x50000, UINT32_MAX};
    umi_control           credit     = make(UMI_CREDIT);
    umi_control           goodbye    = make(UMI_GOODBYE);
    uint8_t               data[UMI_CONTROL_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(channels) / sizeof(channels[0]); i++) {
        credit.u.credit.channel              = channels[i];
        goodbye.u.goodbye.entries[1].channel = channels[i];
        assert_refused(data, umi_control_encode(&credit, data),
                       "no such kind of channel");
        assert_refused(data, umi_control_encode(&goodbye, data),
                       "no such kind of channel");
    }
}

static void
test_decode_refuses_a_listener_closed_in_progress(void **state)
{
    uint8_t body[12] = {[8] = 1};
    uint8_t data[HEADER_SIZE + sizeof(body)];

    (void)state;
    assert_refused(data, frame(data, UMI_LISTENER_CLOSED, body, sizeof(body)),
                   "status is neither success nor failure");
}

static void
test_decode_of_nothing(void **state)
{
    umi_control control;
    const char *why = NULL;

    (void)state;
    assert_false(umi_control_decode(&control, NULL, 0, &why));
    assert_string_equal(why, "too short for a header");
}

/* ---- random bytes ---- */

enum {
    FUZZ_ROUNDS = 200000,
    FUZZ_MAX    = 600
};

static uint64_t fuzz_state = 0x9e3779b97f4a7c15u;

/* xorshift64: the same inputs in every run. */
static uint32_t
fuzz_random(void)
{
    fuzz_state ^= fuzz_state << 13;
    fuzz_state ^= fuzz_state >> 7;
    fuzz_state ^= fuzz_state << 17;
    return (uint32_t)(fuzz_state >> 32);
}

static size_t
fuzz_noise(uint8_t *data)
{
    size_t len = fuzz_random() % FUZZ_MAX;

    for (size_t i = 0; i < len; i++) {
        data[i] = (uint8_t)fuzz_random();
    }
    return len;
}

/* A good message with a few bytes changed, cut or lengthened; most often with a
 * body length that agrees, so that the body is looked at. */
static size_t
fuzz_mutant(uint8_t *data)
{
    umi_control control = make(FIRST_KIND + (int)(fuzz_random() % LAST_KIND));
    size_t      len     = umi_control_encode(&control, data);
    unsigned    changes = fuzz_random() % 4;

    for (unsigned i = 0; i < changes; i++) {
        data[fuzz_random() % len] = (uint8_t)fuzz_random();
    }
    if (fuzz_random() % 2 == 0) {
        size_t new_len = fuzz_random() % (len + 8);

        if (new_len > len) {
            memset(data + len, 0, new_len - len);
        }
        len = new_len;
    }
    if (len >= HEADER_SIZE && fuzz_random() % 8 != 0) {
        set_body_len(data, len - HEADER_SIZE);
    }
    return len;
}

/* Every message that is accepted encodes to the very bytes that were
 * decoded. */
static void
test_random_inputs(void **state)
{
    unsigned accepted = 0;

    (void)state;
    for (int i = 0; i < FUZZ_ROUNDS; i++) {
        uint8_t     data[UMI_CONTROL_MAX];
        uint8_t     again[UMI_CONTROL_MAX];
        umi_control control;
        const char *why;
        size_t      len = (i % 4 == 0) ? fuzz_noise(data) : fuzz_mutant(data);

        if (decode(&control, data, len, &why)) {
            accepted++;
            assert_int_equal(umi_control_encode(&control, again), len);
            assert_memory_equal(again, data, len);
        } else {
            assert_non_null(why);
        }
    }
    /* Some inputs are accepted and some are not: otherwise they test
     * nothing. */
    assert_in_range(accepted, FUZZ_ROUNDS / 50, FUZZ_ROUNDS / 2);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip_of_every_kind),
        cmocka_unit_test(test_sizes_are_frozen),
        cmocka_unit_test(test_bytes_of_hello_are_frozen),
        cmocka_unit_test(test_bytes_of_goodbye_are_frozen),
        cmocka_unit_test(test_kinds_are_frozen),
        cmocka_unit_test(test_empty_lengths),
        cmocka_unit_test(test_decode_refuses_nowhere),
        cmocka_unit_test(test_decode_refuses_no_channels),
        cmocka_unit_test(test_of_another_version_only_that_is_read),
        cmocka_unit_test(test_decode_refuses_each_damaged_bit_of_an_address),
        cmocka_unit_test(test_longest_messages_fit),
        cmocka_unit_test(test_encode_refuses_long_lengths),
        cmocka_unit_test(test_encode_refuses_unknown_kinds),
        cmocka_unit_test(test_every_truncation_is_refused),
        cmocka_unit_test(test_every_extra_byte_is_refused),
        cmocka_unit_test(test_every_flipped_header_bit_is_refused),
        cmocka_unit_test(test_every_unknown_kind_is_refused),
        cmocka_unit_test(test_decode_refuses_long_lengths),
        cmocka_unit_test(test_decode_refuses_is_last_above_1),
        cmocka_unit_test(test_decode_refuses_a_reason_that_is_no_failure),
        cmocka_unit_test(test_decode_refuses_unknown_kinds_of_channels),
        cmocka_unit_test(test_decode_refuses_a_listener_closed_in_progress),
        cmocka_unit_test(test_decode_of_nothing),
        cmocka_unit_test(test_random_inputs),
    };

    fill(address, sizeof(address), 0x80);
    fill(text, sizeof(text), 'A');
    return UNIT_RUN(tests);
}
