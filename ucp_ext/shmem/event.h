/* SPDX-License-Identifier: BSD-3-Clause */
/* event.h: what libumx tells about symmetric heaps. */
#ifndef UCP_EXT_SHMEM_EVENT_H
#define UCP_EXT_SHMEM_EVENT_H

#include "request/event.h"

bool event_drop_symmetric_heap(WorkerObject *worker, void *umx);

#endif
