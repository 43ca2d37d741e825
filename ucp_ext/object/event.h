/* SPDX-License-Identifier: BSD-3-Clause */
/* event.h: what libumx tells about endpoints and messages. */
#ifndef UCP_EXT_OBJECT_EVENT_H
#define UCP_EXT_OBJECT_EVENT_H

#include "worker/event.h"

/* Have `ep` tell its object of its states; NULL: nobody any more. */
void event_watch_endpoint(umx_ep *ep, EndpointObject *endpoint);

bool event_drop_message(WorkerObject *worker, umx_message *message);
bool event_return_message(WorkerObject *worker, umx_message *message);
bool event_return_tag_message(WorkerObject *worker, umx_tag_message *message);

#endif
