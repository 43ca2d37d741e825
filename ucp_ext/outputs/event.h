/* SPDX-License-Identifier: BSD-3-Clause */
/* event.h: what libumx tells about outputs of maps. */
#ifndef UCP_EXT_OUTPUTS_EVENT_H
#define UCP_EXT_OUTPUTS_EVENT_H

#include "request/event.h"

bool event_drop_outputs(WorkerObject *worker, void *umx);
bool event_drop_map_writer(WorkerObject *worker, umx_outputs_writer *writer);
bool event_drop_map_reader(WorkerObject *worker, umx_outputs_reader *reader);
bool event_drop_map_fetch(WorkerObject *worker, umx_outputs_fetch *fetch);

#endif
