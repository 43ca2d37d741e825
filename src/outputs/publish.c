/* SPDX-License-Identifier: BSD-3-Clause */
/* publish.c: put where an output is into every rank's copy of the table.
 *
 * Two ranks may commit one map at the same time, and both write the same place
 * of a slot. So a rank puts its slot into the other copies first and looks into
 * its own copy then: of two ranks with the same number one at least finds what
 * the other has put there, and begins again with another number. If both do,
 * their next numbers differ, and so do the places. A rank that finds a higher
 * number puts the slot of that into all copies: its own slot may have come late
 * to some rank, over the higher one. */
#include <stdlib.h>
#include <string.h>

#include "outputs/outputs.h"
#include "util/count.h"

enum {
    MAX_TRIES = 64 /* commits that others have crossed */
};

/* A commit that is under way. */
typedef struct umi_outputs_publication {
    umx_outputs             *outputs; /* held */
    umi_outputs_output      *output;
    umx_request             *req;          /* NULL: it was cancelled */
    umi_outputs_published_fn on_published; /* or NULL, as the next one */
    void (*on_over)(void *arg);
    void             *arg;
    umi_outputs_where where;
    uint64_t   epoch; /* that is put: that of this commit, or a higher one */
    uint8_t    place[UMI_OUTPUTS_PLACE];
    size_t     len;
    unsigned   num_pending; /* puts, and the loop that posts them */
    unsigned   num_tries;
    umx_status status;
} umi_outputs_publication;

/* ---- outputs -------------------------------------------------------------
 */

/* Take an output off the list. */
static void
forget_output(umx_outputs *outputs, umi_outputs_output *output)
{
    if (umi_map_find(&outputs->own, output->map) == &output->by_map) {
        umi_map_remove(&outputs->own, &output->by_map);
    }
    if (umi_node_is_linked(&output->node)) {
        umi_node_remove(&output->node);
        UMI_DECREMENT(outputs->num_committed);
    }
}

static void
free_output(umx_outputs *outputs, umi_outputs_output *output)
{
    forget_output(outputs, output);
    if (output->memh != NULL) {
        umx_memh_release(output->memh);
    }
    if (output->overflow != NULL) {
        umx_memh_release(output->overflow);
    }
    free(output->path);
    free(output);
}

void
umi_outputs_free_committed(umx_outputs *outputs)
{
    UMI_LIST_FOREACH_SAFE(node, &outputs->committed) {
        free_output(outputs, umi_container_of(node, umi_outputs_output, node));
    }
    umi_map_fini(&outputs->own);
}

umi_outputs_output *
umi_outputs_find_own(umx_outputs *outputs, uint32_t map, uint64_t epoch)
{
    umi_map_node       *node = umi_map_find(&outputs->own, map);
    umi_outputs_output *output;

    if (node == NULL) {
        return NULL;
    }
    output = umi_container_of(node, umi_outputs_output, by_map);
    return (output->epoch == epoch) ? output : NULL;
}

/* The output is complete: it takes the place of one that was committed before.
 */
static void
add_own(umx_outputs *outputs, umi_outputs_output *output)
{
    umi_map_node *before = umi_map_find(&outputs->own, output->map);

    if (before != NULL) {
        umi_map_remove(&outputs->own, before);
    }
    umi_map_add(&outputs->own, &output->by_map, output->map);
}

static bool
is_mapped(const umi_outputs_output *output)
{
    return output->memh != NULL && umx_memh_is_mapped_elsewhere(output->memh);
}

size_t
umi_outputs_count_mapped(umx_outputs *outputs)
{
    size_t count = 0;

    UMI_LIST_FOREACH(node, &outputs->committed) {
        count += is_mapped(umi_container_of(node, umi_outputs_output, node)) ?
                     1 :
                     0;
    }
    return count;
}

/* Has a later commit of this rank taken the place of this output? Then every
 * other rank has the slot of that. A commit of another rank may still be on its
 * way to some: what it takes the place of stays. */
static bool
is_replaced(const umx_outputs *outputs, const umi_outputs_output *output)
{
    return umi_map_find(&outputs->own, output->map) != &output->by_map;
}

void
umi_outputs_sweep(umx_outputs *outputs, bool is_end)
{
    outputs->num_unswept = 0;
    UMI_LIST_FOREACH_SAFE(node, &outputs->committed) {
        umi_outputs_output *output = umi_container_of(node, umi_outputs_output,
                                                      node);

        if (output->epoch == 0 || (!is_end && !is_replaced(outputs, output))) {
            continue;
        }
        if (output->memh != NULL) {
            umx_memh_close(output->memh);
        }
        if (!is_mapped(output)) {
            free_output(outputs, output);
        }
    }
}

