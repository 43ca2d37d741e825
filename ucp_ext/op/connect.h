/* SPDX-License-Identifier: BSD-3-Clause */
/* connect.h: a connection to a listener. */
#ifndef UCP_EXT_OP_CONNECT_H
#define UCP_EXT_OP_CONNECT_H

#include "request/request.h"

/* Methods of Worker. */
PyObject *worker_connect(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames);
PyObject *worker_start_connect(PyObject *op, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames);
extern const char worker_connect_doc[], worker_start_connect_doc[];

extern const op_type op_connect;

#endif
