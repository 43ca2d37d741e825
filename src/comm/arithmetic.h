/* SPDX-License-Identifier: BSD-3-Clause */
/* arithmetic.h: how the items of ranks are combined. The items of one rank
 * after the other go into an accumulator, whose items may be others: those of
 * 16-bit floats are 32-bit floats. Thread: any. */
#ifndef UMI_COMM_ARITHMETIC_H
#define UMI_COMM_ARITHMETIC_H

#include <umx/collective.h>

typedef struct umi_comm_arithmetic {
    size_t item;  /* bytes */
    size_t total; /* bytes of an item of the accumulator */
    /* The accumulator from the items of the first rank; NULL: a copy. */
    void (*load)(void *totals, const void *items, size_t count);
    void (*combine)(void *totals, const void *items, size_t count);
    /* Divide by the number of ranks. May be NULL. */
    void (*divide)(void *totals, size_t count, int num_ranks);
    /* Items from the accumulator; NULL: a copy. */
    void (*store)(void *items, const void *totals, size_t count);
} umi_comm_arithmetic;

/* Find how to do it. False: there is no such operation on the type. */
bool umi_comm_arithmetic_find(const umx_reduction *what,
                              umi_comm_arithmetic *arithmetic);

/* Make the accumulator from the items of the first rank. */
void umi_comm_arithmetic_load(const umi_comm_arithmetic *arithmetic,
                              void *totals, const void *items, size_t count);

/* Make the result of so many ranks, which may use `totals` up. */
void umi_comm_arithmetic_store(const umi_comm_arithmetic *arithmetic,
                               void *items, void *totals, size_t count,
                               int num_ranks);

#endif
