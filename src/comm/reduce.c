/* SPDX-License-Identifier: BSD-3-Clause */
/* reduce.c: arithmetic on what ranks have.
 *
 * Ranks share the work: each combines one block of the items of all ranks, and
 * sends it to those that want it. Little data goes whole to who wants it, who
 * combines all of it. Either way items are combined in the order of the ranks,
 * so that the result does not depend on which way was taken. */
#include <stdlib.h>
#include <string.h>

#include "comm/arithmetic.h"
#include "comm/collective.h"

enum {
    WHOLE_MAX = 32 * 1024, /* bytes of each rank that go whole */
    CHUNK     = 4096       /* bytes that are combined at a time */
};

/* ---- operations ----------------------------------------------------------
 */

typedef struct umi_comm_reduce {
    umi_comm_coll       base;
    umi_comm_arithmetic arithmetic;
    const char         *in;      /* this rank's */
    char               *out;     /* NULL: it gets no result */
    umx_memh           *in_memh; /* that they lie in; or NULL */
    umx_memh           *out_memh;
    size_t              len;   /* bytes of either */
    char               *tmp;   /* what others send */
    char               *block; /* a block for others, or NULL */
    bool                is_whole;
} umi_comm_reduce;

static umi_comm_reduce *
reduce_of(umi_comm_coll *coll)
{
    return (umi_comm_reduce *)(void *)coll;
}

static void
fini(umi_comm_coll *coll, umx_status status)
{
    (void)status;
    free(reduce_of(coll)->tmp);
    free(reduce_of(coll)->block);
}

/* Tell where block `i` of the items begins. */
static size_t
block_start(const umi_comm_reduce *reduce, int i)
{
    size_t items = reduce->len / reduce->arithmetic.item;
    size_t size  = (size_t)reduce->base.comm->size;
    size_t whole = items / size, rest = items % size;
    size_t at = whole * (size_t)i + (((size_t)i < rest) ? (size_t)i : rest);

    return at * reduce->arithmetic.item;
}

static size_t
block_len(const umi_comm_reduce *reduce, int i)
{
    return block_start(reduce, i + 1) - block_start(reduce, i);
}

/* `len` bytes of memory that lies in `memh`, or (NULL) in none. */
static umx_buffer
host(const void *data, size_t len, umx_memh *memh)
{
    umx_buffer buf = umx_host_buffer(data, len);

    buf.memh = memh;
    return buf;
}

/* Find the `len` bytes that rank `i` has sent. */
static const char *
part_of(const umi_comm_reduce *reduce, int i, const char *own, size_t len)
{
    int rank = reduce->base.comm->rank;

    if (i == rank) {
        return own;
    }
    return reduce->tmp + (size_t)(i - (i > rank)) * len;
}

/* Combine `len` bytes of every rank into `to`, which may be `own`. */
static void
combine_all(const umi_comm_reduce *reduce, char *to, const char *own,
            size_t len)
{
    _Alignas(64) char totals[CHUNK];

    const umi_comm_arithmetic *arithmetic = &reduce->arithmetic;
    int                        size       = reduce->base.comm->size;
    size_t                     step       = CHUNK / arithmetic->total;

    step *= arithmetic->item;
    for (size_t at = 0; at < len; at += step) {
        size_t n = ((len - at < step) ? len - at : step) / arithmetic->item;

        umi_comm_arithmetic_load(arithmetic, totals,
                                 part_of(reduce, 0, own, len) + at, n);
        for (int i = 1; i < size; i++) {
            arithmetic->combine(totals, part_of(reduce, i, own, len) + at, n);
        }
        umi_comm_arithmetic_store(arithmetic, to + at, totals, n, size);
    }
}

/* Receive `len` bytes of every other rank. */
static umx_status
receive_all(umi_comm_coll *coll, size_t len)
{
    umi_comm_reduce *reduce = reduce_of(coll);
    umx_status       status = UMX_OK;

    for (int i = 0; i < coll->comm->size && status == UMX_OK; i++) {
        umx_buffer buf = host(part_of(reduce, i, NULL, len), len, NULL);

        if (i != coll->comm->rank) {
            status = umi_comm_coll_recv(coll, i, 0, &buf);
        }
    }
    return status;
}

