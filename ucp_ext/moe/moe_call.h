/* SPDX-License-Identifier: BSD-3-Clause */
/* moe_call.h: a dispatch and its combine. */
#ifndef UCP_EXT_MOE_MOE_CALL_H
#define UCP_EXT_MOE_MOE_CALL_H

#include "moe/moe_buffer.h"

/* A method of MoeBuffer. */
PyObject         *moe_call_begin(PyObject *op, PyObject *args);
extern const char moe_call_begin_doc[];

extern PyType_Spec moe_call_spec;

#endif
