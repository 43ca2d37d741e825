/* SPDX-License-Identifier: BSD-3-Clause */
/* recv.c: messages between ranks, and the receives that they are for.
 *
 * A receive takes the first message, in the order of arrival, whose source and
 * tag it asks for; a message goes to the first receive that asks for it, in the
 * order of posting. Messages that no receive waits for are kept in
 * `unexpected`. Their bytes stay where they are, at the sender or in the
 * channel's memory, while there are few; then they are brought here, so that
 * what a rank does not want yet never keeps back what it waits for.
 *
 * A cancelled receive gives its message back to its place in `unexpected`. If
 * the bytes are coming they land in memory of the library's from then on: the
 * request ends, and the umi_comm_recv lives until they have come. In the same
 * way a cancelled send ends while the channel goes on with a copy. A message
 * that its sender has withdrawn counts as sent and as received, and nobody gets
 * it. */
#include <stdlib.h>
#include <string.h>

#include "comm/communicator.h"

enum {
    /* Unexpected messages of one rank that use up its credit. */
    MAX_KEPT        = 32,
    EAGER_SELF_SIZE = 64 * 1024 /* bytes: a send to oneself copies them */
};

/* A receive, one that looks, or the receive of a message that was taken. */
typedef struct umi_comm_recv {
    umi_node          node; /* comm->posted; or by itself: bytes are coming */
    umx_comm         *comm; /* held */
    umx_request      *req;  /* NULL: it has ended, but its bytes are coming */
    int               source;
    uint64_t          tag;
    uint64_t          mask;
    umx_buffer        buf;
    uint64_t          order; /* of posting */
    bool              is_probe;
    bool              is_of_message; /* of umx_comm_mrecv() */
    umx_request      *sub;           /* whose bytes are coming; or NULL */
    umx_comm_message *from;          /* which has its bytes coming; or NULL */
    umx_comm_message *back; /* cancelled: gets what comes by `sub`; or NULL */
    bool              is_lost; /* like umi_comm_send.is_lost */
    umx_comm_status   got;
} umi_comm_recv;

/* What a request keeps after the umi_comm_recv is gone. */
typedef struct umi_comm_recv_state {
    umi_comm_recv  *recv; /* NULL once it is over */
    uint64_t        comm; /* its number */
    umx_comm_status got;
} umi_comm_recv_state;

_Static_assert(sizeof(umi_comm_recv_state) <= UMX_REQUEST_STATE_SIZE,
               "no room");

/* A send that is under way. */
typedef struct umi_comm_send {
    umi_node          node; /* comm->sends */
    umx_comm         *comm; /* held */
    umx_request      *req;  /* NULL: it has ended, but the channel goes on */
    umx_request      *sub;  /* NULL: to oneself, or lost */
    bool              is_counted; /* in umi_comm_rank.num_sent */
    bool              is_lost;    /* the rank may have ended */
    umx_comm_message *message;    /* to oneself: it waits in `unexpected` */
    umx_buffer        buf;
    int               dest;
} umi_comm_send;

/* ---- receives ------------------------------------------------------------
 */

static umi_comm_recv_state *
state_of(const umx_request *req)
{
    return umx_request_state(req);
}

const umx_comm_status *
umx_comm_result(const umx_request *req)
{
    return &state_of(req)->got;
}

static bool
is_finished(const umi_comm_rank *rank)
{
    return rank->is_gone && rank->num_received == rank->num_expected;
}

/* Can no message of that source come any more? One of any source ends with the
 * last of the other ranks, though this rank could send to itself. */
static bool
is_exhausted(const umx_comm *comm, int source)
{
    if (source != UMX_ANY_SOURCE) {
        return is_finished(&comm->ranks[source]);
    }
    for (int i = 0; i < comm->size; i++) {
        if (i != comm->rank && !is_finished(&comm->ranks[i])) {
            return false;
        }
    }
    return comm->size > 1;
}

/* Complete the request of a receive. */
static void
end_recv_request(umi_comm_recv *recv, umx_status status)
{
    umx_request *req = recv->req;

    if (req != NULL) {
        recv->req           = NULL;
        state_of(req)->recv = NULL;
        state_of(req)->got  = recv->got;
        umx_request_complete(req, status);
    }
}

/* It is over: the request completes, and the receive goes. */
static void
end_recv(umi_comm_recv *recv, umx_status status)
{
    umx_comm *comm = recv->comm;

    umi_node_remove(&recv->node);
    end_recv_request(recv, status);
    free(recv);
    umi_comm_put(comm);
}

