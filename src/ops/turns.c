/* SPDX-License-Identifier: BSD-3-Clause */
#include "ops/turns.h"

#include "ops/post.h"
#include "util/count.h"
#include "worker/datatype.h"
#include "worker/engine.h"

enum {
    /* The length of a piece, where the last one had to wait. If that one does
     * not wait the next may have UMI_PIECE_BYTES, and a message behind that
     * one UMI_WHOLE_BYTES. */
    PIECE_MIN = 8 * 1024,
    /* The bytes of an endpoint's turn. */
    TURN_BYTES = 2 * UMI_PIECE_BYTES,
    /* Pieces a link sends before others have their turn, where the kernel takes
     * each at once. */
    PIECES_A_CALL = 8
};

static umi_ep_base *
ep_at(umi_node *node)
{
    const umi_transfer_ep *transfers = umi_container_of(node, umi_transfer_ep,
                                                        turn_node);

    return umi_transfer_at(transfers->sending.next)->ep;
}

/* ---- pieces --------------------------------------------------------------
 */

/* May UCX have more? A piece at a time is enough, or as many bytes of short
 * messages: the kernel has bytes to send still when UCX has given it all of a
 * piece. */
static bool
has_room(const umi_turns *turns)
{
    return turns->in_hand < turns->max_len;
}

static void
be_due(umi_turns *turns)
{
    umx_worker *worker = turns->link->worker;

    if (!umi_node_is_linked(&turns->due_node)) {
        umi_list_append(&worker->transfers->due, &turns->due_node);
    }
    worker->is_turn_due = true;
    worker->is_armed    = false;
}

static void
free_piece(umi_piece_block *piece)
{
    umi_turns *turns = piece->turns;

    if (turns != NULL) {
        umi_node_remove(&piece->node);
        turns->in_hand -= piece->len;
        if (!umi_list_is_empty(&turns->eps)) {
            be_due(turns);
        }
    }
    umi_pool_put(&piece->worker->transfers->blocks, piece);
}

static void
on_piece_sent(void *request, ucs_status_t status, void *arg)
{
    (void)status; /* the link hears of it */
    ucp_request_free(request);
    free_piece(arg);
}

/* Give UCX a piece, or a message, in a block. */
static umx_status
post_piece(umi_turns *turns, umi_piece_block *piece, unsigned id,
           size_t header_len, const void *bytes, size_t len)
{
    ucs_status_ptr_t    result;
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .flags       = UCP_AM_SEND_FLAG_EAGER,
        .cb.send     = on_piece_sent,
        .user_data   = piece,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };

    piece->turns = turns;
    umi_list_append(&turns->pieces, &piece->node);
    turns->in_hand += piece->len;
    turns->link->worker->is_armed = false;
    result                        = ucp_am_send_nbx(turns->link->handle, id,
                             (header_len != 0) ? piece->bytes : NULL,
                                                    header_len, bytes, len, &params);
    if (UCS_PTR_IS_PTR(result)) {
        turns->max_len = PIECE_MIN;
    } else {
        turns->max_len = (turns->max_len < UMI_PIECE_BYTES) ? UMI_PIECE_BYTES :
                                                              UMI_WHOLE_BYTES;
        free_piece(piece);
    }
    return UCS_PTR_IS_ERR(result) ? umi_ep_status(UCS_PTR_STATUS(result)) :
                                    UMX_OK;
}

/* Get a block with the next `len` bytes of a transfer, `header_len` bytes
 * behind its beginning. `*is_readable_p`: false if its memory cannot be read.
 */
