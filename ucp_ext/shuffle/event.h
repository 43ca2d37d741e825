/* SPDX-License-Identifier: BSD-3-Clause */
/* event.h: what libumx tells about shuffles. */
#ifndef UCP_EXT_SHUFFLE_EVENT_H
#define UCP_EXT_SHUFFLE_EVENT_H

#include "request/event.h"

/* op_type.note() of a wait for a partition. */
void event_note_partition(RequestObject *req, umx_request *op,
                          umx_status status);

bool event_drop_shuffler(WorkerObject *worker, umx_shuffler *shuffler);

#endif
