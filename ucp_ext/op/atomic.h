/* SPDX-License-Identifier: BSD-3-Clause */
/* atomic.h: operations on numbers in memory of a peer's. */
#ifndef UCP_EXT_OP_ATOMIC_H
#define UCP_EXT_OP_ATOMIC_H

#include "base/compat.h"

#include <umx/umx.h>

/* Parse an int of `size` bytes, signed or not. -1 with an exception. */
int atomic_parse_value(PyObject *value, unsigned size, uint64_t *value_p);

/* Parse 'set', which NULL is, or 'add'. -1 with an exception. */
int atomic_parse_signal(PyObject *op, umx_atomic_op *op_p);

/* Methods of RemoteMemory, each with its docstring. */
#define ATOMIC_METHOD(name)                                               \
    PyObject         *remote_##name(PyObject *op, PyObject *const *args,  \
                                    Py_ssize_t nargs, PyObject *kwnames); \
    extern const char remote_##name##_doc[]

ATOMIC_METHOD(add);
ATOMIC_METHOD(and_);
ATOMIC_METHOD(or_);
ATOMIC_METHOD(xor);
ATOMIC_METHOD(fetch_add);
ATOMIC_METHOD(fetch_and);
ATOMIC_METHOD(fetch_or);
ATOMIC_METHOD(fetch_xor);
ATOMIC_METHOD(swap);
ATOMIC_METHOD(cswap);
ATOMIC_METHOD(put_signal);

#endif
