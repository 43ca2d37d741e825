/* SPDX-License-Identifier: BSD-3-Clause */
/* collective_calls.c: operations that move bytes. Schedules:
 *
 *   barrier     everybody to everybody; above FLAT_BARRIER ranks by
 *               dissemination: in round k to rank + 2^k, from rank - 2^k
 *   bcast       from the root to everybody; above FLAT_RANKS by a binomial tree
 *   gather      from everybody to the root
 *   scatter     from the root to everybody
 *   allgather   everybody to everybody; above UMI_COMM_COLL_WINDOW ranks round
 *               a ring
 *
 * A rank sends before it receives: a receive may copy at once, and the others
 * need not wait for that. */
#include <stdlib.h>

#include "comm/collective_move.h"

enum {
    FLAT_RANKS   = 4,
    FLAT_BARRIER = 8
};

/* ---- barrier -------------------------------------------------------------
 */

static umx_status
barrier_next(umi_comm_coll *coll)
{
    static const umx_buffer none = {.memtype = UMX_MEMTYPE_HOST};

    int        rank = coll->comm->rank, size = coll->comm->size;
    int        step    = 1 << coll->round;
    bool       is_flat = size <= FLAT_BARRIER;
    int        count   = is_flat ? size - 1 : 1;
    umx_status status  = UMX_OK;

    if (step >= size || coll->round > (is_flat ? 0 : 16)) {
        return UMX_OK;
    }
    for (int i = 0; i < count && status == UMX_OK; i++) {
        status = umi_comm_coll_send(coll, (rank + step + i) % size, coll->round,
                                    &none);
    }
    for (int i = 0; i < count && status == UMX_OK; i++) {
        status = umi_comm_coll_recv(coll, (rank - step - i + size) % size,
                                    coll->round, &none);
    }
    return (status == UMX_OK) ? UMX_INPROGRESS : status;
}

static const umi_comm_coll_type barrier_type = {
    .kind = UMI_COMM_COLL_BARRIER,
    .size = sizeof(umi_comm_move),
    .next = barrier_next,
};

umx_status
umx_barrier(umx_comm *comm, const umx_op_params *params, umx_request **req_p)
{
    UMI_COMM_LOCK(comm);
    umi_comm_move *move;
    umx_status status = umi_comm_move_new(comm, &barrier_type, 2 * FLAT_BARRIER,
                                          &move);

    return (status == UMX_OK) ?
               umi_comm_coll_start(&move->base, params, req_p) :
               status;
}

/* ---- bcast ---------------------------------------------------------------
 */

/* Find the rank that is `number` steps from the root. */
static int
rank_from_root(const umi_comm_coll *coll, int number)
{
    return (number + coll->root) % coll->comm->size;
}

static int
distance_from_root(const umi_comm_coll *coll)
{
    return (coll->comm->rank - coll->root + coll->comm->size) %
           coll->comm->size;
}

/* Send to the children of `number` in the tree, whose numbers have the bits of
 * `number` and one more, below its lowest one. */
static umx_status
send_to_children(umi_comm_coll *coll, int number, const umx_buffer *buf)
{
    int        size    = coll->comm->size;
    bool       is_flat = size <= FLAT_RANKS;
    umx_status status  = UMX_OK;

    if (is_flat) {
        for (int i = 1; i < size && number == 0 && status == UMX_OK; i++) {
            status = umi_comm_coll_send(coll, rank_from_root(coll, i), 0, buf);
        }
        return status;
    }
    for (int bit = 1; bit < size && (number & bit) == 0; bit <<= 1) {
        if (number + bit < size && status == UMX_OK) {
            status = umi_comm_coll_send(
                coll, rank_from_root(coll, number + bit), 0, buf);
        }
    }
    return status;
}

static umx_status
bcast_next(umi_comm_coll *coll)
{
    umi_comm_move *move   = umi_comm_move_of(coll);
    int            number = distance_from_root(coll);
    int parent = (coll->comm->size <= FLAT_RANKS) ? 0 : number & (number - 1);
    umx_status status;

    if (coll->round == 0 && number != 0) {
        status = umi_comm_coll_recv(coll, rank_from_root(coll, parent), 0,
                                    &move->recv.buf);
    } else if (coll->round == (number != 0)) {
        status = send_to_children(coll, number, &move->recv.buf);
    } else {
        return UMX_OK;
    }
    return (status == UMX_OK) ? UMX_INPROGRESS : status;
}

