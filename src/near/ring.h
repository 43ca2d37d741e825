/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* ring.h: short messages from one process to another, in memory that both have
 * mapped. One writes cells, the other reads them: nobody locks.
 *
 *   introduction  whose ring this is: its number, and two public keys
 *   reader        the reader's: how many cells it has read, and whether it
 *                 sleeps
 *   cells         in a circle: a header, and the bytes if both fit
 *   bytes         of longer messages, in a circle as well
 *
 * A cell is there when its stamp is, which the writer stores last: the number
 * of the cell, from 1 on. Where in the second circle the bytes of a message are
 * is not said: both sides count alike. Hence the reader checks a length, and
 * nothing else that the writer says decides what memory is read.
 *
 * The peer may write anything at any time. A cell is copied before it is looked
 * at. The bytes are read from where they are only by what does not look at
 * them.
 *
 * The reader sleeps as worker/wait.h says: it announces that (`asleep` is odd),
 * fences, looks at the cells again, and is armed. The writer stores a cell,
 * fences, and reads `asleep`: one that is odd and new is answered with WAKE. The
 * reader tells in small steps what it has read, so that the line with `asleep`
 * stays in the writer's cache.
 *
 * Thread: one of each side. */
/* clang-format on */
#ifndef UMI_NEAR_RING_H
#define UMI_NEAR_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <umx/context.h>

#include "util/x25519.h"

#define UMI_NEAR_MAGIC UINT64_C(0x31474e495252414e) /* "NARRING1" */

enum {
    UMI_NEAR_LINE  = 64,
    UMI_NEAR_CELLS = 256,
    UMI_NEAR_SIZE  = 64 * 1024, /* bytes of a ring */
    UMI_NEAR_ROOM  = 56,        /* bytes in a cell */
    UMI_NEAR_BYTES = UMI_NEAR_SIZE - (UMI_NEAR_CELLS + 4) * UMI_NEAR_LINE
};

typedef struct umi_near_cell {
    _Atomic uint32_t stamp;
    uint16_t         len;        /* bytes of the message */
    uint8_t          header_len; /* bytes in front of it */
    uint8_t          zero;
    uint8_t          room[UMI_NEAR_ROOM];
} umi_near_cell;

_Static_assert(sizeof(umi_near_cell) == UMI_NEAR_LINE, "one line");

/* The beginning of a ring: who writes it, and who reads it. */
typedef struct umi_near_introduction {
    uint64_t magic;
    uint64_t ring;
    uint8_t  zeros[48];
    uint8_t  writer[UMI_X25519_SIZE];
    uint8_t  reader[UMI_X25519_SIZE];
} umi_near_introduction;

typedef struct umi_near_ring {
    umi_near_introduction introduction;
    struct {
        _Atomic uint32_t consumed; /* cells */
        _Atomic uint32_t asleep;   /* odd: the reader is, or is about to */
        uint8_t          zeros[UMI_NEAR_LINE - 2 * sizeof(uint32_t)];
    } reader;
    uint8_t       zeros[UMI_NEAR_LINE];
    umi_near_cell cells[UMI_NEAR_CELLS];
    uint8_t       bytes[UMI_NEAR_BYTES];
} umi_near_ring;

_Static_assert(sizeof(umi_near_ring) == UMI_NEAR_SIZE, "no gaps");
_Static_assert(UMX_NEAR_MAX * 4 <= UMI_NEAR_BYTES, "room for some");

/* The writer's end. */
typedef struct umi_near_out {
    umi_near_ring *ring;
    uint32_t       sent;       /* cells */
    uint32_t       consumed;   /* of them, as far as is known here */
    uint32_t       rung;       /* `asleep` that has been answered */
    bool           is_ordered; /* the reader executes membarriers */
    uint64_t       used;       /* of the second circle, so far */
    uint64_t       freed;
    uint64_t       ends[UMI_NEAR_CELLS]; /* `used` behind each cell */
} umi_near_out;

/* The reader's end. */
typedef struct umi_near_in {
    umi_near_ring *ring;
    size_t         max;  /* bytes of the longest message */
    uint32_t       seen; /* cells */
    uint32_t       told; /* of them, to the writer */
    uint64_t       used;
    uint64_t       told_used;
} umi_near_in;

/* A message that has come. */
typedef struct umi_near_taken {
    umi_near_cell cell;  /* a copy */
    const void   *bytes; /* in the copy, or in the ring */
} umi_near_taken;

typedef enum umi_near_look {
    UMI_NEAR_NOTHING,
    UMI_NEAR_MESSAGE,
    UMI_NEAR_NONSENSE /* the writer has broken the rules */
} umi_near_look;

/* Write a message: a header of at most UMI_NEAR_ROOM bytes, and at most
 * UMX_NEAR_MAX bytes. False: there is no room now. */
bool umi_near_ring_put(umi_near_out *out, const void *header, size_t header_len,
                       const void *data, size_t len);

/* Find out whether the reader has to be woken: the announcement that WAKE
 * answers, or 0. Behind umi_near_ring_put(). */
uint32_t umi_near_ring_sleeper(const umi_near_out *out);

/* True if there is a cell to read. */
static inline bool
umi_near_ring_has_next(const umi_near_in *in)
{
    return atomic_load_explicit(
               &in->ring->cells[in->seen % UMI_NEAR_CELLS].stamp,
               memory_order_acquire) == in->seen + 1;
}

/* Read the next message. Its bytes in the ring are there until
 * umi_near_ring_read(). */
umi_near_look umi_near_ring_take(umi_near_in *in, umi_near_taken *taken);

/* Be done with the message that was taken last. */
void umi_near_ring_read(umi_near_in *in);

/* Announce that the reader is to sleep, or that it is awake. A fence of some
 * kind has to follow the first. */
void umi_near_ring_announce(umi_near_in *in, bool is_asleep);

#endif
