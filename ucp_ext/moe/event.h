/* SPDX-License-Identifier: BSD-3-Clause */
/* event.h: what libumx tells about groups of experts. */
#ifndef UCP_EXT_MOE_EVENT_H
#define UCP_EXT_MOE_EVENT_H

#include "request/event.h"

bool event_drop_moe(WorkerObject *worker, void *umx);
bool event_drop_moe_call(WorkerObject *worker, umx_moe_call *call);

#endif
