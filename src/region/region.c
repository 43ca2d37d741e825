/* SPDX-License-Identifier: BSD-3-Clause */
/* region.c: the ranks tell each other a key and a record, and open the keys.
 *
 * A region is made in two steps: all records are exchanged on a communicator of
 * its own; then the handshake of every endpoint is waited for, since only
 * after it a key is known to be one that can be mapped. Thread: the worker's
 * owner, or its progress thread, under the worker's lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <umx/buffer.h>
#include <umx/collective.h>
#include <umx/endpoint.h>
#include <umx/layer.h>
#include <umx/region.h>

#include "util/bytes.h"
#include "util/list.h"
#include "util/refcnt.h"

enum {
    REASON      = 320,  /* bytes */
    MESSAGE     = 8192, /* bytes that each rank tells the others */
    MESSAGE_KEY = MESSAGE - UMX_REGION_RECORD_MAX - 12
};

#define LABEL UINT64_C(0x6e6f69676572) /* of the derived communicator */

/* A rank, as this one sees it. */
typedef struct member {
    umx_rkey   *rkey; /* NULL: this rank, or one without memory */
    void       *data; /* NULL: it is not mapped here */
    uint64_t    len;
    const void *record; /* in region->messages */
    size_t      record_len;
} member;

struct umx_region {
    umx_dependent dependent;
    umx_worker   *worker; /* NULL: it is being destroyed */
    umx_memh     *memh;   /* held; or NULL */
    int           rank;
    int           size;
    umi_refs      refs; /* the user's, and of the creation */
    member       *members;
    uint8_t      *messages; /* of all ranks, and this one's once more */
    /* the creation */
    umx_comm    *comm; /* derived, owned; NULL once it is over */
    umx_request *req;
    umx_request *part;    /* under way: the exchange, or a flush */
    int          flushed; /* ranks below it have been waited for */
    bool         is_given_back;
    /* why it cannot be made */
    bool             has_failed;
    umx_comm_failure failure;
    char             why[REASON];
};

/* ---- references ----------------------------------------------------------
 */

static void
leave_comm(umx_region *region)
{
    umx_comm *comm = region->comm;

    region->comm = NULL;
    if (comm != NULL) {
        umx_comm_close(comm);
        umx_comm_destroy(comm);
    }
}

static void
put(umx_region *region)
{
    if (!umi_refs_put(&region->refs)) {
        return;
    }
    leave_comm(region);
    umx_worker_detach(&region->dependent);
    for (int i = 0; region->members != NULL && i < region->size; i++) {
        if (region->members[i].rkey != NULL) {
            umx_rkey_destroy(region->members[i].rkey);
        }
    }
    if (region->memh != NULL) {
        umx_memh_put(region->memh);
    }
    free(region->messages);
    free(region->members);
    free(region);
}

static void
on_destroy(umx_dependent *dependent)
{
    umi_container_of(dependent, umx_region, dependent)->worker = NULL;
}

/* ---- what the ranks tell each other --------------------------------------
 */

/* Write the message of this rank: its key, its record, and their lengths. */
static umx_status
write_message(const umx_region *region, uint8_t *message, const void *record,
              size_t len)
{
    size_t      key_len = 0;
    const void *key     = NULL;
    uint64_t    length  = 0;
    umi_writer  w;

    if (region->memh != NULL) {
        key    = umx_memh_key(region->memh, &key_len);
        length = umx_memh_buffer(region->memh)->len;
    }
    if (key_len > MESSAGE_KEY) {
        return UMX_ERR_UNSUPPORTED;
    }
    umi_writer_init(&w, message, MESSAGE);
    umi_write_u64(&w, length);
    umi_write_u16(&w, (uint16_t)key_len);
    umi_write_u16(&w, (uint16_t)len);
    umi_write_bytes(&w, key, key_len);
    umi_write_bytes(&w, record, len);
    return UMX_OK;
}

/* Read the message of a rank, and open its key. */
static umx_status
read_message(umx_region *region, int rank)
{
    member        *m = &region->members[rank];
    size_t         key_len;
    const uint8_t *key;
    umi_reader     r;
    umx_ep        *ep;
    umx_status     status;

    umi_reader_init(&r, region->messages + (size_t)rank * MESSAGE, MESSAGE);
    m->len        = umi_read_u64(&r);
    key_len       = umi_read_u16(&r);
    m->record_len = umi_read_u16(&r);
    key           = umi_read_bytes(&r, key_len);
    m->record     = umi_read_bytes(&r, m->record_len);
    if (r.is_bad || m->record_len > UMX_REGION_RECORD_MAX) {
        return UMX_ERR_PROTOCOL;
    }
    if (rank == region->rank) {
        m->data = (region->memh == NULL) ? NULL :
                                           umx_memh_buffer(region->memh)->data;
        return UMX_OK;
    }
    status = umx_comm_get_ep(region->comm, rank, &ep);
    if (status != UMX_OK || key_len == 0) {
        return status;
    }
    status = umx_rkey_open(ep, key, key_len, &m->rkey);
    if (status == UMX_OK && umx_rkey_length(m->rkey) != m->len) {
        status = UMX_ERR_PROTOCOL;
    }
    return status;
}

