/* SPDX-License-Identifier: BSD-3-Clause */
/* ops.h: the operations of a request that C code posts. */
#ifndef UCP_EXT_CAPI_OPS_H
#define UCP_EXT_CAPI_OPS_H

#include "base/compat.h"

#include <umx/umx.h>

enum {
    OPS_INLINE = 2 /* operations that need no memory of their own */
};

typedef struct posted_op {
    umx_request *op;      /* NULL: it has ended */
    bool         is_lost; /* its peer is, and UCX has not given it back */
    bool         is_late; /* it was posted after the last one, and abandoned */
} posted_op;

/* All zeros is an empty one, but for `list` and `capacity`: ops_init(). */
typedef struct posted_ops {
    posted_op *list;     /* by the order of posting */
    uint32_t  *slots;    /* index + 1, or 0, by the hash of `op`; or NULL */
    size_t     first;    /* those before have ended */
    size_t     count;    /* in `list`, with those that have ended */
    size_t     capacity; /* of `list`, a power of two; `slots` has twice */
    posted_op  few[OPS_INLINE];
} posted_ops;

void ops_init(posted_ops *ops);

void ops_free(posted_ops *ops);

/* Append an operation. NULL: out of memory. No function here needs the GIL, and
 * what they return is good until the next ops_add(). */
posted_op *ops_add(posted_ops *ops, umx_request *op);

/* NULL: it was not added. */
posted_op *ops_find(const posted_ops *ops, const umx_request *op);

/* Note that an operation has ended. */
void ops_remove(posted_ops *ops, posted_op *entry);

#endif
