/* SPDX-License-Identifier: BSD-3-Clause */
/* channel.h: messages of endpoints and channels. */
#ifndef UCP_EXT_OP_CHANNEL_H
#define UCP_EXT_OP_CHANNEL_H

#include "request/request.h"

#define MESSAGE_METHODS(X) \
    X(send)                \
    X(recv)                \
    X(recv_into)           \
    X(send_many)           \
    X(recv_many)           \
    X(recv_message)        \
    X(recv_obj)            \
    X(probe)               \
    X(send_frames)         \
    X(recv_frames)         \
    X(recv_multi)

#define DECLARE(name)                                                  \
    PyObject *messages_##name(EndpointObject *self, uint16_t channel,  \
                              PyObject *const *args, Py_ssize_t nargs, \
                              PyObject *kwnames);
MESSAGE_METHODS(DECLARE)
DECLARE(recv_pickle)
#undef DECLARE

/* Return the bytes of a message to the endpoint, with its header or NULL. */
umx_status channel_unrecv_message(RequestObject *req, PyObject *header);

/* op_type.describe() of operations whose tail is `match`. */
void channel_describe_send(const RequestObject *req, umx_status status,
                           size_t capacity, char *text, size_t size);
void channel_describe_recv(const RequestObject *req, umx_status status,
                           size_t capacity, char *text, size_t size);

extern const op_type op_send, op_recv, op_recv_into, op_recv_message;

#endif
