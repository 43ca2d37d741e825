/* SPDX-License-Identifier: BSD-3-Clause */
/* alltoall_buffers.c: everybody to everybody, of lengths that only the sender
 * knows. In the first round the ranks tell each other the lengths; then there
 * is memory for what comes, and the bytes follow, UMI_COMM_COLL_WINDOW ranks at
 * a time. Who has nothing to send sends nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective.h"
#include "util/count.h"

typedef struct umi_comm_exchange {
    umi_comm_coll       base;
    umx_buffer         *sends; /* of malloc(), as the next two */
    uint64_t           *sent;
    uint64_t           *coming; /* bytes of each rank */
    umx_buffer         *recvs;  /* the user's */
    umx_alloc_buffer_fn alloc;
    void               *arg;
    bool                has_memory;
    umx_status          memory_status; /* why there is none, ... */
    int                 asker;         /* ... for what that rank sends */
    int                 first;         /* of the next ranks, from this one on */
} umi_comm_exchange;

static umi_comm_exchange *
exchange_of(umi_comm_coll *coll)
{
    return (umi_comm_exchange *)(void *)coll;
}

static void
fini(umi_comm_coll *coll, umx_status status)
{
    umi_comm_exchange *exchange = exchange_of(coll);

    (void)status;
    free(exchange->sends);
    free(exchange->sent);
    free(exchange->coming);
}

/* Get memory for what comes from `rank`. */
static umx_status
get_memory(umi_comm_exchange *exchange, int rank, uint64_t len)
{
    umx_buffer *buf = &exchange->recvs[rank];
    umx_status  status;

    if (len > SIZE_MAX) {
        return UMX_ERR_NO_MEMORY;
    }
    *buf = umx_host_buffer(NULL, (size_t)len);
    if (len == 0) {
        return UMX_OK;
    }
    if (exchange->alloc == NULL) {
        buf->data = malloc((size_t)len);
        return (buf->data == NULL) ? UMX_ERR_NO_MEMORY : UMX_OK;
    }
    status = exchange->alloc(rank, buf, exchange->arg);
    if (status == UMX_OK && (buf->len != len || buf->data == NULL)) {
        status = UMX_ERR_INVALID_PARAM;
    }
    return status;
}

static umx_status
copy_own(umi_comm_exchange *exchange)
{
    int               rank = exchange->base.comm->rank;
    const umx_buffer *from = &exchange->sends[rank];
    umx_status        status;

    status = get_memory(exchange, rank, from->len);
    return (status != UMX_OK || from->len == 0) ?
               status :
               umi_comm_coll_copy(&exchange->recvs[rank], from);
}

static umx_status
exchange_lengths(umi_comm_exchange *exchange)
{
    umi_comm_coll *coll   = &exchange->base;
    int            rank   = coll->comm->rank;
    umx_status     status = UMX_OK;

    for (int i = 0; i < coll->comm->size && status == UMX_OK; i++) {
        umx_buffer in  = umx_host_buffer(&exchange->coming[i],
                                         sizeof(*exchange->coming));
        umx_buffer out = umx_host_buffer(&exchange->sent[i],
                                         sizeof(*exchange->sent));

        if (i != rank) {
            status = umi_comm_coll_recv(coll, i, 0, &in);
        }
        if (i != rank && status == UMX_OK) {
            status = umi_comm_coll_send(coll, i, 0, &out);
        }
    }
    return status;
}

static umx_status
get_all_memory(umi_comm_exchange *exchange)
{
    const umx_comm *comm   = exchange->base.comm;
    umx_status      status = UMX_OK;

    for (int i = 0; i < comm->size && status == UMX_OK; i++) {
        if (i != comm->rank) {
            exchange->asker = i;
            status          = get_memory(exchange, i, exchange->coming[i]);
        }
    }
    return status;
}

/* The thread of the program is here, which may call `alloc`. */
static void
on_program(umx_request *req, umx_status status, void *arg)
{
    umi_comm_exchange *exchange = arg;
    umi_comm_coll     *coll     = &exchange->base;

    (void)req;
    (void)status;
    UMI_DECREMENT(coll->num_pending);
    if (coll->status == UMX_INPROGRESS) {
        exchange->memory_status = get_all_memory(exchange);
    }
    umi_comm_coll_advance(coll);
}

/* The progress thread must not call `alloc`: the program does, when an
 * operation without UMX_OP_FLAG_LAYER ends. */
static umx_status
ask_for_memory(umi_comm_exchange *exchange)
{
    static const umx_request_class cls = {.name = "memory"};

    umi_comm_coll *coll   = &exchange->base;
    umx_op_params  params = {.field_mask = UMX_OP_FIELD_ON_DONE,
                             .on_done    = on_program,
                             .arg        = exchange};
    umx_request   *req = umx_request_create(coll->comm->group->dispatch->worker,
                                            &cls, &params);

    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    coll->num_pending++;
    umx_request_complete(req, UMX_OK);
    return UMX_INPROGRESS;
}

