/* SPDX-License-Identifier: BSD-3-Clause */
/* collective_rounds.c: collective operations: what all of them do.
 *
 * An operation goes round by round: its type posts the messages of a round, and
 * when all are complete the next. Messages are matched by the number of the
 * operation, the round and the rank; one that comes before its operation has
 * begun here, or its receive been posted, waits in `early`. Each says which
 * operation its sender is in, so that ranks that call different ones find out.
 */
#include "comm/communicator.h"

#include "util/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long an operation waits before it says what it waits in. */
#define STATE_NS UINT64_C(500000000)

/* A message that no receive waits for yet. */
typedef struct umi_comm_early {
    umi_node        node; /* comm->early */
    umi_comm_parcel parcel;
} umi_comm_early;

enum {
    LEND_MIN = 64 * 1024, /* bytes; lent to ranks of this host */
    SPINS    = 100        /* looks for what ranks of this host send */
};

static const char *const names[] = {
    [UMI_COMM_COLL_BARRIER]          = "barrier",
    [UMI_COMM_COLL_BCAST]            = "bcast",
    [UMI_COMM_COLL_GATHER]           = "gather",
    [UMI_COMM_COLL_SCATTER]          = "scatter",
    [UMI_COMM_COLL_ALLGATHER]        = "allgather",
    [UMI_COMM_COLL_ALLTOALL]         = "alltoall",
    [UMI_COMM_COLL_REDUCE]           = "reduce",
    [UMI_COMM_COLL_ALLREDUCE]        = "allreduce",
    [UMI_COMM_COLL_SPLIT]            = "split",
    [UMI_COMM_COLL_ALLTOALL_BUFFERS] = "alltoall_buffers",
};

const char *
umi_comm_coll_name(unsigned kind)
{
    return (kind >= UMI_COMM_COLL_BARRIER &&
            kind <= UMI_COMM_COLL_ALLTOALL_BUFFERS) ?
               names[kind] :
               "an unknown operation";
}

void
umi_comm_coll_describe_first(const umx_comm *comm, const char **name_p,
                             uint64_t *number_p)
{
    const umi_comm_coll *coll;

    if (umi_list_is_empty(&comm->colls)) {
        *name_p   = "";
        *number_p = 0;
        return;
    }
    coll      = umi_container_of(comm->colls.next, umi_comm_coll, node);
    *name_p   = umi_comm_coll_name(coll->type->kind);
    *number_p = coll->number;
}

bool
umi_comm_coll_awaits(const umx_comm *comm, int rank)
{
    UMI_LIST_FOREACH(node, &comm->colls) {
        const umi_comm_coll *coll = umi_container_of(node, umi_comm_coll, node);

        for (size_t i = 0; i < coll->max_xfers; i++) {
            const umi_comm_xfer *xfer = &coll->xfers[i];

            if (xfer->is_used && xfer->rank == rank && xfer->sub == NULL) {
                return true;
            }
        }
    }
    return false;
}

bool
umi_comm_coll_needs(const umx_comm *comm, uint64_t number)
{
    UMI_LIST_FOREACH(node, &comm->colls) {
        if (umi_container_of(node, umi_comm_coll, node)->number >= number) {
            return true;
        }
    }
    return false;
}

/* ---- buffers --------------------------------------------------------------
 */

umx_status
umi_comm_coll_check_buffer(const umx_buffer *buf)
{
    if (buf->layout != NULL) {
        return UMX_ERR_UNSUPPORTED;
    }
    return (buf->data == NULL && buf->len != 0) ? UMX_ERR_INVALID_PARAM :
                                                  UMX_OK;
}

bool
umi_comm_buffers_overlap(const umx_buffer *a, const umx_buffer *b)
{
    const char *first = a->data, *second = b->data;

    return a->len != 0 && b->len != 0 && first < second + b->len &&
           second < first + a->len;
}

