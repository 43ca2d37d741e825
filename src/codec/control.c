/* SPDX-License-Identifier: BSD-3-Clause */
/* One pair of functions a body, in the order of the table in control.h; the two
 * switches at the end choose among them. A body's decoder says what is wrong
 * with its numbers; that it was cut short or has bytes left over is found in
 * one place, after it: umi_reader gives zeros past its end, so until then
 * nothing that was decoded is used. */
#include "codec/control.h"

#include "util/bytes.h"
#include "util/hash.h"
#include <umx/version.h>
#include "codec/header.h"

#define CONTROL_HEADER_SIZE 8

/* ---- pieces that several bodies share ---- */

static void
read_array(umi_reader *r, uint8_t *data, size_t len)
{
    const uint8_t *pos = umi_read_bytes(r, len);

    if (pos != NULL) {
        memcpy(data, pos, len);
    }
}

static void
write_limits(umi_writer *w, const umi_limits *limits)
{
    umi_write_u64(w, limits->bytes);
    umi_write_u32(w, limits->messages);
    umi_write_u32(w, limits->rndv);
}

static void
read_limits(umi_reader *r, umi_limits *limits)
{
    limits->bytes    = umi_read_u64(r);
    limits->messages = umi_read_u32(r);
    limits->rndv     = umi_read_u32(r);
}

static bool
write_text(umi_writer *w, const char *text, uint16_t len)
{
    if (len > UMI_TEXT_MAX) {
        return false;
    }
    umi_write_u16(w, len);
    umi_write_bytes(w, text, len);
    return true;
}

static const char *
read_text(umi_reader *r, const char **text_p, uint16_t *len_p)
{
    *len_p = umi_read_u16(r);
    if (*len_p > UMI_TEXT_MAX) {
        return "text too long";
    }
    *text_p = (const char *)umi_read_bytes(r, *len_p);
    return NULL;
}

static bool
write_where(umi_writer *w, const umi_where *where)
{
    if (where->address_len > UMI_ADDRESS_MAX) {
        return false;
    }
    umi_write_bytes(w, where->worker_id, UMI_WHERE_ID_SIZE);
    umi_write_bytes(w, where->key, UMI_KEY_SIZE);
    umi_write_u64(w, where->endpoint);
    umi_write_u32(w, where->pid);
    umi_write_u32(w, where->process_ns);
    umi_write_u32(w, where->version);
    umi_write_u64(w, umi_siphash(where->address, where->address_len));
    umi_write_u16(w, where->address_len);
    umi_write_bytes(w, where->address, where->address_len);
    return true;
}

/* UCX takes an address on trust: a byte that is wrong may abort the process. */
static const char *
read_where(umi_reader *r, umi_where *where)
{
    uint64_t sum;

    read_array(r, where->worker_id, UMI_WHERE_ID_SIZE);
    read_array(r, where->key, UMI_KEY_SIZE);
    where->endpoint    = umi_read_u64(r);
    where->pid         = umi_read_u32(r);
    where->process_ns  = umi_read_u32(r);
    where->version     = umi_read_u32(r);
    sum                = umi_read_u64(r);
    where->address_len = umi_read_u16(r);
    if (where->address_len > UMI_ADDRESS_MAX) {
        return "worker address too long";
    }
    where->address = umi_read_bytes(r, where->address_len);
    if (r->is_bad) {
        return NULL;
    }
    if (where->endpoint == 0 || where->address_len == 0) {
        return "an endpoint that is nowhere";
    }
    if (umi_siphash(where->address, where->address_len) != sum) {
        return "worker address is damaged";
    }
    return NULL;
}

static uint32_t
read_channels(umi_reader *r, const char **why_p)
{
    uint32_t channels = umi_read_u32(r);

    if (channels == 0 && !r->is_bad) {
        *why_p = "no channels";
    }
    return channels;
}

/* Write a body of another version, of which only the version is known. */
static void
write_rest(umi_writer *w, const umi_rest *rest)
{
    umi_write_bytes(w, rest->data, rest->len);
}

static void
read_rest(umi_reader *r, umi_rest *rest)
{
    rest->len  = (uint16_t)(r->end - r->pos);
    rest->data = umi_read_bytes(r, rest->len);
}

/* ---- HELLO ---- */

