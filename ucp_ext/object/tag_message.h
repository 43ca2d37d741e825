/* SPDX-License-Identifier: BSD-3-Clause */
/* tag_message.h: a message of UCX's own tags that is not received. */
#ifndef UCP_EXT_OBJECT_TAG_MESSAGE_H
#define UCP_EXT_OBJECT_TAG_MESSAGE_H

#include "object/owned.h"

#include <umx/umx.h>

struct TagMessageObject {
    OWNED_HEAD;
    umx_tag_message *umx; /* NULL once received */
    umx_recv_info    info;
};

/* Make the object of `message`, which is taken over. NULL with an exception:
 * the caller still has the message. */
PyObject *tag_message_new(WorkerObject *worker, umx_tag_message *message);

/* Keep an unreceived message for the next receive. Any thread. */
void tag_message_give_back(WorkerObject *worker, umx_tag_message *message);

/* tp_dealloc */
void tag_message_dealloc(PyObject *op);

#endif
