/* SPDX-License-Identifier: BSD-3-Clause */
/* message.c: messages between ranks that no receive waits for yet. */
#include <stdlib.h>
#include <string.h>

#include "comm/dispatch.h"
#include "comm/member.h"
#include "comm/send_recv.h"
#include "util/count.h"

enum {
    /* Unexpected messages of one rank that use up its credit. */
    MAX_KEPT = 32
};

/* ---- the queue -----------------------------------------------------------
 */

static umi_pool *
messages_of(const umx_comm *comm)
{
    return &comm->group->dispatch->messages;
}

/* The message uses up no credit any more: it is copied, or gone. */
static void
unkeep(umx_comm_message *message)
{
    if (message->is_kept) {
        message->is_kept = false;
        UMI_DECREMENT(message->comm->ranks[message->info.source].num_kept);
    }
}

void
umi_comm_message_free(umx_comm_message *message)
{
    umi_node_remove(&message->node);
    unkeep(message);
    if (message->sub != NULL) { /* on_copied() frees it */
        message->is_dropped = true;
        message->waiter     = NULL;
        (void)umx_request_drop(message->sub);
        return;
    }
    if (message->message != NULL) {
        umx_message_drop(message->message);
    }
    if (message->is_copy) {
        umx_copy_free(message->comm->group->dispatch->worker, message->data);
    } else {
        free(message->data);
    }
    umi_pool_put(messages_of(message->comm), message);
}

/* Has its sender cancelled a message? */
static bool
is_withdrawn(const umx_comm_message *message)
{
    return message->is_withdrawn ||
           (message->message != NULL &&
            umx_message_is_withdrawn(message->message)) ||
           (message->sub != NULL && umx_request_is_withdrawn(message->sub));
}

/* Drop the messages that have been withdrawn. */
static void
drop_withdrawn(umx_comm *comm)
{
    UMI_LIST_FOREACH_SAFE(node, &comm->unexpected) {
        umx_comm_message *message = umi_container_of(node, umx_comm_message,
                                                     node);

        if (is_withdrawn(message)) {
            umi_comm_message_free(message);
        }
    }
}

/* Insert a message in the order of arrival: one that was put back is older than
 * others. */
static bool
is_behind(umi_node *node, umi_node *other, const void *arg)
{
    (void)arg;
    return umi_container_of(node, umx_comm_message, node)->order >
           umi_container_of(other, umx_comm_message, node)->order;
}

static void
insert(umx_comm *comm, umx_comm_message *message)
{
    umi_list_insert_sorted(&comm->unexpected, &message->node, is_behind, NULL);
}

umx_comm_message *
umi_comm_message_find(umx_comm *comm, int source, uint64_t tag, uint64_t mask)
{
    UMI_LIST_FOREACH_SAFE(node, &comm->unexpected) {
        umx_comm_message *message = umi_container_of(node, umx_comm_message,
                                                     node);

        if (is_withdrawn(message)) {
            umi_comm_message_free(message);
        } else if (umi_comm_message_is_for(&message->info, source, tag, mask)) {
            return message;
        }
    }
    return NULL;
}

umx_comm_message *
umi_comm_message_new(umx_comm *comm, int source, uint64_t tag, size_t len)
{
    umx_comm_message *message = umi_pool_get(messages_of(comm));

    if (message != NULL) {
        *message = (umx_comm_message){
            .comm  = comm,
            .order = comm->num_came,
            .info  = {.source = source,
                      .seq    = (uint32_t)comm->num_came,
                      .tag    = tag,
                      .length = len},
        };
        umi_node_init(&message->node);
        comm->num_came++;
    }
    return message;
}

umx_comm_message *
umi_comm_message_remake(umx_comm *comm, const umx_comm_status *got)
{
    uint32_t          age     = (uint32_t)comm->num_came - got->seq;
    umx_comm_message *message = umi_comm_message_new(comm, got->source,
                                                     got->tag, got->length);

    if (message == NULL) {
        return NULL;
    }
    UMI_DECREMENT(comm->num_came);
    message->order    = comm->num_came - age;
    message->info.seq = got->seq;
    return message;
}

