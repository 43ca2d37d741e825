/* SPDX-License-Identifier: BSD-3-Clause */
/* unread.c: what a peer has sent and no receive has asked for, in words. */
#include "object/unread.h"

#include "worker/worker.h"

#include <inttypes.h>

/* " on channel 3" */
static void
describe_channel(uint16_t number, char *text, size_t size)
{
    if (number != 0) {
        snprintf(text, size, " on channel %u", number);
    }
}

static void
describe_message(const umx_unread *unread, char *text, size_t size)
{
    char channel[32] = "", tag[40] = "";

    describe_channel(unread->number, channel, sizeof(channel));
    if (!unread->is_untagged) {
        snprintf(tag, sizeof(tag), " with tag %#" PRIx64, unread->tag);
    }
    snprintf(text, size,
             "a message of send() or send_obj()%s%s is unread: recv(), "
             "recv_into() or recv_obj()%s%s takes it",
             channel, tag, channel,
             unread->is_untagged ? "" : " with that tag");
}

static void
describe_frames(const umx_unread *unread, char *text, size_t size)
{
    char channel[32] = "";

    describe_channel(unread->number, channel, sizeof(channel));
    snprintf(text, size,
             "a message of send_frames()%s is unread: recv_frames(), "
             "recv_multi() or recv_pickle()%s takes it",
             channel, channel);
}

static void
describe_am(const umx_unread *unread, char *text, size_t size)
{
    char id[16] = "";

    if (unread->number != 0) {
        snprintf(id, sizeof(id), "id=%u", unread->number);
    }
    snprintf(text, size,
             "a message of am_send(%s) is unread: am_recv(%s) takes it", id,
             id);
}

bool
endpoint_describe_unread(const EndpointObject *endpoint, char *text,
                         size_t size)
{
    umx_unread unread;

    if (endpoint->umx == NULL || endpoint->worker->umx == NULL ||
        !worker_is_mine(endpoint->worker) ||
        !umx_ep_unread(endpoint->umx, &unread)) {
        return false;
    }
    switch (unread.kind) {
    case UMX_UNREAD_MESSAGE:
        describe_message(&unread, text, size);
        break;
    case UMX_UNREAD_AM:
        describe_am(&unread, text, size);
        break;
    case UMX_UNREAD_STREAM:
        snprintf(text, size,
                 "bytes of stream_send() are unread: stream_recv() takes them");
        break;
    case UMX_UNREAD_FRAMES:
        describe_frames(&unread, text, size);
        break;
    }
    return true;
}
