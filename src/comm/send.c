/* SPDX-License-Identifier: BSD-3-Clause */
/* send.c: messages to other ranks, and to this one. */
#include <stdlib.h>

#include "comm/collective.h"
#include "comm/dispatch.h"
#include "comm/member.h"
#include "comm/send_recv.h"
#include "util/count.h"
#include "util/trace.h"

enum {
    EAGER_SELF_SIZE = 64 * 1024, /* bytes: a send to oneself copies them */
    LEND_UNWAITED   = 8 * 1024 * 1024, /* bytes */
    MAX_CROSSINGS   = 8
};

/* ---- the end of a send ---------------------------------------------------
 */

static umi_pool *
sends_of(const umx_comm *comm)
{
    return &comm->group->dispatch->sends;
}

/* Complete the request of a send. */
static void
end_send_request(umi_comm_send *send, umx_status status)
{
    umx_request *req = send->req;

    if (req != NULL) {
        send->req                          = NULL;
        UMX_REQUEST_OF(req, umi_comm_send) = NULL;
        umx_request_complete(req, status);
    }
}

void
umi_comm_send_end(umi_comm_send *send, umx_status status)
{
    umx_comm *comm = send->comm;

    umi_node_remove(&send->node);
    comm->num_large -= send->is_large;
    end_send_request(send, status);
    umi_pool_put(sends_of(comm), send);
    umi_comm_put(comm);
}

/* Keep a send that was lost: it ends with the communicator, once it is known
 * which rank has failed. */
static void
keep_lost(umi_comm_send *send)
{
    send->sub     = NULL;
    send->is_lost = true;
}

void
umi_comm_sends_end_lost(umx_comm *comm, int dest, umx_status status)
{
    umi_node *node = comm->sends.next;

    while (node != &comm->sends) {
        umi_comm_send *send = umi_container_of(node, umi_comm_send, node);

        if (send->is_lost && (dest == -1 || send->dest == dest)) {
            umi_comm_send_end(send, status);
            node = comm->sends.next;
        } else {
            node = node->next;
        }
    }
}

/* ---- cancelling ----------------------------------------------------------
 */

/* Take a send out of the count of sent messages, unless the channel has sent
 * it. The other rank is told the count when this one leaves, which may be at
 * once. */
static void
check_count(umi_comm_send *send)
{
    if (send->is_counted && !umx_request_was_sent(send->sub)) {
        send->is_counted = false;
        UMI_DECREMENT(send->comm->ranks[send->dest].num_sent);
    }
}

/* Cancel what the channel sends. True: the buffer is free. */
static bool
cancel_sub(umi_comm_send *send)
{
    umx_status status = umx_request_is_abandoned(send->req) ?
                            umx_request_abandon(send->sub) :
                            umx_request_cancel(send->sub);

    check_count(send);
    return status == UMX_OK;
}

static void
cancel_send(umx_request *req)
{
    umi_comm_send *send = UMX_REQUEST_OF(req, umi_comm_send);

    if (send->sub != NULL) {
        if (cancel_sub(send)) {
            end_send_request(send, UMX_ERR_CANCELED);
        }
    } else if (send->message != NULL) {
        send->message->send = NULL;
        umi_comm_message_free(send->message);
        umi_comm_send_end(send, UMX_ERR_CANCELED);
    } else if (send->is_lost) {
        umi_comm_send_end(send, UMX_ERR_CANCELED);
    }
}

void
umi_comm_sends_cancel(umx_comm *comm, int dest, umx_status status)
{
    size_t    left = umi_list_count(&comm->sends);
    umi_node *node;

    while ((node = umi_list_turn(&comm->sends, &left)) != NULL) {
        umi_comm_send *send = umi_container_of(node, umi_comm_send, node);

        if ((dest == -1 || send->dest == dest) && send->sub != NULL &&
            send->req != NULL && cancel_sub(send)) {
            end_send_request(send, status);
        }
    }
}

static const umx_request_class send_class = {
    .name   = "comm_send",
    .cancel = cancel_send,
};

/* ---- a new send ----------------------------------------------------------
 */