umx_status
umi_comm_coll_copy(const umx_buffer *to, const umx_buffer *from)
{
    if (to->len != from->len) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (to->memtype > UMX_MEMTYPE_HOST || from->memtype > UMX_MEMTYPE_HOST) {
        return UMX_ERR_UNSUPPORTED;
    }
    return (to->data != from->data) ?
               umx_buffer_write(to, from->data, to->len) :
               UMX_OK;
}

/* ---- the end of an operation ---------------------------------------------
 */

static void
end_request(umi_comm_coll *coll)
{
    umx_request *req = coll->req;

    if (req != NULL) {
        coll->req                                 = NULL;
        *(umi_comm_coll **)umx_request_state(req) = NULL;
        umx_request_complete(req, coll->status);
    }
}

static void
end(umi_comm_coll *coll)
{
    umx_comm *comm = coll->comm;

    umi_node_remove(&coll->node);
    umx_timer_stop(&coll->timer);
    if (coll->type->fini != NULL) {
        coll->type->fini(coll, coll->status);
    }
    end_request(coll);
    free(coll->xfers);
    free(coll);
    umi_comm_put(comm);
}

umx_status
umi_comm_coll_give_up(umi_comm_coll *coll, umx_status status)
{
    coll->status = status;
    end(coll);
    return status;
}

/* The message of a rank of this host is over. */
static void
end_lent(umi_comm_xfer *xfer)
{
    if (xfer->ep != NULL) {
        umx_loan_end(xfer->ep, &xfer->loan);
    }
    xfer->is_used = false;
    xfer->coll->num_pending--;
}

/* Give the buffer of a message back. A rank that gets what is sent may still
 * end well, so that a send goes on with its bytes; nobody wants what comes. */
static void
give_up(umi_comm_xfer *xfer)
{
    const umx_request *req = xfer->coll->req;
    umx_status         status;

    if (xfer->is_landing) {
        status = umx_request_drop(xfer->sub);
    } else if (req != NULL && umx_request_is_abandoned(req)) {
        status = umx_request_abandon(xfer->sub);
    } else {
        status = umx_request_cancel(xfer->sub);
    }
    xfer->is_free = (status == UMX_OK);
}

/* End the request of an operation that has failed, if no buffer is in use any
 * more. What the channel still does by itself is waited for without it. */
static void
end_request_early(umi_comm_coll *coll)
{
    for (size_t i = 0; i < coll->max_xfers; i++) {
        const umi_comm_xfer *xfer = &coll->xfers[i];

        if (xfer->is_used && xfer->sub != NULL && !xfer->is_free) {
            return;
        }
    }
    end_request(coll);
}

/* It cannot go on: receives that wait for nothing any more go, and buffers that
 * are with UCX come back now, or are waited for. */
static void
withdraw(umi_comm_coll *coll)
{
    while (!umi_list_is_empty(&coll->recvs)) {
        umi_comm_xfer *xfer = umi_container_of(coll->recvs.next, umi_comm_xfer,
                                               node);

        umi_node_remove(&xfer->node);
        xfer->is_used = false;
        coll->num_pending--;
    }
    for (size_t i = 0; i < coll->max_xfers; i++) {
        umi_comm_xfer *xfer = &coll->xfers[i];

        if (!xfer->is_used) {
            continue;
        }
        if (xfer->sub != NULL) {
            give_up(xfer);
        } else if (xfer->is_lent || xfer->is_pull || xfer->is_lost) {
            end_lent(xfer);
        }
    }
    end_request_early(coll);
}

/* The operation fails, and with it the communicator. */
static void
fail(umi_comm_coll *coll, int rank, umx_status status, const char *why)
{
    umi_comm_revoke(coll->comm, rank, status, false, "%s (operation %llu)%s%s",
                    umi_comm_coll_name(coll->type->kind),
                    (unsigned long long)coll->number,
                    (why[0] != '\0') ? ": " : "", why);
}