/* Look for outputs to free, now and then: that takes long if there are many. */
static void
sweep_if_due(umx_outputs *outputs)
{
    if (++outputs->num_unswept > outputs->num_committed / 4) {
        umi_outputs_sweep(outputs, false);
    }
}

/* ---- the slot ------------------------------------------------------------
 */

/* Put key and path into a memory of their own. */
static umx_status
make_overflow(umi_outputs_publication *publish)
{
    umx_outputs        *outputs = publish->outputs;
    umi_outputs_where  *where   = &publish->where;
    umi_outputs_output *output  = publish->output;
    umx_context        *context = umx_worker_get_context(outputs->joint.worker);
    umx_status          status  = UMX_OK;
    size_t              len;

    if (where->key_len > UMI_OUTPUTS_KEY_MAX ||
        where->path_len > UMI_OUTPUTS_PATH_MAX) {
        return UMX_ERR_UNSUPPORTED;
    }
    if (outputs->heap == NULL) {
        status = umx_heap_create(context, NULL, &outputs->heap);
    }
    if (status == UMX_OK) {
        status = umx_heap_alloc(outputs->heap, umi_outputs_overflow_size(where),
                                &output->overflow);
    }
    if (status != UMX_OK) {
        return status;
    }
    umi_outputs_overflow_encode(where, umx_memh_buffer(output->overflow)->data);
    where->key      = umx_memh_key(output->overflow, &len);
    where->key_len  = (uint16_t)len;
    where->path_len = 0;
    where->flags |= UMI_OUTPUTS_OVERFLOW;
    return (len <= UMI_OUTPUTS_ROOM) ? UMX_OK : UMX_ERR_UNSUPPORTED;
}

static umx_status
describe(umi_outputs_publication *publish)
{
    const umi_outputs_output *output = publish->output;
    size_t                    len    = 0;

    publish->where = (umi_outputs_where){
        .len      = output->len,
        .rank     = (uint32_t)publish->outputs->joint.rank,
        .kind     = output->kind,
        .flags    = output->flags,
        .device   = output->device,
        .inode    = output->inode,
        .mtime_ns = output->mtime_ns,
    };
    if (output->memh != NULL) {
        publish->where.key     = umx_memh_key(output->memh, &len);
        publish->where.key_len = (uint16_t)len;
    }
    if (output->path != NULL) {
        publish->where.path     = output->path;
        publish->where.path_len = (uint16_t)strlen(output->path);
    }
    return ((size_t)publish->where.key_len + publish->where.path_len <=
            UMI_OUTPUTS_ROOM) ?
               UMX_OK :
               make_overflow(publish);
}

/* ---- the commit ----------------------------------------------------------
 */

static void
free_publish(umi_outputs_publication *publish)
{
    umx_outputs *outputs = publish->outputs;

    if (publish->on_over != NULL) {
        publish->on_over(publish->arg);
    }
    free(publish);
    umi_outputs_put(outputs);
}

/* Write the slot into this rank's copy, unless another rank has put a higher
 * one there. */
static void
write_own(umi_outputs_publication *publish)
{
    umx_outputs *outputs = publish->outputs;
    uint32_t     map     = publish->output->map;

    if (publish->epoch == publish->where.epoch &&
        umi_outputs_table_epoch(outputs, map) < publish->epoch) {
        umi_outputs_table_write(outputs, map, publish->where.epoch,
                                publish->place, publish->len);
    }
}

/* All copies have the slot, or that failed. */
static void
end(umi_outputs_publication *publish, umx_status status)
{
    umi_outputs_output *output = publish->output;
    umx_request        *req    = publish->req;

    if (status == UMX_OK) {
        output->epoch = publish->where.epoch;
        add_own(publish->outputs, output);
        if (publish->on_published != NULL) {
            publish->on_published(umi_outputs_attempt(output->epoch),
                                  publish->arg);
        }
        write_own(publish);
        sweep_if_due(publish->outputs);
    } else {
        free_output(publish->outputs, output);
    }
    if (req != NULL) {
        umx_request_complete(req, status);
    }
    free_publish(publish);
}

static void go_on(umi_outputs_publication *publish, uint64_t other);

/* Note that a put is over, or the loop that posts them. With the last one the
 * commit goes on, or ends, which frees it. */
static void
count_down(umi_outputs_publication *publish)
{
    umx_outputs *outputs = publish->outputs;
    uint64_t     other;

    if (UMI_DECREMENT(publish->num_pending) != 0) {
        return;
    }
    if (publish->status == UMX_OK) {
        publish->status = umi_outputs_status(outputs);
    }
    other = umi_outputs_table_epoch(outputs, publish->output->map);
    if (publish->status == UMX_OK && other != publish->epoch &&
        umi_outputs_attempt(other) >= umi_outputs_attempt(publish->epoch)) {
        if (++publish->num_tries < MAX_TRIES) {
            go_on(publish, other);
            return;
        }
        publish->status = UMX_ERR_BUSY;
    }
    end(publish, publish->status);
}

