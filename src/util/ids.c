/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/ids.h"

#include <stdlib.h>
#include <string.h>

#include "util/hash.h"

enum {
    MIN_SIZE    = 16,
    CHECK_BITS  = 24,
    RANDOM_SIZE = 5
};

_Static_assert(8 * RANDOM_SIZE + CHECK_BITS == 64, "of a number");

/* An empty table, until there is one. */
static umi_id none;

void
umi_ids_init(umi_ids *ids)
{
    memset(ids, 0, sizeof(*ids));
    ids->table = &none;
}

void
umi_ids_fini(umi_ids *ids)
{
    if (ids->table != &none) {
        free(ids->table);
    }
    umi_ids_init(ids);
}

/* Make an id of `random`, with check bits below it. */
static uint64_t
make_id(const umi_ids *ids, uint64_t random)
{
    uint64_t text[3] = {ids->secret[0], ids->secret[1], random};

    return random << CHECK_BITS |
           (umi_siphash(text, sizeof(text)) & ((1u << CHECK_BITS) - 1));
}

bool
umi_ids_was_given(const umi_ids *ids, uint64_t id)
{
    return id != 0 && make_id(ids, id >> CHECK_BITS) == id;
}

/* Places of a smaller table never meet in a larger one. */
static bool
grow(umi_ids *ids)
{
    size_t  size  = (ids->table == &none) ? MIN_SIZE : 2 * (ids->mask + 1);
    umi_id *table = calloc(size, sizeof(*table));

    if (table == NULL) {
        return false;
    }
    for (uint64_t i = 0; i <= ids->mask; i++) {
        if (ids->table[i].id != 0) {
            table[ids->table[i].id & (size - 1)] = ids->table[i];
        }
    }
    if (ids->table != &none) {
        free(ids->table);
    }
    ids->table = table;
    ids->mask  = size - 1;
    return true;
}

uint64_t
umi_ids_add(umi_ids *ids, void *value)
{
    uint64_t random = 0, id;

    if (ids->secret[0] == 0 &&
        !umi_random_bytes(ids->secret, sizeof(ids->secret))) {
        return 0;
    }
    /* At most half full, so that two draws find a free place. */
    if (2 * (ids->count + 1) > ids->mask + 1 && !grow(ids)) {
        return 0;
    }
    do {
        if (!umi_random_bytes(&random, RANDOM_SIZE)) {
            return 0;
        }
        id = make_id(ids, random);
    } while (id == 0 || ids->table[id & ids->mask].id != 0);
    ids->table[id & ids->mask] = (umi_id){id, value};
    ids->count++;
    return id;
}

void
umi_ids_remove(umi_ids *ids, uint64_t id)
{
    umi_id *place = &ids->table[id & ids->mask];

    if (id != 0 && place->id == id) {
        *place = (umi_id){0};
        ids->count--;
    }
}
