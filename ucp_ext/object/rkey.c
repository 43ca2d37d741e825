/* SPDX-License-Identifier: BSD-3-Clause */
/* rkey.c: memory of a peer's. */
#include "object/rkey.h"

#include "object/endpoint.h"
#include "worker/worker.h"

PyObject *
remote_new(EndpointObject *endpoint, const void *key, size_t len)
{
    mod_state    *st = endpoint->worker->st;
    RemoteObject *self;
    umx_rkey     *rkey;
    umx_status    status;

    status = umx_rkey_open(endpoint->umx, key, len, &rkey);
    if (status != UMX_OK) {
        return errors_raise(st, status, "remote", NULL);
    }
    self = (RemoteObject *)st->remote_type->tp_alloc(st->remote_type, 0);
    if (self == NULL) {
        umx_rkey_destroy(rkey);
        return NULL;
    }
    self->endpoint = (EndpointObject *)Py_NewRef(endpoint);
    self->umx      = rkey;
    self->nbytes   = umx_rkey_length(rkey);
    st->num_remotes++;
    return (PyObject *)self;
}

int
remote_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((RemoteObject *)op)->endpoint);
    return 0;
}

void
remote_dealloc(PyObject *op)
{
    RemoteObject *self   = (RemoteObject *)op;
    PyTypeObject *type   = Py_TYPE(op);
    WorkerObject *worker = self->endpoint->worker;

    PyObject_GC_UnTrack(op);
    umx_rkey_retire(self->umx); /* any thread */
    worker->st->num_remotes--;
    Py_CLEAR(self->endpoint);
    type->tp_free(op);
    Py_DECREF(type);
}
