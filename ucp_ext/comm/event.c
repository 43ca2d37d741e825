/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c: callbacks of libumx about communicators: see base/event.h. */
#include "comm/event.h"

void
event_mark_comm_status(RequestObject *req, const umx_comm_status *got)
{
    req->info.tag     = got->tag;
    req->info.length  = got->length;
    req->info.channel = (uint32_t)got->source;
    req->info.seq     = got->seq;
}

void
event_note_comm_status(RequestObject *req, umx_request *op, umx_status status)
{
    (void)status;
    event_mark_comm_status(req, umx_comm_result(op));
}

EVENT_DROP(drop_comm, umx_comm, umx_comm_destroy)
EVENT_DROP(return_comm_message, umx_comm_message, umx_comm_message_return)
