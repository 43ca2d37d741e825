/* SPDX-License-Identifier: BSD-3-Clause */
/* wire.h: encode and decode what ranks send each other. Bytes only. Numbers are
 * little-endian.
 *
 * Messages are active messages of UMX_AM_ID_COMM. Their header:
 *
 *   kind u8 | op u8 | round u16 | source u32 | communicator u64 | number u64
 *   and for collective operations: what u64 | bytes u64 | history u64
 *
 * `number` is the tag of a message, or the number of the operation. `what` and
 * `bytes` describe the operation, and `history` is a hash of those before it:
 * ranks that call different ones find out by them. Of control messages
 * `communicator` is that of the group, or of the one communicator that is
 * meant, and the payload is:
 *
 *   HELLO    magic u32 | rank i32 | size u32 | name | address    (texts: length
 *            u16, bytes)
 *   TABLE    rank u32 | size u32 | size x address
 *   REFUSE   reason
 *   PENDING  count u32 | count x rank u32: the ranks that have not come
 *   FAILED   rank i32 | cause i32 | number u64 | reason | late: the ranks that
 *            had not come to operation `number`; with `round`
 *            UMI_COMM_WHOLE_GROUP, from the root or that process: it has ended
 *   BYE      size x messages sent u64 | call | labels: rank `round` has left,
 *            and takes no part in operation `number`; the call is of the one
 *            before it. A label that it has derived communicators for is label
 *            u64 | how many u64
 *   PING     nothing; with `round` UMI_COMM_ANSWER, the answer to one
 *   INBOX    the key of its memory
 *   DONE     nothing; of the operation `number` and its `round`
 *   STATE    call | late: of the operation `number`, in which `source` waits,
 *            and the ranks that have not come to it as far as `source` knows;
 *            with `round` UMI_COMM_ANSWER, to a rank that waits in it, too
 *
 * where a call is: op u64 | what u64 | bytes u64 | history u64, and late are
 * ranks: count u32 | count x rank u32.
 */
#ifndef UMI_COMM_WIRE_H
#define UMI_COMM_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <umx/comm.h>

#define UMI_COMM_MAGIC 0x4f434d55u /* "UMCO" */

enum {
    UMI_COMM_HEADER_MAX  = 48, /* bytes */
    UMI_COMM_CALL_SIZE   = 32,
    UMI_COMM_LABEL_SIZE  = 16, /* of a goodbye */
    UMI_COMM_WHOLE_GROUP = 1,  /* `round` of FAILED */
    UMI_COMM_ANSWER      = 1,  /* `round` of PING and STATE */
    UMI_COMM_NUMBER_SIZE = 4,  /* bytes of a rank in a list */
    UMI_COMM_STATE_MAX   = UMI_COMM_CALL_SIZE +
                         UMI_COMM_NUMBER_SIZE * (1 + UMX_COMM_LATE_MAX)
};

typedef enum umi_comm_kind {
    UMI_COMM_MESSAGE    = 1, /* of umx_comm_isend() */
    UMI_COMM_COLLECTIVE = 2,
    /* control: */
    UMI_COMM_HELLO   = 16, /* to the root: a rank has come */
    UMI_COMM_TABLE   = 17, /* from the root: all have */
    UMI_COMM_REFUSE  = 18, /* from the root: there will be no communicator */
    UMI_COMM_PENDING = 19, /* from the root */
    UMI_COMM_FAILED  = 20, /* to and from the root: revoke it */
    UMI_COMM_BYE     = 21, /* from a rank that leaves, or by the root */
    UMI_COMM_PING    = 22,
    UMI_COMM_STATE   = 23,
    UMI_COMM_INBOX   = 24, /* from a rank whose inbox may be mapped */
    UMI_COMM_DONE    = 25  /* from a rank that has pulled a message */
} umi_comm_kind;

typedef struct umi_comm_header {
    uint8_t  kind; /* umi_comm_kind */
    uint8_t  op;   /* umi_comm_coll_kind */
    uint16_t round;
    uint32_t source;
    uint64_t comm;
    uint64_t number;
    uint64_t what; /* collective operations, like the next */
    uint64_t bytes;
    uint64_t history;
} umi_comm_header;

/* Write `header` to UMI_COMM_HEADER_MAX bytes; the length. */
size_t umi_comm_header_encode(const umi_comm_header *header, uint8_t *data);

/* False if it is none. */
bool umi_comm_header_decode(umi_comm_header *header, const void *data,
                            size_t len);

/* Bytes with a length, not terminated. */
typedef struct umi_comm_text {
    const uint8_t *data;
    size_t         len;
} umi_comm_text;

typedef struct umi_comm_hello {
    int32_t       rank;
    uint32_t      size;
    umi_comm_text name;
    umi_comm_text address;
} umi_comm_hello;

/* Bytes of the payload; 0 if it does not fit into `size`. */
size_t umi_comm_hello_encode(const umi_comm_hello *hello, uint8_t *data,
                             size_t size);
bool umi_comm_hello_decode(umi_comm_hello *hello, const void *data, size_t len);

/* What a rank has called as operation `number`. */
typedef struct umi_comm_call {
    uint64_t number;
    uint64_t op;      /* umi_comm_coll_kind */
    uint64_t what;    /* the same on every rank: the root, a type of items */
    uint64_t bytes;   /* the same on every rank, if not 0 */
    uint64_t history; /* a hash of the calls before; never 0 */
} umi_comm_call;

/* Write a call without its number to UMI_COMM_CALL_SIZE bytes. */
void umi_comm_call_encode(const umi_comm_call *call, uint8_t *data);
bool umi_comm_call_decode(umi_comm_call *call, const void *data, size_t len);

/* Ranks, UMX_COMM_LATE_MAX at most, each of UMI_COMM_NUMBER_SIZE bytes. */
typedef struct umi_comm_numbers {
    const uint8_t *data;
    uint32_t       count;
} umi_comm_numbers;

/* Write ranks to `data`, which has room for them; they are what is returned. */
umi_comm_numbers umi_comm_numbers_encode(const int *ranks, int count,
                                         uint8_t *data);
uint32_t umi_comm_number_at(const umi_comm_numbers *numbers, uint32_t i);

/* In which operation a rank waits. */
typedef struct umi_comm_state {
    umi_comm_call    call; /* without its number */
    umi_comm_numbers late;
} umi_comm_state;

size_t umi_comm_state_encode(const umi_comm_state *state, uint8_t *data,
                             size_t size);
bool umi_comm_state_decode(umi_comm_state *state, const void *data, size_t len);

typedef struct umi_comm_failed {
    int32_t          rank;
    int32_t          cause;
    uint64_t         number;
    umi_comm_text    reason;
    umi_comm_numbers late;
} umi_comm_failed;

size_t umi_comm_failed_encode(const umi_comm_failed *failed, uint8_t *data,
                              size_t size);
bool   umi_comm_failed_decode(umi_comm_failed *failed, const void *data,
                              size_t len);

#endif