static bool
wants_result(const umi_comm_coll *coll, int rank)
{
    return coll->root < 0 || coll->root == rank;
}

/* Send all items to the ranks that want the result. */
static umx_status
exchange_whole(umi_comm_coll *coll)
{
    umi_comm_reduce *reduce = reduce_of(coll);
    int              rank = coll->comm->rank, size = coll->comm->size;
    umx_buffer       own    = host(reduce->in, reduce->len, reduce->in_memh);
    umx_status       status = UMX_OK;

    for (int i = 1; i < size && status == UMX_OK; i++) {
        int to = (rank + i) % size;

        if (wants_result(coll, to)) {
            status = umi_comm_coll_send(coll, to, 0, &own);
        }
    }
    return (status == UMX_OK && wants_result(coll, rank)) ?
               receive_all(coll, reduce->len) :
               status;
}

/* Send to each rank its block. */
static umx_status
exchange_blocks(umi_comm_coll *coll)
{
    umi_comm_reduce *reduce = reduce_of(coll);
    int              rank = coll->comm->rank, size = coll->comm->size;
    umx_status       status = UMX_OK;

    for (int i = 1; i < size && status == UMX_OK; i++) {
        int        to  = (rank + i) % size;
        umx_buffer buf = host(reduce->in + block_start(reduce, to),
                              block_len(reduce, to), reduce->in_memh);

        status = umi_comm_coll_send(coll, to, 0, &buf);
    }
    return (status == UMX_OK) ? receive_all(coll, block_len(reduce, rank)) :
                                status;
}

/* Send the results of the blocks to the ranks that want them. */
static umx_status
spread_blocks(umi_comm_coll *coll)
{
    umi_comm_reduce *reduce = reduce_of(coll);
    int              rank = coll->comm->rank, size = coll->comm->size;
    size_t           start = block_start(reduce, rank);
    size_t           len   = block_len(reduce, rank);
    char      *to = (reduce->out != NULL) ? reduce->out + start : reduce->block;
    umx_buffer own    = host(to, len,
                          (reduce->out != NULL) ? reduce->out_memh : NULL);
    umx_status status = UMX_OK;

    combine_all(reduce, to, reduce->in + start, len);
    for (int i = 1; i < size && status == UMX_OK; i++) {
        int dest = (rank + i) % size;

        if (wants_result(coll, dest)) {
            status = umi_comm_coll_send(coll, dest, 1, &own);
        }
    }
    for (int i = 1; i < size && status == UMX_OK && wants_result(coll, rank);
         i++) {
        int        from = (rank - i + size) % size;
        umx_buffer buf  = host(reduce->out + block_start(reduce, from),
                               block_len(reduce, from), reduce->out_memh);

        status = umi_comm_coll_recv(coll, from, 1, &buf);
    }
    return status;
}

static umx_status
reduce_next(umi_comm_coll *coll)
{
    umi_comm_reduce *reduce = reduce_of(coll);
    umx_status       status;

    if (coll->round == 0) {
        status = reduce->is_whole ? exchange_whole(coll) :
                                    exchange_blocks(coll);
    } else if (coll->round == 1 && reduce->is_whole) {
        if (wants_result(coll, coll->comm->rank)) {
            combine_all(reduce, reduce->out, reduce->in, reduce->len);
        }
        return UMX_OK;
    } else if (coll->round == 1) {
        status = spread_blocks(coll);
    } else {
        return UMX_OK;
    }
    return (status == UMX_OK) ? UMX_INPROGRESS : status;
}

static const umi_comm_coll_type reduce_type = {
    .kind = UMI_COMM_COLL_REDUCE,
    .size = sizeof(umi_comm_reduce),
    .next = reduce_next,
    .fini = fini,
};

static const umi_comm_coll_type allreduce_type = {
    .kind = UMI_COMM_COLL_ALLREDUCE,
    .size = sizeof(umi_comm_reduce),
    .next = reduce_next,
    .fini = fini,
};

