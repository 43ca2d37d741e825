/* SPDX-License-Identifier: BSD-3-Clause */
/* event.h: what libumx tells about listeners. */
#ifndef UCP_EXT_TYPE_EVENT_H
#define UCP_EXT_TYPE_EVENT_H

#include "worker/event.h"

/* Have the new listener tell its object; of a peer's close if `is_closable`. */
void event_watch_listener(umx_listener_params *params, ListenerObject *listener,
                          bool is_closable);

/* Refuse the connections that come before the listener is destroyed. */
void event_forget_listener(umx_listener *umx);

void event_watch_messages(umx_message_listener_params *params,
                          MessageListenerObject       *listener);

/* Fill `receiver` with the functions of `listener`. */
void event_receive_message(umx_message_receiver  *receiver,
                           MessageListenerObject *listener);

bool event_drop_sender(WorkerObject *worker, umx_message_sender *sender);
bool event_drop_listener(WorkerObject *worker, umx_message_listener *listener);

#endif