static umi_comm_send *
new_send(umx_comm *comm, int dest, const umx_buffer *buf,
         const umx_op_params *params)
{
    umi_comm_send *send = umi_pool_get(sends_of(comm));

    if (send == NULL) {
        return NULL;
    }
    *send     = (umi_comm_send){.comm = comm, .dest = dest, .buf = *buf};
    send->req = umx_request_create(comm->group->dispatch->worker, &send_class,
                                   params);
    if (send->req == NULL) {
        umi_pool_put(sends_of(comm), send);
        return NULL;
    }
    UMX_REQUEST_OF(send->req, umi_comm_send) = send;
    umi_list_append(&comm->sends, &send->node);
    umi_comm_hold(comm);
    if (UMI_IS_OBSERVED()) {
        umx_request_describe(send->req, NULL, buf->len, 0, dest);
    }
    return send;
}

static void
discard_send(umi_comm_send *send)
{
    umx_request *req = send->req;

    send->req = NULL; /* which does not complete */
    umi_comm_send_end(send, UMX_OK);
    umx_request_discard(req);
}

/* ---- to this rank --------------------------------------------------------
 */

static umx_status
send_to_self(umx_comm *comm, uint64_t tag, const umx_buffer *buf,
             const umx_op_params *params, umx_request **req_p)
{
    umx_comm_message *message;
    umx_request      *req;
    umx_status        status = umi_comm_coll_check_buffer(buf);

    if (status != UMX_OK) {
        return status;
    }
    message = umi_comm_message_new(comm, comm->rank, tag, buf->len);
    if (message == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    /* A receive that waits copies from the buffer at once. */
    message->send = new_send(comm, comm->rank, buf, params);
    if (message->send == NULL) {
        umi_comm_message_free(message);
        return UMX_ERR_NO_MEMORY;
    }
    req = message->send->req;
    if (umi_comm_recv_offer(comm, message, false)) {
        *req_p = req;
        return UMX_INPROGRESS; /* complete already, but for on_done */
    }
    if (buf->len > EAGER_SELF_SIZE ||
        (message->data = malloc(buf->len + 1)) == NULL) {
        message->send->message = message;
        umi_list_append(&comm->unexpected, &message->node);
        *req_p = req;
        return UMX_INPROGRESS;
    }
    if (buf->len != 0) {
        status = umx_buffer_read(buf, message->data, buf->len);
    }
    discard_send(message->send);
    message->send = NULL;
    if (status != UMX_OK) {
        umi_comm_message_free(message);
        return status;
    }
    umi_list_append(&comm->unexpected, &message->node);
    return UMX_OK;
}

/* ---- to another rank -----------------------------------------------------
 */

static void
on_sent(umx_request *sub, umx_status status, void *arg)
{
    umi_comm_send *send = arg;
    umx_comm      *comm = send->comm;

    (void)sub;
    check_count(send);
    send->sub = NULL;
    if (status != UMX_OK && !comm->is_closed && send->req != NULL &&
        !umx_request_is_cancelled(send->req) &&
        umi_comm_doubt(comm, send->dest, status, umx_status_string(status))) {
        keep_lost(send);
        return;
    }
    if (status != UMX_OK && comm->is_revoked) {
        status = UMX_ERR_RANK_FAILED;
    }
    umi_comm_send_end(send, status);
}

static void
on_send_lost(umx_request *sub, umx_status status, void *arg)
{
    umi_comm_send *send = arg;

    (void)sub;
    if (send->req != NULL) {
        umx_request_lose(send->req, umi_comm_lost_status(send->comm, status));
    }
}

/* Is a large send under way? One that has ended, and has not been reported yet,
 * is not: what answers it may come in the same call. */
static bool
is_sending_large(const umx_comm *comm)
{
    if (comm->num_large != 0) {
        UMI_LIST_FOREACH(node, &comm->sends) {
            const umi_comm_send *send = umi_container_of(node, umi_comm_send,
                                                         node);

            if (send->is_large && send->sub != NULL &&
                !umx_request_is_over(send->sub)) {
                return true;
            }
        }
    }
    return false;
}

void
umi_comm_send_note_crossing(umx_comm *comm)
{
    if (is_sending_large(comm)) {
        comm->crossings = MAX_CROSSINGS;
    } else {
        comm->crossings -= comm->crossings != 0;
    }
}

/* Is a message to be lent, if the rank is of this host? Its receiver reads a
 * loan by one copy, while nobody else works for it: UCX makes two copies, of
 * which the sender makes one at the same time as the receiver the other. So a
 * message that is alone is sent in less time, half of it if it is not very
 * long. Lending is faster where both processes have something to copy
 * meanwhile, or have to share a core; and a very long message is lent to leave
 * the sender its processor, unless it only waits. Messages that cross now and
 * then are enough: which rank is the first changes. */
static bool
is_to_lend(const umx_comm *comm, size_t len, bool is_waited)
{
    return len >= UMI_COMM_LEND_MIN &&
           ((len >= LEND_UNWAITED && !is_waited) || comm->crossings != 0 ||
            comm->group->is_crowded);
}

/* Send a message by an endpoint. */
static umx_status
send_by(umi_comm_send *send, umx_ep *ep, uint64_t tag, bool is_waited)
{
    umx_comm       *comm   = send->comm;
    umi_comm_header header = {.kind   = UMI_COMM_MESSAGE,
                              .source = (uint32_t)comm->rank,
                              .comm   = comm->id,
                              .number = tag};
    uint8_t         bytes[UMI_COMM_HEADER_MAX];
    size_t          len    = umi_comm_header_encode(&header, bytes);
    umx_op_params   params = {.flags      = UMX_OP_FLAG_LAYER,
                              .field_mask = UMX_OP_FIELD_FLAGS |
                                            UMX_OP_FIELD_ON_DONE |
                                            UMX_OP_FIELD_ON_LOST,
                              .on_done = on_sent,
                              .arg     = send,
                              .on_lost = on_send_lost};
    umx_status      status;

    if (is_to_lend(comm, send->buf.len, is_waited)) {
        params.flags |= UMX_OP_FLAG_LEND;
    }
    if (send->buf.len >= UMI_COMM_LEND_MIN) { /* nothing may come any more */
        send->comm->crossings -= comm->crossings != 0;
    }
    status = umx_layer_am_send(ep, UMX_AM_ID_COMM, bytes, len, &send->buf,
                               &params, &send->sub);
    if (status >= 0) {
        comm->ranks[send->dest].num_sent++;
    }
    if (status == UMX_INPROGRESS) {
        send->is_counted = true;
        send->is_large   = send->buf.len >= UMI_COMM_LEND_MIN;
        comm->num_large += send->is_large;
    } else {
        send->sub = NULL;
    }
    return status;
}

/* Does the caller only wait for the operation? */
static bool
is_waited_for(const umx_op_params *params)
{
    return params != NULL && (params->field_mask & UMX_OP_FIELD_FLAGS) != 0 &&
           (params->flags & UMX_OP_FLAG_WAITED) != 0;
}

static umx_status
check_dest(const umx_comm *comm, int dest)
{
    umx_status status = umi_comm_status(comm);

    if (status == UMX_OK && (dest < 0 || dest >= comm->size)) {
        status = UMX_ERR_OUT_OF_RANGE;
    }
    if (status == UMX_OK && dest != comm->rank && comm->ranks[dest].is_gone) {
        status = UMX_ERR_RANK_FAILED;
    }
    return status;
}

umx_status
umx_comm_isend(umx_comm *comm, int dest, uint64_t tag, const umx_buffer *buf,
               const umx_op_params *params, umx_request **req_p)
{
    UMI_COMM_LOCK(comm);
    umx_status     status = check_dest(comm, dest);
    umi_comm_send *send;
    umx_ep        *ep;

    if (status != UMX_OK) {
        return status;
    }
    if (dest == comm->rank) {
        return send_to_self(comm, tag, buf, params, req_p);
    }
    status = umi_comm_member_ep(comm->ranks[dest].member, &ep);
    if (status != UMX_OK && !umi_comm_doubt(comm, dest, status, NULL)) {
        return status;
    }
    send = new_send(comm, dest, buf, params);
    if (send == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    if (status != UMX_OK) {
        keep_lost(send);
        *req_p = send->req;
        return UMX_INPROGRESS;
    }
    status = umi_comm_member_is_lost_unseen(comm->ranks[dest].member) ?
                 UMX_ERR_CONNECTION_RESET :
                 send_by(send, ep, tag, is_waited_for(params));
    if (status != UMX_INPROGRESS &&
        umi_comm_doubt(comm, dest, status, umx_ep_reason(ep))) {
        keep_lost(send);
        status = UMX_INPROGRESS;
    }
    if (status == UMX_INPROGRESS) {
        *req_p = send->req;
        return status;
    }
    discard_send(send);
    return status;
}