/* Put a receive into `posted`, in the order of posting. */
static void
post(umi_comm_recv *recv)
{
    umi_list *posted = &recv->comm->posted;
    umi_node *pos    = posted->prev;

    while (pos != posted &&
           umi_container_of(pos, umi_comm_recv, node)->order > recv->order) {
        pos = pos->prev;
    }
    umi_node_insert_before(pos->next, &recv->node);
}

/* ---- messages ------------------------------------------------------------
 */

/* It uses up no credit any more. */
static void
unkeep(umx_comm_message *message)
{
    if (message->is_kept) {
        message->is_kept = false;
        message->comm->ranks[message->info.source].num_kept--;
    }
}

static void
free_message(umx_comm_message *message)
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
    free(message);
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
            free_message(message);
        }
    }
}

/* Complete the request of a send. */
static void
end_send_request(umi_comm_send *send, umx_status status)
{
    umx_request *req = send->req;

    if (req != NULL) {
        send->req                                 = NULL;
        *(umi_comm_send **)umx_request_state(req) = NULL;
        umx_request_complete(req, status);
    }
}

static void
end_send(umi_comm_send *send, umx_status status)
{
    umx_comm *comm = send->comm;

    umi_node_remove(&send->node);
    end_send_request(send, status);
    free(send);
    umi_comm_put(comm);
}

/* Into its place: messages that were put back are older than others. */
static void
insert(umx_comm *comm, umx_comm_message *message)
{
    umi_node *pos = comm->unexpected.prev;

    while (pos != &comm->unexpected &&
           umi_container_of(pos, umx_comm_message, node)->order >
               message->order) {
        pos = pos->prev;
    }
    umi_node_insert_before(pos->next, &message->node);
}

static bool
is_for(const umx_comm_status *info, int source, uint64_t tag, uint64_t mask)
{
    return (source == UMX_ANY_SOURCE || source == info->source) &&
           ((info->tag ^ tag) & mask) == 0;
}

static umx_comm_message *
find_message(umx_comm *comm, int source, uint64_t tag, uint64_t mask)
{
    UMI_LIST_FOREACH_SAFE(node, &comm->unexpected) {
        umx_comm_message *message = umi_container_of(node, umx_comm_message,
                                                     node);

        if (is_withdrawn(message)) {
            free_message(message);
        } else if (is_for(&message->info, source, tag, mask)) {
            return message;
        }
    }
    return NULL;
}

static umx_comm_message *
new_message(umx_comm *comm, int source, uint64_t tag, size_t len)
{
    umx_comm_message *message = calloc(1, sizeof(*message));

    if (message != NULL) {
        umi_node_init(&message->node);
        message->comm        = comm;
        message->info.source = source;
        message->info.tag    = tag;
        message->info.length = len;
        message->order       = comm->num_came++;
        message->info.seq    = (uint32_t)message->order;
    }
    return message;
}

/* ---- a message meets a receive -------------------------------------------
 */

static bool       offer(umx_comm *comm, umx_comm_message *message);
static umx_status deliver(umi_comm_recv *recv, umx_comm_message *message);
static void       post_again(umi_comm_recv *recv);

static bool
is_host(const umx_buffer *buf)
{
    return buf->memtype <= UMX_MEMTYPE_HOST && buf->layout == NULL;
}

static umx_status
copy_to(const umx_buffer *buf, const void *data, size_t len)
{
    return (len != 0) ? umx_buffer_write(buf, data, len) : UMX_OK;
}

/* Is the message lost because the rank may have ended? */
static bool
is_lost(const umx_comm *comm, int dest, umx_status status, const char *why)
{
    umi_comm_member *member = comm->ranks[dest].member;

    if (comm->is_revoked) {
        return false;
    }
    umi_comm_member_check(member, status, why);
    return status < 0 && member->is_suspect;
}

/* The bytes of what the receive has got are lost. True: with the rank that sent
 * them, and the receive ends with the communicator. */
static bool
keep_lost_recv(umi_comm_recv *recv, umx_status status)
{
    umx_comm *comm = recv->comm;

    if (comm->is_closed ||
        !is_lost(comm, recv->got.source, status, umx_status_string(status))) {
        return false;
    }
    recv->is_lost = true;
    recv->source  = recv->got.source;
    umi_list_append(&comm->posted, &recv->node);
    return true;
}

