/* SPDX-License-Identifier: BSD-3-Clause */
/* loan.h: what keeps a pool's buffer from being lent again. */
#ifndef UCP_EXT_BUFFER_LOAN_H
#define UCP_EXT_BUFFER_LOAN_H

#include "buffer/pool.h"

/* A loan keeps one buffer of a pool in use as long as the loan lives: the
 * PoolBuffer and operations hold references to it. */
struct LoanObject {
    PyObject_HEAD PoolObject *pool;
    uint32_t                  number;
};

/* Make a loan that takes over buffer `number`. NULL with an exception: the
 * pool still has the buffer. */
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
