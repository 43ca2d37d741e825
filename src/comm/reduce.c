/* SPDX-License-Identifier: BSD-3-Clause */
/* reduce.c: arithmetic on what ranks have.
 *
 * Ranks share the work: each combines one block of the items of all ranks, and
 * sends the result to those that want it; of a scan each rank gets another
 * result of the block. Little data goes whole to who wants it, who combines all
 * of it. Either way items are combined in the order of the ranks, so that the
 * result does not depend on which way was taken. */
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
    size_t              len;    /* bytes of `in` */
    size_t             *starts; /* of the blocks, and `len`; NULL: equal ones */
    char               *tmp;    /* what others send */
    char               *block;  /* a block for others, or NULL; of a scan a
                                   block for each rank */
    bool is_whole;
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
    free(reduce_of(coll)->starts);
}

/* Tell where block `i` of the items begins. */
static size_t
block_start(const umi_comm_reduce *reduce, int i)
{
    size_t items = reduce->len / reduce->arithmetic.item;
    size_t size  = (size_t)reduce->base.comm->size;
    size_t whole = items / size, rest = items % size;
    size_t at = whole * (size_t)i + (((size_t)i < rest) ? (size_t)i : rest);

    return (reduce->starts != NULL) ? reduce->starts[i] :
                                      at * reduce->arithmetic.item;
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

/* Combine `len` bytes of each of the first `num_ranks` ranks into `to`, which
 * may be `own`, or begin before it. */
static void
combine_first(const umi_comm_reduce *reduce, char *to, const char *own,
              size_t len, int num_ranks)
{
    _Alignas(64) char totals[CHUNK];

    const umi_comm_arithmetic *arithmetic = &reduce->arithmetic;
    size_t step = CHUNK / arithmetic->total * arithmetic->item;

    for (size_t at = 0; at < len; at += step) {
        size_t n = ((len - at < step) ? len - at : step) / arithmetic->item;

        umi_comm_arithmetic_load(arithmetic, totals,
                                 part_of(reduce, 0, own, len) + at, n);
        for (int i = 1; i < num_ranks; i++) {
            arithmetic->combine(totals, part_of(reduce, i, own, len) + at, n);
        }
        umi_comm_arithmetic_store(arithmetic, to + at, totals, n, num_ranks);
    }
}

/* Does rank `to` want the items of rank `from`? */
static bool
wants_items(const umi_comm_coll *coll, int to, int from)
{
    return (coll->type->kind == UMI_COMM_COLL_SCAN ||
            coll->type->kind == UMI_COMM_COLL_EXSCAN) ?
               from < to :
               coll->root < 0 || coll->root == to;
}

/* Receive `len` bytes of every other rank, or only of those whose items this
 * rank wants. */
static umx_status
receive_all(umi_comm_coll *coll, size_t len, bool is_all)
{
    umi_comm_reduce *reduce = reduce_of(coll);
    int              rank   = coll->comm->rank;
    umx_status       status = UMX_OK;

    for (int i = 0; i < coll->comm->size && status == UMX_OK; i++) {
        umx_buffer buf = host(part_of(reduce, i, NULL, len), len, NULL);

        if (i != rank && (is_all || wants_items(coll, rank, i))) {
            status = umi_comm_coll_recv(coll, i, 0, &buf);
        }
    }
    return status;
}

/* Send all items to the ranks that want them. */
static umx_status
exchange_whole(umi_comm_coll *coll)
{
    umi_comm_reduce *reduce = reduce_of(coll);
    int              rank = coll->comm->rank, size = coll->comm->size;
    umx_buffer       own    = host(reduce->in, reduce->len, reduce->in_memh);
    umx_status       status = UMX_OK;

    for (int i = 1; i < size && status == UMX_OK; i++) {
        int to = (rank + i) % size;

        if (wants_items(coll, to, rank)) {
            status = umi_comm_coll_send(coll, to, 0, &own);
        }
    }
    return (status == UMX_OK) ? receive_all(coll, reduce->len, false) : status;
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
    return (status == UMX_OK) ?
               receive_all(coll, block_len(reduce, rank), true) :
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

    combine_first(reduce, to, reduce->in + start, len, size);
    for (int i = 1; i < size && status == UMX_OK; i++) {
        int dest = (rank + i) % size;

        if (wants_items(coll, dest, rank)) {
            status = umi_comm_coll_send(coll, dest, 1, &own);
        }
    }
    for (int i = 1; i < size && status == UMX_OK && reduce->out != NULL; i++) {
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
        if (reduce->out != NULL) {
            combine_first(reduce, reduce->out, reduce->in, reduce->len,
                          coll->comm->size);
        }
        return UMX_OK;
    } else if (coll->round == 1) {
        status = spread_blocks(coll);
    } else {
        return UMX_OK;
    }
    return (status == UMX_OK) ? UMX_INPROGRESS : status;
}

/* ---- scan ----------------------------------------------------------------
 */

/* Tell how many ranks are combined for rank `i`. */
static int
num_combined(const umi_comm_coll *coll, int i)
{
    return (coll->type->kind == UMI_COMM_COLL_SCAN) ? i + 1 : i;
}

/* Combine this rank's block of every rank, and keep what each rank gets in
 * `block`, the results one after the other. */
static void
combine_prefixes(const umi_comm_reduce *reduce, const char *own, size_t len)
{
    _Alignas(64) char totals[CHUNK];
    _Alignas(64) char result[CHUNK];

    const umi_comm_arithmetic *arithmetic = &reduce->arithmetic;
    size_t step = CHUNK / arithmetic->total * arithmetic->item;

    for (size_t at = 0; at < len; at += step) {
        size_t n    = ((len - at < step) ? len - at : step) / arithmetic->item;
        int    have = 1; /* ranks in `totals` */

        umi_comm_arithmetic_load(arithmetic, totals,
                                 part_of(reduce, 0, own, len) + at, n);
        for (int i = 0; i < reduce->base.comm->size; i++) {
            int want = num_combined(&reduce->base, i);

            for (; have < want; have++) {
                arithmetic->combine(totals,
                                    part_of(reduce, have, own, len) + at, n);
            }
            memcpy(result, totals, n * arithmetic->total);
            if (want != 0) {
                umi_comm_arithmetic_store(arithmetic,
                                          reduce->block + (size_t)i * len + at,
                                          result, n, want);
            }
        }
    }
}

/* Send to each rank its result of this rank's block. */
static umx_status
spread_prefixes(umi_comm_coll *coll)
{
    umi_comm_reduce *reduce = reduce_of(coll);
    int              rank = coll->comm->rank, size = coll->comm->size;
    size_t           start  = block_start(reduce, rank);
    size_t           len    = block_len(reduce, rank);
    umx_status       status = UMX_OK;

    combine_prefixes(reduce, reduce->in + start, len);
    for (int i = 1; i < size && status == UMX_OK; i++) {
        int        to  = (rank + i) % size;
        umx_buffer buf = host(reduce->block + (size_t)to * len, len, NULL);

        if (num_combined(coll, to) != 0) {
            status = umi_comm_coll_send(coll, to, 1, &buf);
        }
    }
    if (num_combined(coll, rank) == 0) {
        return status;
    }
    memcpy(reduce->out + start, reduce->block + (size_t)rank * len, len);
    for (int i = 1; i < size && status == UMX_OK; i++) {
        int        from = (rank - i + size) % size;
        umx_buffer buf  = host(reduce->out + block_start(reduce, from),
                               block_len(reduce, from), reduce->out_memh);

        status = umi_comm_coll_recv(coll, from, 1, &buf);
    }
    return status;
}

static umx_status
scan_next(umi_comm_coll *coll)
{
    umi_comm_reduce *reduce = reduce_of(coll);
    int              count  = num_combined(coll, coll->comm->rank);
    umx_status       status;

    if (coll->round == 1 && reduce->is_whole) {
        if (count != 0) {
            combine_first(reduce, reduce->out, reduce->in, reduce->len, count);
        }
        return UMX_OK;
    }
    if (coll->round != 1) {
        return reduce_next(coll);
    }
    status = spread_prefixes(coll);
    return (status == UMX_OK) ? UMX_INPROGRESS : status;
}

/* ---- reduce_scatter ------------------------------------------------------
 */

static umx_status
reduce_scatter_next(umi_comm_coll *coll)
{
    umi_comm_reduce *reduce = reduce_of(coll);
    int              rank   = coll->comm->rank;
    umx_status       status;

    if (coll->round == 0) {
        status = exchange_blocks(coll);
        return (status == UMX_OK) ? UMX_INPROGRESS : status;
    }
    combine_first(reduce, reduce->out, reduce->in + block_start(reduce, rank),
                  block_len(reduce, rank), coll->comm->size);
    return UMX_OK;
}

/* ---- calls ---------------------------------------------------------------
 */

#define DEFINE_TYPE(name, constant, function)       \
    static const umi_comm_coll_type name##_type = { \
        .kind = constant,                           \
        .size = sizeof(umi_comm_reduce),            \
        .next = function,                           \
        .fini = fini,                               \
    }

