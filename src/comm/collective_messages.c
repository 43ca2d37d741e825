/* SPDX-License-Identifier: BSD-3-Clause */
/* collective_messages.c: the messages of a collective operation, by the channel
 * or by an inbox. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective.h"
#include "comm/inbox.h"
#include "comm/late.h"
#include "comm/member.h"
#include "util/count.h"

/* A message that no receive waits for yet. */
typedef struct umi_comm_early {
    umi_node        node; /* comm->early */
    umi_comm_parcel parcel;
} umi_comm_early;

/* ---- messages that came early --------------------------------------------
 */

static void
drop(umx_comm *comm, const umi_comm_parcel *parcel)
{
    if (parcel->message != NULL) {
        umx_message_drop(parcel->message);
    } else {
        umi_comm_inbox_drop(comm, parcel);
    }
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

/* ---- the end of a message ------------------------------------------------
 */

void
umi_comm_xfer_end_lent(umi_comm_xfer *xfer)
{
    if (xfer->ep != NULL) {
        umx_loan_end(xfer->ep, &xfer->loan);
    }
    xfer->is_used = false;
    UMI_DECREMENT(xfer->coll->num_pending);
}

void
umi_comm_xfer_end_filling(umi_comm_xfer *xfer)
{
    umi_node_remove(&xfer->node);
    umi_comm_inbox_stop_filling(xfer);
    xfer->is_filling = false;
    xfer->is_used    = false;
    UMI_DECREMENT(xfer->coll->num_pending);
}

/* Tell the rank that its bytes have been pulled. False: the bytes may be wrong,
 * as the rank says that it is revoked. Then the operation is lost, like one
 * whose bytes cannot be read: if it is true the reason is on its way. */
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

/* Is a message that has come to `status` lost, so that it waits for the message
 * that ends the operation? */
static bool
is_lost(const umi_comm_xfer *xfer, umx_status status, const char *why)
{
    const umi_comm_coll *coll = xfer->coll;
    char                 text[UMI_COMM_REASON_MAX];

    if (status >= 0 || coll->comm->ranks[xfer->rank].is_gone) {
        return false;
    }
    (void)snprintf(text, sizeof(text), "%s (operation %llu): %s",
                   umi_comm_coll_name(coll->type->kind),
                   (unsigned long long)coll->number, why);
    return umi_comm_doubt(coll->comm, xfer->rank, status, text);
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
    xfer->sub     = NULL;
    xfer->is_used = false; /* for who revokes the communicator below */
    if (status == UMX_OK && xfer->is_pull && coll->status == UMX_INPROGRESS &&
        !end_pull(xfer)) {
        status = UMX_ERR_CONNECTION_RESET;
    }
    if (status != UMX_OK && coll->status == UMX_INPROGRESS &&
        (status == UMX_ERR_WITHDRAWN ||
         is_lost(xfer, status, umx_status_string(status)))) {
        keep_lost(xfer); /* a rank that withdraws says why it has failed */
        return;
    }
    UMI_DECREMENT(coll->num_pending);
    umi_comm_hold(comm);
    if (coll->status != UMX_INPROGRESS) {
        umi_comm_coll_end_request_early(coll);
        umi_comm_coll_advance(coll);
    } else if (status == UMX_OK) {
        umi_comm_coll_advance(coll);
    } else {
        umi_comm_coll_fail(coll, xfer->rank, status, umx_status_string(status));
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

/* ---- sending -------------------------------------------------------------
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

static umx_status
send_by(umi_comm_xfer *xfer, umx_ep *ep)
{
    umi_comm_coll  *coll   = xfer->coll;
    umi_comm_header header = {.kind    = UMI_COMM_COLLECTIVE,
                              .op      = (uint8_t)coll->type->kind,
                              .round   = xfer->round,
                              .source  = (uint32_t)coll->comm->rank,
                              .comm    = coll->comm->id,
                              .number  = coll->number,
                              .what    = coll->what,
                              .bytes   = coll->bytes,
                              .history = coll->history};
    uint8_t         bytes[UMI_COMM_HEADER_MAX];
    size_t          len    = umi_comm_header_encode(&header, bytes);
    umx_op_params   params = xfer_params(xfer);
    umx_status      status;

    if (xfer->buf.len >= UMI_COMM_LEND_MIN) {
        params.flags |= UMX_OP_FLAG_LEND;
    }
    status = umx_layer_am_send(ep, UMX_AM_ID_COMM, bytes, len, &xfer->buf,
                               &params, &xfer->sub);
    if (status != UMX_INPROGRESS) {
        xfer->sub = NULL;
    }
    return status;
}

umx_status
umi_comm_coll_send(umi_comm_coll *coll, int rank, unsigned round,
                   const umx_buffer *buf)
{
    umi_comm_member *member = coll->comm->ranks[rank].member;
    umi_comm_xfer   *xfer   = new_xfer(coll, rank, round, buf);
    umx_ep          *ep     = NULL; /* an inbox has the bytes */
    const char      *why;
    umx_status       status;

    if (xfer == NULL) {
        return UMX_ERR_NO_RESOURCE;
    }
    status        = umi_comm_inbox_send(coll, xfer);
    xfer->is_lent = status == UMX_INPROGRESS;
    if (status == UMX_ERR_UNSUPPORTED) {
        status = umi_comm_member_ep(member, &ep);
    }
    why = umx_status_string(status);
    if (status == UMX_OK && ep != NULL) {
        status = umi_comm_member_is_lost_unseen(member) ?
                     UMX_ERR_CONNECTION_RESET :
                     send_by(xfer, ep);
        why    = umx_ep_reason(ep);
    }
    if (is_lost(xfer, status, why)) {
        keep_lost(xfer);
        status = UMX_INPROGRESS;
    }
    if (status == UMX_INPROGRESS) {
        coll->num_pending++;
        return UMX_OK;
    }
    xfer->is_used = false;
    return status;
}

/* ---- ranks in different operations ---------------------------------------
 */

static bool
is_same(const umi_comm_coll *coll, const umi_comm_header *header)
{
    return header->op == coll->type->kind && header->what == coll->what &&
           header->bytes == coll->bytes && header->history == coll->history;
}

static umi_comm_call
call_of(const umi_comm_header *header)
{
    return (umi_comm_call){.number  = header->number,
                           .op      = header->op,
                           .what    = header->what,
                           .bytes   = header->bytes,
                           .history = header->history};
}

/* A message of the operation's number that is of another operation; or NULL. */
static const umi_comm_header *
find_other(const umi_comm_coll *coll)
{
    UMI_LIST_FOREACH(node, &coll->comm->early) {
        const umi_comm_header *header =
            &umi_container_of(node, umi_comm_early, node)->parcel.header;

        if (header->number == coll->number && !is_same(coll, header)) {
            return header;
        }
    }
    return NULL;
}

bool
umi_comm_coll_check_early(umi_comm_coll *coll)
{
    const umi_comm_header *header = find_other(coll);
    umi_comm_call          theirs;

    if (header == NULL) {
        return true;
    }
    theirs = call_of(header);
    return umi_comm_call_check(coll->comm, (int)header->source, &theirs);
}

/* ---- receiving -----------------------------------------------------------
 */

static umx_status
take_cell(umi_comm_xfer *xfer, const umi_comm_parcel *parcel,
          const umx_op_params *params)
{
    umx_status status;

    xfer->is_pull = parcel->is_pull || parcel->is_loan;
    status        = umi_comm_inbox_recv(xfer, parcel, params);
    if (status == UMX_INPROGRESS && xfer->is_filling) {
        umi_list_append(&xfer->coll->comm->fillings, &xfer->node);
        return status;
    }
    if (status == UMX_OK && xfer->is_pull && !end_pull(xfer)) {
        return UMX_ERR_CONNECTION_RESET;
    }
    if (status == UMX_OK && parcel->is_sync) {
        umi_comm_inbox_say_done(xfer->coll->comm, xfer->rank,
                                xfer->coll->number, xfer->round);
    }
    /* Only a rank that is revoked ends a loan that is in use. */
    return (status == UMX_ERR_WITHDRAWN) ? UMX_ERR_CONNECTION_RESET : status;
}

/* Give a message to the receive that it is for. UMX_INPROGRESS: its bytes are
 * coming. Any other status ends the receive. */
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
        umi_comm_coll_fail(coll, xfer->rank, UMX_ERR_INVALID_PARAM, text);
        return UMX_ERR_INVALID_PARAM;
    }
    params           = xfer_params(xfer);
    xfer->is_landing = message != NULL;
    xfer->is_used    = false; /* for who revokes the communicator meanwhile */
    status           = (message != NULL) ?
                           umx_message_recv(&message, &xfer->buf, &params, &xfer->sub) :
                           take_cell(xfer, parcel, &params);
    if (status == UMX_INPROGRESS) {
        xfer->is_used = true;
        return status;
    }
    xfer->sub = NULL;
    if (message != NULL) {
        umx_message_drop(message);
    }
    if (status == UMX_ERR_WITHDRAWN ||
        is_lost(xfer, status, umx_status_string(status))) {
        keep_lost(xfer);
        return UMX_INPROGRESS;
    }
    return status;
}

