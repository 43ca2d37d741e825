/* SPDX-License-Identifier: BSD-3-Clause */
/* rkey.h: memory of a peer's. */
#ifndef UCP_EXT_OBJECT_RKEY_H
#define UCP_EXT_OBJECT_RKEY_H

#include "base/state.h"

#include <umx/umx.h>

struct RemoteObject {
    PyObject_HEAD EndpointObject *endpoint;
    umx_rkey                     *umx;
    uint64_t                      nbytes;
    bool                          is_closed;
};

/* Make the object of a key. NULL with an exception. */
PyObject *remote_new(EndpointObject *endpoint, const void *key, size_t len);

/* Slots of the type. */
int  remote_traverse(PyObject *op, visitproc visit, void *arg);
void remote_dealloc(PyObject *op);

#endif
