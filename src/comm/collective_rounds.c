/* SPDX-License-Identifier: BSD-3-Clause */
/* collective_rounds.c: the life of a collective operation, from its posting
 * call to its last round. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective.h"
#include "comm/describe.h"
#include "comm/inbox.h"
#include "comm/late.h"
#include "comm/member.h"
#include "util/clock.h"
#include "util/count.h"
#include "util/log.h"
#include "util/trace.h"

/* How long an operation waits before it tells the ranks what it waits in, and
 * before it tells them again; then each time twice as long. */
#define FIRST_NS UINT64_C(20000000)
#define STATE_NS UINT64_C(500000000)

/* How long an operation waits before the log says for whom. */
#define LATE_NS UINT64_C(1500000000)

enum {
    SPINS = 100 /* looks for what ranks of this host send */
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
    [UMI_COMM_COLL_SCAN]             = "scan",
    [UMI_COMM_COLL_EXSCAN]           = "exscan",
    [UMI_COMM_COLL_REDUCE_SCATTER]   = "reduce_scatter",
};

const char *
umi_comm_coll_name(unsigned kind)
{
    return (kind >= UMI_COMM_COLL_BARRIER &&
            kind < sizeof(names) / sizeof(*names)) ?
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

/* ---- buffers -------------------------------------------------------------
 */

umx_status
umi_comm_coll_check_buffer(const umx_buffer *buf)
{
    if (buf->layout != NULL && buf->memtype > UMX_MEMTYPE_HOST) {
        return UMX_ERR_UNSUPPORTED;
    }
    return (buf->data == NULL && buf->len != 0) ? UMX_ERR_INVALID_PARAM :
                                                  UMX_OK;
}

bool
umi_comm_buffers_overlap(const umx_buffer *a, const umx_buffer *b)
{
    const char *first = a->data, *second = b->data;

    return a->layout == NULL && b->layout == NULL && a->len != 0 &&
           b->len != 0 && first < second + b->len && second < first + a->len;
}

umx_status
umi_comm_coll_get_room(umi_comm_coll *coll, size_t len, umx_buffer *room)
{
    umi_comm_packed *packed = NULL;

    if (len < SIZE_MAX - sizeof(*packed)) {
        packed = malloc(sizeof(*packed) + len);
    }
    if (packed == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    *packed      = (umi_comm_packed){.next = coll->packed};
    coll->packed = packed;
    *room        = umx_host_buffer(packed->items, len);
    return UMX_OK;
}

umx_status
umi_comm_coll_pack(umi_comm_coll *coll, const umx_buffer *buf, bool is_result,
                   umx_buffer *taken)
{
    umx_status status = umi_comm_coll_get_room(coll, buf->len, taken);

    if (status != UMX_OK) {
        return status;
    }
    coll->packed->user      = *buf;
    coll->packed->is_result = is_result;
    return umx_buffer_read(buf, taken->data, buf->len);
}

/* Copy results to where they go, and free all copies. */
static void
unpack(umi_comm_coll *coll)
{
    while (coll->packed != NULL) {
        umi_comm_packed *packed = coll->packed;

        coll->packed = packed->next;
        if (packed->is_result && coll->status == UMX_OK) {
            coll->status = umx_buffer_write(&packed->user, packed->items,
                                            packed->user.len);
        }
        free(packed);
    }
}

umx_status
umi_comm_coll_copy(const umx_buffer *to, const umx_buffer *from)
{
    if (to->len != from->len) {
        return UMX_ERR_INVALID_PARAM;
    }
    return (to->data != from->data) ? umx_buffer_copy(to, from) : UMX_OK;
}

/* ---- the end of an operation ---------------------------------------------
 */

static void
end_request(umi_comm_coll *coll)
{
    umx_request *req = coll->req;

    if (req != NULL) {
        coll->req                          = NULL;
        UMX_REQUEST_OF(req, umi_comm_coll) = NULL;
        umx_request_complete(req, coll->status);
    }
}

static void
end(umi_comm_coll *coll)
{
    umx_comm *comm = coll->comm;

    umi_node_remove(&coll->node);
    umx_timer_stop(&coll->timer);
    unpack(coll);
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

/* Give the buffer of a message back. A send goes on with a copy of its bytes,
 * as the rank that gets them may still end well; the bytes of a receive are
 * dropped. */
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

void
umi_comm_coll_end_request_early(umi_comm_coll *coll)
{
    for (size_t i = 0; i < coll->max_xfers; i++) {
        const umi_comm_xfer *xfer = &coll->xfers[i];

        if (xfer->is_used && xfer->sub != NULL && !xfer->is_free) {
            return;
        }
    }
    end_request(coll);
}

/* Withdraw the messages of an operation that cannot go on: receives that wait
 * for nothing any more go, and buffers that are with UCX come back now, or are
 * waited for. */
static void
withdraw(umi_comm_coll *coll)
{
    while (!umi_list_is_empty(&coll->recvs)) {
        umi_comm_xfer *xfer = umi_container_of(coll->recvs.next, umi_comm_xfer,
                                               node);

        umi_node_remove(&xfer->node);
        xfer->is_used = false;
        UMI_DECREMENT(coll->num_pending);
    }
    for (size_t i = 0; i < coll->max_xfers; i++) {
        umi_comm_xfer *xfer = &coll->xfers[i];

        if (!xfer->is_used) {
            continue;
        }
        if (xfer->sub != NULL) {
            give_up(xfer);
        } else if (xfer->is_filling) {
            umi_comm_xfer_end_filling(xfer);
        } else if (xfer->is_lent || xfer->is_pull || xfer->is_lost) {
            umi_comm_xfer_end_lent(xfer);
        }
    }
    umi_comm_coll_end_request_early(coll);
}

void
umi_comm_coll_fail(umi_comm_coll *coll, int rank, umx_status status,
                   const char *why)
{
    umi_comm_revoke(coll->comm, rank, status, false, "%s (operation %llu)%s%s",
                    umi_comm_coll_name(coll->type->kind),
                    (unsigned long long)coll->number,
                    (why[0] != '\0') ? ": " : "", why);
}

/* ---- rounds --------------------------------------------------------------
 */

/* Post rounds until one has to be waited for. True: the operation has ended. */
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
            umi_comm_coll_fail(coll, coll->comm->rank, status,
                               umx_status_string(status));
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

/* ---- waiting -------------------------------------------------------------
 */

static void
start_timer(umi_comm_coll *coll)
{
    umx_timer_start(coll->comm->group->dispatch->worker, &coll->timer,
                    coll->wait_ns);
}

static void
on_timer(umx_timer *timer)
{
    umi_comm_coll *coll = umi_container_of(timer, umi_comm_coll, timer);

    umi_comm_late_ask(coll);
    coll->waited_ns += coll->wait_ns;
    coll->wait_ns = (coll->waited_ns < STATE_NS) ? STATE_NS - coll->waited_ns :
                                                   STATE_NS + coll->waited_ns;
    if (coll->waited_ns >= LATE_NS && umi_log_is_on(UMI_LOG_INFO)) {
        umi_comm_log_late(coll);
    }
    start_timer(coll);
}

/* ---- the beginning -------------------------------------------------------
 */

static void
cancel(umx_request *req)
{
    umi_comm_coll *coll = UMX_REQUEST_OF(req, umi_comm_coll);
    char           text[64];

    if (coll->status == UMX_INPROGRESS) {
        umi_comm_late_keep(coll);
        (void)snprintf(text, sizeof(text), "cancelled by rank %d",
                       coll->comm->rank);
        umi_comm_coll_fail(coll, coll->comm->rank, UMX_ERR_CANCELED, text);
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
    umx_timer_init(&coll->timer, on_timer);
    coll->wait_ns   = FIRST_NS;
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

/* Find a rank that has left before operation `number`; -1: none has. */
static int
find_gone(const umx_comm *comm, uint64_t number)
{
    for (int i = 0; i < comm->size && comm->num_gone != 0; i++) {
        if (comm->ranks[i].is_gone && comm->ranks[i].gone_at <= number) {
            return i;
        }
    }
    return -1;
}

/* Compare the operation with the last one of ranks that have left after it.
 * False: they are different, and the communicator is revoked. */
static bool
check_gone(const umi_comm_coll *coll)
{
    umx_comm *comm = coll->comm;

    for (int i = 0; i < comm->size && comm->num_gone != 0; i++) {
        const umi_comm_rank *rank = &comm->ranks[i];

        if (rank->is_gone && rank->last.number == coll->number &&
            !umi_comm_call_check(comm, i, &rank->last)) {
            return false;
        }
    }
    return true;
}

/* Look again and again for what ranks of this host send, for about as long as
 * they need if they have called the operation, too. True: the operation has
 * ended. */
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
    umi_comm_coll_note(coll);
    if (UMI_IS_OBSERVED()) {
        umx_request_describe(req, umi_comm_coll_name(coll->type->kind),
                             coll->bytes, coll->number, comm->rank);
    }
    gone = find_gone(comm, coll->number);
    umi_list_append(&comm->colls, &coll->node);
    coll->is_moving = true;
    if (gone >= 0) {
        umi_comm_revoke(comm, gone, UMX_ERR_PEER_CLOSED, false,
                        "rank %d has left the communicator", gone);
    }
    (void)(coll->status == UMX_INPROGRESS && check_gone(coll) &&
           umi_comm_coll_check_early(coll));
    coll->is_moving = false;
    if (!move(coll) && !spin(coll)) {
        coll->req                          = req;
        UMX_REQUEST_OF(req, umi_comm_coll) = coll;
        *req_p                             = req;
        start_timer(coll);
        if (coll->status != UMX_INPROGRESS) {
            umi_comm_coll_end_request_early(coll);
        }
        return UMX_INPROGRESS;
    }
    status = coll->status;
    end(coll);
    umx_request_discard(req);
    return status;
}
