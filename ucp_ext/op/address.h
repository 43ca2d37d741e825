/* SPDX-License-Identifier: BSD-3-Clause */
/* address.h: a worker's address, and endpoints made from addresses. */
#ifndef UCP_EXT_OP_ADDRESS_H
#define UCP_EXT_OP_ADDRESS_H

#include "base/event.h"
#include "base/state.h"

/* Methods of Worker. */
PyObject *worker_get_address(PyObject *op, PyObject *ignored);
PyObject *worker_connect_address(PyObject *op, PyObject *const *args,
                                 Py_ssize_t nargs, PyObject *kwnames);
PyObject *worker_take_addressed(PyObject *op, PyObject *ignored);
PyObject *worker_withdraw_address(PyObject *op, PyObject *ignored);
PyObject *worker_get_on_addressed(PyObject *op, void *closure);
int       worker_set_on_addressed(PyObject *op, PyObject *value, void *closure);
extern const char worker_get_address_doc[], worker_connect_address_doc[],
    worker_take_addressed_doc[], worker_withdraw_address_doc[];

extern const event_type worker_addressed_event;

#endif