/* A rank that cannot be reached has ended, or has closed the outputs. */
static void
note_status(umi_outputs_publication *publish, umx_status status)
{
    if ((status == UMX_ERR_NO_MEMORY || status == UMX_ERR_OUT_OF_RANGE) &&
        publish->status == UMX_OK) {
        publish->status = status;
    }
}

static void
on_put(umx_request *req, umx_status status, void *arg)
{
    umi_outputs_publication *publish = arg;

    (void)req;
    note_status(publish, status);
    count_down(publish);
}

static void
put(umi_outputs_publication *publish, umx_rkey *table)
{
    umx_op_params params = umx_layer_op_params(on_put, publish);
    umx_atomic    signal = umi_outputs_table_signal();
    umx_rma_item  item   = {.offset = umi_outputs_table_offset(
                                publish->output->map, publish->epoch),
                            .buf = umx_host_buffer(publish->place, publish->len)};
    umx_request  *req;
    umx_status    status = umx_rma_put_signal(table, &item, &signal, &params,
                                              &req);

    if (status == UMX_INPROGRESS) {
        publish->num_pending++;
    } else {
        note_status(publish, status);
    }
}

/* Put the slot into the copies of the others. */
static void
put_all(umi_outputs_publication *publish)
{
    umx_outputs *outputs = publish->outputs;

    publish->num_pending = 1;
    for (int i = 0; i < outputs->joint.size; i++) {
        if (outputs->peers[i].table != NULL) {
            put(publish, outputs->peers[i].table);
        }
    }
    count_down(publish);
}

/* Put a slot with a number that is by `step` higher than the last. */
static void
begin(umi_outputs_publication *publish, unsigned step)
{
    uint64_t before = umi_outputs_table_epoch(publish->outputs,
                                              publish->output->map);

    publish->where.epoch = (umi_outputs_attempt(before) + step)
                               << UMI_OUTPUTS_RANK_BITS |
                           publish->where.rank;
    publish->epoch = publish->where.epoch;
    publish->len   = umi_outputs_slot_encode(&publish->where, publish->place);
    put_all(publish);
}

/* Another rank has committed the map meanwhile, with a number as high, or
 * higher. */
static void
go_on(umi_outputs_publication *publish, uint64_t other)
{
    uint8_t           copy[UMI_OUTPUTS_PLACE];
    umi_outputs_where where;

    if (umi_outputs_attempt(other) > umi_outputs_attempt(publish->epoch) &&
        umi_outputs_table_find(publish->outputs, publish->output->map, &where,
                               copy) &&
        where.epoch == other) {
        publish->epoch = other;
        publish->len   = umi_outputs_slot_encode(&where, publish->place);
        put_all(publish);
    } else {
        begin(publish, (other < publish->epoch) ? 2 : 1);
    }
}

/* Let the commit go on, for which nobody waits any more. */
static void
cancel(umx_request *req)
{
    umi_outputs_publication *publish = UMX_REQUEST_OF(req,
                                                      umi_outputs_publication);

    publish->req = NULL;
    umx_request_complete(req, UMX_ERR_CANCELED);
}

static const umx_request_class publish_class = {.name   = "commit",
                                                .cancel = cancel};

umx_status
umi_outputs_publish(umx_outputs *outputs, umi_outputs_output *output,
                    umi_outputs_published_fn on_published,
                    void (*on_over)(void *arg), void *arg,
                    const umx_op_params *op, umx_request **req_p)
{
    umi_outputs_publication *publish = calloc(1, sizeof(*publish));
    umx_status               status;

    umi_node_init(&output->node);
    if (publish == NULL) {
        free_output(outputs, output);
        if (on_over != NULL) {
            on_over(arg);
        }
        return UMX_ERR_NO_MEMORY;
    }
    publish->outputs      = outputs;
    publish->output       = output;
    publish->on_published = on_published;
    publish->on_over      = on_over;
    publish->arg          = arg;
    status                = describe(publish);
    if (status == UMX_OK) {
        publish->req = umx_request_create(outputs->joint.worker, &publish_class,
                                          op);
        status       = (publish->req == NULL) ? UMX_ERR_NO_MEMORY : UMX_OK;
    }
    umi_outputs_hold(outputs);
    if (status != UMX_OK) {
        free_output(outputs, output);
        free_publish(publish);
        return status;
    }
    umi_list_append(&outputs->committed, &output->node);
    outputs->num_committed++;
    UMX_REQUEST_OF(publish->req, umi_outputs_publication) = publish;
    *req_p                                                = publish->req;
    begin(publish, 1);
    return UMX_INPROGRESS;
}