/* A message that came is lost, and nobody has asked for it yet. */
static void
lose_message(umx_comm *comm, int source, umx_status status)
{
    if (!is_lost(comm, source, status, umx_status_string(status))) {
        umi_comm_revoke(comm, comm->rank, status, false,
                        "rank %d has lost a message: %s", comm->rank,
                        umx_status_string(status));
    }
}

/* The bytes of a message that a receive waits for have come, or have not. */
static void
end_wait(umx_comm_message *message, umx_status status)
{
    umi_comm_recv *recv = message->waiter;

    recv->from = NULL;
    if (status == UMX_ERR_WITHDRAWN) {
        post_again(recv);
    } else {
        if (status == UMX_OK) {
            status = copy_to(&recv->buf, message->data, message->info.length);
        }
        if (status == UMX_OK || !keep_lost_recv(recv, status)) {
            end_recv(recv, status);
        }
    }
    free_message(message);
}

/* The bytes of a message have come into memory of ours, or have not. */
static void
end_copy(umx_comm_message *message, umx_status status)
{
    umx_comm *comm    = message->comm;
    int       source  = message->info.source;
    bool      is_lost = status != UMX_ERR_WITHDRAWN;

    message->sub = NULL;
    if (message->waiter != NULL) {
        end_wait(message, status);
    } else if (message->is_dropped) {
        free_message(message);
    } else if (status != UMX_OK) {
        if (!message->is_taken) {
            free_message(message);
        } else {
            message->is_withdrawn = !is_lost;
            message->is_lost      = is_lost;
        }
        if (is_lost) {
            lose_message(comm, source, status);
        }
    }
    umi_comm_put(comm);
}

static void
on_copied(umx_request *sub, umx_status status, void *arg)
{
    (void)sub;
    end_copy(arg, status);
}

/* Make a message again of one that a receive has got; without its bytes. */
static umx_comm_message *
remake(umx_comm *comm, const umx_comm_status *got)
{
    uint32_t          age     = (uint32_t)comm->num_came - got->seq;
    umx_comm_message *message = new_message(comm, got->source, got->tag,
                                            got->length);

    if (message == NULL) {
        return NULL;
    }
    comm->num_came--;
    message->order    = comm->num_came - age;
    message->info.seq = got->seq;
    return message;
}

/* Take a message into the queue again, or let a receive that waits have it. */
static void
requeue(umx_comm *comm, umx_comm_message *message)
{
    if (comm->is_revoked || comm->is_closed) {
        free_message(message);
    } else if (!offer(comm, message)) {
        insert(comm, message);
    }
}

/* A message cannot be put back. */
static void
cannot_put_back(umx_comm *comm, umx_status status)
{
    umi_comm_revoke(comm, comm->rank, status, false,
                    "rank %d has lost a message: %s", comm->rank,
                    umx_status_string(status));
}