/* Post rounds until one has to be waited for. True: it has ended. */
static bool
move(umi_comm_coll *coll)
{
    umx_status status;

    if (coll->is_moving) {
        return false; /* the call that is under way sees it */
    }
    coll->is_moving = true;
    while (coll->num_pending == 0 && coll->status == UMX_INPROGRESS) {
        status = coll->type->next(coll);
        coll->round++;
        if (status == UMX_OK && coll->num_pending == 0) {
            coll->status = UMX_OK;
        } else if (status < 0 && coll->status == UMX_INPROGRESS) {
            fail(coll, coll->comm->rank, status, umx_status_string(status));
            coll->status = (coll->status == UMX_INPROGRESS) ? status :
                                                              coll->status;
            withdraw(coll);
        }
    }
    coll->is_moving = false;
    return coll->num_pending == 0 && coll->status != UMX_INPROGRESS;
}

void
umi_comm_coll_advance(umi_comm_coll *coll)
{
    if (move(coll)) {
        end(coll);
    }
}

void
umi_comm_coll_fail_all(umx_comm *comm)
{
    umi_list failed;

    umi_list_init(&failed);
    umi_list_splice(&failed, &comm->colls);
    while (!umi_list_is_empty(&failed)) {
        umi_comm_coll *coll = umi_container_of(failed.next, umi_comm_coll,
                                               node);

        umi_node_remove(&coll->node);
        umi_list_append(&comm->colls, &coll->node);
        coll->status = UMX_ERR_RANK_FAILED;
        withdraw(coll);
        if (coll->num_pending == 0 && !coll->is_moving) {
            end(coll);
        }
    }
    umi_comm_coll_drop_early(comm);
}

static void
drop(umx_comm *comm, const umi_comm_parcel *parcel)
{
    if (parcel->message != NULL) {
        umx_message_drop(parcel->message);
    } else {
        umi_comm_inbox_drop(comm, parcel);
    }
}

void
umi_comm_coll_drop_early(umx_comm *comm)
{
    while (!umi_list_is_empty(&comm->early)) {
        umi_comm_early *early = umi_container_of(comm->early.next,
                                                 umi_comm_early, node);

        umi_node_remove(&early->node);
        drop(comm, &early->parcel);
        free(early);
    }
}

/* ---- messages ------------------------------------------------------------
 */

static umi_comm_xfer *
new_xfer(umi_comm_coll *coll, int rank, unsigned round, const umx_buffer *buf)
{
    for (size_t i = 0; i < coll->max_xfers; i++) {
        umi_comm_xfer *xfer = &coll->xfers[i];

        if (!xfer->is_used) {
            *xfer = (umi_comm_xfer){.coll    = coll,
                                    .buf     = *buf,
                                    .rank    = rank,
                                    .round   = (uint16_t)round,
                                    .is_used = true};
            umi_node_init(&xfer->node);
            return xfer;
        }
    }
    return NULL;
}

/* The bytes have been pulled. False: they may be wrong, and the end of the
 * operation is under way. */
static bool
end_pull(const umi_comm_xfer *xfer)
{
    umi_comm_coll *coll = xfer->coll;
    umx_comm      *comm = coll->comm;

    if (comm->inbox == NULL || umi_comm_inbox_is_spoilt(comm, xfer->rank)) {
        return false;
    }
    umi_comm_inbox_say_done(comm, xfer->rank, coll->number, xfer->round);
    return true;
}

/* Is the message lost because the rank may have ended? What says so for
 * certain, or who else has failed, is on its way, and ends the operation. */
static bool
is_lost(const umi_comm_xfer *xfer, umx_status status, const char *why)
{
    const umi_comm_coll *coll   = xfer->coll;
    const umi_comm_rank *rank   = &coll->comm->ranks[xfer->rank];
    umi_comm_member     *member = rank->member;
    char                 text[UMI_COMM_REASON_MAX];

    if (status >= 0 || rank->is_gone || coll->comm->is_revoked) {
        return false;
    }
    (void)snprintf(text, sizeof(text), "%s (operation %llu): %s",
                   umi_comm_coll_name(coll->type->kind),
                   (unsigned long long)coll->number, why);
    umi_comm_member_check(member, status, text);
    return member->is_suspect;
}

