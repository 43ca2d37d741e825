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

PyObject *remote_new(EndpointObject *endpoint, const void *key, size_t len);

extern PyType_Spec remote_spec;

#endif
