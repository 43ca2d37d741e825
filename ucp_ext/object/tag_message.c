/* SPDX-License-Identifier: BSD-3-Clause */
/* tag_message.c: a message of UCX's own tags that is not received. */
#include "object/tag_message.h"

#include "object/event.h"
#include "worker/worker.h"

PyObject *
tag_message_new(WorkerObject *worker, umx_tag_message *message)
{
    TagMessageObject *self = (TagMessageObject *)owned_new(
        worker->st->tag_message_type, worker);

    if (self == NULL) {
        return NULL;
    }
    self->umx  = message;
    self->info = *umx_tag_message_info(message);
    worker->st->num_messages++;
    return (PyObject *)self;
}

void
tag_message_give_back(WorkerObject *worker, umx_tag_message *message)
{
    if (event_return_tag_message(worker, message)) {
        worker_drain_if_due(worker); /* somebody may wait for it */
    }
}

/* Unread, it goes back to those that are kept. */
static void
give_back(PyObject *op)
{
    TagMessageObject *self = (TagMessageObject *)op;

    if (self->umx != NULL) {
        tag_message_give_back(self->worker, self->umx);
    }
    self->worker->st->num_messages--;
}

void
tag_message_dealloc(PyObject *op)
{
    owned_dealloc(op, give_back);
}