DEFINE_TYPE(reduce, UMI_COMM_COLL_REDUCE, reduce_next);
DEFINE_TYPE(allreduce, UMI_COMM_COLL_ALLREDUCE, reduce_next);
DEFINE_TYPE(scan, UMI_COMM_COLL_SCAN, scan_next);
DEFINE_TYPE(exscan, UMI_COMM_COLL_EXSCAN, scan_next);
DEFINE_TYPE(reduce_scatter, UMI_COMM_COLL_REDUCE_SCATTER, reduce_scatter_next);

/* What is combined, and where the result goes. */
typedef struct reduce_args {
    const umx_reduction *what;
    const umx_buffer    *send; /* or UMX_IN_PLACE */
    const umx_buffer    *recv; /* NULL: it gets no result */
    int                  root; /* or -1 */
} reduce_args;

/* Memory of a device is combined in a copy. */
static umx_status
check_buffer(const umx_buffer *buf)
{
    return (buf->memtype == UMX_MEMTYPE_CUDA &&
            buf->len > UMX_REDUCE_DEVICE_MAX) ?
               UMX_ERR_EXCEEDS_LIMIT :
               umi_comm_coll_check_buffer(buf);
}

/* Check what is combined into `result` bytes of `recv`. */
static umx_status
check(const reduce_args *args, const umx_buffer *in, size_t result)
{
    const umx_buffer *recv   = args->recv;
    umx_status        status = check_buffer(in);

    if (!umx_reduction_is_possible(args->what)) {
        return UMX_ERR_UNSUPPORTED;
    }
    if (status == UMX_OK && recv != NULL) {
        status = check_buffer(recv);
    }
    if (status != UMX_OK) {
        return status;
    }
    if (in->len % umx_dtype_size(args->what->dtype) != 0 ||
        (recv != NULL && in != recv &&
         (recv->len != result || umi_comm_buffers_overlap(in, recv)))) {
        return UMX_ERR_INVALID_PARAM;
    }
    return UMX_OK;
}

