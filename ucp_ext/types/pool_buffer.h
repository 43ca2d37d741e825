/* SPDX-License-Identifier: BSD-3-Clause */
/* pool_buffer.h: a buffer of a pool, in the user's hands. */
#ifndef UCP_EXT_TYPES_POOL_BUFFER_H
#define UCP_EXT_TYPES_POOL_BUFFER_H

#include "buffer/buffer.h"

/* What the user has of it. */
struct PoolBufferObject {
    PyObject_HEAD LoanObject *loan; /* NULL once released and out of use */
    Py_ssize_t                exports;
    bool                      is_released;
    bool      is_address_known; /* there may be views that are no exports */
    PyObject *weakrefs;
};

/* Takes over `loan`. */
PyObject *pool_buffer_new(mod_state *st, LoanObject *loan);

/* As buffer_acquire(); the operation holds the loan. */
int pool_buffer_acquire(PyObject *op, buffer_hold *hold);

extern PyType_Spec pool_buffer_spec;

#endif
