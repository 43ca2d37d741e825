/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c: callbacks of libumx about operations: see base/event.h. */
#include "op/event.h"

#include "object/endpoint.h"
#include "op/am.h"
#include "op/many.h"
#include "op/query.h"
#include "worker/worker.h"

#include <string.h>

/* ---- what an operation gives -------------------------------------------
 */

void
event_note_message(RequestObject *req, umx_request *op, umx_status status)
{
    if (status == UMX_OK) {
        req->message = umx_request_message(op);
    }
}

void
event_note_message_first(RequestObject *req, umx_request *op, umx_status status)
{
    if (status == UMX_OK && req->result == NULL) {
        req->message = umx_request_message(op);
        if (req->message != NULL) {
            req->info = *umx_message_info(req->message);
        }
    }
}

void
event_note_tag_message(RequestObject *req, umx_request *op, umx_status status)
{
    if (status == UMX_OK) {
        req->tag_message = umx_request_tag_message(op);
    }
}

void
event_note_time(RequestObject *req, umx_request *op, umx_status status)
{
    (void)status;
    req->ns = umx_request_time_ns(op);
}

void
event_note_info(RequestObject *req, umx_request *op, umx_status status)
{
    (void)op;
    if (status == UMX_OK) {
        TAIL_OF(req, info_tail)->text = strdup(
            umx_ep_peer_info_text(req->endpoint->umx));
    }
}

/* ---- several operations of one request ---------------------------------
 */

static void
on_item_done(umx_request *op, umx_status status, void *arg)
{
    many_item     *item = arg;
    RequestObject *req  = item->parent;

    item->op     = NULL;
    item->status = status;
    item->info   = *umx_request_info(op);
    if (--req->num_pending == 0) {
        req->is_told = true;
        event_mark_done(req, many_status(many_of(req)));
        event_tell_request(req);
    }
}

/* Count a lost item; the items of an endpoint are all lost at once. */
static void
on_item_lost(umx_request *op, umx_status status, void *arg)
{
    many_item     *item = arg;
    RequestObject *req  = item->parent;

    (void)op;
    item->status = status;
    if (++many_of(req)->lost == req->num_pending) {
        event_mark_lost(req, status);
    }
}

umx_op_params
event_item_params(many_item *item)
{
    return (umx_op_params){.field_mask = UMX_OP_FIELD_ON_DONE |
                                         UMX_OP_FIELD_ON_LOST,
                           .on_done = on_item_done,
                           .arg     = item,
                           .on_lost = on_item_lost};
}

/* ---- connecting --------------------------------------------------------
 */

/* Tell a request to connect once of success or failure; later states are told
 * to the endpoint's object. */
static void
on_connect_state(umx_ep *ep, umx_ep_state state, umx_status status, void *arg)
{
    RequestObject *req = arg;

    (void)ep;
    if (!req->is_told) {
        req->is_told     = true;
        req->info.length = (state == UMX_EP_OPEN);
        req->status      = status;
        event_tell_request(req);
    }
}

void
event_watch_connect(umx_connect_params *params, RequestObject *req)
{
    params->field_mask |= UMX_CONNECT_FIELD_ON_STATE;
    params->on_state = on_connect_state;
    params->arg      = req;
}

/* ---- active messages for handlers --------------------------------------
 */

static void
on_am_ready(umx_worker *umx, uint16_t id, void *arg)
{
    am_handler *handler = arg;

    (void)umx;
    (void)id;
    event_tell(handler->worker, &handler->event);
}

umx_status
event_watch_am(WorkerObject *worker, uint16_t id, am_handler *handler)
{
    return umx_worker_set_am_ready(
        worker->umx, id, handler != NULL ? on_am_ready : NULL, handler);
}
