/* SPDX-License-Identifier: BSD-3-Clause */
/* recv.c: receives of messages of ranks. */
#include <string.h>

#include "comm/dispatch.h"
#include "comm/member.h"
#include "comm/send_recv.h"
#include "util/trace.h"

/* The state of a request, which outlives the umi_comm_recv. */
typedef struct umi_comm_recv_state {
    umi_comm_recv  *recv; /* NULL once it is over */
    uint64_t        comm; /* its number */
    umx_comm_status got;
} umi_comm_recv_state;

_Static_assert(sizeof(umi_comm_recv_state) <= UMX_REQUEST_STATE_SIZE,
               "no room");

/* ---- the queue -----------------------------------------------------------
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

/* Can no message of that source come any more? A receive of any source ends
 * with the last of the other ranks, though this rank could send to itself. */
static bool
is_exhausted(const umx_comm *comm, int source)
{
    if (source != UMX_ANY_SOURCE) {
        return umi_comm_rank_is_finished(&comm->ranks[source]);
    }
    for (int i = 0; i < comm->size; i++) {
        if (i != comm->rank && !umi_comm_rank_is_finished(&comm->ranks[i])) {
            return false;
        }
    }
    return comm->size > 1;
}

static umi_pool *
recvs_of(const umx_comm *comm)
{
    return &comm->group->dispatch->recvs;
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

void
umi_comm_recv_end(umi_comm_recv *recv, umx_status status)
{
    umx_comm *comm = recv->comm;

    umi_node_remove(&recv->node);
    end_recv_request(recv, status);
    umi_pool_put(recvs_of(comm), recv);
    umi_comm_put(comm);
}

static bool
is_behind(umi_node *node, umi_node *other, const void *arg)
{
    (void)arg;
    return umi_container_of(node, umi_comm_recv, node)->order >
           umi_container_of(other, umi_comm_recv, node)->order;
}

/* Put a receive into `posted`, in the order of posting. */
static void
post(umi_comm_recv *recv)
{
    umi_list_insert_sorted(&recv->comm->posted, &recv->node, is_behind, NULL);
}

/* ---- a message meets a receive -------------------------------------------
 */

static void post_again(umi_comm_recv *recv);

static umx_status
copy_to(const umx_buffer *buf, const void *data, size_t len)
{
    return (len != 0) ? umx_buffer_write(buf, data, len) : UMX_OK;
}

/* Keep a receive the bytes of whose message are lost, if the rank that sent
 * them is suspected: the receive ends with the communicator. False: the rank is
 * not suspected. */
static bool
keep_lost_recv(umi_comm_recv *recv, umx_status status)
{
    umx_comm *comm = recv->comm;

    if (comm->is_closed || !umi_comm_doubt(comm, recv->got.source, status,
                                           umx_status_string(status))) {
        return false;
    }
    recv->is_lost = true;
    recv->source  = recv->got.source;
    umi_list_append(&comm->posted, &recv->node);
    return true;
}

/* The bytes have come of a receive that was cancelled, and could not give its
 * buffer back before: put its message back. */
static void
end_deferred(umi_comm_recv *recv, umx_status status)
{
    umx_comm *comm = recv->comm;

    umi_comm_hold(comm);
    if (!comm->is_revoked && !comm->is_closed) {
        if (status == UMX_OK) {
            status = umi_comm_message_put_back(comm, &recv->got, &recv->buf);
            if (status != UMX_OK) {
                umi_comm_message_cannot_put_back(comm, status);
            }
        } else if (status != UMX_ERR_WITHDRAWN) {
            umi_comm_message_lose(comm, recv->got.source, status);
        }
    }
    umi_comm_recv_end(recv, UMX_ERR_CANCELED);
    umi_comm_put(comm);
}

static void
on_bytes(umx_request *sub, umx_status status, void *arg)
{
    umi_comm_recv *recv = arg;

    (void)sub;
    recv->sub = NULL;
    if (recv->back != NULL) {
        umi_comm_message_end_copy(recv->back, status);
        umi_comm_recv_end(recv, UMX_ERR_CANCELED);
    } else if (recv->req == NULL) {
        umi_comm_recv_end(recv, UMX_ERR_CANCELED);
    } else if (umx_request_is_cancelled(recv->req)) {
        end_deferred(recv, status);
    } else if (status == UMX_ERR_WITHDRAWN) {
        post_again(recv);
    } else if (status == UMX_OK || recv->comm->is_revoked ||
               !keep_lost_recv(recv, status)) {
        umi_comm_recv_end(recv, (status != UMX_OK && recv->comm->is_revoked) ?
                                    UMX_ERR_RANK_FAILED :
                                    status);
    }
}

void
umi_comm_recv_lose(umi_comm_recv *recv, umx_status status)
{
    if (recv->back != NULL) {
        recv = recv->back->waiter;
    }
    if (recv != NULL && recv->req != NULL) {
        umx_request_lose(recv->req, umi_comm_lost_status(recv->comm, status));
    }
}

static void
on_bytes_lost(umx_request *sub, umx_status status, void *arg)
{
    (void)sub;
    umi_comm_recv_lose(arg, status);
}

/* Receive the bytes of a message straight into the buffer. UMX_INPROGRESS:
 * on_bytes() follows. */
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
        status = umx_buffer_copy(&recv->buf, &message->send->buf);
    } else if (message->sub != NULL) {
        message->waiter = recv;
        recv->from      = message;
        return UMX_INPROGRESS;
    } else {
        status = copy_to(&recv->buf, message->data, recv->got.length);
    }
    if (message->send != NULL) {
        umi_comm_send_end(message->send, UMX_OK);
        message->send = NULL;
    }
    if (is_coming && status < 0 && status != UMX_ERR_WITHDRAWN &&
        keep_lost_recv(recv, status)) {
        status = UMX_INPROGRESS;
    }
    umi_comm_message_free(message);
    return status;
}