static umx_status
read_messages(umx_region *region)
{
    umx_status status = UMX_OK;

    for (int i = 0; i < region->size && status == UMX_OK; i++) {
        status = read_message(region, i);
    }
    return status;
}

/* ---- creation ------------------------------------------------------------
 */

static void on_flushed(umx_request *part, umx_status status, void *arg);

/* Wait for the handshakes of the endpoints that are left, one by one. */
static umx_status
flush_next(umx_region *region)
{
    umx_op_params params = umx_layer_op_params(on_flushed, region);
    umx_status    status = UMX_OK;
    umx_ep       *ep;

    while (status == UMX_OK && region->flushed < region->size) {
        int rank = region->flushed++;

        if (region->members[rank].rkey == NULL) {
            continue;
        }
        status = umx_comm_get_ep(region->comm, rank, &ep);
        if (status == UMX_OK && umx_ep_get_state(ep) != UMX_EP_OPEN) {
            status = umx_ep_flush(ep, &params, &region->part);
        }
    }
    return status;
}

/* Keep what the communicator says of its failure: it is about to be left. */
static void
learn_failure(umx_region *region)
{
    if (!region->has_failed && region->comm != NULL &&
        umx_comm_get_failure(region->comm, &region->failure)) {
        region->has_failed = true;
        region->failure.op = "";
        (void)snprintf(region->why, sizeof(region->why), "%s",
                       umx_comm_reason(region->comm));
    }
}

/* Keep where the memories are, and leave what was needed until now. */
static umx_status
end_creation(umx_region *region, umx_status status)
{
    for (int i = 0; status == UMX_OK && i < region->size; i++) {
        member *m = &region->members[i];

        if (m->rkey != NULL) {
            m->data = umx_rkey_pointer(m->rkey);
        }
    }
    learn_failure(region);
    leave_comm(region);
    return status;
}

/* Go on with the creation, a part of which has ended with `status`. */
static umx_status
go_on(umx_region *region, umx_status status)
{
    if (status == UMX_OK && (region->worker == NULL || region->is_given_back)) {
        status = UMX_ERR_CANCELED;
    }
    if (status == UMX_OK) {
        status = flush_next(region);
    }
    return (status == UMX_INPROGRESS) ? status : end_creation(region, status);
}

static void
complete(umx_region *region, umx_status status)
{
    umx_request *req = region->req;

    if (status == UMX_INPROGRESS) {
        return;
    }
    region->req = NULL;
    if (req != NULL) {
        umx_request_complete(req, status);
    }
    put(region);
}

/* The endpoint of a rank does not open, and the communicator may not have said
 * why yet. */
static void
note_failure(umx_region *region, int rank, umx_status status)
{
    learn_failure(region);
    if (!region->has_failed) {
        region->has_failed = true;
        region->failure    = (umx_comm_failure){
               .rank = rank, .op = "", .cause = status, .member = -1};
        (void)snprintf(region->why, sizeof(region->why),
                       "rank %d cannot be reached: %s", rank,
                       umx_status_string(status));
    }
}

static void
on_flushed(umx_request *part, umx_status status, void *arg)
{
    umx_region *region = arg;
    int         rank   = region->flushed - 1;

    (void)part;
    region->part = NULL;
    if (status != UMX_OK && status != UMX_ERR_CANCELED &&
        umx_comm_doubt(region->comm, rank, status, NULL)) {
        note_failure(region, rank, status);
        status = UMX_ERR_RANK_FAILED;
    }
    complete(region, go_on(region, status));
}

static void
on_exchanged(umx_request *part, umx_status status, void *arg)
{
    umx_region *region = arg;

    (void)part;
    region->part = NULL;
    if (status == UMX_OK && region->worker != NULL) {
        status = read_messages(region);
    }
    complete(region, go_on(region, status));
}

/* Cancel the part that is under way, by which the other ranks learn it. */
static void
cancel(umx_request *req)
{
    umx_region *region = UMX_REQUEST_OF(req, umx_region);

    if (region->part != NULL) {
        (void)umx_request_cancel(region->part);
    }
}

static const umx_request_class create_class = {.name   = "region",
                                               .cancel = cancel};

/* Send the message to every other rank: afterwards each has an endpoint to
 * each. */
