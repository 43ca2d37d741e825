/* SPDX-License-Identifier: BSD-3-Clause */
/* refcnt.h: counts of references. What they hold is gone once none is left, so
 * none can be taken from zero. Thread: umi_refs, the owner of what is counted;
 * umi_shared_refs, any. */
#ifndef UMI_REFCNT_H
#define UMI_REFCNT_H

#include <assert.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct umi_refs {
    unsigned count;
} umi_refs;

typedef struct umi_shared_refs {
    atomic_uint count;
} umi_shared_refs;

static inline void
umi_refs_init(umi_refs *refs)
{
    refs->count = 1;
}

static inline void
umi_refs_get(umi_refs *refs)
{
    assert(refs->count != 0 && refs->count != UINT_MAX);
    refs->count++;
}

/* Give one back. True: it was the last. */
static inline bool
umi_refs_put(umi_refs *refs)
{
    assert(refs->count != 0);
    return --refs->count == 0;
}

/* True if the caller has the only one. */
static inline bool
umi_refs_is_last(const umi_refs *refs)
{
    return refs->count == 1;
}

static inline void
umi_shared_refs_init(umi_shared_refs *refs)
{
    atomic_init(&refs->count, 1);
}

static inline void
umi_shared_refs_get(umi_shared_refs *refs)
{
    unsigned before = atomic_fetch_add_explicit(&refs->count, 1,
                                                memory_order_relaxed);

    (void)before; /* without assert() */
    assert(before != 0 && before != UINT_MAX);
}

static inline bool
umi_shared_refs_put(umi_shared_refs *refs)
{
    unsigned before = atomic_fetch_sub_explicit(&refs->count, 1,
                                                memory_order_acq_rel);

    assert(before != 0);
    return before == 1;
}

#endif
