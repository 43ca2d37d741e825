/* SPDX-License-Identifier: BSD-3-Clause */
/* array.h: an object's memory and its layout, held. */
#ifndef UCP_EXT_BUFFER_ARRAY_H
#define UCP_EXT_BUFFER_ARRAY_H

#include "buffer/layout.h"

typedef struct ArrayObject {
    PyObject_HEAD mod_state *st;
    buffer_hold              hold;
    PyObject                *obj; /* owner of the memory, or NULL */
    PyObject                *shape;
    PyObject                *strides;
    Py_ssize_t               itemsize;
    char                     is_readonly;
    char                     is_c_contiguous;
    char                     is_f_contiguous;
    uintptr_t                stream; /* stream of the array's buffer_layout */
} ArrayObject;

/* buffer_acquire() of an Array. */
int array_acquire(mod_state *st, PyObject *op, bool is_writable,
                  buffer_hold *hold);

/* Describe the memory of an Array, whatever its strides. */
void array_describe(PyObject *op, buffer_hold *hold, buffer_layout *layout);

#endif
