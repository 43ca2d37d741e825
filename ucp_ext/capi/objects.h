/* SPDX-License-Identifier: BSD-3-Clause */
/* objects.h: the objects of libumx behind Python's. */
#ifndef UCP_EXT_CAPI_OBJECTS_H
#define UCP_EXT_CAPI_OBJECTS_H

#include "base/state.h"

#include <umx/umx.h>

/* Get the state of the module that the type of an object is of; NULL, without
 * an exception: the object is of another module. */
mod_state *objects_state(PyObject *op);

/* Raise TypeError: `op` is not what `expected` names. */
void objects_refuse(PyObject *op, const char *expected);

/* The functions of the table: see ucp_api.h. NULL with an exception. */
umx_context *objects_context(PyObject *op);
umx_worker  *objects_worker(PyObject *op);
umx_ep      *objects_endpoint(PyObject *op);
umx_comm    *objects_communicator(PyObject *op);
umx_memh    *objects_memory(PyObject *op);
umx_rkey    *objects_remote_memory(PyObject *op);

#endif
