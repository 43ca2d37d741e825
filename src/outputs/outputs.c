/* SPDX-License-Identifier: BSD-3-Clause */
/* outputs.c: the life of the outputs of maps on one rank. */
#include "outputs/outputs.h"

#include <stdlib.h>
#include <string.h>

#include "outputs/post.h"
#include "outputs/remote_read.h"
#include "outputs/window.h"
#include "util/bytes.h"
#include "util/clock.h"
#include "util/hash.h"

#define LABEL UINT64_C(0x7374757074756f) /* of the derived communicator */

enum {
    RECORD    = 16,     /* bytes that each rank tells the others */
    PAUSE_NS  = 200000, /* between looks at what is mapped, at first */
    PAUSE_MAX = 20000000
};

/* ---- references ----------------------------------------------------------
 */

static void
free_outputs(umx_joint *joint)
{
    umx_outputs *outputs = umi_container_of(joint, umx_outputs, joint);

    umi_outputs_free_committed(outputs);
    umi_outputs_windows_free(outputs->windows);
    umi_slots_fini(&outputs->ask_ids);
    if (outputs->table != NULL) {
        umx_memh_release(outputs->table);
    }
    if (outputs->heap != NULL) {
        umx_heap_destroy(outputs->heap);
    }
    free(outputs->peers);
    free(outputs);
}

/* ---- the end -------------------------------------------------------------
 */

static void
end_close(umx_outputs *outputs, umx_status status)
{
    umx_request *req = outputs->close_req;

    umx_timer_stop(&outputs->close_timer);
    outputs->close_req = NULL;
    if (req != NULL) {
        umx_request_complete(req, status);
    }
}

/* Other ranks read nothing of this one any more, and this one nothing that was
 * not opened. */
static void
on_end(umx_joint *joint, umx_status status, bool was_open)
{
    umx_outputs *outputs = umi_container_of(joint, umx_outputs, joint);
    size_t       left;
    umi_node    *node;

    (void)status;
    (void)was_open;
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
on_destroy(umx_joint *joint)
{
    end_close(umi_container_of(joint, umx_outputs, joint), UMX_ERR_CANCELED);
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
            outputs->joint.worker, timer,
            (left < outputs->close_pause_ns) ? left : outputs->close_pause_ns);
    }
}

static void
cancel_close(umx_request *req)
{
    umx_outputs *outputs = UMX_REQUEST_OF(req, umx_outputs);

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

    if (outputs->joint.worker == NULL ||
        outputs->joint.state == UMI_JOINT_MEETING) {
        return UMX_ERR_CLOSED;
    }
    if (outputs->close_req != NULL) {
        return UMX_ERR_BUSY;
    }
    umi_joint_end(&outputs->joint, UMX_ERR_CLOSED);
    umi_outputs_sweep(outputs, true);
    if (umi_outputs_count_mapped(outputs) == 0) {
        return UMX_OK;
    }
    outputs->close_req = umx_request_create(outputs->joint.worker, &close_class,
                                            op);
    if (outputs->close_req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    UMX_REQUEST_OF(outputs->close_req, umx_outputs) = outputs;
    outputs->close_deadline_ns = (timeout_ns < UINT64_MAX - now) ?
                                     now + timeout_ns :
                                     UINT64_MAX;
    outputs->close_pause_ns    = PAUSE_NS;
    umx_timer_start(outputs->joint.worker, &outputs->close_timer,
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
    if (outputs->joint.worker != NULL) {
        end_close(outputs, UMX_ERR_CANCELED);
    }
    umi_joint_end(&outputs->joint, UMX_ERR_CLOSED);
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
    const void *record = umx_region_record(outputs->joint.region, rank, &len);

    umi_reader_init(&r, record, len);
    peer->id       = umi_read_u64(&r);
    num_maps       = umi_read_u32(&r);
    num_partitions = umi_read_u32(&r);
    if (r.is_bad || num_maps != outputs->num_maps ||
        num_partitions != outputs->num_partitions) {
        return umi_joint_refuse(
            &outputs->joint, UMX_ERR_INVALID_PARAM,
            "the ranks give different numbers of maps or partitions: rank %d "
            "%u and %u, and rank %d %u and %u",
            outputs->joint.rank, outputs->num_maps, outputs->num_partitions,
            rank, num_maps, num_partitions);
    }
    if (rank == outputs->joint.rank) {
        return UMX_OK;
    }
    peer->table = umx_region_rkey(outputs->joint.region, rank);
    if (umx_region_length(outputs->joint.region, rank) <
        umi_outputs_table_size(outputs->num_maps)) {
        return UMX_ERR_PROTOCOL;
    }
    return umx_comm_get_ep(outputs->joint.comm, rank, &peer->ep);
}

/* All ranks have come. None hears of another one's end from now on but by what
 * it reads there. */
static umx_status
on_met(umx_joint *joint)
{
    umx_outputs *outputs = umi_container_of(joint, umx_outputs, joint);
    umx_status   status  = UMX_OK;

    for (int i = 0; i < joint->size && status == UMX_OK; i++) {
        status = read_record(outputs, i);
    }
    if (status == UMX_OK) {
        status = umx_lookout_start(joint->worker, outputs->table, look, outputs,
                                   &outputs->lookout);
    }
    if (status == UMX_OK) {
        umi_joint_leave(joint);
    }
    return status;
}

static const umi_joint_class outputs_class = {.name       = "outputs",
                                              .label      = LABEL,
                                              .on_met     = on_met,
                                              .on_end     = on_end,
                                              .on_destroy = on_destroy,
                                              .free       = free_outputs};

static umx_status
meet(umx_outputs *outputs, const umx_op_params *op, umx_request **req_p)
{
    uint8_t         record[RECORD];
    umi_joint_offer offer = {
        .memh = outputs->table, .record = record, .len = sizeof(record)};
    umi_writer w;

    umi_writer_init(&w, record, sizeof(record));
    umi_write_u64(&w, outputs->id);
    umi_write_u32(&w, outputs->num_maps);
    umi_write_u32(&w, outputs->num_partitions);
    return umi_joint_meet(&outputs->joint, &offer, op, req_p);
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
new_outputs(const umx_outputs_params *params)
{
    umx_outputs *outputs = calloc(1, sizeof(*outputs));

    if (outputs == NULL) {
        return NULL;
    }
    outputs->num_maps       = params->num_maps;
    outputs->num_partitions = params->num_partitions;
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
    umx_context *context = umx_worker_get_context(outputs->joint.worker);
    umx_status   status;

    outputs->peers = calloc((size_t)outputs->joint.size,
                            sizeof(*outputs->peers));
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
    outputs = new_outputs(params);
    if (outputs == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = umi_joint_init(&outputs->joint, &outputs_class, comm);
    if (status == UMX_OK) {
        status = set_up(outputs, params);
    }
    if (status != UMX_OK) {
        umi_joint_end(&outputs->joint, status);
        umi_outputs_put(outputs);
        return status;
    }
    status = meet(outputs, op, req_p);
    if (status == UMX_OK || status == UMX_INPROGRESS) {
        *outputs_p = outputs;
    }
    return status;
}

/* ---- what is known -------------------------------------------------------
 */

umx_joint *
umx_outputs_joint(umx_outputs *outputs)
{
    return &outputs->joint;
}

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
