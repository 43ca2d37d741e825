/* SPDX-License-Identifier: BSD-3-Clause */
/* call.h: calls of threads that share a worker, which wait. */
#ifndef UCP_EXT_OP_CALL_H
#define UCP_EXT_OP_CALL_H

#include "base/state.h"

/* Methods of Worker. */
PyObject         *worker_call_and_wait(PyObject *op, PyObject *const *args,
                                       Py_ssize_t nargs, PyObject *kwnames);
PyObject         *worker_wait_for_request(PyObject *op, PyObject *const *args,
                                          Py_ssize_t nargs);
extern const char worker_call_and_wait_doc[], worker_wait_for_request_doc[];

#endif