/* The first receive, or probe, that takes a message; or NULL. */
static umi_comm_recv *
find_recv(const umx_comm *comm, const umx_comm_message *message, bool is_back)
{
    UMI_LIST_FOREACH(node, &comm->posted) {
        umi_comm_recv *recv = umi_container_of(node, umi_comm_recv, node);

        if (!recv->is_lost && !recv->is_watch &&
            umi_comm_message_is_for(&message->info, recv->source, recv->tag,
                                    recv->mask) &&
            (recv->is_probe || !is_back ||
             message->info.length <= recv->buf.len)) {
            return recv;
        }
    }
    return NULL;
}

bool
umi_comm_recv_offer(umx_comm *comm, umx_comm_message *message, bool is_back)
{
    umi_comm_recv *recv = find_recv(comm, message, is_back);
    umx_status     status;

    while (recv != NULL && recv->is_probe) {
        recv->got = message->info;
        umi_comm_recv_end(recv, UMX_OK);
        recv = find_recv(comm, message, is_back);
    }
    if (recv == NULL) {
        return false;
    }
    umi_node_remove(&recv->node);
    status = deliver(recv, message);
    if (status != UMX_INPROGRESS) {
        umi_comm_recv_end(recv, status);
    }
    return true;
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
        message = umi_comm_message_find(comm, recv->source, recv->tag,
                                        recv->mask);
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
        umi_comm_recv_end(recv, status);
    }
}

void
umi_comm_recv_end_wait(umx_comm_message *message, umx_status status)
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
            umi_comm_recv_end(recv, status);
        }
    }
    umi_comm_message_free(message);
}

/* ---- cancelling ----------------------------------------------------------
 */

/* Give a message back whose bytes are coming. The message is in the queue again
 * at once, or another receive's, as no later message may overtake it; it gets
 * its bytes when they have come. UMX_OK: the buffer is free. */
static umx_status
give_back_coming(umi_comm_recv *recv)
{
    umx_comm         *comm = recv->comm;
    umx_comm_message *message;
    umx_status        status = UMX_ERR_NO_MEMORY;

    if (comm->is_revoked || comm->is_closed) {
        return umx_request_drop(recv->sub);
    }
    message = umi_comm_message_remake(comm, &recv->got);
    if (message != NULL) {
        status = umx_request_move(
            recv->sub, umx_request_is_abandoned(recv->req), &message->data);
    }
    if (status == UMX_OK) {
        umi_comm_hold(comm); /* umi_comm_message_end_copy() lets it go */
        message->is_copy = true;
        message->sub     = recv->sub;
        recv->back       = message;
        umi_comm_message_requeue(comm, message);
        return UMX_OK;
    }
    if (message != NULL) {
        umi_comm_message_free(message);
    }
    if (status < 0) {
        umi_comm_message_cannot_put_back(comm, status);
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
        umi_comm_message_requeue(recv->comm, recv->from);
        recv->from = NULL;
        umi_comm_recv_end(recv, UMX_ERR_CANCELED);
    } else if (recv->sub == NULL) {
        umi_comm_recv_end(recv, UMX_ERR_CANCELED);
    } else if (give_back_coming(recv) == UMX_OK) {
        end_recv_request(recv, UMX_ERR_CANCELED);
    }
}

