/* SPDX-License-Identifier: BSD-3-Clause */
/* message.h: messages with metadata, and messages that have come. */
#ifndef UCP_EXT_OP_MESSAGE_H
#define UCP_EXT_OP_MESSAGE_H

#include "request/request.h"

/* Where a message went, if to several. */
typedef struct sent {
    size_t      count;
    umx_ep    **eps;      /* behind `endpoints` */
    umx_status *statuses; /* behind these */
    PyObject   *endpoints[];
} sent;

/* The tail of a send: its list is that of a frames_tail. */
typedef struct TAIL sent_tail {
    struct frames_list *list; /* or NULL */
    sent               *sent; /* or NULL */
} sent_tail;

/* The tail of a receive of a message that has come. */
typedef struct TAIL message_tail {
    PyObject *header; /* bytes in front of the message, or NULL */
} message_tail;

extern const op_type op_message_recv, op_send_message, op_drain_sender;

#endif
