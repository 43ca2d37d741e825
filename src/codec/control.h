/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* control.h: encode and decode control messages: those of the handshake, which
 * travel over a socket (host/socket.h), and those of an open endpoint (active
 * message id UMI_AM_CONTROL, whose header is the endpoint's number at the
 * receiver, u64, and the number of the last message that is acknowledged, u64:
 * 0, as nothing is acknowledged yet). Bytes only: what they mean is decided in
 * wireup.c, channel.c, credit.c, withdraw.c and close.c. Frozen in wire version
 * 3.
 *
 * A control message is: magic u32 | kind u8 | flags u8 (0) | body length u16 |
 * body. Numbers are little-endian. A decoder
 * refuses: wrong magic, unknown kind, flags not 0, a body length that is not
 * what arrived, a body that is too short or has bytes left over, numbers out
 * of their range. HELLO and WELCOME begin with the version in all versions; the
 * rest of one of another version is not looked at. Bodies:
 *
 *   HELLO         major u16, minor u16, features u64, nonce 16 bytes, limits,
 *                 channels u32, where
 *   CHALLENGE     nonce 16
 *   AUTH          mac 32: HMAC(token, "umx token " | nonce of CHALLENGE |
 *                 SHA-256 of HELLO)
 *   WELCOME       major u16, minor u16, features u64, nonce 16, limits,
 *                 channels u32, where, peer u64 (the number of our umi_link
 *                 for you), made u64 (the highest that one has had),
 *                 mac 32: HMAC(secret, "umx server" | SHA-256 of HELLO |
 *                 SHA-256 of WELCOME without the mac)
 *   OPEN          peer u64 (the number of umi_link on both sides), mac 32:
 *                 HMAC(secret, "umx client" | SHA-256 of HELLO | SHA-256 of
 *                 WELCOME | peer)
 *   REJECT        reason i32 (a umx_status), text_len u16, UTF-8 text
 *   GOODBYE       code i32, raw_tags u64 (raw tag sends), count u16 (0 to
 *                 UMI_GOODBYE_MAX), is_last u8 (0, 1: a long list takes
 *                 several), count x (channel u32, next_seq u32)
 *   GOODBYE_ACK   nothing
 *   CREDIT        channel u32, limits, reserve u32 (running totals, not
 *                 increments; the first reserve is 16, or limits.rndv if
 *                 that is less)
 *   PING, PONG    token u64
 *   CLOSE_AFTER_N n u64
 *   INFO_REQUEST, CLOSE_LISTENER
 *                 token u64
 *   INFO          token u64, text_len u16, UTF-8 text of JSON
 *   LISTENER_CLOSED
 *                 token u64, status i32 (0, or a umx_status that is a
 *                 failure)
 *   NOTIFY        memory u64 (of its key): the sender, which maps the memory,
 *                 has changed it and found somebody who waits for that. Only
 *                 the owner of a segment that has a place for them is sent it:
 *                 keys/segment.h
 *   WITHDRAW      channel u32, seq u32: the bytes of that message, which was
 *                 announced, cannot be had any more; it counts as read. What the
 *                 receiver has asked for meanwhile comes, and means nothing
 *   features      bits of umi_feature; others mean nothing. The upper half is a
 *                 number for the queues of UCX in shared memory, which is the
 *                 same where those are alike: umi_config_queues()
 *   channel       kind << 16 | number, as in the header of data
 *   limits        bytes u64 (of all channels), messages u32 (of each), rndv
 *                 u32 (of all; 0: announced messages count among those of
 *                 their channel); what is counted as how much: credit.c
 *   channels      how many the sender accepts on this endpoint; not 0
 *   secret        HMAC(token or nothing, what X25519 makes of the public keys)
 *   where         worker id 16 bytes, public key 32, endpoint u64 (the sender's
 * number for it: in front of what it is sent), pid u32, version of libumx u32
 * (major << 16 | minor << 8 | patch), sum u64 (SipHash of the address),
 * address_len u16, UCX worker address
 */
/* clang-format on */
#ifndef UMI_CODEC_CONTROL_H
#define UMI_CODEC_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UMI_CONTROL_MAGIC 0x31584d55u /* "UMX1" */
#define UMI_NONCE_SIZE 16
#define UMI_MAC_SIZE 32
#define UMI_GOODBYE_MAX 256
#define UMI_CONTROL_MAX 12288 /* bytes of the longest control message */
#define UMI_ADDRESS_MAX 8192
#define UMI_WHERE_ID_SIZE 16
#define UMI_KEY_SIZE 32
#define UMI_TEXT_MAX 1024

