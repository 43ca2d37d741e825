/* SPDX-License-Identifier: BSD-3-Clause */
/* pool_buffer.h: a buffer of a pool, in the user's hands. */
#ifndef UCP_EXT_BUFFER_POOL_BUFFER_H
#define UCP_EXT_BUFFER_POOL_BUFFER_H

#include "buffer/buffer.h"

/* The object that the user has of a loan. */
struct PoolBufferObject {
    PyObject_HEAD LoanObject *loan; /* NULL once released and out of use */
    Py_ssize_t                exports;
    bool                      is_released;
    bool      is_address_known; /* views may exist that are no exports */
    PyObject *weakrefs;
};

/* Make the object of `loan`, which is taken over. */
PyObject *pool_buffer_new(mod_state *st, LoanObject *loan);

/* buffer_acquire() of a PoolBuffer: the operation holds the loan. */
int pool_buffer_acquire(PyObject *op, buffer_hold *hold);

extern PyType_Spec pool_buffer_spec;

#endif
