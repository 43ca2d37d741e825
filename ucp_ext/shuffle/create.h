/* SPDX-License-Identifier: BSD-3-Clause */
/* create.h: how a shuffler is made. */
#ifndef UCP_EXT_SHUFFLE_CREATE_H
#define UCP_EXT_SHUFFLE_CREATE_H

#include "base/compat.h"

/* tp_new of Shuffler. */
PyObject *shuffler_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);

#endif
