/* SPDX-License-Identifier: BSD-3-Clause */
/* query.h: questions to the peer. */
#ifndef UCP_EXT_OP_QUERY_H
#define UCP_EXT_OP_QUERY_H

#include "request/request.h"

/* The tail of peer_info(). */
typedef struct TAIL info_tail {
    char *text; /* of malloc(); NULL: none has come, or there was no memory */
} info_tail;

extern const op_type op_ping, op_peer_info;

#endif