/* Put the message back that a receive has got in `buf`. */
static umx_status
put_back(umx_comm *comm, const umx_comm_status *got, const umx_buffer *buf)
{
    umx_comm_message *message = remake(comm, got);
    umx_status        status  = UMX_OK;

    if (message == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    message->data = umx_copy_new(comm->group->dispatch->worker, got->length);
    if (message->data == NULL) {
        free_message(message);
        return UMX_ERR_NO_MEMORY;
    }
    message->is_copy = true;
    if (got->length != 0) {
        status = umx_buffer_read(buf, message->data, got->length);
    }
    if (status != UMX_OK) {
        free_message(message);
        return status;
    }
    requeue(comm, message);
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
    status = put_back(comm, got, buf);
    if (status != UMX_OK) {
        cannot_put_back(comm, status);
    }
    return status;
}

/* The message of a receive has been withdrawn: the receive waits for another
 * one, at its place. */
static void
post_again(umi_comm_recv *recv)
{
    umx_comm         *comm    = recv->comm;
    umx_comm_message *message = NULL;
    umx_status        status  = UMX_INPROGRESS;

    recv->got = (umx_comm_status){0};
    if (comm->is_revoked || comm->is_closed) {
        status = comm->is_revoked ? UMX_ERR_RANK_FAILED : UMX_ERR_CANCELED;
    } else if (recv->is_of_message) {
        status = UMX_ERR_WITHDRAWN;
    } else {
        message = find_message(comm, recv->source, recv->tag, recv->mask);
    }
    if (message != NULL) {
        umi_node_remove(&message->node);
        status = deliver(recv, message);
    } else if (status == UMX_INPROGRESS && is_exhausted(comm, recv->source)) {
        status = UMX_ERR_RANK_FAILED;
    } else if (status == UMX_INPROGRESS) {
        post(recv);
    }
    if (status != UMX_INPROGRESS) {
        end_recv(recv, status);
    }
}

/* The bytes of a receive have come that was cancelled, and could not give its
 * buffer back before. */
static void
end_deferred(umi_comm_recv *recv, umx_status status)
{
    umx_comm *comm = recv->comm;

    umi_comm_hold(comm);
    if (!comm->is_revoked && !comm->is_closed) {
        if (status == UMX_OK) {
            status = put_back(comm, &recv->got, &recv->buf);
            if (status != UMX_OK) {
                cannot_put_back(comm, status);
            }
        } else if (status != UMX_ERR_WITHDRAWN) {
            lose_message(comm, recv->got.source, status);
        }
    }
    end_recv(recv, UMX_ERR_CANCELED);
    umi_comm_put(comm);
}

static void
on_bytes(umx_request *sub, umx_status status, void *arg)
{
    umi_comm_recv *recv = arg;

    (void)sub;
    recv->sub = NULL;
    if (recv->back != NULL) {
        end_copy(recv->back, status);
        end_recv(recv, UMX_ERR_CANCELED);
    } else if (recv->req == NULL) {
        end_recv(recv, UMX_ERR_CANCELED);
    } else if (umx_request_is_cancelled(recv->req)) {
        end_deferred(recv, status);
    } else if (status == UMX_ERR_WITHDRAWN) {
        post_again(recv);
    } else if (status == UMX_OK || recv->comm->is_revoked ||
               !keep_lost_recv(recv, status)) {
        end_recv(recv, (status != UMX_OK && recv->comm->is_revoked) ?
                           UMX_ERR_RANK_FAILED :
                           status);
    }
}

/* Why an operation whose bytes are lost will end. */
static umx_status
lost_status(const umx_comm *comm, umx_status status)
{
    return comm->is_revoked ? UMX_ERR_RANK_FAILED : status;
}

static void
on_bytes_lost(umx_request *sub, umx_status status, void *arg)
{
    umi_comm_recv *recv = arg;

    (void)sub;
    if (recv->back != NULL) {
        recv = recv->back->waiter;
    }
    if (recv != NULL && recv->req != NULL) {
        umx_request_lose(recv->req, lost_status(recv->comm, status));
    }
}

/* Its bytes come straight to the buffer. UMX_INPROGRESS: on_bytes() follows. */
static umx_status
receive(umi_comm_recv *recv, umx_message **message_p)
{
    umx_op_params params = {.flags      = UMX_OP_FLAG_LAYER,
                            .field_mask = UMX_OP_FIELD_FLAGS |
                                          UMX_OP_FIELD_ON_DONE |
                                          UMX_OP_FIELD_ON_LOST,
                            .on_done = on_bytes,
                            .arg     = recv,
                            .on_lost = on_bytes_lost};
    umx_buffer    buf    = recv->buf;
    umx_status    status;

    status = umx_message_recv(message_p, &buf, &params, &recv->sub);
    if (status != UMX_INPROGRESS) {
        recv->sub = NULL;
        if (*message_p != NULL) {
            umx_message_drop(*message_p);
            *message_p = NULL;
        }
    }
    return status;
}

/* `message` is the receive's; it is freed. UMX_INPROGRESS: its bytes come. */
static umx_status
deliver(umi_comm_recv *recv, umx_comm_message *message)
{
    bool       is_coming = message->is_lost || message->message != NULL;
    umx_status status    = UMX_OK;

    recv->got = message->info;
    if (recv->got.length > recv->buf.len) {
        status    = UMX_ERR_MESSAGE_TRUNCATED;
        is_coming = false;
    } else if (message->is_withdrawn) {
        status = UMX_ERR_WITHDRAWN;
    } else if (message->is_lost) {
        status = UMX_ERR_CONNECTION_RESET;
    } else if (message->message != NULL) {
        status = receive(recv, &message->message);
    } else if (message->send != NULL) {
        status = copy_to(&recv->buf, message->send->buf.data, recv->got.length);
    } else if (message->sub != NULL) {
        message->waiter = recv;
        recv->from      = message;
        return UMX_INPROGRESS;
    } else {
        status = copy_to(&recv->buf, message->data, recv->got.length);
    }
    if (message->send != NULL) {
        end_send(message->send, UMX_OK);
        message->send = NULL;
    }
    if (is_coming && status < 0 && status != UMX_ERR_WITHDRAWN &&
        keep_lost_recv(recv, status)) {
        status = UMX_INPROGRESS;
    }
    free_message(message);
    return status;
}

/* The first receive that it is for gets it. Those that look are told, and take
 * nothing. False: none. */
static bool
offer(umx_comm *comm, umx_comm_message *message)
{
    UMI_LIST_FOREACH_SAFE(node, &comm->posted) {
        umi_comm_recv *recv = umi_container_of(node, umi_comm_recv, node);
        umx_status     status;

        if (recv->is_lost ||
            !is_for(&message->info, recv->source, recv->tag, recv->mask)) {
            continue;
        }
        if (recv->is_probe) {
            recv->got = message->info;
            end_recv(recv, UMX_OK);
            continue;
        }
        umi_node_remove(&recv->node);
        status = deliver(recv, message);
        if (status != UMX_INPROGRESS) {
            end_recv(recv, status);
        }
        return true;
    }
    return false;
}

static void
on_copy_lost(umx_request *sub, umx_status status, void *arg)
{
    umx_comm_message *message = arg;

    if (message->waiter != NULL) {
        on_bytes_lost(sub, status, message->waiter);
    }
}

/* Bring the bytes of a message here. */
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

        free_message(message);
        if (status != UMX_ERR_WITHDRAWN) {
            lose_message(comm, source, status);
        }
    }
}

