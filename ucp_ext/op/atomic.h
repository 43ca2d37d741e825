/* SPDX-License-Identifier: BSD-3-Clause */
/* atomic.h: operations on numbers in memory of a peer's. */
#ifndef UCP_EXT_OP_ATOMIC_H
#define UCP_EXT_OP_ATOMIC_H

#include "base/compat.h"

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
