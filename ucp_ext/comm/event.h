/* SPDX-License-Identifier: BSD-3-Clause */
/* event.h: what libumx tells about communicators. */
#ifndef UCP_EXT_COMM_EVENT_H
#define UCP_EXT_COMM_EVENT_H

#include "request/event.h"

/* Store what a receive has got. */
void event_mark_comm_status(RequestObject *req, const umx_comm_status *got);

/* op_type.note() of receives. */
void event_note_comm_status(RequestObject *req, umx_request *op,
                            umx_status status);

bool event_drop_comm(WorkerObject *worker, umx_comm *comm);
bool event_return_comm_message(WorkerObject *worker, umx_comm_message *message);

#endif
