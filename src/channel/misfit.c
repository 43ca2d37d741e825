/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* misfit.c: a message that does not fit the receive that it meets.
 *
 *   queued --meets a receive--> that receive ends, the message is refused
 *   refused --meets a receive that it fits--> received
 *   refused --meets one that it does not fit--> dropped; that receive waits for
 *                                               the message behind it
 *
 * So the program hears of each such message once. It may receive the message,
 * or go on, and the message holds up neither the channel nor its sender. A
 * dropped message counts as read: an announced one ends for its sender as if it
 * had been received, as an eager one has by then. A receive that takes the
 * message and gives it back, because it is cancelled, makes it a new message. */
/* clang-format on */
#include "channel/channel.h"
#include "endpoint/log.h"

void
umi_misfit_log(const umi_channel *channel, size_t len, size_t capacity)
{
    char name[UMI_ENDPOINT_NAME];

    if (umi_log_is_on(UMI_LOG_WARN)) {
        umi_endpoint_name(channel->ep, name);
        umi_log_line(UMI_LOG_WARN,
                     "%s: a message of %zu bytes is dropped: it does not fit a "
                     "receive of %zu bytes, nor did it fit the one before, "
                     "which failed",
                     name, len, capacity);
    }
}

/* Let the bytes of a message that still lands go nowhere. The lander is a
 * receive that was cancelled, or fetches the message. */
static void
abandon_landing(umx_request *lander)
{
    umi_recv_of(lander)->message = NULL;
    if (lander->ops == umi_tagged_ops.lander) {
        lander->is_void = true; /* nor does the message go back */
    }
}

void
umi_misfit_drop(umi_channel *channel, umx_message *message)
{
    umi_channel_credit(channel, message);
    if (message->lander != NULL) {
        abandon_landing(message->lander);
    }
    umi_message_free(message);
    if (channel->ep->has_goodbye) {
        umi_endpoint_due(channel->ep, UMI_DUE_ACK);
    }
}

void
umi_misfit_forget(umi_channel *channel, uint32_t seq)
{
    UMI_LIST_FOREACH(node, &channel->unexpected) {
        umx_message *message = umi_message_at(node);

        if (message->info.seq == seq) {
            message->is_refused = false;
            return;
        }
    }
}
