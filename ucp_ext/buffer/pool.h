/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.h: buffers of one size, in memory that is registered once. */
#ifndef UCP_EXT_BUFFER_POOL_H
#define UCP_EXT_BUFFER_POOL_H

#include "buffer/buffer.h"

/* Memory for `count` buffers, registered as one. */
struct PoolObject {
    PyObject_HEAD mod_state *st;
    umx_memh *memh; /* NULL once closed and all buffers are back */
    size_t    nbytes;
    size_t    stride; /* from one to the next */
    uint32_t  count;
    uint32_t  num_free;
    uint32_t *free;    /* numbers of free buffers, the one used last at the
                          end */
    PyObject *waiters; /* list of futures, the first is next */
    bool      is_closed;
    bool      is_serving;
    PyObject *weakrefs;
};

/* A loan keeps one buffer of a pool in use as long as the loan lives: the
 * PoolBuffer and operations hold references to it. */
struct LoanObject {
    PyObject_HEAD PoolObject *pool;
    uint32_t                  number;
};

/* The object that the user has of a loan. */
struct PoolBufferObject {
    PyObject_HEAD LoanObject *loan; /* NULL once released and out of use */
    Py_ssize_t                exports;
    bool                      is_released;
    bool      is_address_known; /* views may exist that are no exports */
    PyObject *weakrefs;
};

static inline char *
loan_data(const LoanObject *loan)
{
    const PoolObject *pool = loan->pool;

    return (char *)umx_memh_buffer(pool->memh)->data +
           loan->number * pool->stride;
}

/* buffer_acquire() of a PoolBuffer: the operation holds the loan. */
int pool_buffer_acquire(PyObject *op, buffer_hold *hold);

/* Check that the buffer has not been released; -1 with ValueError. */
int pool_buffer_check(const PoolBufferObject *self);

umx_memtype pool_buffer_memtype(const LoanObject *loan);

#endif