static const umi_comm_coll_type bcast_type = {
    .kind = UMI_COMM_COLL_BCAST,
    .size = sizeof(umi_comm_move),
    .next = bcast_next,
};

static umx_status
check_root(const umx_comm *comm, int root)
{
    umx_status status = umi_comm_status(comm);

    if (status != UMX_OK) {
        return status;
    }
    return (root >= 0 && root < comm->size) ? UMX_OK : UMX_ERR_OUT_OF_RANGE;
}

static void
set_root(umi_comm_coll *coll, int root)
{
    coll->root = root;
    coll->what = (uint32_t)root;
}

umx_status
umx_bcast(umx_comm *comm, int root, const umx_buffer *buf,
          const umx_op_params *params, umx_request **req_p)
{
    UMI_COMM_LOCK(comm);
    umx_status     status = check_root(comm, root);
    umi_comm_move *move;

    if (status == UMX_OK) {
        status = umi_comm_coll_check_buffer(buf);
    }
    if (status == UMX_OK) {
        status = umi_comm_move_new(comm, &bcast_type, (size_t)comm->size,
                                   &move);
    }
    if (status != UMX_OK) {
        return status;
    }
    set_root(&move->base, root);
    move->base.bytes = buf->len;
    status           = (root == comm->rank) ?
                           umi_comm_coll_take_send(&move->base, buf, &move->recv.buf) :
                           umi_comm_coll_take_recv(&move->base, buf, &move->recv.buf);
    return (status == UMX_OK) ?
               umi_comm_coll_start(&move->base, params, req_p) :
               umi_comm_coll_give_up(&move->base, status);
}

/* ---- gather and scatter --------------------------------------------------
 */

static umx_status
gather_next(umi_comm_coll *coll)
{
    umi_comm_move *move = umi_comm_move_of(coll);
    umx_comm      *comm = coll->comm;
    umx_buffer     piece;
    umx_status     status = UMX_OK;

    if (coll->round != 0) {
        return UMX_OK;
    }
    if (comm->rank != coll->root) {
        status = umi_comm_coll_send(coll, coll->root, 0, &move->send.buf);
        return (status == UMX_OK) ? UMX_INPROGRESS : status;
    }
    for (int i = 0; i < comm->size && status == UMX_OK; i++) {
        piece = umi_comm_side_piece(&move->recv, i);
        if (i != comm->rank) {
            status = umi_comm_coll_recv(coll, i, 0, &piece);
        } else if (!move->is_in_place) {
            status = umi_comm_coll_copy(&piece, &move->send.buf);
        }
    }
    return (status == UMX_OK) ? UMX_INPROGRESS : status;
}

static const umi_comm_coll_type gather_type = {
    .kind = UMI_COMM_COLL_GATHER,
    .size = sizeof(umi_comm_move),
    .next = gather_next,
    .fini = umi_comm_move_fini,
};

umx_status
umx_gatherv(umx_comm *comm, int root, const umx_buffer *send,
            const umx_buffer *recv, const umx_pieces *pieces,
            const umx_op_params *params, umx_request **req_p)
{
    UMI_COMM_LOCK(comm);
    umx_status     status = check_root(comm, root);
    bool           is_root;
    umi_comm_move *move;

    if (status != UMX_OK) {
        return status;
    }
    is_root = comm->rank == root;
    if (send == UMX_IN_PLACE && !is_root) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (send != UMX_IN_PLACE &&
        (status = umi_comm_coll_check_buffer(send)) != UMX_OK) {
        return status;
    }
    if (is_root && (recv == NULL || (send != UMX_IN_PLACE &&
                                     umi_comm_buffers_overlap(send, recv)))) {
        return UMX_ERR_INVALID_PARAM;
    }
    status = umi_comm_move_new(comm, &gather_type,
                               is_root ? (size_t)comm->size : 1, &move);
    if (status != UMX_OK) {
        return status;
    }
    set_root(&move->base, root);
    move->is_in_place = send == UMX_IN_PLACE;
    if (!move->is_in_place) {
        status = umi_comm_coll_take_send(&move->base, send, &move->send.buf);
    }
    if (is_root && status == UMX_OK) {
        status = umi_comm_side_set(move, &move->recv, recv, pieces, send);
    }
    return (status == UMX_OK) ?
               umi_comm_coll_start(&move->base, params, req_p) :
               umi_comm_coll_give_up(&move->base, status);
}

