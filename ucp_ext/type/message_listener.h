/* SPDX-License-Identifier: BSD-3-Clause */
/* message_listener.h: messages with metadata that come. */
#ifndef UCP_EXT_TYPE_MESSAGE_LISTENER_H
#define UCP_EXT_TYPE_MESSAGE_LISTENER_H

#include "base/event.h"
#include "base/state.h"

struct MessageListenerObject {
    PyObject_HEAD EndpointObject *endpoint;
    WorkerObject                 *worker;
    event                         event;
    umx_message_listener         *umx; /* NULL once it is over */
    PyObject                     *route;
    PyObject                     *on_end;
    MessageReceiverObject        *receiver;  /* of the message that comes */
    PyObject                     *exception; /* why there is no memory */
    PyObject                     *buffers;   /* list that the receiver gave */
    struct frames_list           *frames;    /* `buffers`, held */
    bool                          is_scheduled; /* _run() */
    bool                          is_running;
    bool                          is_ended;
    bool is_landed; /* libumx has told: bytes of a message that nobody
                        waits for any more have landed */
};

/* Functions that event.c calls while umx_message_listener_run() runs. */
bool listener_route(MessageListenerObject *self, const umx_metadata *metadata);
umx_status listener_alloc(MessageListenerObject *self,
                          const umx_frames_info *info, umx_buffer *buffers);
void       listener_finish(MessageListenerObject *self, umx_status status);
void       listener_end(MessageListenerObject *self, umx_status status);

#endif
