/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c: callbacks of libumx about symmetric heaps: see base/event.h. */
#include "shmem/event.h"

EVENT_DROP(drop_symmetric_heap, void, umx_shmem_destroy)
