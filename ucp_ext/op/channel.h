/* SPDX-License-Identifier: BSD-3-Clause */
/* channel.h: messages of endpoints and channels. */
#ifndef UCP_EXT_OP_CHANNEL_H
#define UCP_EXT_OP_CHANNEL_H

#include "state.h"

#define MESSAGE_METHODS(X) \
    X(send)                \
    X(recv)                \
    X(recv_into)           \
    X(send_many)           \
    X(recv_many)           \
    X(recv_message)        \
    X(probe)               \
    X(send_frames)         \
    X(recv_frames)

#define DECLARE(name)                                                  \
    PyObject *messages_##name(EndpointObject *self, uint16_t channel,  \
                              PyObject *const *args, Py_ssize_t nargs, \
                              PyObject *kwnames);
MESSAGE_METHODS(DECLARE)
#undef DECLARE

#endif