typedef enum umi_control_kind {
    UMI_HELLO = 1,
    UMI_CHALLENGE,
    UMI_AUTH,
    UMI_WELCOME,
    UMI_REJECT,
    UMI_GOODBYE,
    UMI_GOODBYE_ACK,
    UMI_CREDIT,
    UMI_PING,
    UMI_PONG,
    UMI_CLOSE_AFTER_N,
    UMI_INFO_REQUEST,
    UMI_INFO,
    UMI_OPEN,
    UMI_CLOSE_LISTENER,
    UMI_LISTENER_CLOSED,
    UMI_NOTIFY,
    UMI_WITHDRAW
} umi_control_kind;

typedef enum umi_feature {
    /* The sender uses no shared memory with the receiver: one of them may not
     * map that of the other. WELCOME repeats it if HELLO has it. */
    UMI_FEATURE_APART = 1u << 0,
    /* The sender knows the notes of bounce/note.h. */
    UMI_FEATURE_BOUNCE = 1u << 1
} umi_feature;

enum {
    UMI_FEATURE_QUEUES = 32 /* the lowest bit of the number of the queues */
};

typedef struct umi_limits {
    uint64_t bytes;
    uint32_t messages;
    uint32_t rndv;
} umi_limits;

typedef struct umi_goodbye_entry {
    uint32_t channel;
    uint32_t next_seq;
} umi_goodbye_entry;

/* Who one side of a connection is, and where to reach it. */
typedef struct umi_where {
    uint8_t        worker_id[UMI_WHERE_ID_SIZE];
    uint8_t        key[UMI_KEY_SIZE];
    uint64_t       endpoint;
    uint32_t       pid;
    uint32_t       process_ns; /* of `pid`: umi_host_process_namespace() */
    uint32_t       version;
    uint16_t       address_len;
    const uint8_t *address;
} umi_where;

/* The bytes that follow `major` in a message of another version. */
typedef struct umi_rest {
    const uint8_t *data;
    uint16_t       len;
} umi_rest;

/* Pointers lead into the decoded bytes. */
typedef struct umi_control {
    umi_control_kind kind;
    union {
        struct {
            uint16_t   major;
            uint16_t   minor;
            uint64_t   features;
            uint8_t    nonce[UMI_NONCE_SIZE];
            umi_limits limits;
            uint32_t   channels;
            umi_where  where;
            umi_rest   rest;
        } hello;
        struct {
            uint8_t nonce[UMI_NONCE_SIZE];
        } challenge;
        struct {
            uint8_t mac[UMI_MAC_SIZE];
        } auth;
        struct {
            uint16_t   major;
            uint16_t   minor;
            uint64_t   features;
            uint8_t    nonce[UMI_NONCE_SIZE];
            umi_limits limits;
            uint32_t   channels;
            umi_where  where;
            uint64_t   peer;
            uint64_t   made;
            uint8_t    mac[UMI_MAC_SIZE];
            umi_rest   rest;
        } welcome;
        struct {
            uint64_t peer;
            uint8_t  mac[UMI_MAC_SIZE];
        } open;
        struct {
            int32_t     reason;
            uint16_t    text_len;
            const char *text; /* not terminated */
        } reject;
        struct {
            int32_t           code;
            uint64_t          raw_tags;
            uint16_t          count;
            bool              is_last;
            umi_goodbye_entry entries[UMI_GOODBYE_MAX];
        } goodbye;
        struct {
            uint32_t   channel;
            umi_limits limits;
            uint32_t   reserve;
        } credit;
        struct {
            uint64_t token;
        } ask; /* PING, PONG, INFO_REQUEST, CLOSE_LISTENER */
        struct {
            uint64_t n;
        } close_after_n;
        struct {
            uint64_t    token;
            uint16_t    text_len;
            const char *text;
        } info;
        struct {
            uint64_t token;
            int32_t  status;
        } listener_closed;
        struct {
            uint64_t memory;
        } notify;
        struct {
            uint32_t channel;
            uint32_t seq;
        } withdraw;
    } u;
} umi_control;

/* Write `control` to `data`, which holds UMI_CONTROL_MAX bytes.
 * Returns the number of bytes; 0 if a length is over its limit. */
size_t umi_control_encode(const umi_control *control, uint8_t *data);

/* Decode a message. False if it is malformed; `*why_p` then says how, in a
 * static string. */
bool umi_control_decode(umi_control *control, const void *data, size_t len,
                        const char **why_p);

#endif
