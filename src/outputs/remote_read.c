/* SPDX-License-Identifier: BSD-3-Clause */
/* remote_read.c: read bytes of an output from another rank: of its memory, or
 * of the windows of its file that it is asked for, one after the other. */
#include "outputs/remote_read.h"

#include <stdlib.h>

#include "outputs/post.h"
#include "util/hash.h"

enum {
    MAX_TRIES = 16, /* windows that were taken away before they were read */
    LOOK_NS   = 50000000 /* between looks whether an owner is still there */
};

typedef struct umi_outputs_reading {
    umi_node            node;  /* outputs->asks, while an answer is to come */
    umi_outputs_entry  *entry; /* held */
    umx_outputs        *outputs;
    uint64_t            offset;
    char               *data;
    size_t              len;  /* to be read */
    size_t              part; /* that is being read */
    umi_outputs_read_fn fn;
    void               *arg;
    uint64_t            seq;    /* of the ask; or 0 */
    umx_rkey           *rkey;   /* of the window; or NULL */
    uint64_t            window; /* its number */
    unsigned            num_tries;
} umi_outputs_reading;

static umi_outputs_reading *
new_reading(umi_outputs_entry *entry, uint64_t offset, void *data, size_t len,
            umi_outputs_read_fn fn, void *arg)
{
    umi_outputs_reading *reading = calloc(1, sizeof(*reading));

    if (reading != NULL) {
        umi_node_init(&reading->node);
        umi_refs_get(&entry->refs);
        reading->entry   = entry;
        reading->outputs = entry->reader->outputs;
        reading->offset  = offset;
        reading->data    = data;
        reading->len     = len;
        reading->fn      = fn;
        reading->arg     = arg;
    }
    return reading;
}

static void
free_reading(umi_outputs_reading *reading)
{
    umi_outputs_entry *entry = reading->entry;

    free(reading);
    umi_outputs_entry_put(entry);
}

static void
finish(umi_outputs_reading *reading, umx_status status)
{
    reading->fn(status, reading->arg);
    free_reading(reading);
}

/* ---- memory --------------------------------------------------------------
 */

static void
on_read(umx_request *req, umx_status status, void *arg)
{
    (void)req;
    finish(arg, status);
}

static umx_status
read_memory(umi_outputs_reading *reading)
{
    umx_op_params params = umx_layer_op_params(on_read, reading);
    umx_rma_item  item   = {.offset = reading->offset,
                            .buf = umx_host_buffer(reading->data, reading->len)};
    umx_request  *req;

    return umx_rma_get(reading->entry->away->rkey, &item, &params, &req);
}

/* ---- windows -------------------------------------------------------------
 */

static bool
is_there(const umx_outputs *outputs, int rank)
{
    const umi_outputs_peer *peer = &outputs->peers[rank];
    umx_ep_state            state;

    if (peer->table == NULL) {
        return false;
    }
    state = umx_ep_get_state(peer->ep);
    return (state == UMX_EP_OPEN || state == UMX_EP_CONNECTING) &&
           !umx_ep_is_peer_closed(peer->ep);
}

static void
forget_ask(umi_outputs_reading *reading)
{
    umi_node_remove(&reading->node);
    umi_slots_remove(&reading->outputs->ask_ids, reading->seq);
    reading->seq = 0;
}

/* Owners that have ended do not answer. */
static void
on_look(umx_timer *timer)
{
    umx_outputs *outputs = umi_container_of(timer, umx_outputs, ask_timer);
    umi_list     all;
    umi_node    *node;

    umi_outputs_hold(outputs);
    umi_list_init(&all);
    umi_list_splice(&all, &outputs->asks);
    while ((node = umi_list_pop(&all)) != NULL) {
        umi_outputs_reading *reading = umi_container_of(
            node, umi_outputs_reading, node);

        umi_list_append(&outputs->asks, &reading->node);
        if (!is_there(outputs, reading->entry->rank)) {
            forget_ask(reading);
            finish(reading, UMX_ERR_CONNECTION_RESET);
        }
    }
    if (!umi_list_is_empty(&outputs->asks) && outputs->joint.worker != NULL) {
        umx_timer_start(outputs->joint.worker, timer, LOOK_NS);
    }
    umi_outputs_put(outputs);
}

void
umi_outputs_asks_init(umx_outputs *outputs)
{
    umi_list_init(&outputs->asks);
    umi_slots_init(&outputs->ask_ids);
    umx_timer_init(&outputs->ask_timer, on_look);
}

void
umi_outputs_asks_end(umx_outputs *outputs)
{
    umx_timer_stop(&outputs->ask_timer);
    while (!umi_list_is_empty(&outputs->asks)) {
        umi_outputs_reading *reading = umi_container_of(
            outputs->asks.next, umi_outputs_reading, node);

        forget_ask(reading);
        finish(reading, UMX_ERR_CLOSED);
    }
}

