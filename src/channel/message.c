/* SPDX-License-Identifier: BSD-3-Clause */
#include "channel/message.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "channel/channel.h"
#include "channel/frames.h"
#include "mem/memtype.h"
#include "util/count.h"
#include "worker/request.h"
#include "worker/worker.h"

/* Keeping a descriptor costs no copy but may pin a whole transport segment
 * for a few bytes; beyond these limits bytes are copied instead. */
enum {
    ALWAYS_KEEP_BYTES = 32 * 1024,
    MAX_SMALL_DESCS   = 32,
    MAX_BLOCKS        = 64
};

static umx_message *
message_new(umx_ep *ep)
{
    umx_message *message = umi_pool_get(&umi_endpoint_worker(ep)->messages);

    if (message == NULL) {
        return NULL;
    }
    memset(message, 0, offsetof(umx_message, bytes));
    umi_node_init(&message->node);
    message->ep      = ep;
    message->storage = UMI_STORAGE_MOVED;
    return message;
}

/* Take a block of the worker's. Blocks are kept for good, so that their number
 * is bounded. */
static void *
get_block(umx_worker *worker, size_t len)
{
    umi_pool *blocks = &worker->blocks;

    return (len <= UMI_BLOCK_SIZE && blocks->in_use < MAX_BLOCKS) ?
               umi_pool_get(blocks) :
               NULL;
}

bool
umi_message_make_room(umx_message *message, size_t len)
{
    if (len <= (size_t)UMI_MESSAGE_INLINE - message->inline_used) {
        message->data    = message->bytes + message->inline_used;
        message->storage = UMI_STORAGE_INLINE;
        return true;
    }
    message->data = get_block(umi_endpoint_worker(message->ep), len);
    if (message->data != NULL) {
        message->storage = UMI_STORAGE_BLOCK;
        return true;
    }
    message->data = malloc(len);
    if (message->data == NULL) {
        return false;
    }
    message->storage = UMI_STORAGE_HEAP;
    return true;
}

/* Keep the user's header in front of the message; false when out of memory. */
static bool
keep_header(umx_message *message, const void *header, size_t len)
{
    if (len == 0) {
        return true;
    }
    if (len <= UMI_MESSAGE_INLINE) {
        message->header      = message->bytes;
        message->inline_used = (uint8_t)((len + 7) & ~(size_t)7);
    } else {
        message->header = malloc(len);
        if (message->header == NULL) {
            return false;
        }
    }
    message->header_len = (uint32_t)len;
    memcpy(message->header, header, len);
    return true;
}

umx_status
umi_message_rebuild(umx_ep *ep, const void *header, size_t header_len,
                    const umx_buffer *buf, size_t len, umx_message **message_p)
{
    umx_message *message = message_new(ep);
    umx_status   status  = UMX_ERR_NO_MEMORY;

    if (message == NULL) {
        return status;
    }
    if (keep_header(message, header, header_len) &&
        umi_message_make_room(message, len)) {
        status = umi_copy_out(buf, message->data, len);
    }
    if (status != UMX_OK) {
        umi_message_free(message);
        return status;
    }
    message->info.length = len;
    *message_p           = message;
    return UMX_OK;
}

umx_message *
umi_message_empty(umx_ep *ep)
{
    umx_buffer   none    = umx_host_buffer(NULL, 0);
    umx_message *message = NULL;

    (void)!umi_message_rebuild(ep, NULL, 0, &none, 0, &message);
    return message;
}

static bool
should_keep_desc(const umx_ep *ep, const umi_am_arrival *arrival)
{
    return arrival->can_keep && arrival->len > UMI_MESSAGE_INLINE &&
           (arrival->len >= ALWAYS_KEEP_BYTES ||
            umi_channels_of(ep)->num_descs < MAX_SMALL_DESCS);
}

/* Keep the bytes that arrive, copied, or as they are. */
static bool
keep_bytes(umx_message *message, const umi_am_arrival *arrival, int *verdict_p)
{
    umx_ep *ep = message->ep;

    message->info.length = arrival->len;
    if (umi_am_is_at_hand(arrival) && !should_keep_desc(ep, arrival)) {
        *verdict_p = UMI_AM_CONSUMED;
        if (!umi_message_make_room(message, arrival->len)) {
            return false;
        }
        if (arrival->len != 0) {
            memcpy(message->data, arrival->data, arrival->len);
        }
        return true;
    }
    message->way  = arrival->way;
    message->data = arrival->data;
    if (umi_am_is_at_hand(arrival)) {
        message->storage = UMI_STORAGE_EAGER;
        umi_channels_of(ep)->num_descs++;
    } else {
        message->storage = UMI_STORAGE_RNDV;
        ep->num_announced++;
    }
    *verdict_p = UMI_AM_KEPT;
    return true;
}

umx_message *
umi_message_keep(umx_ep *ep, const umi_am_arrival *arrival, int *verdict_p)
{
    const uint8_t *header = arrival->header;
    size_t         size = umi_header_size(header[offsetof(umi_header, flags)]);
    umx_message   *message = message_new(ep);

    *verdict_p = UMI_AM_REFUSED;
    if (message == NULL) {
        return NULL;
    }
    if (!keep_header(message, header + size, arrival->header_len - size) ||
        !keep_bytes(message, arrival, verdict_p)) {
        umi_message_free(message);
        return NULL;
    }
    return message;
}

static void
release(const umx_message *message)
{
    if (message->way->release != NULL) {
        message->way->release(&message->ep->base, message->data);
    }
}

void
umi_message_release_bytes(umx_message *message, umx_worker *worker)
{
    umx_ep *ep = message->ep;

    switch (message->storage) {
    case UMI_STORAGE_HEAP:
        free(message->data);
        break;
    case UMI_STORAGE_COPY:
        umi_spare_free(message->copy);
        break;
    case UMI_STORAGE_BLOCK:
        umi_pool_put(&worker->blocks, message->data);
        break;
    case UMI_STORAGE_EAGER:
        UMI_DECREMENT(umi_channels_of(ep)->num_descs);
        release(message);
        break;
    case UMI_STORAGE_RNDV:
        UMI_DECREMENT(ep->num_announced);
        release(message);
        break;
    case UMI_STORAGE_INLINE:
    case UMI_STORAGE_LANDING:
    case UMI_STORAGE_MOVED:
        break;
    }
    message->storage = UMI_STORAGE_MOVED;
}

void
umi_message_free(umx_message *message)
{
    umx_ep     *ep     = message->ep;
    umx_worker *worker = message->is_taken ? message->worker :
                                             umi_endpoint_worker(ep);

    assert(!message->is_queued);
    umi_node_remove(&message->node);
    if (message->frames != NULL) {
        umi_frames_free(message);
    }
    if (message->header != message->bytes) {
        free(message->header);
    }
    umi_message_release_bytes(message, worker);
    umi_pool_put(&worker->messages, message);
}
