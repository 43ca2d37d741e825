/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.h: buffers of one size, in memory that is registered once. */
#ifndef UCP_EXT_BUFFER_POOL_H
#define UCP_EXT_BUFFER_POOL_H

#include "base/state.h"

#include <umx/umx.h>

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

/* End a loan: the next waiter may have the buffer. */
void pool_give_back(PoolObject *pool, uint32_t number);

extern PyType_Spec pool_spec;

#endif
