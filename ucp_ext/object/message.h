/* SPDX-License-Identifier: BSD-3-Clause */
/* message.h: a message that has come and is not received. */
#ifndef UCP_EXT_OBJECT_MESSAGE_H
#define UCP_EXT_OBJECT_MESSAGE_H

#include "base/state.h"

#include <umx/umx.h>

struct MessageObject {
    PyObject_HEAD EndpointObject *endpoint;
    umx_message                  *umx; /* NULL once received */
    umx_recv_info                 info;
    bool       is_consumed; /* when dropped, does not return to its queue */
    Py_ssize_t num_views;   /* exports of its bytes */
    PyObject  *header;      /* bytes, once asked for */
};

/* Make the object of `message`, which is taken over. NULL with an exception:
 * the caller still has the message. */
PyObject *message_new(EndpointObject *endpoint, umx_message *message);

/* Get the user's header of a message, as bytes. */
PyObject *message_header(const umx_message *message);

/* Drop a message that was received; the worker's thread does it. Any thread. */
void message_drop(WorkerObject *worker, umx_message *message);

/* Return a message to its queue; the worker's thread does it. Any thread. */
void message_give_back(WorkerObject *worker, umx_message *message);

/* Slots of the type. */
int  message_traverse(PyObject *op, visitproc visit, void *arg);
void message_dealloc(PyObject *op);

#endif
