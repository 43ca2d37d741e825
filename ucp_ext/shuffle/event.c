/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c: callbacks of libumx about shuffles: see base/event.h. */
#include "shuffle/event.h"

void
event_note_partition(RequestObject *req, umx_request *op, umx_status status)
{
    (void)status;
    req->info.tag = umx_shuffler_result(op);
}

EVENT_DROP(drop_shuffler, umx_shuffler, umx_shuffler_destroy)
