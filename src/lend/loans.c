/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* process_vm_readv() */
#include "lend/loans.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "mem/copy.h"
#include "util/hash.h"

_Static_assert(sizeof(umi_lend_slot) == 24, "other processes read it");

/* ---- the lender's --------------------------------------------------------
 */

umi_lend_table *
umi_lend_table_new(void)
{
    umi_lend_table *table = calloc(1, sizeof(*table));

    if (table == NULL ||
        !umi_random_bytes(&table->last_id, sizeof(table->last_id))) {
        free(table);
        return NULL;
    }
    table->last_id >>= 1; /* 2^63 numbers are left */
    while (table->num_free < UMI_LEND_SLOTS) {
        table->free[table->num_free] = (uint16_t)table->num_free;
        table->num_free++;
    }
    return table;
}

static void
free_if_over(umi_lend_table *table)
{
    if (table->is_over && table->num_free == UMI_LEND_SLOTS) {
        free(table);
    }
}

void
umi_lend_table_end(umi_lend_table *table)
{
    table->is_over = true;
    free_if_over(table);
}

/* Clear a slot: nobody takes what is read there from now on. */
static void
clear(umi_lend_slot *slot)
{
    atomic_store_explicit(&slot->id, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

bool
umi_lend_table_add(umi_lend_table *table, const void *data, size_t len,
                   void *loan, umi_lend_loan *name)
{
    umi_lend_slot *slot;

    if (table->num_free == 0) {
        return false;
    }
    *name = (umi_lend_loan){
        .id   = ++table->last_id,
        .len  = len,
        .slot = table->free[--table->num_free],
    };
    table->loans[name->slot] = loan;
    slot                     = &table->slots[name->slot];
    clear(slot);
    atomic_store_explicit(&slot->address, (uintptr_t)data,
                          memory_order_relaxed);
    atomic_store_explicit(&slot->len, len, memory_order_relaxed);
    atomic_store_explicit(&slot->id, name->id, memory_order_release);
    return true;
}

void
umi_lend_table_turn(umi_lend_table *table, uint32_t slot, const void *data)
{
    atomic_store_explicit(&table->slots[slot].address, (uintptr_t)data,
                          memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
}

void
umi_lend_table_remove(umi_lend_table *table, uint32_t slot)
{
    clear(&table->slots[slot]);
    table->loans[slot]             = NULL;
    table->free[table->num_free++] = (uint16_t)slot;
    free_if_over(table);
}

void *
umi_lend_table_find(const umi_lend_table *table, uint32_t slot, uint64_t id)
{
    if (slot >= UMI_LEND_SLOTS ||
        atomic_load_explicit(&table->slots[slot].id, memory_order_relaxed) !=
            id) {
        return NULL;
    }
    return table->loans[slot];
}

/* ---- the reader's --------------------------------------------------------
 */

enum {
    MAX_READS  = 3,         /* a loan is turned once */
    STAGE      = 64 * 1024, /* bytes */
    STAGED_MIN = 8 * 1024
};

/* A slot as it was read. */
typedef struct reading {
    uint64_t id;
    uint64_t address;
    uint64_t len;
} reading;

_Static_assert(sizeof(reading) == sizeof(umi_lend_slot), "one is the other");

static void *
slot_address(const umi_lend_source *source, uint32_t slot)
{
    return (void *)(uintptr_t)(source->address + slot * sizeof(umi_lend_slot));
}

static bool
read_slot(const umi_lend_source *source, uint32_t slot, reading *found)
{
    struct iovec local  = {found, sizeof(*found)};
    struct iovec remote = {slot_address(source, slot), sizeof(*found)};

    return process_vm_readv(source->pid, &local, 1, &remote, 1, 0) ==
           (ssize_t)sizeof(*found);
}

bool
umi_lend_source_is_readable(const umi_lend_source *source)
{
    reading found;

    return source->size > 0 && read_slot(source, source->size - 1, &found);
}

/* Compare the slot behind the bytes with that in front of them. */
static umi_lend_reading
compare(const reading *first, const reading *again)
{
    return (again->id == first->id && again->len == first->len) ?
               UMI_LEND_READ :
               UMI_LEND_ENDED;
}

/* Look at the slot behind bytes that could not be read: memory that is not lent
 * any more may be gone. */
static umi_lend_reading
compare_unread(const umi_lend_source *source, uint32_t slot,
               const reading *first, reading *again)
{
    if (!read_slot(source, slot, again) ||
        memcmp(again, first, sizeof(*again)) == 0) {
        return UMI_LEND_UNREADABLE;
    }
    return compare(first, again);
}

/* Bytes that are being read. */
typedef struct rest {
    const umi_lend_source *source;
    uint32_t               slot;
    char                  *to;
    uint64_t               address;
    uint64_t               left;
    char                  *stage; /* memory of STAGE bytes for what is slow to
                                     read to where it goes; or NULL */
} rest;

/* Read some bytes, and the slot as well if they are the last: as the system
 * call returns. */
static ssize_t
read_some(const rest *bytes, reading *again)
{
    bool         is_staged = bytes->stage != NULL;
    bool         is_last   = !is_staged || bytes->left <= STAGE;
    uint64_t     len       = is_last ? bytes->left : STAGE;
    struct iovec local[]   = {{is_staged ? bytes->stage : bytes->to, len},
                              {again, sizeof(*again)}};
    struct iovec remote[]  = {
         {(void *)(uintptr_t)bytes->address, len},
         {slot_address(bytes->source, bytes->slot), sizeof(*again)}};
    ssize_t n = process_vm_readv(bytes->source->pid, local, 1 + is_last, remote,
                                 1 + is_last, 0);

    if (is_staged && n > 0) {
        umi_copy(bytes->to, bytes->stage,
                 ((uint64_t)n < len) ? (size_t)n : len);
    }
    return n;
}

/* Read all bytes, and after them the slot, into `again`. UMI_LEND_READ: the
 * loan has not ended; but its address may be another one. */
static umi_lend_reading
read_bytes(rest *bytes, const reading *first, reading *again)
{
    for (;;) {
        ssize_t n = read_some(bytes, again);

        if (n == (ssize_t)(bytes->left + sizeof(*again))) {
            return compare(first, again);
        }
        if (n <= 0 || (uint64_t)n >= bytes->left) {
            return compare_unread(bytes->source, bytes->slot, first, again);
        }
        bytes->to += n; /* the system reads only so much at a time */
        bytes->address += (uint64_t)n;
        bytes->left -= (uint64_t)n;
    }
}

/* Read what is at the address of `first` to `data`. Where the system would take
 * long for it, it goes by a memory between, half a page away from either, that
 * stays in a cache; if there is none it takes long. */
static umi_lend_reading
read_all(const umi_lend_source *source, uint32_t slot, const reading *first,
         void *data, reading *again)
{
    const void      *from  = (const void *)(uintptr_t)first->address;
    rest             bytes = {.source  = source,
                              .slot    = slot,
                              .to      = data,
                              .address = first->address,
                              .left    = first->len};
    char            *room  = NULL;
    umi_lend_reading result;

    if (first->len >= STAGED_MIN && umi_copy_is_slow(data, from)) {
        room = malloc(STAGE + UMI_COPY_PAGE);
    }
    if (room != NULL) {
        bytes.stage = room +
                      ((uintptr_t)from + UMI_COPY_PAGE / 2 - (uintptr_t)room) %
                          UMI_COPY_PAGE;
    }
    result = read_bytes(&bytes, first, again);
    free(room);
    return result;
}

umi_lend_reading
umi_lend_source_read(const umi_lend_source *source, const umi_lend_loan *loan,
                     void *data)
{
    umi_lend_reading result = UMI_LEND_READ;
    reading          first, again;

    if (loan->id == 0 || loan->slot >= source->size ||
        !read_slot(source, loan->slot, &again)) {
        return UMI_LEND_UNREADABLE;
    }
    if (again.id != loan->id) {
        return UMI_LEND_ENDED;
    }
    if (again.len != loan->len) {
        return UMI_LEND_UNREADABLE; /* the name is a lie */
    }
    for (int i = 0; i < MAX_READS; i++) {
        first  = again;
        result = read_all(source, loan->slot, &first, data, &again);
        if (result != UMI_LEND_READ || again.address == first.address) {
            return result;
        }
    }
    return UMI_LEND_UNREADABLE;
}