static umx_status
scatter_next(umi_comm_coll *coll)
{
    umi_comm_move *move = umi_comm_move_of(coll);
    umx_comm      *comm = coll->comm;
    umx_buffer     piece;
    umx_status     status = UMX_OK;

    if (coll->round != 0) {
        return UMX_OK;
    }
    if (comm->rank != coll->root) {
        status = umi_comm_coll_recv(coll, coll->root, 0, &move->recv.buf);
        return (status == UMX_OK) ? UMX_INPROGRESS : status;
    }
    for (int i = 0; i < comm->size && status == UMX_OK; i++) {
        piece = umi_comm_side_piece(&move->send, i);
        if (i != comm->rank) {
            status = umi_comm_coll_send(coll, i, 0, &piece);
        } else if (!move->is_in_place) {
            status = umi_comm_coll_copy(&move->recv.buf, &piece);
        }
    }
    return (status == UMX_OK) ? UMX_INPROGRESS : status;
}

static const umi_comm_coll_type scatter_type = {
    .kind = UMI_COMM_COLL_SCATTER,
    .size = sizeof(umi_comm_move),
    .next = scatter_next,
    .fini = umi_comm_move_fini,
};

umx_status
umx_scatterv(umx_comm *comm, int root, const umx_buffer *send,
             const umx_pieces *pieces, const umx_buffer *recv,
             const umx_op_params *params, umx_request **req_p)
{
    UMI_COMM_LOCK(comm);
    umx_status     status = check_root(comm, root);
    bool           is_root;
    umi_comm_move *move;

    if (status != UMX_OK) {
        return status;
    }
    is_root = comm->rank == root;
    if ((recv == NULL && !is_root) || (is_root && send == NULL)) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (recv != NULL && (status = umi_comm_coll_check_buffer(recv)) != UMX_OK) {
        return status;
    }
    if (is_root && recv != NULL && umi_comm_buffers_overlap(send, recv)) {
        return UMX_ERR_INVALID_PARAM;
    }
    status = umi_comm_move_new(comm, &scatter_type,
                               is_root ? (size_t)comm->size : 1, &move);
    if (status != UMX_OK) {
        return status;
    }
    set_root(&move->base, root);
    move->is_in_place = recv == NULL;
    if (recv != NULL) {
        status = umi_comm_coll_take_recv(&move->base, recv, &move->recv.buf);
    }
    if (is_root && status == UMX_OK) {
        status = umi_comm_side_set(move, &move->send, send, pieces, recv);
    }
    return (status == UMX_OK) ?
               umi_comm_coll_start(&move->base, params, req_p) :
               umi_comm_coll_give_up(&move->base, status);
}

/* ---- allgather -----------------------------------------------------------
 */

/* Copy this rank's own piece to its place in what is received. */
static umx_status
copy_own(umi_comm_move *move)
{
    umx_buffer own = umi_comm_side_piece(&move->recv, move->base.comm->rank);

    return move->is_in_place ? UMX_OK :
                               umi_comm_coll_copy(&own, &move->send.buf);
}

static umx_status
allgather_all(umi_comm_coll *coll)
{
    umi_comm_move *move = umi_comm_move_of(coll);
    int            rank = coll->comm->rank, size = coll->comm->size;
    umx_buffer     own    = move->is_in_place ?
                                umi_comm_side_piece(&move->recv, rank) :
                                move->send.buf;
    umx_status     status = UMX_OK;

    for (int i = 1; i < size && status == UMX_OK; i++) {
        status = umi_comm_coll_send(coll, (rank + i) % size, 0, &own);
    }
    if (status == UMX_OK) {
        status = copy_own(move);
    }
    for (int i = 1; i < size && status == UMX_OK; i++) {
        int        from  = (rank - i + size) % size;
        umx_buffer piece = umi_comm_side_piece(&move->recv, from);

        status = umi_comm_coll_recv(coll, from, 0, &piece);
    }
    return status;
}

