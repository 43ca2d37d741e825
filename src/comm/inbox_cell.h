/* SPDX-License-Identifier: BSD-3-Clause */
/* inbox_cell.h: the layout of an inbox.
 *
 *   header   is it revoked?
 *   area     one of each rank of the communicator, which alone writes there:
 *              consumed   the receiver's: cells that are free again
 *              is_mapped  has the rank mapped this inbox?
 *              cells      in a circle; each says what has come
 *              ring       bytes of messages, and keys
 *
 * A cell is there when its number is: the sender stores that last. It means a
 * message whose bytes lie in the ring (DATA), or are being copied there: the
 * sender then stores in the cell how many of them are there. Or it means one
 * whose bytes lie in a memory of the sender's, which the receiver maps and
 * copies from (PULL), or in other memory, which it reads by the kernel (LOAN);
 * then the receiver says DONE in a cell of the sender's inbox. A sender that is
 * far ahead waits for DONE of a message in the ring as well (SYNC), as the ring
 * is many times as fast as the channel. */
#ifndef UMI_COMM_INBOX_CELL_H
#define UMI_COMM_INBOX_CELL_H

#include <stddef.h>
#include <stdint.h>

enum {
    UMI_COMM_CELLS     = 64,
    UMI_COMM_CELL_SIZE = 64, /* bytes of a cell, and of what one side writes */
    UMI_COMM_RING_MAX  = 2048 * 1024,
    UMI_COMM_RING_MIN  = 16 * 1024,
    UMI_COMM_RINGS_MAX = 8 * 1024 * 1024 /* bytes of all in an inbox, if they
                                   may be as large */
};

typedef enum umi_comm_cell_kind {
    UMI_COMM_CELL_DATA = 1,
    UMI_COMM_CELL_PULL,
    UMI_COMM_CELL_DONE,
    UMI_COMM_CELL_LOAN,
    UMI_COMM_CELL_SYNC /* DATA, whose sender waits for DONE */
} umi_comm_cell_kind;

typedef struct umi_comm_cell {
    uint64_t stamp; /* of the sender: how many it has written, this one too */
    uint8_t  kind;  /* cell_kind */
    uint8_t  op;    /* as in umi_comm_header, like the next */
    uint16_t round;
    union {
        uint32_t at; /* DATA, SYNC: in the ring */
        struct {
            uint16_t line; /* of the ring */
            uint16_t len;
        } key;         /* PULL */
        uint32_t slot; /* LOAN */
    };
    uint64_t number;
    uint64_t what;
    uint64_t bytes;
    uint64_t history;
    uint64_t len;
    uint64_t word; /* DATA, SYNC: the bytes, if they fit, or how many of them
                      are in the ring; PULL: their place in the memory; LOAN:
                      its number */
} umi_comm_cell;

_Static_assert(sizeof(umi_comm_cell) == UMI_COMM_CELL_SIZE, "one line");

/* How large the rings of an inbox for so many ranks are to be. */
static inline size_t
umi_comm_ring_size(int ranks)
{
    size_t size = UMI_COMM_RING_MAX;

    while (size > UMI_COMM_RING_MIN &&
           size * (size_t)ranks > UMI_COMM_RINGS_MAX) {
        size /= 2;
    }
    return size;
}

static inline size_t
umi_comm_area_size(size_t ring)
{
    return UMI_COMM_CELL_SIZE + UMI_COMM_CELLS * UMI_COMM_CELL_SIZE + ring;
}

static inline size_t
umi_comm_inbox_size(int ranks, size_t ring)
{
    return UMI_COMM_CELL_SIZE + (size_t)ranks * umi_comm_area_size(ring);
}

/* How large the rings of an inbox of `size` bytes are, which its rank may have
 * made smaller; 0: it is none. */
static inline size_t
umi_comm_ring_within(int ranks, size_t size)
{
    size_t ring = umi_comm_ring_size(ranks);

    while (ring >= UMI_COMM_RING_MIN &&
           umi_comm_inbox_size(ranks, ring) != size) {
        ring /= 2;
    }
    return (ring >= UMI_COMM_RING_MIN) ? ring : 0;
}

static inline char *
umi_comm_area_of(char *inbox, size_t ring, int rank)
{
    return inbox + UMI_COMM_CELL_SIZE + (size_t)rank * umi_comm_area_size(ring);
}

static inline uint64_t *
umi_comm_consumed_of(char *area)
{
    return (uint64_t *)(void *)area;
}

static inline uint64_t *
umi_comm_is_mapped_of(char *area)
{
    return (uint64_t *)(void *)(area + sizeof(uint64_t));
}

static inline umi_comm_cell *
umi_comm_cell_of(char *area, uint64_t index)
{
    return (umi_comm_cell *)(void *)(area + UMI_COMM_CELL_SIZE +
                                     index % UMI_COMM_CELLS *
                                         UMI_COMM_CELL_SIZE);
}

static inline char *
umi_comm_ring_of(char *area)
{
    return area + UMI_COMM_CELL_SIZE +
           (size_t)UMI_COMM_CELLS * UMI_COMM_CELL_SIZE;
}

#endif
