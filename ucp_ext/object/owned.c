/* SPDX-License-Identifier: BSD-3-Clause */
/* owned.c: objects that have one of libumx's, which belongs to a worker. */
#include "object/owned.h"

#include "worker/worker.h"

PyObject *
owned_new(PyTypeObject *type, WorkerObject *worker)
{
    PyObject *op = type->tp_alloc(type, 0);

    if (op != NULL) {
        ((OwnedObject *)op)->worker = (WorkerObject *)Py_NewRef(worker);
    }
    return op;
}

int
owned_check(WorkerObject *worker, const void *umx, const char *noun)
{
    if (worker_is_forked(worker)) {
        PyErr_Format(PyExc_RuntimeError, "the %s belongs to the parent process",
                     noun);
        return -1;
    }
    if (umx == NULL || worker->umx == NULL) {
        PyErr_Format(worker->st->exceptions[EXC_UCXCloseError],
                     "the %s is closed", noun);
        return -1;
    }
    return worker_check(worker);
}

int
owned_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((OwnedObject *)op)->worker);
    return 0;
}

void
owned_dealloc(PyObject *op, void (*give_back)(PyObject *op))
{
    OwnedObject  *self = (OwnedObject *)op;
    PyTypeObject *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    give_back(op);
    Py_CLEAR(self->worker);
    type->tp_free(op);
    Py_DECREF(type);
}

void
owned_dealloc_with(PyObject *op, void (*give_back)(PyObject *op),
                   PyObject *held)
{
    owned_dealloc(op, give_back);
    Py_XDECREF(held);
}

PyObject *
owned_get_worker(PyObject *op, void *Py_UNUSED(closure))
{
    return Py_NewRef(((OwnedObject *)op)->worker);
}

PyMemberDef owned_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(OwnedObject, weakrefs),
     READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