/* Keep what is lost until withdraw() ends it. */
static void
keep_lost(umi_comm_xfer *xfer)
{
    xfer->is_used = true;
    xfer->is_lost = true;
    xfer->sub     = NULL;
    xfer->ep      = NULL;
}

static void
on_xfer(umx_request *sub, umx_status status, void *arg)
{
    umi_comm_xfer *xfer = arg;
    umi_comm_coll *coll = xfer->coll;
    umx_comm      *comm = coll->comm;

    (void)sub;
    xfer->sub = NULL;
    if (status != UMX_OK && coll->status == UMX_INPROGRESS &&
        (status == UMX_ERR_WITHDRAWN ||
         is_lost(xfer, status, umx_status_string(status)))) {
        keep_lost(xfer); /* a rank that withdraws says why it has failed */
        return;
    }
    if (xfer->is_pull && status == UMX_OK && coll->status == UMX_INPROGRESS &&
        !end_pull(xfer)) {
        return;
    }
    xfer->is_used = false;
    coll->num_pending--;
    umi_comm_hold(comm);
    if (coll->status != UMX_INPROGRESS) {
        end_request_early(coll);
        umi_comm_coll_advance(coll);
    } else if (status == UMX_OK) {
        umi_comm_coll_advance(coll);
    } else {
        fail(coll, xfer->rank, status, umx_status_string(status));
    }
    umi_comm_put(comm);
}

static void
on_xfer_lost(umx_request *sub, umx_status status, void *arg)
{
    umi_comm_coll *coll = ((umi_comm_xfer *)arg)->coll;

    (void)sub;
    (void)status;
    if (coll->req != NULL && coll->status != UMX_INPROGRESS) {
        umx_request_lose(coll->req, coll->status);
    }
}

static umx_op_params
xfer_params(umi_comm_xfer *xfer)
{
    return (umx_op_params){
        .flags      = UMX_OP_FLAG_LAYER,
        .field_mask = UMX_OP_FIELD_FLAGS | UMX_OP_FIELD_ON_DONE |
                      UMX_OP_FIELD_ON_LOST,
        .on_done = on_xfer,
        .on_lost = on_xfer_lost,
        .arg     = xfer,
    };
}

umx_status
umi_comm_coll_send(umi_comm_coll *coll, int rank, unsigned round,
                   const umx_buffer *buf)
{
    umx_comm       *comm   = coll->comm;
    umi_comm_header header = {.kind   = UMI_COMM_COLLECTIVE,
                              .op     = (uint8_t)coll->type->kind,
                              .round  = (uint16_t)round,
                              .source = (uint32_t)comm->rank,
                              .comm   = comm->id,
                              .number = coll->number,
                              .what   = coll->what,
                              .bytes  = coll->bytes};
    uint8_t         bytes[UMI_COMM_HEADER_MAX];
    umx_op_params   params;
    umi_comm_xfer  *xfer;
    umx_ep         *ep = NULL; /* it has gone */
    umx_status      status;

    xfer = new_xfer(coll, rank, round, buf);
    if (xfer == NULL) {
        return UMX_ERR_NO_RESOURCE;
    }
    status = umi_comm_inbox_send(coll, xfer);
    if (status == UMX_INPROGRESS) {
        xfer->is_lent = true;
        coll->num_pending++;
        return UMX_OK;
    }
    if (status == UMX_ERR_UNSUPPORTED) {
        status = umi_comm_member_ep(comm->ranks[rank].member, &ep);
    }
    if (is_lost(xfer, status, umx_status_string(status))) {
        keep_lost(xfer);
        coll->num_pending++;
        return UMX_OK;
    }
    if (ep == NULL || status != UMX_OK) {
        xfer->is_used = false;
        return status;
    }
    params = xfer_params(xfer);
    if (buf->len >= LEND_MIN) {
        params.flags |= UMX_OP_FLAG_LEND;
    }
    status = umx_layer_am_send(ep, UMX_AM_ID_COMM, bytes,
                               umi_comm_header_encode(&header, bytes), buf,
                               &params, &xfer->sub);
    if (status == UMX_INPROGRESS) {
        coll->num_pending++;
        return UMX_OK;
    }
    xfer->sub = NULL;
    if (is_lost(xfer, status, umx_ep_reason(ep))) {
        keep_lost(xfer);
        coll->num_pending++;
        return UMX_OK;
    }
    xfer->is_used = false;
    return status;
}

