/* SPDX-License-Identifier: BSD-3-Clause */
/* thread_future.h: a method of Worker that makes futures of threads. */
#ifndef UCP_EXT_TYPE_THREAD_FUTURE_H
#define UCP_EXT_TYPE_THREAD_FUTURE_H

#include "base/compat.h"

PyObject *worker_begin(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);
extern const char worker_begin_doc[];

#endif