/* Ask for the window with the next byte. UMX_INPROGRESS; or why not. */
static umx_status
ask(umi_outputs_reading *reading)
{
    umx_outputs        *outputs = reading->outputs;
    umi_outputs_message message = {
        .kind   = UMI_OUTPUTS_ASK,
        .to     = outputs->peers[reading->entry->rank].id,
        .from   = outputs->id,
        .map    = reading->entry->map,
        .epoch  = reading->entry->epoch,
        .offset = reading->offset};
    umx_status status;
    uint32_t   nonce;

    if (umi_outputs_status(outputs) != UMX_OK) {
        return UMX_ERR_CLOSED;
    }
    if (!is_there(outputs, reading->entry->rank)) {
        return UMX_ERR_CONNECTION_RESET;
    }
    reading->seq = umi_random_bytes(&nonce, sizeof(nonce)) ?
                       umi_slots_add(&outputs->ask_ids, reading, nonce) :
                       0;
    if (reading->seq == 0) {
        return UMX_ERR_NO_MEMORY;
    }
    message.seq = reading->seq;
    if (umi_list_is_empty(&outputs->asks)) {
        umx_timer_start(outputs->joint.worker, &outputs->ask_timer, LOOK_NS);
    }
    umi_list_append(&outputs->asks, &reading->node);
    status = umi_outputs_send(outputs, reading->entry->rank, &message, NULL, 0);
    if (status != UMX_OK) {
        forget_ask(reading);
        return status;
    }
    return UMX_INPROGRESS;
}

/* The window is not needed any more. */
static void
give_back(umi_outputs_reading *reading)
{
    umx_outputs        *outputs = reading->outputs;
    umi_outputs_message message = {
        .kind   = UMI_OUTPUTS_RETURN,
        .to     = outputs->peers[reading->entry->rank].id,
        .window = reading->window};

    umx_rkey_destroy(reading->rkey);
    reading->rkey = NULL;
    if (outputs->joint.worker != NULL) {
        (void)umi_outputs_send(outputs, reading->entry->rank, &message, NULL,
                               0);
    }
}

/* A part has been read, or a window was taken away. */
static void
end_part(umi_outputs_reading *reading, umx_status status)
{
    give_back(reading);
    if (status == UMX_ERR_STALE_KEY && ++reading->num_tries < MAX_TRIES) {
        reading->entry->reader->info.num_retries++;
        status = ask(reading);
    } else if (status == UMX_OK) {
        reading->num_tries = 0;
        reading->offset += reading->part;
        reading->data += reading->part;
        reading->len -= reading->part;
        status = (reading->len == 0) ? UMX_OK : ask(reading);
    }
    if (status != UMX_INPROGRESS) {
        finish(reading, status);
    }
}

static void
on_part(umx_request *req, umx_status status, void *arg)
{
    (void)req;
    end_part(arg, status);
}

/* Read what the window has of what is wanted. */
static void
read_window(umi_outputs_reading *reading, const umi_outputs_message *message)
{
    umx_op_params params = umx_layer_op_params(on_part, reading);
    uint64_t      at     = reading->offset - message->offset;
    uint64_t      there  = message->len - at;
    umx_rma_item  item;
    umx_request  *req;
    umx_status    status;

    reading->part = (there < reading->len) ? (size_t)there : reading->len;
    item          = (umx_rma_item){.offset = at,
                                   .buf = umx_host_buffer(reading->data, reading->part)};
    reading->entry->reader->info.num_windows++;
    status = umx_rma_get(reading->rkey, &item, &params, &req);
    if (status != UMX_INPROGRESS) {
        end_part(reading, status);
    }
}

void
umi_outputs_on_answer(umx_outputs *outputs, const umi_outputs_message *message,
                      const void *key, size_t len)
{
    umi_outputs_reading *reading = umi_slots_get(&outputs->ask_ids,
                                                 message->seq);
    umx_status           status  = (umx_status)message->status;

    if (reading == NULL) {
        return;
    }
    forget_ask(reading);
    if (status == UMX_OK &&
        (key == NULL || message->offset > reading->offset ||
         reading->offset - message->offset >= message->len)) {
        status = UMX_ERR_PROTOCOL;
    }
    if (status == UMX_OK) {
        status = umx_rkey_open(outputs->peers[reading->entry->rank].ep, key,
                               len, &reading->rkey);
    }
    if (status != UMX_OK) {
        finish(reading, (status < 0) ? status : UMX_ERR_PROTOCOL);
        return;
    }
    reading->window = message->window;
    if (umx_rkey_length(reading->rkey) != message->len) {
        end_part(reading, UMX_ERR_PROTOCOL);
        return;
    }
    read_window(reading, message);
}

umx_status
umi_outputs_transfer(umi_outputs_entry *entry, uint64_t offset, void *data,
                     size_t len, umi_outputs_read_fn fn, void *arg)
{
    umi_outputs_reading *reading = new_reading(entry, offset, data, len, fn,
                                               arg);
    umx_status           status;

    if (reading == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = (entry->away != NULL) ? read_memory(reading) : ask(reading);
    if (status != UMX_INPROGRESS) {
        free_reading(reading);
    }
    return status;
}