static umx_status
take_cell(umi_comm_xfer *xfer, const umi_comm_parcel *parcel,
          const umx_op_params *params)
{
    umx_status status;

    xfer->is_pull = parcel->is_pull || parcel->is_loan;
    status = umi_comm_inbox_recv(xfer->coll->comm, parcel, &xfer->buf, params,
                                 &xfer->sub);
    if ((status == UMX_OK && xfer->is_pull && !end_pull(xfer)) ||
        (status < 0 && parcel->is_loan &&
         umi_comm_inbox_is_spoilt(xfer->coll->comm, xfer->rank))) {
        xfer->sub = NULL; /* the end of the operation is under way */
        return UMX_INPROGRESS;
    }
    if (status == UMX_OK && parcel->is_sync) {
        umi_comm_inbox_say_done(xfer->coll->comm, xfer->rank,
                                xfer->coll->number, xfer->round);
    }
    /* Only a rank that is revoked ends a loan that is in use. */
    return (status == UMX_ERR_WITHDRAWN) ? UMX_ERR_CONNECTION_RESET : status;
}

/* The message is the receive's: UMX_INPROGRESS if its bytes come. Any other
 * status ends the receive. */
static umx_status
take(umi_comm_xfer *xfer, const umi_comm_parcel *parcel)
{
    umi_comm_coll *coll    = xfer->coll;
    umx_comm      *comm    = coll->comm;
    umx_message   *message = parcel->message;
    size_t         len     = parcel->len;
    umx_op_params  params;
    umx_status     status;
    char           text[UMI_COMM_REASON_MAX];

    if (len != xfer->buf.len) {
        drop(comm, parcel);
        xfer->is_used = false;
        (void)snprintf(text, sizeof(text),
                       "rank %d sends %zu bytes, rank %d expects %zu",
                       xfer->rank, len, comm->rank, xfer->buf.len);
        fail(coll, xfer->rank, UMX_ERR_INVALID_PARAM, text);
        return UMX_ERR_INVALID_PARAM;
    }
    params           = xfer_params(xfer);
    xfer->is_landing = message != NULL;
    status           = (message != NULL) ?
                           umx_message_recv(&message, &xfer->buf, &params, &xfer->sub) :
                           take_cell(xfer, parcel, &params);
    if (status == UMX_INPROGRESS) {
        return status;
    }
    xfer->sub     = NULL;
    xfer->is_used = false;
    if (message != NULL) {
        umx_message_drop(message);
    }
    if (status == UMX_ERR_WITHDRAWN ||
        (status == UMX_ERR_CONNECTION_RESET &&
         is_lost(xfer, status, umx_status_string(status)))) {
        keep_lost(xfer);
        return UMX_INPROGRESS;
    }
    return status;
}

static bool
is_same(const umi_comm_coll *coll, const umi_comm_header *header)
{
    return header->op == coll->type->kind && header->what == coll->what &&
           header->bytes == coll->bytes;
}