/* In round r, send the piece of rank - r on to the next rank. */
static umx_status
allgather_ring(umi_comm_coll *coll)
{
    umi_comm_move *move = umi_comm_move_of(coll);
    int            rank = coll->comm->rank, size = coll->comm->size;
    int            round = (int)coll->round;
    int            prev  = (rank - 1 + size) % size;
    umx_buffer     out   = umi_comm_side_piece(&move->recv,
                                               (rank - round + size) % size);
    umx_buffer     in    = umi_comm_side_piece(&move->recv,
                                               (rank - round - 1 + 2 * size) % size);
    umx_status     status;

    status = umi_comm_coll_recv(coll, prev, coll->round, &in);
    return (status == UMX_OK) ?
               umi_comm_coll_send(coll, (rank + 1) % size, coll->round, &out) :
               status;
}

static umx_status
allgather_next(umi_comm_coll *coll)
{
    umi_comm_move *move    = umi_comm_move_of(coll);
    int            size    = coll->comm->size;
    bool           is_ring = size > UMI_COMM_COLL_WINDOW;
    unsigned       rounds  = is_ring ? (unsigned)size - 1 : 1;
    umx_status     status  = UMX_OK;

    if (coll->round == rounds) {
        return UMX_OK;
    }
    if (!is_ring) {
        status = allgather_all(coll);
    } else {
        if (coll->round == 0) {
            status = copy_own(move);
        }
        if (status == UMX_OK) {
            status = allgather_ring(coll);
        }
    }
    return (status == UMX_OK) ? UMX_INPROGRESS : status;
}

static const umi_comm_coll_type allgather_type = {
    .kind = UMI_COMM_COLL_ALLGATHER,
    .size = sizeof(umi_comm_move),
    .next = allgather_next,
    .fini = umi_comm_move_fini,
};

umx_status
umx_allgatherv(umx_comm *comm, const umx_buffer *send, const umx_buffer *recv,
               const umx_pieces *pieces, const umx_op_params *params,
               umx_request **req_p)
{
    UMI_COMM_LOCK(comm);
    umx_status     status = umi_comm_status(comm);
    umi_comm_move *move;

    if (status == UMX_OK && send != UMX_IN_PLACE) {
        status = umi_comm_buffers_overlap(send, recv) ?
                     UMX_ERR_INVALID_PARAM :
                     umi_comm_coll_check_buffer(send);
    }
    if (status == UMX_OK) {
        status = umi_comm_coll_check_buffer(recv);
    }
    if (status == UMX_OK) {
        status = umi_comm_move_new(comm, &allgather_type,
                                   2 * (size_t)comm->size, &move);
    }
    if (status != UMX_OK) {
        return status;
    }
    move->is_in_place = send == UMX_IN_PLACE;
    if (!move->is_in_place) {
        status = umi_comm_coll_take_send(&move->base, send, &move->send.buf);
    }
    if (status == UMX_OK) {
        status = umi_comm_side_set(move, &move->recv, recv, pieces, send);
    }
    return (status == UMX_OK) ?
               umi_comm_coll_start(&move->base, params, req_p) :
               umi_comm_coll_give_up(&move->base, status);
}

/* ---- split ---------------------------------------------------------------
 */

/* Does `rank` come before `other` in the new communicator? */
static bool
is_before(const int32_t *pairs, int rank, int other)
{
    int32_t key = pairs[2 * rank + 1], others = pairs[2 * other + 1];

    return key < others || (key == others && rank < other);
}

/* Compute a number that is the same on every rank of the color, and on no
 * other. */
