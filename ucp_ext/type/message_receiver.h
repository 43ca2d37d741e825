/* SPDX-License-Identifier: BSD-3-Clause */
/* message_receiver.h: one message with metadata that is being received. */
#ifndef UCP_EXT_TYPE_MESSAGE_RECEIVER_H
#define UCP_EXT_TYPE_MESSAGE_RECEIVER_H

#include "base/state.h"

#include <umx/umx.h>

struct MessageReceiverObject {
    PyObject_HEAD PyObject *metadata;
    PyObject               *allocator; /* or NULL: bytearray */
    PyObject               *result;    /* or NULL */
    PyObject               *error;     /* or NULL */
    PyObject               *waiters;   /* list of futures; or NULL, or None */
};

/* A list of new buffers, as the receiver wants them; what it makes of them; and
 * that there will be none. NULL, -1 with an exception. */
PyObject *receiver_allocate(mod_state *st, MessageReceiverObject *self,
                            const umx_frames_info *info);
int       receiver_land(mod_state *st, MessageReceiverObject *self,
                        PyObject *buffers);
int receiver_fail(mod_state *st, MessageReceiverObject *self, PyObject *exc);

#endif
