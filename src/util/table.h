/* SPDX-License-Identifier: BSD-3-Clause */
/* table.h: pointers found by a number of 32 bits, in constant time. What is in
 * the table stays until the table ends. Thread: the owner.
 *
 * Open addressing: a number has a place, and is there or in the next places up
 * to the first free one. At most half of the places are in use. Whoever may
 * choose the numbers can choose such as have one place: then a number is found
 * by walking over all of them, so their owner bounds how many there are. */
#ifndef UMI_TABLE_H
#define UMI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct umi_table_place {
    uint32_t number;
    void    *value; /* NULL: free */
} umi_table_place;

typedef struct umi_table {
    umi_table_place *places;
    unsigned         bits; /* there are 1 << bits places, if there are any */
    uint32_t         count;
} umi_table;

void umi_table_init(umi_table *table);
void umi_table_fini(umi_table *table);

/* `number` must not be in the table. False when out of memory. */
bool umi_table_add(umi_table *table, uint32_t number, void *value);

/* Call `fn` for each value, which it may free if the table ends then. */
void umi_table_each(const umi_table *table, void (*fn)(void *value));

/* Compute where the search for `number` begins: the upper bits of its product
 * with 2^32 divided by the golden ratio, which spreads neighbours. */
static inline uint32_t
umi_table_home(const umi_table *table, uint32_t number)
{
    return (number * UINT32_C(2654435769)) >> (32 - table->bits);
}

/* Find what has `number`; NULL if that is not in the table. */
static inline void *
umi_table_get(const umi_table *table, uint32_t number)
{
    uint32_t i, mask;

    if (table->places == NULL) {
        return NULL;
    }
    mask = (UINT32_C(1) << table->bits) - 1;
    for (i = umi_table_home(table, number); table->places[i].value != NULL;
         i = (i + 1) & mask) {
        if (table->places[i].number == number) {
            return table->places[i].value;
        }
    }
    return NULL;
}

#endif
