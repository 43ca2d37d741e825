/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint.h: one side of a connection. */
#ifndef UCP_EXT_TYPES_ENDPOINT_H
#define UCP_EXT_TYPES_ENDPOINT_H

#include "event.h"
#include "state.h"

struct EndpointObject {
    PyObject_HEAD WorkerObject *worker;
    umx_ep   *umx; /* NULL once the worker is closed and it is dropped */
    event     event;
    bool      has_opened; /* told, the addresses are to be read */
    bool      has_ended;  /* told, on_close is to be called */
    PyObject *peer;       /* address tuple or None */
    PyObject *local;
    PyObject *on_close;
    uint64_t  high; /* limits of drain(), bytes */
    uint64_t  low;
    PyObject *weakrefs;
};

/* Takes over `ep`. */
PyObject *endpoint_new(WorkerObject *worker, umx_ep *ep);

/* As Endpoint.closed(). */
bool endpoint_is_closed(const EndpointObject *self);

extern PyType_Spec endpoint_spec;

#endif
