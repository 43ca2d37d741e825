/* SPDX-License-Identifier: BSD-3-Clause */
/* message.c: a message of a rank that is not received. */
#include "comm/message.h"

#include "comm/event.h"
#include "worker/worker.h"

PyObject *
comm_message_new(CommObject *comm, umx_comm_message *message,
                 const umx_comm_status *info)
{
    PyTypeObject      *type = comm->worker->st->comm_message_type;
    CommMessageObject *self = (CommMessageObject *)type->tp_alloc(type, 0);

    if (self == NULL) {
        return NULL;
    }
    self->comm = (CommObject *)Py_NewRef(comm);
    self->umx  = message;
    self->info = *info;
    comm->worker->st->num_messages++;
    return (PyObject *)self;
}

void
comm_message_give_back(CommObject *comm, umx_comm_message *message)
{
    if (event_return_comm_message(comm->worker, message)) {
        worker_schedule_drain(comm->worker); /* somebody may wait for it */
    }
}

int
comm_message_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((CommMessageObject *)op)->comm);
    return 0;
}

void
comm_message_dealloc(PyObject *op)
{
    CommMessageObject *self = (CommMessageObject *)op;
    PyTypeObject      *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    if (self->umx != NULL) {
        comm_message_give_back(self->comm, self->umx);
    }
    self->comm->worker->st->num_messages--;
    Py_CLEAR(self->comm);
    type->tp_free(op);
    Py_DECREF(type);
}
