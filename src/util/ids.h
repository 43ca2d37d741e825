/* SPDX-License-Identifier: BSD-3-Clause */
/* ids.h: numbers for pointers that only those know who have been told, for who
 * knows such a number may use what it stands for. A number is 40 random bits
 * and 24 that come from them and from a secret; those tell a number that has
 * been given, and may be given back, from one that somebody has made up. Its
 * low bits are its place in the table: one that is taken is not given again, so
 * finding is one comparison. 0 is no number. Thread: the owner. */
#ifndef UMI_IDS_H
#define UMI_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct umi_id {
    uint64_t id; /* 0: free */
    void    *value;
} umi_id;

typedef struct umi_ids {
    umi_id  *table; /* of mask + 1 */
    uint64_t mask;
    size_t   count;
    uint64_t secret[2]; /* 0: not drawn yet */
} umi_ids;

void umi_ids_init(umi_ids *ids);
void umi_ids_fini(umi_ids *ids);

/* A number for `value`; 0 when out of memory, or of random bytes. */
uint64_t umi_ids_add(umi_ids *ids, void *value);
void     umi_ids_remove(umi_ids *ids, uint64_t id);

/* Tell whether `id` has been given. False if it has never been a number of
 * `ids`; nobody else can tell, but by chance, once in 2^24. */
bool umi_ids_was_given(const umi_ids *ids, uint64_t id);

/* Find what has the number `id`; NULL if that is not, or no longer, a number.
 */
static inline void *
umi_ids_get(const umi_ids *ids, uint64_t id)
{
    const umi_id *place = &ids->table[id & ids->mask];

    return (place->id == id) ? place->value : NULL;
}

#endif