/* Take a buffer as one run of bytes of the host: it, or a copy. */
static umx_status
take_buffer(umi_comm_coll *coll, const umx_buffer *buf, bool is_result,
            umx_buffer *taken)
{
    if (buf->memtype > UMX_MEMTYPE_HOST) {
        return umi_comm_coll_pack(coll, buf, is_result, taken);
    }
    return is_result ? umi_comm_coll_take_recv(coll, buf, taken) :
                       umi_comm_coll_take_send(coll, buf, taken);
}

/* Take the buffer that is sent, and the one that is received into, which may be
 * the same, or NULL. */
static umx_status
take(umi_comm_reduce *reduce, const umx_buffer *in, const umx_buffer *recv)
{
    umi_comm_coll *coll      = &reduce->base;
    bool           is_result = recv != NULL &&
                     (coll->type->kind != UMI_COMM_COLL_EXSCAN ||
                      coll->comm->rank != 0);
    umx_status status = UMX_OK;
    umx_buffer taken, out;

    if (is_result) {
        status = take_buffer(coll, recv, true, &out);
    }
    if (status == UMX_OK && is_result && in == recv) {
        taken = out;
    } else if (status == UMX_OK) {
        status = take_buffer(coll, in, false, &taken);
    }
    if (status != UMX_OK) {
        return status;
    }
    reduce->in      = taken.data;
    reduce->in_memh = taken.memh;
    if (is_result) {
        reduce->out      = out.data;
        reduce->out_memh = out.memh;
    }
    return UMX_OK;
}

