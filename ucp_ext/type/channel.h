/* SPDX-License-Identifier: BSD-3-Clause */
/* channel.h: a stream of messages of its own within an endpoint. */
#ifndef UCP_EXT_TYPE_CHANNEL_H
#define UCP_EXT_TYPE_CHANNEL_H

#include "base/state.h"

struct ChannelObject {
    PyObject_HEAD EndpointObject *endpoint;
    uint16_t                      number;
};

extern PyType_Spec channel_spec;

#endif
