/* SPDX-License-Identifier: BSD-3-Clause */
/* alltoall.c: everybody to everybody, UMI_COMM_COLL_WINDOW ranks at a time, of
 * lengths that both ranks know. */
#include <stdlib.h>

#include "comm/collective_move.h"

static umx_status
alltoall_next(umi_comm_coll *coll)
{
    umi_comm_move *move = umi_comm_move_of(coll);
    int            rank = coll->comm->rank, size = coll->comm->size;
    int            first  = 1 + (int)coll->round * UMI_COMM_COLL_WINDOW;
    int            end    = (first + UMI_COMM_COLL_WINDOW < size) ?
                                first + UMI_COMM_COLL_WINDOW :
                                size;
    umx_status     status = UMX_OK;

    for (int i = first; i < end && status == UMX_OK; i++) {
        int        to  = (rank + i) % size;
        umx_buffer out = umi_comm_side_piece(&move->send, to);

        status = umi_comm_coll_send(coll, to, 0, &out);
    }
    if (coll->round == 0 && status == UMX_OK && !move->is_in_place) {
        umx_buffer in  = umi_comm_side_piece(&move->recv, rank);
        umx_buffer out = umi_comm_side_piece(&move->send, rank);

        status = umi_comm_coll_copy(&in, &out);
    }
    for (int i = first; i < end && status == UMX_OK; i++) {
        int        from = (rank - i + size) % size;
        umx_buffer in   = umi_comm_side_piece(&move->recv, from);

        status = umi_comm_coll_recv(coll, from, 0, &in);
    }
    return (status == UMX_OK && first < size) ? UMX_INPROGRESS : status;
}

static const umi_comm_coll_type alltoall_type = {
    .kind = UMI_COMM_COLL_ALLTOALL,
    .size = sizeof(umi_comm_move),
    .next = alltoall_next,
    .fini = umi_comm_move_fini,
};

/* Send copies of the pieces that are received. */
static umx_status
copy_pieces(umi_comm_move *move, const size_t *counts)
{
    const umx_comm *comm   = move->base.comm;
    umx_pieces      pieces = {.counts = counts};
    umx_status      status = UMX_OK;
    size_t          len    = 0;
    umx_buffer      buf;

    for (int i = 0; i < comm->size; i++) {
        if (counts[i] > SIZE_MAX - len) {
            return UMX_ERR_NO_MEMORY;
        }
        len += counts[i];
    }
    status = umi_comm_coll_get_room(&move->base, len, &buf);
    if (status == UMX_OK) {
        status = umi_comm_side_set(move, &move->send, &buf, &pieces, NULL);
    }
    for (int i = 0; i < comm->size && status == UMX_OK; i++) {
        umx_buffer from = umi_comm_side_piece(&move->recv, i);

        status = umx_buffer_read(&from, (char *)buf.data + move->send.displs[i],
                                 from.len);
    }
    return status;
}

/* Check the buffer to send, which may be UMX_IN_PLACE. */
static umx_status
check_alltoall(const umx_buffer *send, const umx_buffer *recv)
{
    if (send == UMX_IN_PLACE) {
        return UMX_OK;
    }
    return umi_comm_buffers_overlap(send, recv) ?
               UMX_ERR_INVALID_PARAM :
               umi_comm_coll_check_buffer(send);
}

umx_status
umx_alltoallv(umx_comm *comm, const umx_buffer *send,
              const umx_pieces *send_pieces, const umx_buffer *recv,
              const umx_pieces *recv_pieces, const umx_op_params *params,
              umx_request **req_p)
{
    UMI_COMM_LOCK(comm);
    umx_status     status = umi_comm_status(comm);
    umi_comm_move *move;
    umx_buffer     own;

    if (status == UMX_OK) {
        status = check_alltoall(send, recv);
    }
    if (status == UMX_OK) {
        status = umi_comm_coll_check_buffer(recv);
    }
    if (status == UMX_OK) {
        status = umi_comm_move_new(comm, &alltoall_type, 2 * (size_t)comm->size,
                                   &move);
    }
    if (status != UMX_OK) {
        return status;
    }
    move->is_in_place = send == UMX_IN_PLACE;
    status = umi_comm_side_set(move, &move->recv, recv, recv_pieces, NULL);
    if (status == UMX_OK && move->is_in_place) {
        status = copy_pieces(move, move->recv.counts);
    } else if (status == UMX_OK) {
        own    = umi_comm_side_piece(&move->recv, comm->rank);
        status = umi_comm_side_set(move, &move->send, send, send_pieces, &own);
    }
    return (status == UMX_OK) ?
               umi_comm_coll_start(&move->base, params, req_p) :
               umi_comm_coll_give_up(&move->base, status);
}
