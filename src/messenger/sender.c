/* SPDX-License-Identifier: BSD-3-Clause */
#include "messenger/sender.h"

#include "util/count.h"

#include <stdlib.h>

enum {
    DEFAULT_MAX_BYTES = 64 * 1024 * 1024
};

/* A settling request ends with what is of its generation or before. */
typedef struct settling {
    uint64_t generation;
    uint64_t num_left; /* of that, and not complete */
} settling;

UMI_REQUEST_TAIL(settling, settling_of);

/* ---- life ----------------------------------------------------------------
 */

void
umi_sender_put(umx_message_sender *sender)
{
    if (umi_refs_put(&sender->refs)) {
        umi_node_remove(&sender->dependent.node);
        free(sender->spare);
        free(sender);
    }
}

/* The worker ends, and with it all that is posted. */
static void
end(umi_dependent *dependent)
{
    umx_message_sender *sender = umi_container_of(dependent, umx_message_sender,
                                                  dependent);

    umi_refs_get(&sender->refs);
    sender->worker = NULL;
    while (!umi_list_is_empty(&sender->waiting)) {
        umi_send_op *send_op = umi_container_of(sender->waiting.next,
                                                umi_send_op, node);

        umi_send_op_withdraw(send_op, UMX_ERR_CANCELED);
        if (send_op->num_left == 0) {
            umi_send_op_finish(send_op);
        }
    }
    UMI_LIST_FOREACH_SAFE(node, &sender->batches) {
        umi_batch_drop(umi_container_of(node, umi_batch, node));
    }
    umi_request_complete_all(&sender->settling, UMX_ERR_CANCELED);
    umi_sender_put(sender);
}

