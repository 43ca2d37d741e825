/* SPDX-License-Identifier: BSD-3-Clause */
/* message_sender.h: sends messages with metadata. */
#ifndef UCP_EXT_TYPE_MESSAGE_SENDER_H
#define UCP_EXT_TYPE_MESSAGE_SENDER_H

#include "base/state.h"

#include <umx/umx.h>

struct MessageSenderObject {
    PyObject_HEAD WorkerObject *worker;
    umx_message_sender         *umx; /* NULL once closed */
    PyObject                   *weakrefs;
};

extern PyType_Spec message_sender_spec;

#endif
