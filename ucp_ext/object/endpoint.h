/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint.h: one side of a connection. */
#ifndef UCP_EXT_OBJECT_ENDPOINT_H
#define UCP_EXT_OBJECT_ENDPOINT_H

#include "base/event.h"
#include "base/state.h"

struct EndpointObject {
    PyObject_HEAD WorkerObject *worker;
    umx_ep   *umx; /* NULL once the worker is closed and dropped */
    event     event;
    bool      has_opened; /* libumx has told: read the addresses */
    bool      has_ended;  /* libumx has told: call on_close */
    PyObject *peer;       /* address tuple or None */
    PyObject *local;
    PyObject *on_close;
    uint64_t  high; /* limits of drain(), bytes */
    uint64_t  low;
    /* Failures that nobody has asked for: unseen.h. */
    PyObject *unseen; /* the first one, or NULL */
    uint32_t  num_unseen;
    bool      is_end_seen;     /* by the program */
    char      unseen_name[20]; /* of the first one's operation */
    PyObject *weakrefs;
};

/* Make the object of `ep`, which is taken over. */
PyObject *endpoint_new(WorkerObject *worker, umx_ep *ep);

/* Slots of the type. */
int  endpoint_traverse(PyObject *op, visitproc visit, void *arg);
int  endpoint_clear(PyObject *op);
void endpoint_dealloc(PyObject *op);

/* Get the state; an endpoint whose worker has ended is closed. */
umx_ep_state endpoint_state(const EndpointObject *self);

/* Is the endpoint closed, as Endpoint.closed() has it? */
bool endpoint_is_closed(const EndpointObject *self);

/* Say who has closed the endpoint, in words behind "Endpoint closed". */
const char *endpoint_closed_by(const EndpointObject *self);

/* Read the addresses again: the object was made before it was connected. */
void endpoint_update_addresses(EndpointObject *self);

#endif