umx_status
umx_message_sender_create(umx_worker                      *worker,
                          const umx_message_sender_params *params,
                          umx_message_sender             **sender_p)
{
    UMI_GUARD(worker);
    uint64_t            mask   = (params != NULL) ? params->field_mask : 0;
    umx_status          status = umi_worker_check(worker);
    umx_message_sender *sender;

    if (status != UMX_OK) {
        return status;
    }
    sender = calloc(1, sizeof(*sender));
    if (sender == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    sender->worker = worker;
    umi_refs_init(&sender->refs);
    sender->max_bytes = (mask & UMX_MESSAGE_SENDER_FIELD_MAX_BYTES) ?
                            params->max_bytes :
                            DEFAULT_MAX_BYTES;
    sender->channel   = (mask & UMX_MESSAGE_SENDER_FIELD_CHANNEL) ?
                            params->channel :
                            UMX_MESSAGE_CHANNEL;
    umi_list_init(&sender->batches);
    umi_list_init(&sender->waiting);
    umi_list_init(&sender->settling);
    sender->dependent.end = end;
    umi_list_append(&worker->dependents, &sender->dependent.node);
    *sender_p = sender;
    return UMX_OK;
}

void
umx_message_sender_destroy(umx_message_sender *sender)
{
    UMI_GUARD_IF_ANY(sender->worker);
    umx_message_sender_flush(sender);
    umi_sender_put(sender);
}

/* ---- what is under way ---------------------------------------------------
 */

void
umi_sender_begin(umx_message_sender *sender, uint64_t generation)
{
    sender->num_things++;
    UMI_LIST_FOREACH(node, &sender->settling) {
        umx_request *req = umi_container_of(node, umx_request, node);

        settling_of(req)->num_left += (generation <=
                                       settling_of(req)->generation);
    }
}

void
umi_sender_end(umx_message_sender *sender, uint64_t generation)
{
    UMI_DECREMENT(sender->num_things);
    UMI_LIST_FOREACH_SAFE(node, &sender->settling) {
        umx_request *req = umi_container_of(node, umx_request, node);

        if (generation <= settling_of(req)->generation &&
            UMI_DECREMENT(settling_of(req)->num_left) == 0) {
            umi_request_complete(req, UMX_OK);
        }
    }
}

/* True if there was something to hand over. */
static bool
flush_batches(umx_message_sender *sender)
{
    size_t    left        = umi_list_count(&sender->batches);
    bool      has_flushed = false;
    umi_node *node;

    while ((node = umi_list_turn(&sender->batches, &left)) != NULL) {
        umi_batch *batch = umi_container_of(node, umi_batch, node);

        has_flushed = has_flushed || batch->pack != NULL;
        umi_batch_flush(batch);
    }
    return has_flushed;
}

void
umi_sender_advance(umx_message_sender *sender)
{
    if (sender->is_advancing) {
        return;
    }
    sender->is_advancing = true;
    umi_refs_get(&sender->refs);
    while (!umi_list_is_empty(&sender->waiting)) {
        umi_send_op *send_op = umi_container_of(sender->waiting.next,
                                                umi_send_op, node);

        if (umi_sender_has_room(sender, send_op->num_waiting * send_op->len)) {
            umi_send_op_post(send_op, NULL);
            if (send_op->num_left == 0) {
                umi_send_op_finish(send_op);
            }
        } else if (!flush_batches(sender)) {
            break;
        }
    }
    sender->is_advancing = false;
    umi_sender_put(sender);
}

void
umx_message_sender_flush(umx_message_sender *sender)
{
    UMI_GUARD_IF_ANY(sender->worker);
    if (sender->worker != NULL && umi_worker_check(sender->worker) == UMX_OK) {
        (void)flush_batches(sender);
        umi_sender_advance(sender);
    }
}

static const umi_request_ops settle_ops = {
    .name   = "message_sender_drain",
    .cancel = umi_request_cancel_queued,
};

umx_status
umx_message_sender_drain(umx_message_sender  *sender,
                         const umx_op_params *params, umx_request **req_p)
{
    UMI_GUARD_IF_ANY(sender->worker);
    umx_request *req;
    umx_status   status = (sender->worker != NULL) ?
                              umi_worker_check(sender->worker) :
                              UMX_ERR_CLOSED;

    if (status != UMX_OK) {
        return status;
    }
    umx_message_sender_flush(sender);
    if (sender->num_things == 0) {
        return UMX_OK;
    }
    req = umi_request_new(sender->worker, NULL, &settle_ops, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    req->buf                     = (umx_buffer){0};
    settling_of(req)->generation = sender->generation++;
    settling_of(req)->num_left   = sender->num_things;
    umi_list_append(&sender->settling, &req->node);
    *req_p = req;
    return UMX_INPROGRESS;
}

void
umx_message_sender_query(const umx_message_sender *sender,
                         umx_message_sender_stats *stats)
{
    UMI_GUARD_IF_ANY(sender->worker);
    *stats = sender->stats;
}

/* ---- send_op -------------------------------------------------------------
 */

static umx_status
check(const umx_message_sender *sender, const umx_message_out *message,
      uint64_t *len_p)
{
    umx_status status = (sender->worker != NULL) ?
                            umi_worker_check(sender->worker) :
                            UMX_ERR_CLOSED;

    *len_p = 1 + message->metadata.len;
    if (status == UMX_OK &&
        (message->num_endpoints == 0 || message->endpoints == NULL ||
         (message->buffers == NULL && message->num_buffers != 0) ||
         !umx_metadata_is_valid(&message->metadata))) {
        status = UMX_ERR_INVALID_PARAM;
    }
    for (size_t i = 0; status == UMX_OK && i < message->num_endpoints; i++) {
        umx_worker *worker = umi_ep_base_of(message->endpoints[i])->worker;

        if (worker != sender->worker) {
            status = UMX_ERR_INVALID_PARAM;
        }
    }
    for (size_t i = 0; status == UMX_OK && i < message->num_buffers; i++) {
        status = umi_check_buffer(&message->buffers[i]);
        if (status == UMX_OK) {
            status = umi_memh_check(&message->buffers[i]);
        }
        *len_p += message->buffers[i].len;
    }
    return status;
}

static umx_status
send_small(umx_message_sender *sender, const umx_message_out *message,
           size_t entry_size)
{
    umx_status first = UMX_OK;

    for (size_t i = 0; i < message->num_endpoints; i++) {
        umx_status status = umi_batch_add(sender, message->endpoints[i],
                                          message, entry_size,
                                          sender->generation);

        if (message->statuses != NULL) {
            message->statuses[i] = status;
        }
        first = (first == UMX_OK) ? status : first;
    }
    return first;
}

/* Posted, or into the queue if `is_waiting`. */
static umx_status
send_long(umx_message_sender *sender, const umx_message_out *message,
          size_t entry_size, uint64_t len, bool is_waiting,
          const umx_op_params *params, umx_request **req_p)
{
    umx_request *req = umi_request_new(sender->worker, NULL, &umi_send_op_ops,
                                       params);
    umi_send_op *send_op;
    umx_status   status = UMX_OK;

    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    send_op = umi_send_op_from(sender, message, entry_size, len, is_waiting);
    if (send_op == NULL) {
        umi_request_free(req);
        return UMX_ERR_NO_MEMORY;
    }
    req->buf                        = (umx_buffer){0};
    req->info                       = (umx_recv_info){0};
    umi_message_op_of(req)->send_op = send_op;
    send_op->req                    = req;
    if (is_waiting) {
        status = umi_send_op_wait(send_op);
        if (status != UMX_OK) {
            umi_send_op_withdraw(send_op, status);
        }
    } else {
        umi_send_op_post(send_op, NULL);
    }
    if (send_op->num_left == 0) {
        status = umi_send_op_status(send_op);
        umi_send_op_free(send_op);
        umi_request_free(req);
        return status;
    }
    *req_p = req;
    return UMX_INPROGRESS;
}

/* True if a message of `len` bytes may go now. Small messages that nobody has
 * handed over yet make way. */
static bool
has_turn(umx_message_sender *sender, uint64_t len)
{
    if (!umi_list_is_empty(&sender->waiting)) {
        return false;
    }
    return umi_sender_has_room(sender, len) ||
           (flush_batches(sender) && umi_list_is_empty(&sender->waiting) &&
            umi_sender_has_room(sender, len));
}

UMI_LOCKED(umx_status, umx_message_send, sender->worker,
           (umx_message_sender * sender, const umx_message_out *message,
            const umx_op_params *params, umx_request **req_p),
           (sender, message, params, req_p))

umx_status
umx_message_send(umx_message_sender *sender, const umx_message_out *message,
                 const umx_op_params *params, umx_request **req_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(sender->worker)) {
        return umx_message_send_locked(sender, message, params, req_p);
    }
    uint64_t   len;
    umx_status status = check(sender, message, &len);
    size_t     entry_size;

    if (status != UMX_OK) {
        return status;
    }
    entry_size = umi_batch_entry_size(message);
    if (entry_size != 0) {
        len = entry_size;
    }
    if (!has_turn(sender, len * message->num_endpoints)) {
        return send_long(sender, message, entry_size, len, true, params, req_p);
    }
    return (entry_size != 0) ?
               send_small(sender, message, entry_size) :
               send_long(sender, message, 0, len, false, params, req_p);
}
