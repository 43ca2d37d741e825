/* SPDX-License-Identifier: BSD-3-Clause */
/* event.h: what libumx tells about operations that C code posts. */
#ifndef UCP_EXT_CAPI_EVENT_H
#define UCP_EXT_CAPI_EVENT_H

#include "request/event.h"

/* The parameters of each operation of `req`. */
umx_op_params event_posted_params(RequestObject *req);

/* End the awaitable if all operations that have not ended are lost: their
 * number, or `is_open`, has changed. */
void event_check_lost(RequestObject *req);

#endif