/* A message has come that no receive waits for. */
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
    message = new_message(comm, source, tag, umx_message_info(came)->length);
    if (message == NULL) {
        umx_message_drop(came);
        umi_comm_revoke(comm, comm->rank, UMX_ERR_NO_MEMORY, false,
                        "rank %d has no memory for a message", comm->rank);
        return;
    }
    message->message = came;
    if (is_withdrawn(message)) { /* it had come before its communicator */
        free_message(message);
    } else if (!offer(comm, message)) {
        keep(message);
    }
    if (is_finished(rank)) {
        umi_comm_messages_end_rank(comm, source);
    }
}

/* ---- umx_comm_irecv() ----------------------------------------------------
 */

/* Give the message back whose bytes are coming: it is in the queue again, or
 * another receive's, as no later one may overtake it, and has its bytes when
 * these have come. UMX_OK: the buffer is free. */
static umx_status
give_back_coming(umi_comm_recv *recv)
{
    umx_comm         *comm = recv->comm;
    umx_comm_message *message;
    umx_status        status = UMX_ERR_NO_MEMORY;

    if (comm->is_revoked || comm->is_closed) {
        return umx_request_drop(recv->sub);
    }
    message = remake(comm, &recv->got);
    if (message != NULL) {
        status = umx_request_move(
            recv->sub, umx_request_is_abandoned(recv->req), &message->data);
    }
    if (status == UMX_OK) {
        umi_comm_hold(comm); /* end_copy() lets it go */
        message->is_copy = true;
        message->sub     = recv->sub;
        recv->back       = message;
        requeue(comm, message);
        return UMX_OK;
    }
    if (message != NULL) {
        free_message(message);
    }
    if (status < 0) {
        cannot_put_back(comm, status);
        status = umx_request_drop(recv->sub);
    }
    return status;
}

static void
cancel_recv(umx_request *req)
{
    umi_comm_recv *recv = state_of(req)->recv;

    if (recv->from != NULL) {
        recv->from->waiter = NULL;
        requeue(recv->comm, recv->from);
        recv->from = NULL;
        end_recv(recv, UMX_ERR_CANCELED);
    } else if (recv->sub == NULL) {
        end_recv(recv, UMX_ERR_CANCELED);
    } else if (give_back_coming(recv) == UMX_OK) {
        end_recv_request(recv, UMX_ERR_CANCELED);
    }
}

/* A receive has its message, and the program has not heard of it. */
static umx_status
cancel_complete_recv(umx_request *req, umx_status status)
{
    const umi_comm_recv_state *state = state_of(req);
    umi_comm_dispatch *dispatch = umx_worker_get_layer(umx_request_worker(req),
                                                       UMX_AM_ID_COMM);
    umx_comm *comm = (dispatch != NULL) ? umi_comm_find(dispatch, state->comm) :
                                          NULL;

    if (status != UMX_OK) {
        return status;
    }
    if (comm != NULL) {
        (void)umx_comm_unrecv(comm, &state->got, umx_request_buffer(req));
    }
    return UMX_ERR_CANCELED;
}

static const umx_request_class recv_class = {
    .name            = "comm_recv",
    .cancel          = cancel_recv,
    .cancel_complete = cancel_complete_recv,
};