static uint64_t
split_id(const umi_comm_coll *coll, int32_t color)
{
    uint64_t words[3] = {coll->comm->id, coll->number, (uint32_t)color};
    uint64_t id       = umx_tag_hash(words, sizeof(words));

    return (id != 0) ? id : 1;
}

static void
make_split(umi_comm_coll *coll)
{
    umi_comm_move    *move   = umi_comm_move_of(coll);
    umx_comm         *comm   = coll->comm;
    umi_comm_member **chosen = move->chosen;
    int32_t           color  = move->pairs[2 * comm->rank];
    int               size = 0, own = 0;

    if (color < 0) {
        return;
    }
    for (int i = 0; i < comm->size; i++) {
        int place = 0;

        if (move->pairs[2 * i] != color) {
            continue;
        }
        for (int j = 0; j < comm->size; j++) {
            place += move->pairs[2 * j] == color &&
                     is_before(move->pairs, j, i);
        }
        chosen[place] = comm->ranks[i].member;
        own           = (i == comm->rank) ? place : own;
        size++;
    }
    umi_comm_set_ranks(move->made, split_id(coll, color), own, size, chosen);
    umi_comm_register(move->made);
}

static umx_status
split_next(umi_comm_coll *coll)
{
    umx_status status = allgather_next(coll);

    if (status == UMX_OK) {
        make_split(coll);
    }
    return status;
}

static void
split_fini(umi_comm_coll *coll, umx_status status)
{
    umi_comm_move *move = umi_comm_move_of(coll);

    free(move->pairs);
    free(move->chosen);
    if (move->made != NULL) {
        if (status != UMX_OK) {
            umi_comm_revoke(move->made, -1, status, true, "%s",
                            coll->comm->reason);
        }
        umi_comm_put(move->made);
    }
    umi_comm_move_fini(coll, status);
}

static const umi_comm_coll_type split_type = {
    .kind = UMI_COMM_COLL_SPLIT,
    .size = sizeof(umi_comm_move),
    .next = split_next,
    .fini = split_fini,
};

/* Describe an allgather of the pairs, one of each rank. */
static umx_status
set_pairs(const umx_comm *comm, umi_comm_move *move)
{
    size_t     size   = (size_t)comm->size;
    size_t    *counts = malloc(size * sizeof(*counts));
    umx_buffer buf;
    umx_pieces pieces = {.counts = counts};
    umx_status status;

    if (counts == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < size; i++) {
        counts[i] = 2 * sizeof(*move->pairs);
    }
    buf    = umx_host_buffer(move->pairs, size * counts[0]);
    status = umi_comm_side_set(move, &move->recv, &buf, &pieces, NULL);
    free(counts);
    return status;
}

umx_status
umx_comm_split(umx_comm *comm, int color, int key, const umx_op_params *params,
               umx_comm **comm_p, umx_request **req_p)
{
    UMI_COMM_LOCK(comm);
    size_t         size = (size_t)comm->size;
    umi_comm_move *move;
    umx_status status = umi_comm_move_new(comm, &split_type, 2 * size, &move);

    if (status != UMX_OK) {
        return status;
    }
    move->is_in_place = true;
    move->pairs       = calloc(size, 2 * sizeof(*move->pairs));
    move->chosen      = calloc(size, sizeof(*move->chosen));
    if (color >= 0) {
        move->made = umi_comm_new(comm->group, comm->name);
    }
    if (move->pairs == NULL || move->chosen == NULL ||
        (color >= 0 && move->made == NULL)) {
        return umi_comm_coll_give_up(&move->base, UMX_ERR_NO_MEMORY);
    }
    move->pairs[2 * comm->rank]     = color;
    move->pairs[2 * comm->rank + 1] = key;
    status                          = set_pairs(comm, move);
    if (status != UMX_OK) {
        return umi_comm_coll_give_up(&move->base, status);
    }
    *comm_p = move->made;
    if (move->made != NULL) {
        umi_comm_hold(move->made); /* the operation's; the user has the other */
    }
    status = umi_comm_coll_start(&move->base, params, req_p);
    if (status < 0 && *comm_p != NULL) {
        umi_comm_put(*comm_p);
        *comm_p = NULL;
    }
    return status;
}
