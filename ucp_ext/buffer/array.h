/* SPDX-License-Identifier: BSD-3-Clause */
/* array.h: an object's memory and its layout, held. */
#ifndef UCP_EXT_BUFFER_ARRAY_H
#define UCP_EXT_BUFFER_ARRAY_H

#include "buffer/layout.h"

/* buffer_acquire() of an Array. */
int array_acquire(PyObject *op, bool is_writable, buffer_hold *hold);

/* Describe the memory of an Array, whatever its strides. */
void array_describe(PyObject *op, buffer_hold *hold, buffer_layout *layout);

extern PyType_Spec array_spec;

#endif