static const umx_request_class probe_class = {
    .name   = "comm_probe",
    .cancel = cancel_recv,
};

/* A receive into `buf`, or (NULL) one that looks. */
static umi_comm_recv *
new_recv(umx_comm *comm, const umx_buffer *buf, const umx_op_params *params)
{
    const umx_request_class *cls = (buf != NULL) ? &recv_class : &probe_class;

    umi_comm_recv *recv = calloc(1, sizeof(*recv));

    if (recv == NULL) {
        return NULL;
    }
    recv->req = umx_request_create(comm->group->dispatch->worker, cls, params);
    if (recv->req == NULL) {
        free(recv);
        return NULL;
    }
    umi_node_init(&recv->node);
    state_of(recv->req)->recv = recv;
    state_of(recv->req)->comm = comm->id;
    recv->comm                = comm;
    recv->order               = comm->num_recvs++;
    if (buf != NULL) {
        recv->buf = *buf;
        umx_request_set_buffer(recv->req, buf);
    }
    umi_comm_hold(comm);
    return recv;
}

/* One that ends in its posting call. */
static umx_status
end_now(umi_comm_recv *recv, umx_status status, umx_comm_status *result)
{
    umx_request *req = recv->req;

    if (result != NULL) {
        *result = recv->got;
    }
    recv->req = NULL;
    end_recv(recv, status);
    umx_request_discard(req);
    return status;
}

static umx_status
check_source(const umx_comm *comm, int source)
{
    umx_status status = umi_comm_status(comm);

    if (status != UMX_OK) {
        return status;
    }
    return (source >= UMX_ANY_SOURCE && source < comm->size) ?
               UMX_OK :
               UMX_ERR_OUT_OF_RANGE;
}

umx_status
umx_comm_irecv(umx_comm *comm, int source, uint64_t tag, uint64_t mask,
               const umx_buffer *buf, const umx_op_params *params,
               umx_request **req_p, umx_comm_status *result)
{
    UMI_COMM_LOCK(comm);
    umx_status        status = check_source(comm, source);
    umi_comm_recv    *recv;
    umx_comm_message *message;
    umx_request      *req;

    if (status != UMX_OK) {
        return status;
    }
    message = find_message(comm, source, tag, mask);
    if (message == NULL && is_exhausted(comm, source)) {
        return UMX_ERR_RANK_FAILED;
    }
    recv = new_recv(comm, buf, params);
    if (recv == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    recv->source = source;
    recv->tag    = tag;
    recv->mask   = mask;
    req          = recv->req;
    if (message == NULL) {
        umi_list_append(&comm->posted, &recv->node);
        *req_p = req;
        return UMX_INPROGRESS;
    }
    umi_node_remove(&message->node);
    status = deliver(recv, message);
    if (status != UMX_INPROGRESS) {
        return end_now(recv, status, result);
    }
    *req_p = req;
    return status;
}

/* ---- looking -------------------------------------------------------------
 */

umx_status
umx_comm_iprobe(umx_comm *comm, int source, uint64_t tag, uint64_t mask,
                umx_comm_status *result)
{
    UMI_COMM_LOCK(comm);
    umx_status              status = check_source(comm, source);
    const umx_comm_message *message;

    if (status != UMX_OK) {
        return status;
    }
    message = find_message(comm, source, tag, mask);
    if (message == NULL) {
        return (source != UMX_ANY_SOURCE && is_exhausted(comm, source)) ?
                   UMX_ERR_RANK_FAILED :
                   UMX_ERR_NO_MESSAGE;
    }
    *result = message->info;
    return UMX_OK;
}

umx_status
umx_comm_wait_message(umx_comm *comm, int source, uint64_t tag, uint64_t mask,
                      const umx_op_params *params, umx_request **req_p,
                      umx_comm_status *result)
{
    UMI_COMM_LOCK(comm);
    umx_status     status = umx_comm_iprobe(comm, source, tag, mask, result);
    umi_comm_recv *recv;

    if (status != UMX_ERR_NO_MESSAGE) {
        return status;
    }
    if (is_exhausted(comm, source)) {
        return UMX_ERR_RANK_FAILED;
    }
    recv = new_recv(comm, NULL, params);
    if (recv == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    recv->source   = source;
    recv->tag      = tag;
    recv->mask     = mask;
    recv->is_probe = true;
    *req_p         = recv->req;
    umi_list_append(&comm->posted, &recv->node);
    return UMX_INPROGRESS;
}

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
    message = find_message(comm, source, tag, mask);
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
        free_message(message);
    } else {
        requeue(comm, message);
    }
    umi_comm_put(comm);
}

