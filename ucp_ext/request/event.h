/* SPDX-License-Identifier: BSD-3-Clause */
/* event.h: what libumx tells about requests. */
#ifndef UCP_EXT_REQUEST_EVENT_H
#define UCP_EXT_REQUEST_EVENT_H

#include "request/request.h"
#include "worker/event.h"

umx_op_params event_op_params(RequestObject *req);

/* Store that the operation of `req` is over, in plain fields. */
void event_mark_done(RequestObject *req, umx_status status);

/* Store that the peer is lost, and tell of it. */
void event_mark_lost(RequestObject *req, umx_status status);

/* The awaitable may have been cancelled, and its callbacks be due: what is told
 * of the operation is settled before them. */
void event_tell_request(RequestObject *req);

/* The owner's thread tells it, of a worker that is open; false: it will not.
 * The request is held until then. Any thread. */
bool event_submit_request(WorkerObject *worker, RequestObject *req);

#endif
