#include "wire/message.h"

#include <stdlib.h>
#include <string.h>

#include "core/worker.h"
#include "wire/conn.h"

/* Keeping a descriptor costs no copy but may pin a whole transport segment
 * for a few bytes; beyond these limits bytes are copied instead. */
enum {
    ALWAYS_KEEP_BYTES = 32 * 1024,
    MAX_SMALL_DESCS   = 32
};

static umx_message *
message_new(umx_ep *ep)
{
    umx_message *message = umi_pool_get(&umi_conn_worker(ep)->messages);

    if (message == NULL) {
        return NULL;
    }
    memset(message, 0, offsetof(umx_message, bytes));
    umi_link_init(&message->link);
    message->ep      = ep;
    message->storage = UMI_STORAGE_MOVED;
    return message;
}

bool
umi_message_make_room(umx_message *message, size_t len)
{
    if (len <= UMI_MESSAGE_INLINE) {
        message->data    = message->bytes;
        message->storage = UMI_STORAGE_INLINE;
        return true;
    }
    message->data = malloc(len);
    if (message->data == NULL) {
        return false;
    }
    message->storage = UMI_STORAGE_HEAP;
    return true;
}

umx_message *
umi_message_copy(umx_ep *ep, const void *data, size_t len)
{
    umx_message *message = message_new(ep);

    if (message == NULL) {
        return NULL;
    }
    if (!umi_message_make_room(message, len)) {
        umi_message_free(message);
        return NULL;
    }
    if (len != 0) {
        memcpy(message->data, data, len);
    }
    message->info.length = len;
    return message;
}

static bool
should_keep_desc(const umx_ep *ep, const umi_am_arrival *arrival)
{
    return arrival->can_keep && arrival->len > UMI_MESSAGE_INLINE &&
           (arrival->len >= ALWAYS_KEEP_BYTES ||
            ep->num_descs < MAX_SMALL_DESCS);
}

umx_message *
umi_message_keep(umx_ep *ep, const umi_am_arrival *arrival, int *verdict_p)
{
    umx_message *message;

    if (!arrival->is_rndv && !should_keep_desc(ep, arrival)) {
        *verdict_p = UMI_AM_CONSUMED;
        return umi_message_copy(ep, arrival->data, arrival->len);
    }
    message = message_new(ep);
    if (message == NULL) {
        *verdict_p = UMI_AM_REFUSED;
        return NULL;
    }
    message->data        = arrival->data;
    message->info.length = arrival->len;
    if (arrival->is_rndv) {
        message->storage      = UMI_STORAGE_RNDV;
        message->is_announced = true;
        ep->num_announced++;
    } else {
        message->storage = UMI_STORAGE_EAGER;
        ep->num_descs++;
    }
    *verdict_p = UMI_AM_KEPT;
    return message;
}

void
umi_message_free(umx_message *message)
{
    umx_ep     *ep     = message->ep;
    umx_worker *worker = umi_conn_worker(ep);

    umi_link_remove(&message->link);
    switch (message->storage) {
    case UMI_STORAGE_HEAP:
        free(message->data);
        break;
    case UMI_STORAGE_EAGER:
        ep->num_descs--;
        umi_am_release(worker, message->data);
        break;
    case UMI_STORAGE_RNDV:
        ep->num_announced--;
        umi_am_release(worker, message->data);
        break;
    case UMI_STORAGE_INLINE:
    case UMI_STORAGE_LANDING:
    case UMI_STORAGE_MOVED:
        break;
    }
    umi_pool_put(&worker->messages, message);
}
