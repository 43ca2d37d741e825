/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c: callbacks of libumx about endpoints and messages: see base/event.h.
 */
#include "object/event.h"

#include "object/endpoint.h"

static void
on_state(umx_ep *ep, umx_ep_state state, umx_status status, void *arg)
{
    EndpointObject *self = arg;

    (void)status;
    if (state == UMX_EP_OPEN && !umx_ep_is_peer_closed(ep)) {
        self->has_opened = true;
    } else {
        self->has_ended = true;
    }
    event_tell(self->worker, &self->event);
}

void
event_watch_endpoint(umx_ep *ep, EndpointObject *endpoint)
{
    umx_ep_set_on_state(ep, endpoint != NULL ? on_state : NULL, endpoint);
}

EVENT_DROP(drop_message, umx_message, umx_message_drop)
EVENT_DROP(return_message, umx_message, umx_message_return)
EVENT_DROP(return_tag_message, umx_tag_message, umx_tag_message_return)
