/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c: callbacks of libumx about listeners: see base/event.h. */
#include "type/event.h"

#include "type/listener.h"
#include "type/message_listener.h"

/* ---- connections -------------------------------------------------------
 */

static void
on_accept_ready(umx_listener *listener, void *arg)
{
    ListenerObject *self = arg;

    (void)listener;
    event_tell(self->worker, &self->event);
}

static void
on_remote_close(umx_listener *listener, void *arg)
{
    ListenerObject *self = arg;

    (void)listener;
    self->is_remote_closed = true;
    event_tell(self->worker, &self->event);
}

void
event_watch_listener(umx_listener_params *params, ListenerObject *listener,
                     bool is_closable)
{
    params->field_mask |= UMX_LISTENER_FIELD_ON_READY;
    params->on_ready = on_accept_ready;
    params->arg      = listener;
    if (is_closable) {
        params->field_mask |= UMX_LISTENER_FIELD_ON_REMOTE_CLOSE;
        params->on_remote_close = on_remote_close;
    }
}

void
event_forget_listener(umx_listener *umx)
{
    umx_listener_set_on_accept(umx, NULL, NULL);
}

/* ---- messages with metadata --------------------------------------------
 */

static void
on_messages_ready(umx_message_listener *umx, void *arg)
{
    MessageListenerObject *self = arg;

    (void)umx;
    event_tell(self->worker, &self->event);
}

/* umx_message_listener_run() calls this and on_alloc(), on_end(), on_finish():
 * the extension calls it after libumx has returned, so that the program's
 * functions may run in them. */
static bool
on_route(const umx_metadata *metadata, umx_message_receiver *receiver,
         void *arg)
{
    MessageListenerObject *self = arg;

    if (!listener_route(self, metadata)) {
        return false;
    }
    event_receive_message(receiver, self);
    return true;
}

static umx_status
on_alloc(const umx_frames_info *info, umx_buffer *buffers, void *arg)
{
    return listener_alloc(arg, info, buffers);
}

static void
on_end(umx_message_listener *umx, umx_status status, void *arg)
{
    (void)umx;
    listener_end(arg, status);
}

/* Called as on_route() is, or when bytes land that nobody waits for any more.
 */
static void
on_finish(const umx_buffer *buffers, size_t count, umx_status status, void *arg)
{
    MessageListenerObject *self = arg;

    (void)buffers;
    (void)count;
    if (self->is_running) {
        listener_finish(self, status);
    } else {
        self->is_landed = true;
        event_tell(self->worker, &self->event);
    }
}

void
event_receive_message(umx_message_receiver  *receiver,
                      MessageListenerObject *listener)
{
    *receiver = (umx_message_receiver){on_alloc, on_finish, listener};
}

void
event_watch_messages(umx_message_listener_params *params,
                     MessageListenerObject       *listener)
{
    params->field_mask |= UMX_MESSAGE_LISTENER_FIELD_ON_END |
                          UMX_MESSAGE_LISTENER_FIELD_ON_READY;
    params->route    = on_route;
    params->arg      = listener;
    params->on_end   = on_end;
    params->on_ready = on_messages_ready;
}

EVENT_DROP(drop_sender, umx_message_sender, umx_message_sender_destroy)
EVENT_DROP(drop_listener, umx_message_listener, umx_message_listener_destroy)
