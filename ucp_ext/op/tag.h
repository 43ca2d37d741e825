/* SPDX-License-Identifier: BSD-3-Clause */
/* tag.h: UCX's own tags. */
#ifndef UCP_EXT_OP_TAG_H
#define UCP_EXT_OP_TAG_H

#include "request/request.h"

/* Methods of Worker. */
PyObject *worker_send(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames);
PyObject *worker_recv(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames);
PyObject *worker_tag_recv(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames);
PyObject *worker_recv_message(PyObject *op, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames);
PyObject *worker_probe(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);
PyObject *worker_tag_probe(PyObject *op, PyObject *const *args,
                           Py_ssize_t nargs, PyObject *kwnames);
extern const char worker_send_doc[], worker_recv_doc[], worker_tag_recv_doc[],
    worker_recv_message_doc[], worker_probe_doc[], worker_tag_probe_doc[];

extern const op_type op_tag_send, op_tag_send_sync, op_tag_recv,
    op_tag_recv_into, op_tag_wait, op_tag_recv_message, op_tag_message_recv;

#endif