static umx_status
fill_block(umi_turns *turns, umi_transfer *transfer, size_t header_len,
           size_t len, umi_piece_block **piece_p, bool *is_readable_p)
{
    umx_worker      *worker = turns->link->worker;
    umi_piece_block *piece  = umi_pool_get(&worker->transfers->blocks);
    umx_status       status;

    if (piece == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_node_init(&piece->node);
    piece->worker = worker;
    piece->len    = len;
    status        = umi_datatype_read(transfer->req, transfer->moved,
                                      piece->bytes + header_len, len);
    if (status != UMX_OK) {
        *is_readable_p = false;
        umi_pool_put(&worker->transfers->blocks, piece);
        return status;
    }
    transfer->moved += len;
    *piece_p = piece;
    return UMX_OK;
}

/* Send the next piece of a transfer, at most `*len_p` bytes; gives how many. */
static umx_status
send_piece(umi_turns *turns, umi_transfer *transfer, size_t *len_p,
           bool *is_readable_p)
{
    size_t           left = transfer->len - transfer->moved;
    umi_piece_block *piece;
    umx_status       status;

    if (*len_p > left) {
        *len_p = left;
    }
    status = fill_block(turns, transfer, 0, *len_p, &piece, is_readable_p);
    if (status != UMX_OK) {
        return status;
    }
    piece->header.endpoint = transfer->ep->remote_id;
    piece->header.id       = transfer->id;
    return post_piece(turns, piece, UMI_AM_PIECE, 0, &piece->header,
                      sizeof(piece->header) + *len_p);
}

/* Send a message whole. */
static umx_status
send_whole(umi_turns *turns, umi_transfer *transfer, bool *is_readable_p)
{
    size_t           header_len = transfer->header_len;
    umi_piece_block *piece;
    umx_status status = fill_block(turns, transfer, header_len, transfer->len,
                                   &piece, is_readable_p);

    if (status != UMX_OK) {
        return status;
    }
    memcpy(piece->bytes, transfer->header, header_len);
    transfer->header_len = 0;
    return post_piece(turns, piece, UMI_AM_DATA, header_len,
                      piece->bytes + header_len, transfer->len);
}

/* ---- turns ---------------------------------------------------------------
 */

/* Is a transfer a message that goes whole now? */
static bool
goes_whole(const umi_turns *turns, const umi_transfer *transfer)
{
    return transfer->header_len != 0 && transfer->len <= turns->max_len;
}

/* Send what the endpoint may send in its turn of a transfer, `*len_p` bytes. */
static umx_status
send_some(umi_turns *turns, umi_transfer *transfer, size_t *len_p,
          bool *is_readable_p)
{
    umx_status status;

    if (goes_whole(turns, transfer)) {
        *len_p = transfer->len;
        return send_whole(turns, transfer, is_readable_p);
    }
    if (transfer->header_len != 0) { /* it would hold the others up */
        status = umi_transfer_start(transfer);
        if (status != UMX_OK) {
            *len_p = 0;
            return status;
        }
    }
    if (*len_p > UMI_PIECE_BYTES) {
        *len_p = UMI_PIECE_BYTES;
    }
    return send_piece(turns, transfer, len_p, is_readable_p);
}

/* Is the next of a transfer a message that is longer than what is left of the
 * turn? */
static bool
is_too_long(const umi_turns *turns, const umi_transfer *transfer,
            const umi_transfer_ep *transfers)
{
    return goes_whole(turns, transfer) && transfer->len > transfers->budget;
}

/* Let the first endpoint send a piece. */
static void
take_turn(umi_turns *turns)
{
    umi_ep_base     *ep          = ep_at(turns->eps.next);
    umi_transfer_ep *transfers   = ep->transfers;
    umi_transfer    *transfer    = umi_transfer_at(transfers->sending.next);
    bool             is_readable = true;
    size_t           len;
    umx_status       status;

    if (transfers->budget == 0 || is_too_long(turns, transfer, transfers)) {
        transfers->budget = TURN_BYTES;
        umi_node_remove(&transfers->turn_node);
        umi_list_append(&turns->eps, &transfers->turn_node);
        return;
    }
    len    = (transfers->budget < turns->max_len) ? transfers->budget :
                                                    turns->max_len;
    status = send_some(turns, transfer, &len, &is_readable);
    transfers->budget -= len;
    if (!is_readable) {
        ep->worker->hooks->fail_sent(transfer->req, status);
    } else if (status != UMX_OK || transfer->moved == transfer->len) {
        umi_transfer_finish(transfer, status);
        if (umi_list_is_empty(&transfers->sending)) {
            umi_turns_leave(ep);
        }
    }
}

static unsigned
send_pieces(umi_turns *turns)
{
    unsigned count = 0;

    umi_engine_tune(turns->link->engine, !turns->is_tuned);
    turns->is_tuned = true;
    while (!umi_list_is_empty(&turns->eps) && has_room(turns)) {
        if (count == PIECES_A_CALL) {
            be_due(turns);
            break;
        }
        take_turn(turns);
        count++;
    }
    return count;
}

unsigned
umi_turns_take(umx_worker *worker)
{
    unsigned  count = 0;
    umi_list *due   = &worker->transfers->due;
    umi_node *last  = due->prev;
    umi_node *node;

    worker->is_turn_due = false;
    do {
        node = umi_list_pop(due);
        if (node != NULL) {
            count += send_pieces(umi_container_of(node, umi_turns, due_node));
        }
    } while (node != NULL && node != last);
    return count;
}

void
umi_turns_enter(umi_ep_base *ep)
{
    umi_turns *turns = ep->link->turns;

    if (umi_node_is_linked(&ep->transfers->turn_node)) {
        return;
    }
    if (ep->transfers->budget != 0) { /* it left in its turn */
        umi_list_prepend(&turns->eps, &ep->transfers->turn_node);
    } else {
        umi_list_append(&turns->eps, &ep->transfers->turn_node);
    }
    if (has_room(turns)) {
        be_due(turns);
    }
}

void
umi_turns_leave(umi_ep_base *ep)
{
    umi_node_remove(&ep->transfers->turn_node);
}

/* ---- life ----------------------------------------------------------------
 */

void
umi_turns_init(umi_link *link, umi_turns *turns)
{
    turns->link    = link;
    turns->max_len = PIECE_MIN;
    umi_list_init(&turns->eps);
    umi_list_init(&turns->pieces);
    umi_node_init(&turns->due_node);
    link->turns = turns;
}

/* UCX may have pieces still, for a while. */
void
umi_turns_fini(umi_link *link)
{
    umi_turns *turns = link->turns;
    umi_node  *node;

    umi_node_remove(&turns->due_node);
    while (umi_list_pop(&turns->eps) != NULL) {
    }
    while ((node = umi_list_pop(&turns->pieces)) != NULL) {
        umi_container_of(node, umi_piece_block, node)->turns = NULL;
    }
}
