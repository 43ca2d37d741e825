/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    MIN_BITS = 4
};

void
umi_table_init(umi_table *table)
{
    memset(table, 0, sizeof(*table));
}

void
umi_table_fini(umi_table *table)
{
    free(table->places);
    umi_table_init(table);
}

static size_t
size_of(const umi_table *table)
{
    return (table->places == NULL) ? 0 : (size_t)1 << table->bits;
}

void
umi_table_each(const umi_table *table, void (*fn)(void *value))
{
    size_t size = size_of(table);

    for (size_t i = 0; i < size; i++) {
        if (table->places[i].value != NULL) {
            fn(table->places[i].value);
        }
    }
}

static void
put(umi_table *table, uint32_t number, void *value)
{
    uint32_t mask = (UINT32_C(1) << table->bits) - 1;
    uint32_t i    = umi_table_home(table, number);

    while (table->places[i].value != NULL) {
        i = (i + 1) & mask;
    }
    table->places[i].number = number;
    table->places[i].value  = value;
}

/* Twice the size, with what is in it. */
static bool
grow(umi_table *table)
{
    umi_table grown = {
        .bits  = (table->places == NULL) ? MIN_BITS : table->bits + 1,
        .count = table->count,
    };
    size_t old_size = size_of(table);

    grown.places = calloc((size_t)1 << grown.bits, sizeof(*grown.places));
    if (grown.places == NULL) {
        return false;
    }
    for (size_t i = 0; i < old_size; i++) {
        if (table->places[i].value != NULL) {
            put(&grown, table->places[i].number, table->places[i].value);
        }
    }
    free(table->places);
    *table = grown;
    return true;
}

bool
umi_table_add(umi_table *table, uint32_t number, void *value)
{
    assert(value != NULL && umi_table_get(table, number) == NULL);
    if (2 * ((size_t)table->count + 1) > size_of(table) && !grow(table)) {
        return false;
    }
    put(table, number, value);
    table->count++;
    return true;
}
