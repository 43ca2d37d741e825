/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.c: the memory of a pool that is lent. */
#include "buffer/pool.h"

int
pool_buffer_check(const PoolBufferObject *self)
{
    if (UNLIKELY(self->is_released)) {
        PyErr_SetString(PyExc_ValueError, "the buffer has been released");
        return -1;
    }
    return 0;
}

umx_memtype
pool_buffer_memtype(const LoanObject *loan)
{
    return umx_memh_buffer(loan->pool->memh)->memtype;
}

int
pool_buffer_acquire(PyObject *op, buffer_hold *hold)
{
    PoolBufferObject *self = (PoolBufferObject *)op;
    LoanObject       *loan = self->loan;

    if (pool_buffer_check(self) < 0) {
        return -1;
    }
    buffer_hold_object(hold, (PyObject *)loan, loan_data(loan),
                       loan->pool->nbytes, pool_buffer_memtype(loan));
    hold->buf.memh = loan->pool->memh;
    return 0;
}
