/* SPDX-License-Identifier: BSD-3-Clause */
/* unread.h: what a peer has sent and no receive has asked for, in words. */
#ifndef UCP_EXT_OBJECT_UNREAD_H
#define UCP_EXT_OBJECT_UNREAD_H

#include "object/endpoint.h"

enum {
    UNREAD_TEXT = 160
};

/* Name a message that is unread, and the calls that receive it: a receive of
 * another kind, channel or tag never gets it. False: there is none. */
bool endpoint_describe_unread(const EndpointObject *endpoint, char *text,
                              size_t size);

#endif
