/* SPDX-License-Identifier: BSD-3-Clause */
/* call.h: calls of threads that share a worker, which wait. */
#ifndef UCP_EXT_OP_CALL_H
#define UCP_EXT_OP_CALL_H

#include "base/state.h"

/* Has the worker been closed, or is it none that threads share? -1 with an
 * exception. */
int worker_check_open(const WorkerObject *worker);

/* Wait for a request, `timeout` seconds or for ever if it is None. 1: it is
 * settled; 0: the time is out; -1: with an exception. */
int worker_wait_for(WorkerObject *worker, const RequestObject *req,
                    PyObject *timeout);

/* Methods of Worker. */
PyObject *worker_call_and_wait(PyObject *op, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames);
PyObject *worker_call_as(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames);
PyObject *worker_wait_for_request(PyObject *op, PyObject *const *args,
                                  Py_ssize_t nargs);
extern const char worker_call_and_wait_doc[], worker_call_as_doc[],
    worker_wait_for_request_doc[];

#endif
