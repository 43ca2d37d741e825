/* SPDX-License-Identifier: BSD-3-Clause */
/* objects.c: the objects of libumx behind Python's. */
#include "capi/objects.h"

#include "buffer/memh.h"
#include "comm/communicator.h"
#include "object/context.h"
#include "object/endpoint.h"
#include "object/owned.h"
#include "object/rkey.h"
#include "worker/worker.h"

/* ---- types ---------------------------------------------------------------
 */

mod_state *
objects_state(PyObject *op)
{
    mod_state *st = state_of_type(Py_TYPE(op));

    if (st == NULL) {
        PyErr_Clear();
    }
    return st;
}

void
objects_refuse(PyObject *op, const char *expected)
{
    PyErr_Format(PyExc_TypeError, "expected %s of ucp, not an object of %R",
                 expected, Py_TYPE(op));
}

/* Is `op` of the type `NOUN` of mod_state? Else raise TypeError. */
#define IS_A(noun, op, expected) \
    is_a(op, offsetof(mod_state, noun##_type), expected)

static bool
is_a(PyObject *op, size_t offset, const char *expected)
{
    mod_state    *st = objects_state(op);
    PyTypeObject *type;

    if (st != NULL) {
        type = *(PyTypeObject **)(void *)((char *)st + offset);
        if (PyObject_TypeCheck(op, type)) {
            return true;
        }
    }
    objects_refuse(op, expected);
    return false;
}

/* ---- objects -------------------------------------------------------------
 */

umx_context *
objects_context(PyObject *op)
{
    return IS_A(context, op, "a Context") ? ((ContextObject *)op)->umx : NULL;
}

umx_worker *
objects_worker(PyObject *op)
{
    WorkerObject *self = (WorkerObject *)op;

    if (!IS_A(worker, op, "a Worker") || worker_check(self) < 0) {
        return NULL;
    }
    return self->umx;
}

/* Has this side closed the endpoint? */
static bool
is_closed_here(const umx_ep *ep)
{
    umx_ep_state state = umx_ep_get_state(ep);

    return state == UMX_EP_DRAINING ||
           (state == UMX_EP_CLOSED && !umx_ep_is_peer_closed(ep));
}

umx_ep *
objects_endpoint(PyObject *op)
{
    EndpointObject *self = (EndpointObject *)op;

    if (!IS_A(endpoint, op, "an Endpoint") ||
        owned_check(self->worker, self->umx, "endpoint") < 0) {
        return NULL;
    }
    if (is_closed_here(self->umx)) {
        PyErr_SetString(self->worker->st->exceptions[EXC_UCXCloseError],
                        "the endpoint is closed");
        return NULL;
    }
    return self->umx;
}

umx_comm *
objects_communicator(PyObject *op)
{
    CommObject *self = (CommObject *)op;

    if (!IS_A(comm, op, "a Communicator") ||
        owned_check(self->worker, self->is_closed ? NULL : self->umx,
                    "communicator") < 0) {
        return NULL;
    }
    return self->umx;
}

umx_memh *
objects_memory(PyObject *op)
{
    if (!IS_A(memory, op, "a Memory") || memory_check_open(op) < 0) {
        return NULL;
    }
    return ((MemoryObject *)op)->umx;
}

umx_rkey *
objects_remote_memory(PyObject *op)
{
    RemoteObject *self = (RemoteObject *)op;

    if (!IS_A(remote, op, "a RemoteMemory") ||
        owned_check(self->endpoint->worker, self->is_closed ? NULL : self->umx,
                    "remote memory") < 0) {
        return NULL;
    }
    return self->umx;
}