/* Ranks are in different operations. */
static void
fail_different(umi_comm_coll *coll, int rank, unsigned op, uint64_t what,
               uint64_t bytes)
{
    char text[UMI_COMM_REASON_MAX];

    if (op != coll->type->kind) {
        (void)snprintf(text, sizeof(text), "rank %d has called %s, rank %d %s",
                       rank, umi_comm_coll_name(op), coll->comm->rank,
                       umi_comm_coll_name(coll->type->kind));
    } else if ((uint32_t)what != (uint32_t)coll->what) {
        (void)snprintf(text, sizeof(text),
                       "the root is %d on rank %d, and %d on rank %d",
                       (int)(uint32_t)what, rank, (int)(uint32_t)coll->what,
                       coll->comm->rank);
    } else if (what != coll->what) {
        (void)snprintf(text, sizeof(text),
                       "rank %d reduces another type, or otherwise, than rank "
                       "%d",
                       rank, coll->comm->rank);
    } else {
        (void)snprintf(text, sizeof(text),
                       "rank %d gives %llu bytes, rank %d %llu", rank,
                       (unsigned long long)bytes, coll->comm->rank,
                       (unsigned long long)coll->bytes);
    }
    fail(coll, rank, UMX_ERR_INVALID_PARAM, text);
}

umx_status
umi_comm_coll_recv(umi_comm_coll *coll, int rank, unsigned round,
                   const umx_buffer *buf)
{
    umi_comm_xfer *xfer = new_xfer(coll, rank, round, buf);
    umx_status     status;

    if (xfer == NULL) {
        return UMX_ERR_NO_RESOURCE;
    }
    umi_comm_inbox_offer(coll->comm, rank);
    UMI_LIST_FOREACH(node, &coll->comm->early) {
        umi_comm_early *early = umi_container_of(node, umi_comm_early, node);

        if (early->parcel.header.number != coll->number ||
            early->parcel.header.source != (uint32_t)rank ||
            early->parcel.header.round != round) {
            continue;
        }
        umi_node_remove(&early->node);
        status = take(xfer, &early->parcel);
        free(early);
        if (status == UMX_INPROGRESS) {
            coll->num_pending++;
            status = UMX_OK;
        } else if (status < 0 && coll->status == UMX_INPROGRESS) {
            fail(coll, rank, status, umx_status_string(status));
        }
        return status;
    }
    umi_list_append(&coll->recvs, &xfer->node);
    coll->num_pending++;
    return UMX_OK;
}

static umi_comm_coll *
find(const umx_comm *comm, uint64_t number)
{
    UMI_LIST_FOREACH(node, &comm->colls) {
        umi_comm_coll *coll = umi_container_of(node, umi_comm_coll, node);

        if (coll->number == number) {
            return coll;
        }
    }
    return NULL;
}

static void
keep(umx_comm *comm, const umi_comm_parcel *parcel)
{
    umi_comm_early *early = malloc(sizeof(*early));

    if (early == NULL) {
        drop(comm, parcel);
        umi_comm_revoke(comm, comm->rank, UMX_ERR_NO_MEMORY, false,
                        "rank %d has no memory for a message", comm->rank);
        return;
    }
    early->parcel = *parcel;
    umi_list_append(&comm->early, &early->node);
}

static umi_comm_xfer *
find_recv(const umi_comm_coll *coll, const umi_comm_header *header)
{
    UMI_LIST_FOREACH(node, &coll->recvs) {
        umi_comm_xfer *xfer = umi_container_of(node, umi_comm_xfer, node);

        if (xfer->rank == (int)header->source && xfer->round == header->round) {
            return xfer;
        }
    }
    return NULL;
}

