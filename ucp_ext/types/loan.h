/* SPDX-License-Identifier: BSD-3-Clause */
/* loan.h: what keeps a pool's buffer from being lent again. */
#ifndef UCP_EXT_TYPES_LOAN_H
#define UCP_EXT_TYPES_LOAN_H

#include "types/pool.h"

/* One buffer of a pool is in use, as long as this lives: the PoolBuffer and
 * operations hold it. */
struct LoanObject {
    PyObject_HEAD PoolObject *pool;
    uint32_t                  number;
};

/* Takes over buffer `number`. NULL with an exception: it has not. */
LoanObject *loan_new(PoolObject *pool, uint32_t number);

static inline char *
loan_data(const LoanObject *loan)
{
    const PoolObject *pool = loan->pool;

    return (char *)umx_memh_buffer(pool->memh)->data +
           loan->number * pool->stride;
}

extern PyType_Spec loan_spec;

#endif
