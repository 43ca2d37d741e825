/* SPDX-License-Identifier: BSD-3-Clause */
/* message.h: a message of a rank that is not received. */
#ifndef UCP_EXT_COMM_MESSAGE_H
#define UCP_EXT_COMM_MESSAGE_H

#include "comm/communicator.h"

typedef struct CommMessageObject {
    PyObject_HEAD CommObject *comm;
    umx_comm_message         *umx; /* NULL once received */
    umx_comm_status           info;
    bool                      is_asked; /* recv() has been called */
} CommMessageObject;

/* Make the object of `message`, which is taken over. NULL with an exception:
 * the caller still has the message. */
PyObject *comm_message_new(CommObject *comm, umx_comm_message *message,
                           const umx_comm_status *info);

/* Return an unreceived message to its queue. Any thread. */
void comm_message_give_back(CommObject *comm, umx_comm_message *message);

/* Slots of the type. */
int  comm_message_traverse(PyObject *op, visitproc visit, void *arg);
void comm_message_dealloc(PyObject *op);

#endif