/* Make an operation; `result` is how many bytes of `recv` the result has. */
static umx_status
new_reduce(umx_comm *comm, const umi_comm_coll_type *type,
           const reduce_args *args, size_t result, umi_comm_reduce **reduce_p)
{
    const umx_reduction *what = args->what;
    const umx_buffer    *in   = (args->send == UMX_IN_PLACE) ? args->recv :
                                                               args->send;
    umi_comm_coll       *coll;
    umi_comm_reduce     *reduce;
    umx_status           status = check(args, in, result);

    if (status == UMX_OK) {
        status = umi_comm_coll_new(comm, type, 2 * (size_t)comm->size, &coll);
    }
    if (status != UMX_OK) {
        return status;
    }
    reduce = reduce_of(coll);
    (void)umi_comm_arithmetic_find(what, &reduce->arithmetic);
    status = take(reduce, in, args->recv);
    if (status != UMX_OK) {
        return umi_comm_coll_give_up(coll, status);
    }
    reduce->len      = in->len;
    reduce->is_whole = in->len <= WHOLE_MAX;
    coll->root       = args->root;
    coll->bytes      = in->len;
    coll->what       = (uint64_t)(uint32_t)args->root |
                 ((uint64_t)what->dtype + 1) << 32 |
                 ((uint64_t)what->op + 1) << 48;
    *reduce_p = reduce;
    return UMX_OK;
}

/* Get memory for what others send, and for blocks for others, and begin. */
static umx_status
start(umi_comm_reduce *reduce, size_t num_blocks, const umx_op_params *params,
      umx_request **req_p)
{
    umi_comm_coll *coll = &reduce->base;
    int            rank = coll->comm->rank;
    size_t len    = reduce->is_whole ? reduce->len : block_len(reduce, rank);
    size_t others = 0;

    for (int i = 0; i < coll->comm->size; i++) {
        others += i != rank &&
                  (!reduce->is_whole || wants_items(coll, rank, i));
    }
    reduce->tmp = malloc(others * len + 1);
    if (reduce->tmp != NULL && num_blocks != 0) {
        reduce->block = malloc(num_blocks * len + 1);
    }
    return (reduce->tmp != NULL && (num_blocks == 0 || reduce->block != NULL)) ?
               umi_comm_coll_start(coll, params, req_p) :
               umi_comm_coll_give_up(coll, UMX_ERR_NO_MEMORY);
}

/* An operation whose result is as long as what is sent. */
static umx_status
start_equal(umx_comm *comm, const umi_comm_coll_type *type,
            const reduce_args *args, const umx_op_params *params,
            umx_request **req_p)
{
    const umx_buffer *in     = (args->send != UMX_IN_PLACE) ? args->send :
                                                              args->recv;
    bool              is_all = args->root < 0 || args->root == comm->rank;
    umi_comm_reduce  *reduce;
    size_t            num_blocks;
    umx_status        status;

    if (in == NULL || (is_all && args->recv == NULL)) {
        return UMX_ERR_INVALID_PARAM;
    }
    status = new_reduce(comm, type, args, in->len, &reduce);
    if (status != UMX_OK) {
        return status;
    }
    num_blocks = reduce->is_whole          ? 0 :
                 (type->next == scan_next) ? (size_t)comm->size :
                                             reduce->out == NULL;
    return start(reduce, num_blocks, params, req_p);
}

