/* SPDX-License-Identifier: BSD-3-Clause */
/* query.h: questions to the peer. */
#ifndef UCP_EXT_OP_QUERY_H
#define UCP_EXT_OP_QUERY_H

#include "request/request.h"

extern const op_type op_ping, op_peer_info;

#endif
