/* SPDX-License-Identifier: BSD-3-Clause */
/* event.h: what libumx tells about operations. */
#ifndef UCP_EXT_OP_EVENT_H
#define UCP_EXT_OP_EVENT_H

#include "request/event.h"

struct many_item;
struct am_handler;

/* Have `item` told of its operation. */
umx_op_params event_item_params(struct many_item *item);

/* Have the new endpoint tell a request to connect of its states. */
void event_watch_connect(umx_connect_params *params, RequestObject *req);

/* Have the worker tell `handler` of messages of `id`; NULL: they wait for
 * receives. */
umx_status event_watch_am(WorkerObject *worker, uint16_t id,
                          struct am_handler *handler);

/* op_type.note() of operations that give a message; a message if its bytes do
 * not fit the request's memory; a message of UCX's tags; the time that passed.
 */
void event_note_message(RequestObject *req, umx_request *op, umx_status status);
void event_note_message_first(RequestObject *req, umx_request *op,
                              umx_status status);
void event_note_tag_message(RequestObject *req, umx_request *op,
                            umx_status status);
void event_note_time(RequestObject *req, umx_request *op, umx_status status);

/* op_type.note() of peer_info(): keeps a copy of the text. */
void event_note_info(RequestObject *req, umx_request *op, umx_status status);

#endif