umx_status
umx_reduce(umx_comm *comm, int root, const umx_reduction *what,
           const umx_buffer *send, const umx_buffer *recv,
           const umx_op_params *params, umx_request **req_p)
{
    UMI_COMM_LOCK(comm);
    reduce_args args   = {what, send, (root == comm->rank) ? recv : NULL, root};
    umx_status  status = umi_comm_status(comm);

    if (status != UMX_OK) {
        return status;
    }
    return (root < 0 || root >= comm->size) ?
               UMX_ERR_OUT_OF_RANGE :
               start_equal(comm, &reduce_type, &args, params, req_p);
}

/* An operation whose result every rank gets. */
static umx_status
start_for_all(umx_comm *comm, const umi_comm_coll_type *type,
              const reduce_args *args, const umx_op_params *params,
              umx_request **req_p)
{
    umx_status status = umi_comm_status(comm);

    return (status == UMX_OK) ? start_equal(comm, type, args, params, req_p) :
                                status;
}

umx_status
umx_allreduce(umx_comm *comm, const umx_reduction *what, const umx_buffer *send,
              const umx_buffer *recv, const umx_op_params *params,
              umx_request **req_p)
{
    UMI_COMM_LOCK(comm);
    reduce_args args = {what, send, recv, -1};

    return start_for_all(comm, &allreduce_type, &args, params, req_p);
}

umx_status
umx_scan(umx_comm *comm, const umx_reduction *what, const umx_buffer *send,
         const umx_buffer *recv, const umx_op_params *params,
         umx_request **req_p)
{
    UMI_COMM_LOCK(comm);
    reduce_args args = {what, send, recv, -1};

    return start_for_all(comm, &scan_type, &args, params, req_p);
}

umx_status
umx_exscan(umx_comm *comm, const umx_reduction *what, const umx_buffer *send,
           const umx_buffer *recv, const umx_op_params *params,
           umx_request **req_p)
{
    UMI_COMM_LOCK(comm);
    reduce_args args = {what, send, recv, -1};

    return start_for_all(comm, &exscan_type, &args, params, req_p);
}

/* Set where the blocks begin; `counts` NULL: they are equal. */
static umx_status
set_starts(umi_comm_reduce *reduce, const size_t *counts)
{
    size_t size = (size_t)reduce->base.comm->size, at = 0;

    reduce->starts = malloc((size + 1) * sizeof(*reduce->starts));
    if (reduce->starts == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < size; i++) {
        size_t count = (counts != NULL) ? counts[i] : reduce->len / size;

        if (count % reduce->arithmetic.item != 0 || count > reduce->len - at) {
            return UMX_ERR_INVALID_PARAM;
        }
        reduce->starts[i] = at;
        at += count;
    }
    reduce->starts[size] = at;
    return (at == reduce->len) ? UMX_OK : UMX_ERR_INVALID_PARAM;
}

umx_status
umx_reduce_scatter(umx_comm *comm, const umx_reduction *what,
                   const umx_buffer *send, const umx_buffer *recv,
                   const size_t *counts, const umx_op_params *params,
                   umx_request **req_p)
{
    UMI_COMM_LOCK(comm);
    reduce_args      args   = {what, send, recv, -1};
    umx_status       status = umi_comm_status(comm);
    umi_comm_reduce *reduce;
    size_t           result;

    if (status != UMX_OK) {
        return status;
    }
    if (recv == NULL) {
        return UMX_ERR_INVALID_PARAM;
    }
    result = (counts != NULL)       ? counts[comm->rank] :
             (send != UMX_IN_PLACE) ? send->len / (size_t)comm->size :
                                      0;
    status = new_reduce(comm, &reduce_scatter_type, &args, result, &reduce);
    if (status != UMX_OK) {
        return status;
    }
    reduce->is_whole = false;
    status           = set_starts(reduce, counts);
    return (status == UMX_OK) ? start(reduce, 0, params, req_p) :
                                umi_comm_coll_give_up(&reduce->base, status);
}