/* A receive is cancelled that has its message, of which the program has not
 * heard: put the message back. */
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

/* ---- posting -------------------------------------------------------------
 */

/* Make a receive into `buf`, or, if that is NULL, a probe that waits. */
static umi_comm_recv *
new_recv(umx_comm *comm, const umx_buffer *buf, const umx_op_params *params)
{
    const umx_request_class *cls = (buf != NULL) ? &recv_class : &probe_class;

    umi_comm_recv *recv = umi_pool_get(recvs_of(comm));

    if (recv == NULL) {
        return NULL;
    }
    *recv     = (umi_comm_recv){.comm = comm, .order = comm->num_recvs};
    recv->req = umx_request_create(comm->group->dispatch->worker, cls, params);
    if (recv->req == NULL) {
        umi_pool_put(recvs_of(comm), recv);
        return NULL;
    }
    umi_node_init(&recv->node);
    state_of(recv->req)->recv = recv;
    state_of(recv->req)->comm = comm->id;
    comm->num_recvs++;
    if (buf != NULL) {
        recv->buf = *buf;
        umx_request_set_buffer(recv->req, buf);
        if (UMI_IS_OBSERVED()) {
            umx_request_describe(recv->req, NULL, buf->len, 0, -1);
        }
    }
    umi_comm_hold(comm);
    return recv;
}

/* End a receive in its posting call. Returns `status`. */
static umx_status
end_now(umi_comm_recv *recv, umx_status status, umx_comm_status *result)
{
    umx_request *req = recv->req;

    if (result != NULL) {
        *result = recv->got;
    }
    recv->req = NULL;
    umi_comm_recv_end(recv, status);
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
    message = umi_comm_message_find(comm, source, tag, mask);
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
    message = umi_comm_message_find(comm, source, tag, mask);
    if (message == NULL) {
        return (source != UMX_ANY_SOURCE && is_exhausted(comm, source)) ?
                   UMX_ERR_RANK_FAILED :
                   UMX_ERR_NO_MESSAGE;
    }
    *result = message->info;
    return UMX_OK;
}

/* Post what takes no message: a probe, or a watch, which waits for none. */
static umx_status
post_probe(umx_comm *comm, const umi_comm_recv *what,
           const umx_op_params *params, umx_request **req_p)
{
    umi_comm_recv *recv = new_recv(comm, NULL, params);

    if (recv == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    recv->source   = what->source;
    recv->tag      = what->tag;
    recv->mask     = what->mask;
    recv->is_probe = what->is_probe;
    recv->is_watch = what->is_watch;
    *req_p         = recv->req;
    umi_list_append(&comm->posted, &recv->node);
    if (is_exhausted(comm, what->source)) {
        umi_comm_recv_end(recv, UMX_ERR_RANK_FAILED);
    }
    return UMX_INPROGRESS;
}

umx_status
umx_comm_wait_message(umx_comm *comm, int source, uint64_t tag, uint64_t mask,
                      const umx_op_params *params, umx_request **req_p,
                      umx_comm_status *result)
{
    UMI_COMM_LOCK(comm);
    umx_status    status = umx_comm_iprobe(comm, source, tag, mask, result);
    umi_comm_recv probe  = {
         .source = source, .tag = tag, .mask = mask, .is_probe = true};

    if (status == UMX_ERR_NO_MESSAGE && is_exhausted(comm, source)) {
        return UMX_ERR_RANK_FAILED;
    }
    return (status == UMX_ERR_NO_MESSAGE) ?
               post_probe(comm, &probe, params, req_p) :
               status;
}

umx_status
umx_comm_watch(umx_comm *comm, int source, const umx_op_params *params,
               umx_request **req_p)
{
    UMI_COMM_LOCK(comm);
    umx_status    status = check_source(comm, source);
    umi_comm_recv watch  = {.source = source, .is_watch = true};

    return (status == UMX_OK) ? post_probe(comm, &watch, params, req_p) :
                                status;
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
            umi_comm_recv_end(recv, UMX_ERR_RANK_FAILED);
            node = comm->posted.next; /* its callback may end others */
        } else {
            node = node->next;
        }
    }
    umi_comm_sends_end_lost(comm, rank, UMX_ERR_RANK_FAILED);
    umi_comm_put(comm);
}
