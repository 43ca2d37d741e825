/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.h: the loans of a pool. */
#ifndef UCP_EXT_TYPE_POOL_H
#define UCP_EXT_TYPE_POOL_H

#include "buffer/pool.h"

/* Make a loan that takes over buffer `number`. NULL with an exception: the
 * pool still has the buffer. */
LoanObject *loan_new(PoolObject *pool, uint32_t number);

/* Make the object of `loan`, which is taken over. */
PyObject *pool_buffer_new(mod_state *st, LoanObject *loan);

/* End a loan: the next waiter may have the buffer. */
void pool_give_back(PoolObject *pool, uint32_t number);

#endif