void
umi_comm_coll_arrive(umx_comm *comm, const umi_comm_parcel *parcel)
{
    const umi_comm_header *header = &parcel->header;
    umi_comm_coll         *coll   = find(comm, header->number);
    umi_comm_xfer         *xfer;
    umx_status             status;
    bool                   was_moving;

    if (comm->is_revoked || comm->is_closed) {
        drop(comm, parcel);
        return;
    }
    if (parcel->message != NULL) {
        umi_comm_inbox_offer(comm, (int)header->source);
    }
    if (coll == NULL) {
        if (header->number < comm->next_number) { /* it is over here */
            drop(comm, parcel);
        } else {
            keep(comm, parcel);
        }
        return;
    }
    if (!is_same(coll, header)) {
        drop(comm, parcel);
        fail_different(coll, (int)header->source, header->op, header->what,
                       header->bytes);
        return;
    }
    xfer = find_recv(coll, header);
    if (xfer == NULL) {
        keep(comm, parcel);
        return;
    }
    umi_node_remove(&xfer->node);
    coll->num_pending--;
    umi_comm_hold(comm);
    was_moving      = coll->is_moving; /* in the call that posts it */
    coll->is_moving = true;            /* fail() must not free it */
    status          = take(xfer, parcel);
    if (status == UMX_INPROGRESS) {
        coll->num_pending++;
    } else if (status != UMX_OK && coll->status == UMX_INPROGRESS) {
        fail(coll, (int)header->source, status, umx_status_string(status));
    }
    coll->is_moving = was_moving;
    umi_comm_coll_advance(coll);
    umi_comm_put(comm);
}

void
umi_comm_coll_on_done(umx_comm *comm, int rank, uint64_t number, unsigned round)
{
    umi_comm_coll *coll = find(comm, number);

    for (size_t i = 0; coll != NULL && i < coll->max_xfers; i++) {
        umi_comm_xfer *xfer = &coll->xfers[i];

        if (xfer->is_used && xfer->is_lent && xfer->rank == rank &&
            xfer->round == round) {
            end_lent(xfer);
            umi_comm_hold(comm);
            umi_comm_coll_advance(coll);
            umi_comm_put(comm);
            return;
        }
    }
}

/* ---- waiting -------------------------------------------------------------
 */

/* Ranks that call different operations may wait for each other, with nothing
 * sent: say what this one waits in. */
static void
say_state(umx_timer *timer)
{
    umi_comm_coll  *coll   = umi_container_of(timer, umi_comm_coll, timer);
    umx_comm       *comm   = coll->comm;
    umi_comm_header header = {.kind   = UMI_COMM_STATE,
                              .op     = (uint8_t)coll->type->kind,
                              .source = (uint32_t)comm->rank,
                              .comm   = comm->id,
                              .number = coll->number};
    uint64_t        what   = coll->what;

    UMI_LIST_FOREACH(node, &coll->recvs) {
        const umi_comm_xfer *xfer = umi_container_of(node, umi_comm_xfer, node);

        umi_comm_member_send(comm->ranks[xfer->rank].member, &header, &what,
                             sizeof(what));
    }
}

/* ---- the beginning -------------------------------------------------------
 */

static void
cancel(umx_request *req)
{
    umi_comm_coll *coll = *(umi_comm_coll **)umx_request_state(req);
    char           text[64];

    if (coll->status == UMX_INPROGRESS) {
        (void)snprintf(text, sizeof(text), "cancelled by rank %d",
                       coll->comm->rank);
        fail(coll, coll->comm->rank, UMX_ERR_CANCELED, text);
    } else {
        withdraw(coll); /* the caller cannot wait any more */
    }
}

static const umx_request_class coll_class = {
    .name   = "comm_collective",
    .cancel = cancel,
};