umx_status
umx_comm_mrecv(umx_comm_message **message_p, const umx_buffer *buf,
               const umx_op_params *params, umx_request **req_p)
{
    UMI_COMM_LOCK((*message_p)->comm);
    umx_comm_message *message = *message_p;
    umx_comm         *comm    = message->comm;
    umx_status        status  = umi_comm_status(comm);
    umi_comm_recv    *recv;
    umx_request      *req;

    if (status != UMX_OK) {
        return status;
    }
    if (message->info.length > buf->len) {
        return UMX_ERR_BUFFER_TOO_SMALL;
    }
    recv = new_recv(comm, buf, params);
    if (recv == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    req                 = recv->req;
    recv->is_of_message = true;
    *message_p          = NULL;
    message->is_taken   = false;
    umi_comm_put(comm); /* the message's; the receive has its own */
    status = deliver(recv, message);
    if (status != UMX_INPROGRESS) {
        return end_now(recv, status, NULL);
    }
    *req_p = req;
    return status;
}

/* ---- sending -------------------------------------------------------------
 */

/* A send counts that the channel has sent, though it was cancelled. The other
 * rank is told the number when this one leaves, which may be at once. */
static void
check_count(umi_comm_send *send)
{
    if (send->is_counted && !umx_request_was_sent(send->sub)) {
        send->is_counted = false;
        send->comm->ranks[send->dest].num_sent--;
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
    umi_comm_send *send = *(umi_comm_send **)umx_request_state(req);

    if (send->sub != NULL) {
        if (cancel_sub(send)) {
            end_send_request(send, UMX_ERR_CANCELED);
        }
    } else if (send->message != NULL) {
        send->message->send = NULL;
        free_message(send->message);
        end_send(send, UMX_ERR_CANCELED);
    } else if (send->is_lost) {
        end_send(send, UMX_ERR_CANCELED);
    }
}

static const umx_request_class send_class = {
    .name   = "comm_send",
    .cancel = cancel_send,
};

static umi_comm_send *
new_send(umx_comm *comm, int dest, const umx_buffer *buf,
         const umx_op_params *params)
{
    umi_comm_send *send = calloc(1, sizeof(*send));

    if (send == NULL) {
        return NULL;
    }
    send->req = umx_request_create(comm->group->dispatch->worker, &send_class,
                                   params);
    if (send->req == NULL) {
        free(send);
        return NULL;
    }
    *(umi_comm_send **)umx_request_state(send->req) = send;
    umi_list_append(&comm->sends, &send->node);
    send->comm = comm;
    send->dest = dest;
    send->buf  = *buf;
    umi_comm_hold(comm);
    return send;
}

static void
discard_send(umi_comm_send *send)
{
    umx_request *req = send->req;

    send->req = NULL; /* which does not complete */
    end_send(send, UMX_OK);
    umx_request_discard(req);
}

static umx_status
send_to_self(umx_comm *comm, uint64_t tag, const umx_buffer *buf,
             const umx_op_params *params, umx_request **req_p)
{
    umx_comm_message *message;
    umx_request      *req;

    if (!is_host(buf)) {
        return UMX_ERR_UNSUPPORTED;
    }
    message = new_message(comm, comm->rank, tag, buf->len);
    if (message == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    /* A receive that waits copies from the buffer. */
    message->send = new_send(comm, comm->rank, buf, params);
    if (message->send == NULL) {
        free_message(message);
        return UMX_ERR_NO_MEMORY;
    }
    req = message->send->req;
    if (offer(comm, message)) {
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
        memcpy(message->data, buf->data, buf->len);
    }
    discard_send(message->send);
    message->send = NULL;
    umi_list_append(&comm->unexpected, &message->node);
    return UMX_OK;
}

/* The send ends with the communicator, once it is known which rank has failed.
 */
static void
keep_lost(umi_comm_send *send)
{
    send->sub     = NULL;
    send->is_lost = true;
}

/* End the sends to `dest`, or to all (-1), that were lost. Callbacks may end
 * others. */
static void
end_lost(umx_comm *comm, int dest, umx_status status)
{
    umi_node *node = comm->sends.next;

    while (node != &comm->sends) {
        umi_comm_send *send = umi_container_of(node, umi_comm_send, node);

        if (send->is_lost && (dest == -1 || send->dest == dest)) {
            end_send(send, status);
            node = comm->sends.next;
        } else {
            node = node->next;
        }
    }
}

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
        is_lost(comm, send->dest, status, umx_status_string(status))) {
        keep_lost(send);
        return;
    }
    if (status != UMX_OK && comm->is_revoked) {
        status = UMX_ERR_RANK_FAILED;
    }
    end_send(send, status);
}

static void
on_send_lost(umx_request *sub, umx_status status, void *arg)
{
    umi_comm_send *send = arg;

    (void)sub;
    if (send->req != NULL) {
        umx_request_lose(send->req, lost_status(send->comm, status));
    }
}

umx_status
umx_comm_isend(umx_comm *comm, int dest, uint64_t tag, const umx_buffer *buf,
               const umx_op_params *params, umx_request **req_p)
{
    UMI_COMM_LOCK(comm);
    umi_comm_header header = {.kind   = UMI_COMM_MESSAGE,
                              .source = (uint32_t)comm->rank,
                              .comm   = comm->id,
                              .number = tag};
    uint8_t         bytes[UMI_COMM_HEADER_MAX];
    umx_op_params   sub_params = {.flags      = UMX_OP_FLAG_LAYER,
                                  .field_mask = UMX_OP_FIELD_FLAGS |
                                                UMX_OP_FIELD_ON_DONE |
                                                UMX_OP_FIELD_ON_LOST,
                                  .on_done = on_sent,
                                  .on_lost = on_send_lost};
    umx_status      status     = umi_comm_status(comm);
    umi_comm_send  *send;
    umx_ep         *ep;
    size_t          len;

    if (status != UMX_OK) {
        return status;
    }
    if (dest < 0 || dest >= comm->size) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    if (dest == comm->rank) {
        return send_to_self(comm, tag, buf, params, req_p);
    }
    if (comm->ranks[dest].is_gone) {
        return UMX_ERR_RANK_FAILED;
    }
    status = umi_comm_member_ep(comm->ranks[dest].member, &ep);
    if (status != UMX_OK && !is_lost(comm, dest, status, NULL)) {
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
    sub_params.arg = send;
    len            = umi_comm_header_encode(&header, bytes);
    status = umx_layer_am_send(ep, UMX_AM_ID_COMM, bytes, len, buf, &sub_params,
                               &send->sub);
    if (status >= 0) {
        comm->ranks[dest].num_sent++;
    }
    if (status == UMX_INPROGRESS) {
        send->is_counted = true;
        *req_p           = send->req;
        return status;
    }
    send->sub = NULL;
    if (is_lost(comm, dest, status, umx_ep_reason(ep))) {
        keep_lost(send);
        *req_p = send->req;
        return UMX_INPROGRESS;
    }
    discard_send(send);
    return status;
}

/* ---- the end -------------------------------------------------------------
 */

void
umi_comm_messages_end_rank(umx_comm *comm, int rank)
{
    umi_node *node   = comm->posted.next;
    bool      is_all = is_exhausted(comm, UMX_ANY_SOURCE);

    umi_comm_hold(comm);
    while (node != &comm->posted) {
        umi_comm_recv *recv = umi_container_of(node, umi_comm_recv, node);

        if (recv->source == rank ||
            (is_all && recv->source == UMX_ANY_SOURCE)) {
            end_recv(recv, UMX_ERR_RANK_FAILED);
            node = comm->posted.next; /* its callback may end others */
        } else {
            node = node->next;
        }
    }
    end_lost(comm, rank, UMX_ERR_RANK_FAILED);
    umi_comm_put(comm);
}

void
umi_comm_messages_end(umx_comm *comm, umx_status status)
{
    umi_comm_hold(comm);
    while (!umi_list_is_empty(&comm->posted)) {
        end_recv(umi_container_of(comm->posted.next, umi_comm_recv, node),
                 status);
    }
    while (!umi_list_is_empty(&comm->unexpected)) {
        umx_comm_message *message = umi_container_of(comm->unexpected.next,
                                                     umx_comm_message, node);

        if (message->send != NULL) {
            end_send(message->send, status);
            message->send = NULL;
        }
        free_message(message);
    }
    end_lost(comm, -1, status);
    if (comm->is_revoked) { /* nobody receives them */
        UMI_LIST_FOREACH_SAFE(node, &comm->sends) {
            umi_comm_send *send = umi_container_of(node, umi_comm_send, node);

            if (send->sub != NULL && send->req != NULL && cancel_sub(send)) {
                end_send_request(send, status);
            }
        }
    }
    umi_comm_put(comm);
}
