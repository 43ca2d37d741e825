/* SPDX-License-Identifier: BSD-3-Clause */
/* owned.h: objects that have one of libumx's, which belongs to a worker. */
#ifndef UCP_EXT_OBJECT_OWNED_H
#define UCP_EXT_OBJECT_OWNED_H

#include "base/state.h"

/* How the struct of such an object begins. */
#define OWNED_HEAD                      \
    PyObject_HEAD WorkerObject *worker; \
    PyObject                   *weakrefs

typedef struct OwnedObject {
    OWNED_HEAD;
} OwnedObject;

/* Make an object of `type`. NULL with an exception. */
PyObject *owned_new(PyTypeObject *type, WorkerObject *worker);

/* Check that this thread may call libumx with `umx`, which is NULL once it has
 * been given back; `noun` is for errors. -1 with an exception. */
int owned_check(WorkerObject *worker, const void *umx, const char *noun);

/* tp_traverse, and tp_dealloc with the function that gives the object of libumx
 * back. */
int  owned_traverse(PyObject *op, visitproc visit, void *arg);
void owned_dealloc(PyObject *op, void (*give_back)(PyObject *op));

/* The same of an object with a reference `held`, or NULL, which goes last. */
void owned_dealloc_with(PyObject *op, void (*give_back)(PyObject *op),
                        PyObject *held);

/* The attribute `worker`, and the members of types with weak references. */
PyObject          *owned_get_worker(PyObject *op, void *closure);
extern PyMemberDef owned_members[];

#endif