static umi_comm_early *
find_early(const umi_comm_coll *coll, int rank, unsigned round)
{
    UMI_LIST_FOREACH(node, &coll->comm->early) {
        umi_comm_early *early = umi_container_of(node, umi_comm_early, node);

        if (early->parcel.header.number == coll->number &&
            early->parcel.header.source == (uint32_t)rank &&
            early->parcel.header.round == round) {
            return early;
        }
    }
    return NULL;
}

umx_status
umi_comm_coll_recv(umi_comm_coll *coll, int rank, unsigned round,
                   const umx_buffer *buf)
{
    umi_comm_xfer  *xfer = new_xfer(coll, rank, round, buf);
    umi_comm_early *early;
    umx_status      status;

    if (xfer == NULL) {
        return UMX_ERR_NO_RESOURCE;
    }
    umi_comm_inbox_offer(coll->comm, rank);
    early = find_early(coll, rank, round);
    if (early == NULL) {
        umi_list_append(&coll->recvs, &xfer->node);
        coll->num_pending++;
        return UMX_OK;
    }
    umi_node_remove(&early->node);
    status = take(xfer, &early->parcel);
    free(early);
    if (status == UMX_INPROGRESS) {
        coll->num_pending++;
        status = UMX_OK;
    } else if (status < 0 && coll->status == UMX_INPROGRESS) {
        umi_comm_coll_fail(coll, rank, status, umx_status_string(status));
    }
    return status;
}