static bool
write_hello(umi_writer *w, const umi_control *control)
{
    umi_write_u16(w, control->u.hello.major);
    if (control->u.hello.major != UMX_WIRE_VERSION) {
        write_rest(w, &control->u.hello.rest);
        return true;
    }
    umi_write_u16(w, control->u.hello.minor);
    umi_write_u64(w, control->u.hello.features);
    umi_write_bytes(w, control->u.hello.nonce, UMI_NONCE_SIZE);
    write_limits(w, &control->u.hello.limits);
    umi_write_u32(w, control->u.hello.channels);
    return write_where(w, &control->u.hello.where);
}

static const char *
read_hello(umi_reader *r, umi_control *control)
{
    const char *why = NULL, *where_why;

    control->u.hello.major = umi_read_u16(r);
    if (control->u.hello.major != UMX_WIRE_VERSION) {
        read_rest(r, &control->u.hello.rest);
        return NULL;
    }
    control->u.hello.minor    = umi_read_u16(r);
    control->u.hello.features = umi_read_u64(r);
    read_array(r, control->u.hello.nonce, UMI_NONCE_SIZE);
    read_limits(r, &control->u.hello.limits);
    control->u.hello.channels = read_channels(r, &why);
    where_why                 = read_where(r, &control->u.hello.where);
    return (why != NULL) ? why : where_why;
}

/* ---- WELCOME ---- */

static bool
write_welcome(umi_writer *w, const umi_control *control)
{
    umi_write_u16(w, control->u.welcome.major);
    if (control->u.welcome.major != UMX_WIRE_VERSION) {
        write_rest(w, &control->u.welcome.rest);
        return true;
    }
    umi_write_u16(w, control->u.welcome.minor);
    umi_write_u64(w, control->u.welcome.features);
    umi_write_bytes(w, control->u.welcome.nonce, UMI_NONCE_SIZE);
    write_limits(w, &control->u.welcome.limits);
    umi_write_u32(w, control->u.welcome.channels);
    if (!write_where(w, &control->u.welcome.where)) {
        return false;
    }
    umi_write_u64(w, control->u.welcome.peer);
    umi_write_u64(w, control->u.welcome.made);
    umi_write_bytes(w, control->u.welcome.mac, UMI_MAC_SIZE);
    return true;
}

static const char *
read_welcome(umi_reader *r, umi_control *control)
{
    const char *why = NULL, *where_why;

    control->u.welcome.major = umi_read_u16(r);
    if (control->u.welcome.major != UMX_WIRE_VERSION) {
        read_rest(r, &control->u.welcome.rest);
        return NULL;
    }
    control->u.welcome.minor    = umi_read_u16(r);
    control->u.welcome.features = umi_read_u64(r);
    read_array(r, control->u.welcome.nonce, UMI_NONCE_SIZE);
    read_limits(r, &control->u.welcome.limits);
    control->u.welcome.channels = read_channels(r, &why);
    where_why                   = read_where(r, &control->u.welcome.where);
    control->u.welcome.peer     = umi_read_u64(r);
    control->u.welcome.made     = umi_read_u64(r);
    read_array(r, control->u.welcome.mac, UMI_MAC_SIZE);
    return (why != NULL) ? why : where_why;
}

/* ---- REJECT ---- */

static bool
write_reject(umi_writer *w, const umi_control *control)
{
    umi_write_u32(w, (uint32_t)control->u.reject.reason);
    return write_text(w, control->u.reject.text, control->u.reject.text_len);
}

static const char *
read_reject(umi_reader *r, umi_control *control)
{
    control->u.reject.reason = (int32_t)umi_read_u32(r);
    /* Only a failure is a reason; UMX_OK would read as an acceptance. */
    if (!r->is_bad && control->u.reject.reason >= 0) {
        return "reject reason is not a failure";
    }
    return read_text(r, &control->u.reject.text, &control->u.reject.text_len);
}

/* ---- GOODBYE ---- */

