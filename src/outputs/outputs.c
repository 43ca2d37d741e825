/* SPDX-License-Identifier: BSD-3-Clause */
/* outputs.c: the life of the outputs of maps on one rank. */
#include "outputs/outputs.h"

#include <stdlib.h>
#include <string.h>

#include "outputs/post.h"
#include "outputs/transfer.h"
#include "outputs/window.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/hash.h"

enum {
    RECORD    = 16,     /* bytes that each rank tells the others */
    PAUSE_NS  = 200000, /* between looks at what is mapped, at first */
    PAUSE_MAX = 20000000
};

/* ---- references ----------------------------------------------------------
 */

static void
free_outputs(umx_outputs *outputs)
{
    umx_worker_detach(&outputs->dependent);
    umi_outputs_free_committed(outputs);
    umi_outputs_windows_free(outputs->windows);
    umi_slots_fini(&outputs->ask_ids);
    if (outputs->tables != NULL) {
        umx_region_destroy(outputs->tables);
    }
    if (outputs->table != NULL) {
        umx_memh_release(outputs->table);
    }
    if (outputs->heap != NULL) {
        umx_heap_destroy(outputs->heap);
    }
    free(outputs->peers);
    free(outputs);
}

void
umi_outputs_hold(umx_outputs *outputs)
{
    outputs->refs++;
}

void
umi_outputs_put(umx_outputs *outputs)
{
    if (--outputs->refs == 0) {
        free_outputs(outputs);
    }
}

umx_status
umi_outputs_status(const umx_outputs *outputs)
{
    return (outputs->worker != NULL && outputs->state == UMI_OUTPUTS_OPEN) ?
               UMX_OK :
               UMX_ERR_CLOSED;
}

/* ---- the end -------------------------------------------------------------
 */

static void
complete(umx_request **req_p, umx_status status)
{
    umx_request *req = *req_p;

    *req_p = NULL;
    if (req != NULL) {
        umx_request_complete(req, status);
    }
}

static void
end_close(umx_outputs *outputs, umx_status status)
{
    umx_timer_stop(&outputs->close_timer);
    complete(&outputs->close_req, status);
}

/* Other ranks read nothing of this one any more, and this one nothing that was
 * not opened. */
static void
shut(umx_outputs *outputs)
{
    size_t    left;
    umi_node *node;

    if (outputs->state == UMI_OUTPUTS_CLOSED) {
        return;
    }
    outputs->state = UMI_OUTPUTS_CLOSED;
    if (outputs->lookout != NULL) {
        umx_lookout_stop(outputs->lookout);
        outputs->lookout = NULL;
    }
    left = umi_list_count(&outputs->readers);
    while ((node = umi_list_turn(&outputs->readers, &left)) != NULL) {
        umx_outputs_reader *reader = umi_container_of(node, umx_outputs_reader,
                                                      node);

        umi_outputs_fetches_end(reader, UMX_ERR_CLOSED);
        umx_outputs_reader_forget(reader);
    }
    umi_outputs_asks_end(outputs);
    umi_outputs_windows_end(outputs->windows);
    umi_outputs_post_leave(outputs);
    if (outputs->table != NULL) {
        umx_memh_close(outputs->table);
    }
    umi_outputs_sweep(outputs, true);
}

static void
on_destroy(umx_dependent *dependent)
{
    umx_outputs *outputs = umi_container_of(dependent, umx_outputs, dependent);

    umi_outputs_hold(outputs);
    end_close(outputs, UMX_ERR_CANCELED);
    shut(outputs);
    outputs->worker = NULL;
    umi_outputs_put(outputs);
}

