/* SPDX-License-Identifier: BSD-3-Clause */
/* dlpack_export.h: a Memory as a DLPack tensor. */
#ifndef UCP_EXT_BUFFER_DLPACK_EXPORT_H
#define UCP_EXT_BUFFER_DLPACK_EXPORT_H

#include "base/compat.h"

extern const char memory_dlpack_doc[], memory_dlpack_device_doc[];
PyObject         *memory_dlpack(PyObject *op, PyObject *args, PyObject *kwargs);
PyObject         *memory_dlpack_device(PyObject *op, PyObject *ignored);

#endif
