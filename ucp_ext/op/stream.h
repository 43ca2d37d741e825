/* SPDX-License-Identifier: BSD-3-Clause */
/* stream.h: the byte stream of an endpoint. */
#ifndef UCP_EXT_OP_STREAM_H
#define UCP_EXT_OP_STREAM_H

#include "request/request.h"

/* Methods of Endpoint. */
PyObject *endpoint_stream_send(PyObject *op, PyObject *buffer);
PyObject *endpoint_stream_recv(PyObject *op, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames);
PyObject *endpoint_stream_shutdown(PyObject *op, PyObject *ignored);

extern const op_type op_stream_send, op_stream_recv;

#endif