static umx_status
check_host(const umx_buffer *buf)
{
    return (buf->memtype > UMX_MEMTYPE_HOST) ? UMX_ERR_UNSUPPORTED :
                                               umi_comm_coll_check_buffer(buf);
}

static umx_status
check(const umx_reduction *what, const umx_buffer *send, const umx_buffer *recv)
{
    umx_status status = check_host(send);

    if (!umx_reduction_is_possible(what)) {
        return UMX_ERR_UNSUPPORTED;
    }
    if (status == UMX_OK && recv != NULL) {
        status = check_host(recv);
    }
    if (status != UMX_OK) {
        return status;
    }
    if (send->len % umx_dtype_size(what->dtype) != 0 ||
        (recv != NULL && recv->len != send->len) ||
        (recv != NULL && send != recv &&
         umi_comm_buffers_overlap(send, recv))) {
        return UMX_ERR_INVALID_PARAM;
    }
    return UMX_OK;
}

static umx_status
start(umx_comm *comm, const umi_comm_coll_type *type, int root,
      const umx_reduction *what, const umx_buffer *send, const umx_buffer *recv,
      const umx_op_params *params, umx_request **req_p)
{
    umi_comm_coll   *coll;
    umi_comm_reduce *reduce;
    size_t           need;
    umx_status       status = check(what, send, recv);

    if (status == UMX_OK) {
        status = umi_comm_coll_new(comm, type, 2 * (size_t)comm->size, &coll);
    }
    if (status != UMX_OK) {
        return status;
    }
    reduce = reduce_of(coll);
    (void)umi_comm_arithmetic_find(what, &reduce->arithmetic);
    reduce->in      = send->data;
    reduce->in_memh = send->memh;
    if (recv != NULL) {
        reduce->out      = recv->data;
        reduce->out_memh = recv->memh;
    }
    reduce->len      = send->len;
    reduce->is_whole = send->len <= WHOLE_MAX;
    coll->root       = root;
    coll->bytes      = send->len;
    coll->what = (uint64_t)(uint32_t)root | ((uint64_t)what->dtype + 1) << 32 |
                 ((uint64_t)what->op + 1) << 48;
    need = (reduce->is_whole ?
                (wants_result(coll, comm->rank) ? send->len : 0) :
                block_len(reduce, comm->rank)) *
           (size_t)(comm->size - 1);
    reduce->tmp = malloc(need + 1);
    if (reduce->tmp == NULL) {
        return umi_comm_coll_give_up(coll, UMX_ERR_NO_MEMORY);
    }
    if (reduce->out == NULL && !reduce->is_whole) {
        reduce->block = malloc(block_len(reduce, comm->rank) + 1);
        if (reduce->block == NULL) {
            return umi_comm_coll_give_up(coll, UMX_ERR_NO_MEMORY);
        }
    }
    return umi_comm_coll_start(coll, params, req_p);
}

umx_status
umx_reduce(umx_comm *comm, int root, const umx_reduction *what,
           const umx_buffer *send, const umx_buffer *recv,
           const umx_op_params *params, umx_request **req_p)
{
    UMI_COMM_LOCK(comm);
    umx_status status = umi_comm_status(comm);
    bool       is_root;

    if (status != UMX_OK) {
        return status;
    }
    if (root < 0 || root >= comm->size) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    is_root = root == comm->rank;
    if ((is_root && recv == NULL) || (!is_root && send == UMX_IN_PLACE)) {
        return UMX_ERR_INVALID_PARAM;
    }
    return start(comm, &reduce_type, root, what,
                 (send == UMX_IN_PLACE) ? recv : send, is_root ? recv : NULL,
                 params, req_p);
}

umx_status
umx_allreduce(umx_comm *comm, const umx_reduction *what, const umx_buffer *send,
              const umx_buffer *recv, const umx_op_params *params,
              umx_request **req_p)
{
    UMI_COMM_LOCK(comm);
    umx_status status = umi_comm_status(comm);

    if (status != UMX_OK) {
        return status;
    }
    if (recv == NULL) {
        return UMX_ERR_INVALID_PARAM;
    }
    return start(comm, &allreduce_type, -1, what,
                 (send == UMX_IN_PLACE) ? recv : send, recv, params, req_p);
}