/* A rank may say that it sends any number of bytes: name it, and the number. */
static umx_status
fail_for_memory(umi_comm_exchange *exchange, umx_status status)
{
    umi_comm_coll *coll = &exchange->base;
    int            rank = coll->comm->rank;
    char           text[128];

    (void)snprintf(text, sizeof(text),
                   "rank %d gets no memory for the %llu bytes of rank %d: %s",
                   rank, (unsigned long long)exchange->coming[exchange->asker],
                   exchange->asker, umx_status_string(status));
    umi_comm_coll_fail(coll, rank, status, text);
    return status;
}

/* UMX_INPROGRESS: next() is called again. */
static umx_status
need_memory(umi_comm_exchange *exchange)
{
    umx_worker *worker = exchange->base.comm->group->dispatch->worker;

    if (exchange->has_memory) {
        return exchange->memory_status;
    }
    exchange->has_memory = true;
    if (exchange->alloc != NULL && umx_worker_is_in_thread(worker)) {
        return ask_for_memory(exchange);
    }
    return get_all_memory(exchange);
}

static umx_status
exchange_bytes(umi_comm_exchange *exchange)
{
    umi_comm_coll *coll = &exchange->base;
    int            rank = coll->comm->rank, size = coll->comm->size;
    int            first = exchange->first, end = first + UMI_COMM_COLL_WINDOW;
    umx_status     status = UMX_OK;

    exchange->first = end;
    for (int i = first; i < size && i < end && status == UMX_OK; i++) {
        int from = (rank - i + size) % size, to = (rank + i) % size;

        if (exchange->recvs[from].len != 0) {
            status = umi_comm_coll_recv(coll, from, 1, &exchange->recvs[from]);
        }
        if (exchange->sends[to].len != 0 && status == UMX_OK) {
            status = umi_comm_coll_send(coll, to, 1, &exchange->sends[to]);
        }
    }
    return status;
}

static umx_status
next(umi_comm_coll *coll)
{
    umi_comm_exchange *exchange = exchange_of(coll);
    umx_status         status   = UMX_OK;

    if (coll->round == 0) {
        status = copy_own(exchange);
        if (status == UMX_OK) {
            status = exchange_lengths(exchange);
        }
        return (status == UMX_OK) ? UMX_INPROGRESS : status;
    }
    if (exchange->first >= coll->comm->size) {
        return UMX_OK;
    }
    status = need_memory(exchange);
    if (status < 0) {
        return fail_for_memory(exchange, status);
    }
    if (status == UMX_OK) {
        status = exchange_bytes(exchange);
    }
    return (status == UMX_OK) ? UMX_INPROGRESS : status;
}

static const umi_comm_coll_type exchange_type = {
    .kind = UMI_COMM_COLL_ALLTOALL_BUFFERS,
    .size = sizeof(umi_comm_exchange),
    .next = next,
    .fini = fini,
};

umx_status
umx_alltoall_buffers(umx_comm *comm, const umx_buffer *sends, umx_buffer *recvs,
                     umx_alloc_buffer_fn alloc, void *arg,
                     const umx_op_params *params, umx_request **req_p)
{
    UMI_COMM_LOCK(comm);
    size_t             size = (size_t)comm->size;
    umi_comm_exchange *exchange;
    umi_comm_coll     *coll;
    umx_status         status = UMX_OK;

    for (size_t i = 0; i < size && status == UMX_OK; i++) {
        status = umi_comm_coll_check_buffer(&sends[i]);
    }
    if (status != UMX_OK) {
        return status;
    }
    memset(recvs, 0, size * sizeof(*recvs));
    status = umi_comm_coll_new(comm, &exchange_type, 2 * size, &coll);
    if (status != UMX_OK) {
        return status;
    }
    exchange         = exchange_of(coll);
    exchange->recvs  = recvs;
    exchange->alloc  = alloc;
    exchange->arg    = arg;
    exchange->first  = 1;
    exchange->sends  = calloc(size, sizeof(*exchange->sends));
    exchange->sent   = calloc(size, sizeof(*exchange->sent));
    exchange->coming = calloc(size, sizeof(*exchange->coming));
    if (exchange->sends == NULL || exchange->sent == NULL ||
        exchange->coming == NULL) {
        return umi_comm_coll_give_up(coll, UMX_ERR_NO_MEMORY);
    }
    for (size_t i = 0; i < size && status == UMX_OK; i++) {
        exchange->sent[i] = sends[i].len;
        status = umi_comm_coll_take_send(coll, &sends[i], &exchange->sends[i]);
    }
    return (status == UMX_OK) ? umi_comm_coll_start(coll, params, req_p) :
                                umi_comm_coll_give_up(coll, status);
}
