/* SPDX-License-Identifier: BSD-3-Clause */
/* message.c: a message that has come and is not received. */
#include "object/message.h"

#include "object/endpoint.h"
#include "object/event.h"
#include "worker/worker.h"

PyObject *
message_new(EndpointObject *endpoint, umx_message *message)
{
    mod_state     *st   = endpoint->worker->st;
    PyTypeObject  *type = st->message_type;
    MessageObject *self = (MessageObject *)type->tp_alloc(type, 0);

    if (self == NULL) {
        return NULL;
    }
    self->endpoint = (EndpointObject *)Py_NewRef(endpoint);
    self->umx      = message;
    self->info     = *umx_message_info(message);
    st->num_messages++;
    return (PyObject *)self;
}

int
message_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((MessageObject *)op)->endpoint);
    return 0;
}

void
message_drop(WorkerObject *worker, umx_message *message)
{
    if (event_drop_message(worker, message)) {
        worker_drain_if_due(worker); /* the peer may have credit again */
    }
}

PyObject *
message_header(const umx_message *message)
{
    size_t      len;
    const void *header = umx_message_header(message, &len);

    return PyBytes_FromStringAndSize(header, (Py_ssize_t)len);
}

void
message_give_back(WorkerObject *worker, umx_message *message)
{
    if (event_return_message(worker, message)) {
        worker_drain_if_due(worker); /* somebody may wait for it */
    }
}

/* Unread, it goes back to its queue, but for one of a handler. */
void
message_dealloc(PyObject *op)
{
    MessageObject *self   = (MessageObject *)op;
    PyTypeObject  *type   = Py_TYPE(op);
    WorkerObject  *worker = self->endpoint->worker;

    PyObject_GC_UnTrack(op);
    if (self->umx != NULL && self->is_consumed) {
        message_drop(worker, self->umx);
    } else if (self->umx != NULL) {
        message_give_back(worker, self->umx);
    }
    worker->st->num_messages--;
    Py_CLEAR(self->header);
    Py_CLEAR(self->endpoint);
    type->tp_free(op);
    Py_DECREF(type);
}