static umx_status
post_exchange(umx_region *region)
{
    umx_op_params params = umx_layer_op_params(on_exchanged, region);
    size_t        size   = (size_t)region->size;
    size_t       *counts = calloc(2 * size, sizeof(*counts));
    umx_pieces    to     = {.counts = counts, .displs = counts + size};
    umx_pieces    from   = {.counts = counts};
    umx_buffer    send, recv;
    umx_status    status;

    if (counts == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < size; i++) {
        counts[i] = MESSAGE;
    }
    send   = umx_host_buffer(region->messages + size * MESSAGE, MESSAGE);
    recv   = umx_host_buffer(region->messages, size * MESSAGE);
    status = umx_alltoallv(region->comm, &send, &to, &recv, &from, &params,
                           &region->part);
    free(counts);
    return status;
}

static umx_status
exchange(umx_region *region, const umx_op_params *op, umx_request **req_p)
{
    umx_status status = post_exchange(region);

    if (status == UMX_OK) {
        status = read_messages(region);
        status = go_on(region, status);
    }
    if (status == UMX_INPROGRESS) {
        umi_refs_get(&region->refs);
    } else if (status == UMX_ERR_RANK_FAILED) {
        (void)end_creation(region, status);
    } else {
        return status;
    }
    region->req = umx_request_create(region->worker, &create_class, op);
    if (region->req == NULL) {
        if (status == UMX_INPROGRESS) {
            (void)umx_request_cancel(region->part);
        }
        return UMX_ERR_NO_MEMORY;
    }
    UMX_REQUEST_OF(region->req, umx_region) = region;
    *req_p                                  = region->req;
    if (status == UMX_ERR_RANK_FAILED) { /* the caller can ask who has */
        region->req = NULL;
        umx_request_complete(*req_p, status);
    }
    return UMX_INPROGRESS;
}

static umx_status
set_up(umx_region *region, umx_comm *comm, const void *record, size_t len)
{
    size_t     size = (size_t)region->size;
    umx_status status;

    region->members  = calloc(size, sizeof(*region->members));
    region->messages = calloc(size + 1, MESSAGE);
    if (region->members == NULL || region->messages == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = write_message(region, region->messages + size * MESSAGE, record,
                           len);
    if (status != UMX_OK) {
        return status;
    }
    return umx_comm_derive(comm, LABEL, &region->comm);
}

static umx_region *
new_region(umx_comm *comm, umx_memh *memh)
{
    umx_region *region = calloc(1, sizeof(*region));

    if (region == NULL) {
        return NULL;
    }
    umi_refs_init(&region->refs);
    region->worker               = umx_comm_get_worker(comm);
    region->rank                 = umx_comm_rank(comm);
    region->size                 = umx_comm_size(comm);
    region->dependent.on_destroy = on_destroy;
    region->memh                 = memh;
    umi_node_init((umi_node *)(void *)&region->dependent);
    if (memh != NULL) {
        umx_memh_hold(memh);
    }
    umx_worker_attach(region->worker, &region->dependent);
    return region;
}

umx_status
umx_region_create(umx_comm *comm, umx_memh *memh, const void *record,
                  size_t len, const umx_op_params *op, umx_region **region_p,
                  umx_request **req_p)
{
    umx_worker *worker = umx_comm_get_worker(comm);
    umx_region *region;
    umx_status  status;

    if (worker == NULL || umx_comm_rank(comm) < 0) {
        return UMX_ERR_CLOSED;
    }
    if (len > UMX_REGION_RECORD_MAX) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    UMX_LAYER_LOCK(worker);
    region = new_region(comm, memh);
    if (region == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = set_up(region, comm, record, len);
    if (status == UMX_OK) {
        status = exchange(region, op, req_p);
    }
    if (status != UMX_OK && status != UMX_INPROGRESS) {
        region->is_given_back = true;
        put(region);
        return status;
    }
    *region_p = region;
    return status;
}

void
umx_region_destroy(umx_region *region)
{
    UMX_LAYER_LOCK(region->worker);

    region->is_given_back = true;
    if (region->req != NULL) { /* its end finds nobody who waits */
        (void)umx_request_cancel(region->req);
    }
    put(region);
}

/* ---- what is known -------------------------------------------------------
 */

bool
umx_region_get_failure(const umx_region *region, umx_comm_failure *failure,
                       const char **why_p)
{
    *failure = region->failure;
    *why_p   = region->why;
    return region->has_failed;
}

int
umx_region_find_late(umx_region *region, int *late)
{
    return (region->comm != NULL) ? umx_comm_find_late(region->comm, late) : 0;
}

umx_rkey *
umx_region_rkey(const umx_region *region, int rank)
{
    return region->members[rank].rkey;
}

void *
umx_region_pointer(const umx_region *region, int rank)
{
    return region->members[rank].data;
}

uint64_t
umx_region_length(const umx_region *region, int rank)
{
    return region->members[rank].len;
}

const void *
umx_region_record(const umx_region *region, int rank, size_t *len_p)
{
    *len_p = region->members[rank].record_len;
    return region->members[rank].record;
}