static bool
write_goodbye(umi_writer *w, const umi_control *control)
{
    if (control->u.goodbye.count > UMI_GOODBYE_MAX) {
        return false;
    }
    umi_write_u32(w, (uint32_t)control->u.goodbye.code);
    umi_write_u64(w, control->u.goodbye.raw_tags);
    umi_write_u16(w, control->u.goodbye.count);
    umi_write_u8(w, control->u.goodbye.is_last ? 1 : 0);
    for (unsigned i = 0; i < control->u.goodbye.count; i++) {
        umi_write_u32(w, control->u.goodbye.entries[i].channel);
        umi_write_u32(w, control->u.goodbye.entries[i].next_seq);
    }
    return true;
}

static const char *
read_goodbye(umi_reader *r, umi_control *control)
{
    uint8_t is_last;

    control->u.goodbye.code     = (int32_t)umi_read_u32(r);
    control->u.goodbye.raw_tags = umi_read_u64(r);
    control->u.goodbye.count    = umi_read_u16(r);
    is_last                     = umi_read_u8(r);
    if (control->u.goodbye.count > UMI_GOODBYE_MAX) {
        return "too many channels";
    }
    if (is_last > 1) {
        return "is_last is neither 0 nor 1";
    }
    control->u.goodbye.is_last = (is_last == 1);
    for (unsigned i = 0; i < control->u.goodbye.count; i++) {
        uint32_t channel = umi_read_u32(r);

        if (!r->is_bad && !umi_header_channel_id_is_valid(channel)) {
            return "no such kind of channel";
        }
        control->u.goodbye.entries[i].channel  = channel;
        control->u.goodbye.entries[i].next_seq = umi_read_u32(r);
    }
    return NULL;
}

/* ---- WITHDRAW ---- */

static const char *
read_withdraw(umi_reader *r, umi_control *control)
{
    control->u.withdraw.channel = umi_read_u32(r);
    control->u.withdraw.seq     = umi_read_u32(r);
    return r->is_bad ||
                   umi_header_channel_id_is_valid(control->u.withdraw.channel) ?
               NULL :
               "no such kind of channel";
}

/* ---- LISTENER_CLOSED ---- */

static const char *
read_listener_closed(umi_reader *r, umi_control *control)
{
    control->u.listener_closed.token  = umi_read_u64(r);
    control->u.listener_closed.status = (int32_t)umi_read_u32(r);
    return (control->u.listener_closed.status > 0) ?
               "status is neither success nor failure" :
               NULL;
}

/* ---- whole messages ---- */

/* Write a body. False if a length is over its limit or the kind is not one of
 * ours. */
static bool
write_body(umi_writer *w, const umi_control *control)
{
    switch (control->kind) {
    case UMI_HELLO:
        return write_hello(w, control);
    case UMI_CHALLENGE:
        umi_write_bytes(w, control->u.challenge.nonce, UMI_NONCE_SIZE);
        return true;
    case UMI_AUTH:
        umi_write_bytes(w, control->u.auth.mac, UMI_MAC_SIZE);
        return true;
    case UMI_WELCOME:
        return write_welcome(w, control);
    case UMI_OPEN:
        umi_write_u64(w, control->u.open.peer);
        umi_write_bytes(w, control->u.open.mac, UMI_MAC_SIZE);
        return true;
    case UMI_REJECT:
        return write_reject(w, control);
    case UMI_GOODBYE:
        return write_goodbye(w, control);
    case UMI_CREDIT:
        umi_write_u32(w, control->u.credit.channel);
        write_limits(w, &control->u.credit.limits);
        umi_write_u32(w, control->u.credit.reserve);
        return true;
    case UMI_PING:
    case UMI_PONG:
    case UMI_INFO_REQUEST:
    case UMI_CLOSE_LISTENER:
        umi_write_u64(w, control->u.ask.token);
        return true;
    case UMI_CLOSE_AFTER_N:
        umi_write_u64(w, control->u.close_after_n.n);
        return true;
    case UMI_NOTIFY:
        umi_write_u64(w, control->u.notify.memory);
        return true;
    case UMI_WITHDRAW:
        umi_write_u32(w, control->u.withdraw.channel);
        umi_write_u32(w, control->u.withdraw.seq);
        return true;
    case UMI_GOODBYE_ACK:
        return true;
    case UMI_LISTENER_CLOSED:
        umi_write_u64(w, control->u.listener_closed.token);
        umi_write_u32(w, (uint32_t)control->u.listener_closed.status);
        return true;
    case UMI_INFO:
        umi_write_u64(w, control->u.info.token);
        return write_text(w, control->u.info.text, control->u.info.text_len);
    }
    return false;
}

