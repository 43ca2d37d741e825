/* SPDX-License-Identifier: BSD-3-Clause */
/* ops.c: the operations of a request that C code posts. They are cancelled in
 * the order in which they were posted, and end in any: a table with open
 * addressing finds the one that has ended. */
#include "capi/ops.h"

#include <string.h>

/* ---- the table -----------------------------------------------------------
 */

/* The slot at which the search begins. */
static size_t
home_of(const posted_ops *ops, const umx_request *op)
{
    uint64_t hash = (uint64_t)(uintptr_t)op * UINT64_C(0x9e3779b97f4a7c15);

    return (size_t)(hash >> 32) & (2 * ops->capacity - 1);
}

static size_t
slot_after(const posted_ops *ops, size_t slot)
{
    return (slot + 1) & (2 * ops->capacity - 1);
}

static void
enter(posted_ops *ops, size_t i)
{
    size_t slot = home_of(ops, ops->list[i].op);

    while (ops->slots[slot] != 0) {
        slot = slot_after(ops, slot);
    }
    ops->slots[slot] = (uint32_t)i + 1;
}

/* Take the slot of `entry` out, and move those up that would not be found
 * without it. */
static void
leave(posted_ops *ops, const posted_op *entry)
{
    uint32_t number = (uint32_t)(entry - ops->list) + 1;
    size_t   hole   = home_of(ops, entry->op);
    size_t   slot, mask = 2 * ops->capacity - 1;

    while (ops->slots[hole] != number) {
        hole = slot_after(ops, hole);
    }
    for (slot = slot_after(ops, hole); ops->slots[slot] != 0;
         slot = slot_after(ops, slot)) {
        size_t home = home_of(ops, ops->list[ops->slots[slot] - 1].op);

        if (((slot - home) & mask) >= ((slot - hole) & mask)) {
            ops->slots[hole] = ops->slots[slot];
            hole             = slot;
        }
    }
    ops->slots[hole] = 0;
}

/* ---- the list ------------------------------------------------------------
 */

void
ops_init(posted_ops *ops)
{
    *ops = (posted_ops){.list = ops->few, .capacity = OPS_INLINE};
}

void
ops_free(posted_ops *ops)
{
    if (ops->list != ops->few) {
        PyMem_RawFree(ops->list);
    }
    PyMem_RawFree(ops->slots);
    ops_init(ops);
}

static size_t
count_pending(const posted_ops *ops)
{
    size_t n = 0;

    for (size_t i = ops->first; i < ops->count; i++) {
        n += (ops->list[i].op != NULL);
    }
    return n;
}

/* Have room for one more, without those that have ended. False: out of memory.
 */
static bool
grow(posted_ops *ops)
{
    size_t     n        = count_pending(ops);
    size_t     capacity = (2 * n > ops->capacity) ? 2 * ops->capacity :
                                                    ops->capacity;
    posted_ops old      = *ops;
    posted_op *list     = PyMem_RawMalloc(capacity * sizeof(*list));
    uint32_t  *slots    = PyMem_RawCalloc(2 * capacity, sizeof(*slots));

    if (list == NULL || slots == NULL || capacity > UINT32_MAX / 2) {
        PyMem_RawFree(list);
        PyMem_RawFree(slots);
        return false;
    }
    ops->list     = list;
    ops->slots    = slots;
    ops->capacity = capacity;
    ops->count    = 0;
    for (size_t i = old.first; i < old.count; i++) {
        if (old.list[i].op != NULL) {
            list[ops->count] = old.list[i];
            enter(ops, ops->count++);
        }
    }
    ops->first = 0;
    if (old.list != ops->few) {
        PyMem_RawFree(old.list);
    }
    PyMem_RawFree(old.slots);
    return true;
}

posted_op *
ops_add(posted_ops *ops, umx_request *op)
{
    posted_op *entry;

    if (ops->first == ops->count) {
        ops->first = 0; /* none is pending, nor in the table */
        ops->count = 0;
    }
    if (ops->count == ops->capacity && !grow(ops)) {
        return NULL;
    }
    entry  = &ops->list[ops->count];
    *entry = (posted_op){.op = op};
    if (ops->slots != NULL) {
        enter(ops, ops->count);
    }
    ops->count++;
    return entry;
}

posted_op *
ops_find(const posted_ops *ops, const umx_request *op)
{
    if (ops->slots == NULL) {
        for (size_t i = ops->first; i < ops->count; i++) {
            if (ops->list[i].op == op) {
                return &ops->list[i];
            }
        }
        return NULL;
    }
    for (size_t slot = home_of(ops, op); ops->slots[slot] != 0;
         slot        = slot_after(ops, slot)) {
        posted_op *entry = &ops->list[ops->slots[slot] - 1];

        if (entry->op == op) {
            return entry;
        }
    }
    return NULL;
}

void
ops_remove(posted_ops *ops, posted_op *entry)
{
    if (ops->slots != NULL) {
        leave(ops, entry);
    }
    entry->op = NULL;
    while (ops->first < ops->count && ops->list[ops->first].op == NULL) {
        ops->first++;
    }
}