umx_status
umi_comm_coll_new(umx_comm *comm, const umi_comm_coll_type *type,
                  size_t max_xfers, umi_comm_coll **coll_p)
{
    umx_status     status = umi_comm_status(comm);
    umi_comm_coll *coll;

    if (status != UMX_OK) {
        return status;
    }
    coll = calloc(1, type->size);
    if (coll == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    coll->xfers = calloc(max_xfers + 1, sizeof(*coll->xfers));
    if (coll->xfers == NULL) {
        free(coll);
        return UMX_ERR_NO_MEMORY;
    }
    umi_node_init(&coll->node);
    umi_list_init(&coll->recvs);
    umx_timer_init(&coll->timer, say_state);
    coll->max_xfers = max_xfers;
    coll->type      = type;
    coll->comm      = comm;
    coll->root      = -1;
    coll->what      = UINT32_MAX;
    coll->status    = UMX_INPROGRESS;
    umi_comm_hold(comm);
    *coll_p = coll;
    return UMX_OK;
}

/* What has come for it says that it is the same operation everywhere. */
static bool
check_early(umi_comm_coll *coll)
{
    UMI_LIST_FOREACH(node, &coll->comm->early) {
        const umi_comm_early *early = umi_container_of(node, umi_comm_early,
                                                       node);
        umi_comm_header       header;

        if (early->parcel.header.number != coll->number ||
            is_same(coll, &early->parcel.header)) {
            continue;
        }
        header = early->parcel.header; /* it goes with the communicator */
        fail_different(coll, (int)header.source, header.op, header.what,
                       header.bytes);
        return false;
    }
    return true;
}

/* A rank that has left before operation `number`; -1: none. */
static int
find_gone(const umx_comm *comm, uint64_t number)
{
    for (int i = 0; i < comm->size; i++) {
        if (comm->ranks[i].is_gone && comm->ranks[i].gone_at <= number) {
            return i;
        }
    }
    return -1;
}

/* Look for what ranks of this host send, for as long as they need if they have
 * called the operation, too. True: it has ended. */
static bool
spin(umi_comm_coll *coll)
{
    umx_comm *comm = coll->comm;

    for (int i = 0; i < SPINS && umi_comm_inbox_is_busy_wait(comm); i++) {
        bool is_any_new;

        coll->is_moving = true;
        is_any_new      = umi_comm_inbox_look(comm);
        coll->is_moving = false;
        if (is_any_new && move(coll)) {
            return true;
        }
        umi_cpu_relax();
    }
    return coll->num_pending == 0 && coll->status != UMX_INPROGRESS;
}

umx_status
umi_comm_coll_start(umi_comm_coll *coll, const umx_op_params *params,
                    umx_request **req_p)
{
    umx_comm    *comm = coll->comm;
    umx_status   status;
    umx_request *req;
    int          gone;

    req = umx_request_create(comm->group->dispatch->worker, &coll_class,
                             params);

    if (req == NULL) {
        return umi_comm_coll_give_up(coll, UMX_ERR_NO_MEMORY);
    }
    coll->number = comm->next_number++;
    gone         = find_gone(comm, coll->number);
    umi_list_append(&comm->colls, &coll->node);
    coll->is_moving = true;
    if (gone >= 0) {
        umi_comm_revoke(comm, gone, UMX_ERR_PEER_CLOSED, false,
                        "rank %d has left the communicator", gone);
    }
    (void)(coll->status == UMX_INPROGRESS && check_early(coll));
    coll->is_moving = false;
    if (!move(coll) && !spin(coll)) {
        coll->req                                 = req;
        *(umi_comm_coll **)umx_request_state(req) = coll;
        *req_p                                    = req;
        umx_timer_start(comm->group->dispatch->worker, &coll->timer, STATE_NS);
        if (coll->status != UMX_INPROGRESS) {
            end_request_early(coll);
        }
        return UMX_INPROGRESS;
    }
    status = coll->status;
    end(coll);
    umx_request_discard(req);
    return status;
}

void
umi_comm_coll_on_state(umx_comm *comm, int rank, const umi_comm_header *header,
                       uint64_t what)
{
    umi_comm_coll *coll = find(comm, header->number);

    if (coll == NULL || comm->is_revoked || comm->is_closed) {
        return;
    }
    if (header->op != coll->type->kind || what != coll->what) {
        fail_different(coll, rank, header->op, what, coll->bytes);
    }
}
