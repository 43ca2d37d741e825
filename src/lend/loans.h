/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* loans.h: what a worker lends to one peer, in memory that the peer reads
 * with process_vm_readv(). The process of a table writes into it, the peer
 * compares: nobody locks.
 *
 *   slot  id u64 (0: nothing is lent here) | address u64 | length u64
 *
 * An id is used once: the first of a table is random, each further one is the
 * next number.
 *
 * written  id = 0, fence, address and length, then id with release
 * turned   another address, where the same bytes are, then a full fence
 * ended    id = 0, full fence; from then on the memory is its owner's
 * read     the slot, then the bytes and the slot again in one call. The bytes
 *          are the loan's if both readings of the slot show the same. If only
 *          the address is another one the bytes are read again
 *
 * The full fence is for processors that let a store pass an earlier one (ARM):
 * without it the owner's next write to the memory could be seen before the id
 * is 0. At the reader the kernel keeps the order: it takes the vectors of a
 * call one after the other, and gives the pages of one back, by an atomic
 * decrement that is a full barrier, before it looks at the next.
 *
 * Thread: the worker's owner. */
/* clang-format on */
#ifndef UMI_LEND_LOANS_H
#define UMI_LEND_LOANS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    UMI_LEND_SLOTS = 256 /* loans at a time; what is beyond is not lent */
};

typedef struct umi_lend_slot {
    _Atomic uint64_t id;
    _Atomic uint64_t address;
    _Atomic uint64_t len;
} umi_lend_slot;

typedef struct umi_lend_table {
    umi_lend_slot slots[UMI_LEND_SLOTS];
    void         *loans[UMI_LEND_SLOTS]; /* the lender's; NULL: a free slot */
    uint16_t      free[UMI_LEND_SLOTS];  /* the numbers of free slots */
    unsigned      num_free;
    uint64_t      last_id;
    bool          is_over; /* goes with its last loan */
} umi_lend_table;

/* The name of a loan, for the peer. */
typedef struct umi_lend_loan {
    uint64_t id;
    uint64_t len;
    uint32_t slot;
    uint32_t zero;
} umi_lend_loan;

/* ---- the lender's --------------------------------------------------------
 */

/* Make a table; NULL when out of memory or random bytes. */
umi_lend_table *umi_lend_table_new(void);

/* End the table: nobody reads it any more. Its loans have yet to be removed. */
void umi_lend_table_end(umi_lend_table *table);

/* Lend `len` bytes at `data`; `loan` is found by the number again. False if no
 * slot is free. */
bool umi_lend_table_add(umi_lend_table *table, const void *data, size_t len,
                        void *loan, umi_lend_loan *name);

/* Lend the same bytes at another address. */
void umi_lend_table_turn(umi_lend_table *table, uint32_t slot,
                         const void *data);

/* End a loan: whoever reads from now on finds out. */
void umi_lend_table_remove(umi_lend_table *table, uint32_t slot);

/* Find a loan by its number; NULL if nothing of that number is lent. */
void *umi_lend_table_find(const umi_lend_table *table, uint32_t slot,
                          uint64_t id);

/* ---- the reader's --------------------------------------------------------
 */

/* The table of another process. */
typedef struct umi_lend_source {
    pid_t    pid;
    uint64_t address;
    uint32_t size; /* slots */
} umi_lend_source;

/* True if the system lets this process read the table. */
bool umi_lend_source_is_readable(const umi_lend_source *source);

typedef enum umi_lend_reading {
    UMI_LEND_READ,
    UMI_LEND_ENDED,     /* there is no such loan, or no longer */
    UMI_LEND_UNREADABLE /* the table, or the memory, cannot be read */
} umi_lend_reading;

/* Copy what is lent to `data`, of `loan->len` bytes; `data` is undefined unless
 * UMI_LEND_READ. */
umi_lend_reading umi_lend_source_read(const umi_lend_source *source,
                                      const umi_lend_loan *loan, void *data);

#endif