void
umi_comm_message_requeue(umx_comm *comm, umx_comm_message *message)
{
    if (comm->is_revoked || comm->is_closed) {
        umi_comm_message_free(message);
    } else if (!umi_comm_recv_offer(comm, message, true)) {
        insert(comm, message);
    }
}

/* ---- messages that are lost ----------------------------------------------
 */

void
umi_comm_message_lose(umx_comm *comm, int source, umx_status status)
{
    if (!umi_comm_doubt(comm, source, status, umx_status_string(status))) {
        umi_comm_revoke(comm, comm->rank, status, false,
                        "rank %d has lost a message: %s", comm->rank,
                        umx_status_string(status));
    }
}

void
umi_comm_message_cannot_put_back(umx_comm *comm, umx_status status)
{
    umi_comm_revoke(comm, comm->rank, status, false,
                    "rank %d has lost a message: %s", comm->rank,
                    umx_status_string(status));
}

/* ---- putting back --------------------------------------------------------
 */

umx_status
umi_comm_message_put_back(umx_comm *comm, const umx_comm_status *got,
                          const umx_buffer *buf)
{
    umx_comm_message *message = umi_comm_message_remake(comm, got);
    umx_status        status  = UMX_OK;

    if (message == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    message->data = umx_copy_new(comm->group->dispatch->worker, got->length);
    if (message->data == NULL) {
        umi_comm_message_free(message);
        return UMX_ERR_NO_MEMORY;
    }
    message->is_copy = true;
    if (got->length != 0) {
        status = umx_buffer_read(buf, message->data, got->length);
    }
    if (status != UMX_OK) {
        umi_comm_message_free(message);
        return status;
    }
    umi_comm_message_requeue(comm, message);
    return UMX_OK;
}

umx_status
umx_comm_unrecv(umx_comm *comm, const umx_comm_status *got,
                const umx_buffer *buf)
{
    UMI_COMM_LOCK(comm);
    umx_status status;

    if (comm->is_revoked || comm->is_closed) {
        return UMX_OK;
    }
    status = umi_comm_message_put_back(comm, got, buf);
    if (status != UMX_OK) {
        umi_comm_message_cannot_put_back(comm, status);
    }
    return status;
}

/* ---- arrival -------------------------------------------------------------
 */

void
umi_comm_message_end_copy(umx_comm_message *message, umx_status status)
{
    umx_comm *comm    = message->comm;
    int       source  = message->info.source;
    bool      is_lost = status != UMX_ERR_WITHDRAWN;

    message->sub = NULL;
    if (message->waiter != NULL) {
        umi_comm_recv_end_wait(message, status);
    } else if (message->is_dropped) {
        umi_comm_message_free(message);
    } else if (status != UMX_OK) {
        if (!message->is_taken) {
            umi_comm_message_free(message);
        } else {
            message->is_withdrawn = !is_lost;
            message->is_lost      = is_lost;
        }
        if (is_lost) {
            umi_comm_message_lose(comm, source, status);
        }
    }
    umi_comm_put(comm);
}

static void
on_copied(umx_request *sub, umx_status status, void *arg)
{
    (void)sub;
    umi_comm_message_end_copy(arg, status);
}

static void
on_copy_lost(umx_request *sub, umx_status status, void *arg)
{
    umx_comm_message *message = arg;

    (void)sub;
    if (message->waiter != NULL) {
        umi_comm_recv_lose(message->waiter, status);
    }
}

/* Bring the bytes of a message into memory of the library's. */
static void
copy_here(umx_comm_message *message)
{
    const void   *bytes  = umx_message_data(message->message);
    umx_op_params params = {.flags      = UMX_OP_FLAG_LAYER,
                            .field_mask = UMX_OP_FIELD_FLAGS |
                                          UMX_OP_FIELD_ON_DONE |
                                          UMX_OP_FIELD_ON_LOST,
                            .on_done = on_copied,
                            .arg     = message,
                            .on_lost = on_copy_lost};
    umx_buffer    buf;
    umx_status    status;

    message->data = malloc(message->info.length + 1);
    if (message->data == NULL) {
        return; /* it stays where it is */
    }
    if (bytes != NULL) {
        memcpy(message->data, bytes, message->info.length);
        umx_message_drop(message->message);
        message->message = NULL;
        unkeep(message);
        return;
    }
    buf    = umx_host_buffer(message->data, message->info.length);
    status = umx_message_recv(&message->message, &buf, &params, &message->sub);
    if (status == UMX_INPROGRESS) {
        umi_comm_hold(message->comm); /* on_copied() lets it go */
        unkeep(message);
        return;
    }
    message->sub = NULL;
    if (message->message != NULL) {
        free(message->data);
        message->data = NULL;
    } else if (status != UMX_OK) {
        umx_comm *comm   = message->comm;
        int       source = message->info.source;

        umi_comm_message_free(message);
        if (status != UMX_ERR_WITHDRAWN) {
            umi_comm_message_lose(comm, source, status);
        }
    }
}

/* Keep a message that has come, and that no receive waits for. */
static void
keep(umx_comm_message *message)
{
    umx_comm      *comm = message->comm;
    umi_comm_rank *rank = &comm->ranks[message->info.source];

    umi_list_append(&comm->unexpected, &message->node);
    message->is_kept = true;
    if (++rank->num_kept > MAX_KEPT) {
        drop_withdrawn(comm);
        if (rank->num_kept > MAX_KEPT) {
            copy_here(message);
        }
    }
}

void
umi_comm_message_arrive(umx_comm *comm, int source, uint64_t tag,
                        umx_message *came)
{
    umi_comm_rank    *rank = &comm->ranks[source];
    umx_comm_message *message;

    rank->num_received++;
    if (comm->is_revoked || comm->is_closed) {
        umx_message_drop(came);
        return;
    }
    message = umi_comm_message_new(comm, source, tag,
                                   umx_message_info(came)->length);
    if (message == NULL) {
        umx_message_drop(came);
        umi_comm_revoke(comm, comm->rank, UMX_ERR_NO_MEMORY, false,
                        "rank %d has no memory for a message", comm->rank);
        return;
    }
    message->message = came;
    if (message->info.length >= UMI_COMM_LEND_MIN) {
        umi_comm_send_note_crossing(comm);
    }
    if (is_withdrawn(message)) { /* it had come before its communicator */
        umi_comm_message_free(message);
    } else if (!umi_comm_recv_offer(comm, message, false)) {
        keep(message);
    }
    if (umi_comm_rank_is_finished(rank)) {
        umi_comm_messages_end_rank(comm, source);
    }
}

/* ---- taking by hand ------------------------------------------------------
 */

umx_status
umx_comm_improbe(umx_comm *comm, int source, uint64_t tag, uint64_t mask,
                 umx_comm_message **message_p, umx_comm_status *result)
{
    UMI_COMM_LOCK(comm);
    umx_status        status = umx_comm_iprobe(comm, source, tag, mask, result);
    umx_comm_message *message;

    if (status != UMX_OK) {
        return status;
    }
    message = umi_comm_message_find(comm, source, tag, mask);
    umi_node_remove(&message->node);
    umi_comm_hold(comm);
    message->is_taken = true;
    *message_p        = message;
    return UMX_OK;
}

void
umx_comm_message_return(umx_comm_message *message)
{
    UMI_COMM_LOCK(message->comm);
    umx_comm *comm = message->comm;

    message->is_taken = false;
    if (is_withdrawn(message)) {
        umi_comm_message_free(message);
    } else {
        umi_comm_message_requeue(comm, message);
    }
    umi_comm_put(comm);
}

/* ---- the end -------------------------------------------------------------
 */

void
umi_comm_messages_end(umx_comm *comm, umx_status status)
{
    umi_comm_hold(comm);
    while (!umi_list_is_empty(&comm->posted)) {
        umi_comm_recv_end(
            umi_container_of(comm->posted.next, umi_comm_recv, node), status);
    }
    while (!umi_list_is_empty(&comm->unexpected)) {
        umx_comm_message *message = umi_container_of(comm->unexpected.next,
                                                     umx_comm_message, node);

        if (message->send != NULL) {
            umi_comm_send_end(message->send, status);
            message->send = NULL;
        }
        umi_comm_message_free(message);
    }
    umi_comm_sends_end_lost(comm, -1, status);
    if (comm->is_revoked) {
        umi_comm_sends_cancel(comm, -1, status);
    }
    umi_comm_put(comm);
}
