/* SPDX-License-Identifier: BSD-3-Clause */
/* tag_message.c: a message of UCX's own tags that is not received. */
#include "object/tag_message.h"

#include "object/event.h"
#include "worker/worker.h"

PyObject *
tag_message_new(WorkerObject *worker, umx_tag_message *message)
{
    PyTypeObject     *type = worker->st->tag_message_type;
    TagMessageObject *self = (TagMessageObject *)type->tp_alloc(type, 0);

    if (self == NULL) {
        return NULL;
    }
    self->worker = (WorkerObject *)Py_NewRef(worker);
    self->umx    = message;
    self->info   = *umx_tag_message_info(message);
    worker->st->num_messages++;
    return (PyObject *)self;
}

int
tag_message_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((TagMessageObject *)op)->worker);
    return 0;
}

void
tag_message_give_back(WorkerObject *worker, umx_tag_message *message)
{
    if (worker_is_forked(worker)) {
        return; /* the parent's, which has it still */
    }
    if (worker->umx != NULL && !worker_is_mine(worker)) {
        (void)event_return_tag_message(worker, message);
        return;
    }
    umx_tag_message_return(message);
    worker_drain_if_due(worker); /* somebody may wait for it */
}

/* Unread, it goes back to those that are kept. */
void
tag_message_dealloc(PyObject *op)
{
    TagMessageObject *self = (TagMessageObject *)op;
    PyTypeObject     *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    if (self->umx != NULL) {
        tag_message_give_back(self->worker, self->umx);
    }
    self->worker->st->num_messages--;
    Py_CLEAR(self->worker);
    type->tp_free(op);
    Py_DECREF(type);
}