static void
on_pause(umx_timer *timer)
{
    umx_outputs *outputs = umi_container_of(timer, umx_outputs, close_timer);
    uint64_t     now     = umi_clock_ns();

    umi_outputs_sweep(outputs, true);
    if (umi_outputs_count_mapped(outputs) == 0) {
        end_close(outputs, UMX_OK);
    } else if (now >= outputs->close_deadline_ns) {
        end_close(outputs, UMX_ERR_TIMED_OUT);
    } else {
        uint64_t left = outputs->close_deadline_ns - now;

        outputs->close_pause_ns *= 2;
        if (outputs->close_pause_ns > PAUSE_MAX) {
            outputs->close_pause_ns = PAUSE_MAX;
        }
        umx_timer_start(
            outputs->worker, timer,
            (left < outputs->close_pause_ns) ? left : outputs->close_pause_ns);
    }
}

static void
cancel_close(umx_request *req)
{
    umx_outputs *outputs = *(umx_outputs **)umx_request_state(req);

    end_close(outputs, UMX_ERR_CANCELED);
}

static const umx_request_class close_class = {.name   = "close",
                                              .cancel = cancel_close};

umx_status
umx_outputs_close(umx_outputs *outputs, uint64_t timeout_ns,
                  const umx_op_params *op, umx_request **req_p)
{
    UMI_OUTPUTS_LOCK(outputs);
    uint64_t now = umi_clock_ns();

    if (outputs->worker == NULL || outputs->state == UMI_OUTPUTS_CREATED) {
        return UMX_ERR_CLOSED;
    }
    if (outputs->close_req != NULL) {
        return UMX_ERR_BUSY;
    }
    shut(outputs);
    umi_outputs_sweep(outputs, true);
    if (umi_outputs_count_mapped(outputs) == 0) {
        return UMX_OK;
    }
    outputs->close_req = umx_request_create(outputs->worker, &close_class, op);
    if (outputs->close_req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    *(umx_outputs **)umx_request_state(outputs->close_req) = outputs;
    outputs->close_deadline_ns = (timeout_ns < UINT64_MAX - now) ?
                                     now + timeout_ns :
                                     UINT64_MAX;
    outputs->close_pause_ns    = PAUSE_NS;
    umx_timer_start(outputs->worker, &outputs->close_timer,
                    (timeout_ns < PAUSE_NS) ? timeout_ns : PAUSE_NS);
    *req_p = outputs->close_req;
    return UMX_INPROGRESS;
}

size_t
umx_outputs_num_mapped(umx_outputs *outputs)
{
    UMI_OUTPUTS_LOCK(outputs);
    return umi_outputs_count_mapped(outputs);
}

void
umx_outputs_mapped(umx_outputs *outputs, size_t *now_p, size_t *most_p)
{
    UMI_OUTPUTS_LOCK(outputs);
    umi_outputs_windows_query(outputs->windows, now_p, most_p);
}

void
umx_outputs_destroy(umx_outputs *outputs)
{
    UMI_OUTPUTS_LOCK(outputs);
    if (outputs->create_req != NULL) { /* its end finds nobody who waits */
        (void)umx_request_cancel(outputs->create_req);
    }
    if (outputs->worker != NULL) {
        end_close(outputs, UMX_ERR_CANCELED);
    }
    shut(outputs);
    umi_outputs_put(outputs);
}

/* ---- creation ------------------------------------------------------------
 */

/* Tell whoever waits that there may be something new. */
static bool
look(void *arg)
{
    umx_outputs *outputs = arg;
    size_t       left    = umi_list_count(&outputs->readers);
    umi_node    *node;

    if (!umi_outputs_table_has_news(outputs)) {
        return false;
    }
    umi_outputs_hold(outputs);
    while ((node = umi_list_turn(&outputs->readers, &left)) != NULL) {
        umi_outputs_fetches_step(
            umi_container_of(node, umx_outputs_reader, node));
    }
    umi_outputs_put(outputs);
    return true;
}

/* Read what a rank tells, and find its table. */
static umx_status
read_record(umx_outputs *outputs, int rank)
{
    umi_outputs_peer *peer = &outputs->peers[rank];
    uint32_t          num_maps, num_partitions;
    umi_reader        r;
    size_t            len;
    const void       *record = umx_region_record(outputs->tables, rank, &len);

    umi_reader_init(&r, record, len);
    peer->id       = umi_read_u64(&r);
    num_maps       = umi_read_u32(&r);
    num_partitions = umi_read_u32(&r);
    if (r.is_bad || num_maps != outputs->num_maps ||
        num_partitions != outputs->num_partitions) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (rank == outputs->rank) {
        return UMX_OK;
    }
    peer->table = umx_region_rkey(outputs->tables, rank);
    if (umx_region_length(outputs->tables, rank) <
        umi_outputs_table_size(outputs->num_maps)) {
        return UMX_ERR_PROTOCOL;
    }
    return umx_comm_get_ep(outputs->comm, rank, &peer->ep);
}

/* All ranks have come. */
static umx_status
open_tables(umx_outputs *outputs)
{
    umx_status status = UMX_OK;

    for (int i = 0; i < outputs->size && status == UMX_OK; i++) {
        status = read_record(outputs, i);
    }
    if (status == UMX_OK) {
        status = umx_lookout_start(outputs->worker, outputs->table, look,
                                   outputs, &outputs->lookout);
    }
    if (status == UMX_OK) {
        outputs->state = UMI_OUTPUTS_OPEN;
    }
    return status;
}

static umx_status
end_creation(umx_outputs *outputs, umx_status status)
{
    if (status == UMX_OK) {
        status = (outputs->state == UMI_OUTPUTS_CREATED &&
                  outputs->worker != NULL) ?
                     open_tables(outputs) :
                     UMX_ERR_CANCELED;
    }
    outputs->comm = NULL;
    return status;
}

static void
on_met(umx_request *req, umx_status status, void *arg)
{
    umx_outputs *outputs = arg;

    (void)req;
    outputs->meeting = NULL;
    status           = end_creation(outputs, status);
    complete(&outputs->create_req, status);
    umi_outputs_put(outputs);
}

/* The other ranks learn it, as the creation of a region is cancelled. */
static void
cancel_create(umx_request *req)
{
    umx_outputs *outputs = *(umx_outputs **)umx_request_state(req);

    if (outputs->meeting != NULL) {
        (void)umx_request_cancel(outputs->meeting);
    }
}

static const umx_request_class create_class = {.name   = "create",
                                               .cancel = cancel_create};

/* Make the region of all tables. */
static umx_status
post_meeting(umx_outputs *outputs)
{
    umx_op_params params = umx_layer_op_params(on_met, outputs);
    uint8_t       record[RECORD];
    umi_writer    w;

    umi_writer_init(&w, record, sizeof(record));
    umi_write_u64(&w, outputs->id);
    umi_write_u32(&w, outputs->num_maps);
    umi_write_u32(&w, outputs->num_partitions);
    return umx_region_create(outputs->comm, outputs->table, record,
                             sizeof(record), &params, &outputs->tables,
                             &outputs->meeting);
}

static umx_status
meet(umx_outputs *outputs, const umx_op_params *op, umx_request **req_p)
{
    umx_status status = post_meeting(outputs);

    if (status != UMX_INPROGRESS) {
        outputs->meeting = NULL;
        return end_creation(outputs, status);
    }
    umi_outputs_hold(outputs);
    outputs->create_req = umx_request_create(outputs->worker, &create_class,
                                             op);
    if (outputs->create_req == NULL) {
        (void)umx_request_cancel(outputs->meeting);
        return UMX_ERR_NO_MEMORY;
    }
    *(umx_outputs **)umx_request_state(outputs->create_req) = outputs;
    *req_p = outputs->create_req;
    return UMX_INPROGRESS;
}

static umx_status
check_params(const umx_outputs_params *params)
{
    uint64_t fields = params->field_mask;

    if (params->num_maps == 0 || params->num_maps > UMX_OUTPUTS_MAPS_MAX ||
        params->num_partitions == 0 ||
        params->num_partitions > UMX_OUTPUTS_PARTITIONS_MAX) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    return ((fields & UMX_OUTPUTS_FIELD_WINDOW) != 0 && params->window == 0) ?
               UMX_ERR_INVALID_PARAM :
               UMX_OK;
}

static umx_outputs *
new_outputs(umx_comm *comm, const umx_outputs_params *params)
{
    umx_outputs *outputs = calloc(1, sizeof(*outputs));

    if (outputs == NULL) {
        return NULL;
    }
    outputs->refs                 = 1;
    outputs->worker               = umx_comm_get_worker(comm);
    outputs->comm                 = comm;
    outputs->rank                 = umx_comm_rank(comm);
    outputs->size                 = umx_comm_size(comm);
    outputs->num_maps             = params->num_maps;
    outputs->num_partitions       = params->num_partitions;
    outputs->dependent.on_destroy = on_destroy;
    umi_node_init((umi_node *)(void *)&outputs->dependent);
    umi_list_init(&outputs->committed);
    umi_map_init(&outputs->own);
    umi_node_init(&outputs->hub_node);
    umi_outputs_asks_init(outputs);
    umi_list_init(&outputs->readers);
    umx_timer_init(&outputs->close_timer, on_pause);
    return outputs;
}

static umx_status
set_up(umx_outputs *outputs, const umx_outputs_params *params)
{
    umx_context *context = umx_worker_get_context(outputs->worker);
    umx_status   status;

    outputs->peers = calloc((size_t)outputs->size, sizeof(*outputs->peers));
    if (outputs->peers == NULL ||
        !umi_random_bytes(&outputs->id, sizeof(outputs->id))) {
        return UMX_ERR_NO_MEMORY;
    }
    status = umi_outputs_windows_new(outputs, params, &outputs->windows);
    if (status == UMX_OK) {
        status = umi_outputs_post_join(outputs);
    }
    if (status == UMX_OK) {
        status = umx_memh_alloc(
            context, umi_outputs_table_size(params->num_maps), &outputs->table);
    }
    return status;
}

umx_status
umx_outputs_create(umx_comm *comm, const umx_outputs_params *params,
                   const umx_op_params *op, umx_outputs **outputs_p,
                   umx_request **req_p)
{
    umx_worker  *worker = umx_comm_get_worker(comm);
    umx_outputs *outputs;
    umx_status   status;

    if (worker == NULL || umx_comm_rank(comm) < 0) {
        return UMX_ERR_CLOSED;
    }
    status = check_params(params);
    if (status != UMX_OK) {
        return status;
    }
    UMX_LAYER_LOCK(worker);
    outputs = new_outputs(comm, params);
    if (outputs == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = set_up(outputs, params);
    if (status == UMX_OK) {
        umx_worker_attach(worker, &outputs->dependent);
        status = meet(outputs, op, req_p);
    }
    if (status != UMX_OK && status != UMX_INPROGRESS) {
        shut(outputs);
        umi_outputs_put(outputs);
        return status;
    }
    *outputs_p = outputs;
    return status;
}

/* ---- what is known -------------------------------------------------------
 */

uint32_t
umx_outputs_num_maps(const umx_outputs *outputs)
{
    return outputs->num_maps;
}

uint32_t
umx_outputs_num_partitions(const umx_outputs *outputs)
{
    return outputs->num_partitions;
}

umx_status
umx_outputs_find(umx_outputs *outputs, uint32_t map, umx_outputs_info *info)
{
    UMI_OUTPUTS_LOCK(outputs);
    umx_status        status = umi_outputs_status(outputs);
    uint8_t           copy[UMI_OUTPUTS_PLACE];
    umi_outputs_where where;

    if (status != UMX_OK) {
        return status;
    }
    if (map >= outputs->num_maps) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    if (!umi_outputs_table_find(outputs, map, &where, copy)) {
        return UMX_ERR_NO_ELEM;
    }
    *info = (umx_outputs_info){.epoch = umi_outputs_attempt(where.epoch),
                               .len   = where.len,
                               .kind  = (umx_outputs_kind)where.kind,
                               .rank  = (int)where.rank,
                               .flags = where.flags &
                                        (unsigned)~UMI_OUTPUTS_OVERFLOW};
    return UMX_OK;
}