/* ---- arrival -------------------------------------------------------------
 */

umi_comm_coll *
umi_comm_coll_find(const umx_comm *comm, uint64_t number)
{
    UMI_LIST_FOREACH(node, &comm->colls) {
        umi_comm_coll *coll = umi_container_of(node, umi_comm_coll, node);

        if (coll->number == number) {
            return coll;
        }
    }
    return NULL;
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
    umi_comm_coll         *coll   = umi_comm_coll_find(comm, header->number);
    umi_comm_xfer         *xfer;
    umx_status             status;
    bool                   was_moving;

    if (comm->is_revoked || comm->is_closed) {
        drop(comm, parcel);
        return;
    }
    umi_comm_late_note(comm, (int)header->source, header->number);
    if (parcel->message != NULL) {
        umi_comm_inbox_offer(comm, (int)header->source);
    }
    if (coll == NULL && header->number >= comm->next_number) {
        keep(comm, parcel);
        return;
    }
    if (coll == NULL || !is_same(coll, header)) {
        umi_comm_call theirs = call_of(header);

        drop(comm, parcel);
        umi_comm_call_refuse(comm, (int)header->source, &theirs);
        return;
    }
    xfer = find_recv(coll, header);
    if (xfer == NULL) {
        keep(comm, parcel);
        return;
    }
    umi_node_remove(&xfer->node);
    UMI_DECREMENT(coll->num_pending);
    umi_comm_hold(comm);
    was_moving      = coll->is_moving; /* in the call that posts it */
    coll->is_moving = true; /* umi_comm_coll_fail() must not free it */
    status          = take(xfer, parcel);
    if (status == UMX_INPROGRESS) {
        coll->num_pending++;
    } else if (status != UMX_OK && coll->status == UMX_INPROGRESS) {
        umi_comm_coll_fail(coll, (int)header->source, status,
                           umx_status_string(status));
    }
    coll->is_moving = was_moving;
    umi_comm_coll_advance(coll);
    umi_comm_put(comm);
}

/* Go on with a message whose bytes come to the ring. False: there was none. */
static bool
fill(umi_comm_xfer *xfer)
{
    umi_comm_coll *coll   = xfer->coll;
    umx_comm      *comm   = coll->comm;
    size_t         before = xfer->filled;
    umx_status     status = umi_comm_inbox_fill(xfer);
    bool           was_moving;

    if (status == UMX_INPROGRESS) {
        return xfer->filled != before;
    }
    umi_node_remove(&xfer->node);
    xfer->is_used = false;
    UMI_DECREMENT(coll->num_pending);
    umi_comm_hold(comm);
    was_moving      = coll->is_moving; /* in the call that posts it */
    coll->is_moving = true; /* who revokes the communicator must not free it */
    if (status == UMX_OK && xfer->is_sync) {
        umi_comm_inbox_say_done(comm, xfer->rank, coll->number, xfer->round);
    } else if (status != UMX_OK) {
        umi_comm_coll_fail(coll, xfer->rank, status, umx_status_string(status));
    }
    coll->is_moving = was_moving;
    umi_comm_coll_advance(coll);
    umi_comm_put(comm);
    return true;
}

bool
umi_comm_coll_fill_all(umx_comm *comm)
{
    size_t    left   = umi_list_count(&comm->fillings);
    bool      is_any = false;
    umi_node *node;

    while (comm->inbox != NULL &&
           (node = umi_list_turn(&comm->fillings, &left)) != NULL) {
        is_any |= fill(umi_container_of(node, umi_comm_xfer, node));
    }
    return is_any;
}

void
umi_comm_coll_on_done(umx_comm *comm, int rank, uint64_t number, unsigned round)
{
    umi_comm_coll *coll = umi_comm_coll_find(comm, number);

    for (size_t i = 0; coll != NULL && i < coll->max_xfers; i++) {
        umi_comm_xfer *xfer = &coll->xfers[i];

        if (xfer->is_used && xfer->is_lent && xfer->rank == rank &&
            xfer->round == round) {
            umi_comm_xfer_end_lent(xfer);
            umi_comm_hold(comm);
            umi_comm_coll_advance(coll);
            umi_comm_put(comm);
            return;
        }
    }
}