/* What is wrong, or NULL. */
static const char *
read_body(umi_reader *r, umi_control *control)
{
    switch (control->kind) {
    case UMI_HELLO:
        return read_hello(r, control);
    case UMI_CHALLENGE:
        read_array(r, control->u.challenge.nonce, UMI_NONCE_SIZE);
        return NULL;
    case UMI_AUTH:
        read_array(r, control->u.auth.mac, UMI_MAC_SIZE);
        return NULL;
    case UMI_WELCOME:
        return read_welcome(r, control);
    case UMI_OPEN:
        control->u.open.peer = umi_read_u64(r);
        read_array(r, control->u.open.mac, UMI_MAC_SIZE);
        return NULL;
    case UMI_REJECT:
        return read_reject(r, control);
    case UMI_GOODBYE:
        return read_goodbye(r, control);
    case UMI_CREDIT:
        control->u.credit.channel = umi_read_u32(r);
        read_limits(r, &control->u.credit.limits);
        control->u.credit.reserve = umi_read_u32(r);
        return r->is_bad || umi_header_channel_id_is_valid(
                                control->u.credit.channel) ?
                   NULL :
                   "no such kind of channel";
    case UMI_PING:
    case UMI_PONG:
    case UMI_INFO_REQUEST:
    case UMI_CLOSE_LISTENER:
        control->u.ask.token = umi_read_u64(r);
        return NULL;
    case UMI_CLOSE_AFTER_N:
        control->u.close_after_n.n = umi_read_u64(r);
        return NULL;
    case UMI_NOTIFY:
        control->u.notify.memory = umi_read_u64(r);
        return NULL;
    case UMI_WITHDRAW:
        return read_withdraw(r, control);
    case UMI_GOODBYE_ACK:
        return NULL;
    case UMI_LISTENER_CLOSED:
        return read_listener_closed(r, control);
    case UMI_INFO:
        control->u.info.token = umi_read_u64(r);
        return read_text(r, &control->u.info.text, &control->u.info.text_len);
    }
    return "unknown kind";
}

size_t
umi_control_encode(const umi_control *control, uint8_t *data)
{
    umi_writer header;
    umi_writer body;
    size_t     body_len;

    umi_writer_init(&body, data + CONTROL_HEADER_SIZE,
                    UMI_CONTROL_MAX - CONTROL_HEADER_SIZE);
    if (!write_body(&body, control) || body.is_full) {
        return 0;
    }
    body_len = (size_t)(body.pos - data) - CONTROL_HEADER_SIZE;

    umi_writer_init(&header, data, CONTROL_HEADER_SIZE);
    umi_write_u32(&header, UMI_CONTROL_MAGIC);
    umi_write_u8(&header, (uint8_t)control->kind);
    umi_write_u8(&header, 0); /* flags */
    umi_write_u16(&header, (uint16_t)body_len);
    return CONTROL_HEADER_SIZE + body_len;
}

/* What is wrong, or NULL. */
static const char *
decode(umi_control *control, const void *data, size_t len)
{
    umi_reader  r;
    uint8_t     flags;
    const char *why;

    if (len < CONTROL_HEADER_SIZE) {
        return "too short for a header";
    }
    umi_reader_init(&r, data, len);
    if (umi_read_u32(&r) != UMI_CONTROL_MAGIC) {
        return "wrong magic";
    }
    control->kind = (umi_control_kind)umi_read_u8(&r);
    flags         = umi_read_u8(&r);
    if (flags != 0) {
        return "unknown flags";
    }
    if (umi_read_u16(&r) != len - CONTROL_HEADER_SIZE) {
        return "body length is not what arrived";
    }

    why = read_body(&r, control);
    if (why != NULL) {
        return why;
    }
    if (r.is_bad) {
        return "body too short";
    }
    if (r.pos != r.end) {
        return "bytes left over";
    }
    return NULL;
}

bool
umi_control_decode(umi_control *control, const void *data, size_t len,
                   const char **why_p)
{
    const char *why = decode(control, data, len);

    if (why != NULL) {
        *why_p = why;
        return false;
    }
    return true;
}
