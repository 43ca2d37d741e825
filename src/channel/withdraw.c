/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* withdraw.c: the peer has cancelled a send that it had announced, and whose
 * bytes nobody had asked for: WITHDRAW. The message counts as read, and nobody
 * gets it. Where it is:
 *
 *   not here, or parked     when it has come, and its turn
 *   in the queue            it is dropped
 *   in the user's hands     umx_message_recv() gives UMX_ERR_WITHDRAWN
 *   landing in a receive    the request for its bytes and the WITHDRAW have
 *                           crossed. The WITHDRAW comes first; then bytes come
 *                           that mean nothing, and the receive waits again, at
 *                           its place
 *   read, or gone           nothing is left to do
 *
 * A loan that has ended is found before the WITHDRAW comes that tells why, or
 * the end of the connection: its receive waits for either. */
/* clang-format on */
#include <stdlib.h>

#include "bounce/bounce.h"
#include "channel/am.h"
#include "channel/tagged.h"
#include "util/count.h"

/* A WITHDRAW that has come before its message. */
typedef struct withdrawal {
    umi_node node; /* channel->withdrawn */
    uint32_t seq;
} withdrawal;

/* ---- arrival, inside UCX's callback --------------------------------------
 */

/* A peer has at most so many announced messages that are not read. */
static unsigned
most(const umx_ep *ep)
{
    const umi_limits *limits = &ep->own_limits;
    unsigned          each = umi_credit_counts_all(limits) ? limits->messages :
                                                             UMI_CREDIT_RESERVE;

    return limits->rndv + each * (umi_channels_of(ep)->num_peers + 1);
}

static umx_request *
find_landing(const umi_channel *channel, const umi_list *list, uint32_t seq)
{
    UMI_LIST_FOREACH(node, list) {
        umx_request *req = umi_channel_request_at(node);

        if (umi_land_is_of(req, channel) && req->info.seq == seq) {
            return req;
        }
    }
    return NULL;
}

/* What lands of a message that is withdrawn means nothing: it comes behind the
 * WITHDRAW, and goes nowhere, as the buffer may get a shorter message. */
static void
void_landing(const umi_channel *channel, uint32_t seq)
{
    umx_request *req = find_landing(channel, &channel->ep->base.inflight, seq);

    if (req != NULL) {
        (void)umi_request_void(req);
    }
}

void
umi_channels_on_withdraw(umx_ep *ep, const umi_control *withdraw)
{
    umi_channel *channel = umi_channel_of_peer(ep,
                                               withdraw->u.withdraw.channel);
    withdrawal  *it;

    if (channel == NULL) {
        return;
    }
    if (channel->ops == &umi_stream_ops ||
        umi_channels_of(ep)->num_withdrawn >= most(ep)) {
        umi_endpoint_protocol_error(ep, "messages withdrawn that are none");
        return;
    }
    it = malloc(sizeof(*it));
    if (it == NULL) {
        umi_endpoint_protocol_error(ep, "out of memory for a control message");
        return;
    }
    it->seq = withdraw->u.withdraw.seq;
    umi_node_init(&it->node);
    umi_list_append(&channel->withdrawn, &it->node);
    umi_channels_of(ep)->num_withdrawn++;
    void_landing(channel, it->seq);
    umi_endpoint_due(ep, UMI_DUE_WITHDRAW);
}

/* ---- where the message is ------------------------------------------------
 */

static umx_message *
find(const umi_list *list, uint32_t seq)
{
    UMI_LIST_FOREACH(node, list) {
        umx_message *message = umi_message_at(node);

        if (message->info.seq == seq) {
            return message;
        }
    }
    return NULL;
}

/* Nothing more comes of a message that goes in pieces, or is fetched. */
static bool
stop_landing(umx_request *req)
{
    void *desc;

    if (umi_transfer_stop(req)) {
        return true;
    }
    desc = umi_bounce_stop(req);
    if (desc == NULL) {
        return false;
    }
    umi_way_bounce.release(req->ep, desc);
    umi_request_complete(req, UMX_OK);
    return true;
}

/* `req` may have begun to land the message since the WITHDRAW came. */
static void
mark(umx_request *req)
{
    if (req->status == UMX_INPROGRESS) {
        (void)umi_request_void(req);
    }
    umi_landing_of(req)->is_withdrawn = true;
    if (req->status == UMX_INPROGRESS && stop_landing(req)) {
        return;
    }
    if (umi_landing_of(req)->is_expecting) {
        umi_landing_of(req)->is_expecting = false;
        umi_request_complete(req, UMX_OK);
    }
}

/* Drop a message of the queue whose bytes are not here. */
static void
drop_queued(umi_channel *channel, umx_message *message)
{
    umx_request *claimant = message->claimant;

    if (umi_message_is_at_hand(message)) {
        return; /* all of it had come before */
    }
    umi_channel_unqueue(channel, message);
    umi_channel_credit(channel, message);
    if (message->lander != NULL) {
        umi_recv_of(message->lander)->message = NULL;
        mark(message->lander);
    }
    umi_message_free(message);
    if (channel->ep->has_goodbye) {
        umi_endpoint_due(channel->ep, UMI_DUE_ACK);
    }
    if (claimant != NULL) {
        umi_tagged_repost(claimant);
    }
    if (channel->ops->advance != NULL) {
        channel->ops->advance(channel);
    }
}

static void
apply(umi_channel *channel, uint32_t seq)
{
    const umx_ep *ep = channel->ep;
    umx_message  *message;
    umx_request  *req;

    if (channel->user != NULL && channel->user->is_internal) {
        umi_channel_am_run_one(channel); /* which counts what comes */
    }
    message = find(&channel->unexpected, seq);
    if (message != NULL) {
        drop_queued(channel, message);
        return;
    }
    message = find(&channel->taken, seq);
    if (message != NULL) {
        if (message->storage == UMI_STORAGE_RNDV) {
            umi_message_withdraw(message);
        }
        return;
    }
    req = find_landing(channel, &ep->base.inflight, seq);
    if (req == NULL) {
        req = find_landing(channel, &umi_endpoint_worker(ep)->done, seq);
    }
    if (req == NULL) {
        req = find_landing(channel, &channel->ended_loans, seq);
    }
    if (req != NULL) {
        mark(req);
    }
}

static void
forget(umi_channel *channel, withdrawal *it)
{
    UMI_DECREMENT(umi_channels_of(channel->ep)->num_withdrawn);
    umi_node_remove(&it->node);
    free(it);
}

/* The first of a message that has come; or NULL. */
static withdrawal *
first_due(const umi_channel *channel)
{
    UMI_LIST_FOREACH(node, &channel->withdrawn) {
        withdrawal *it = umi_container_of(node, withdrawal, node);

        if (umi_seq_diff(it->seq, channel->rx_seq) < 0) {
            return it;
        }
    }
    return NULL;
}

static void
apply_all(umi_channel *channel)
{
    withdrawal *it;

    while ((it = first_due(channel)) != NULL) {
        uint32_t seq = it->seq;

        forget(channel, it);
        apply(channel, seq);
    }
}

void
umi_channels_withdraw(umx_ep *ep)
{
    umi_channels_each(ep, apply_all);
}

void
umi_withdraw_fini(umi_channel *channel)
{
    UMI_LIST_FOREACH_SAFE(node, &channel->withdrawn) {
        forget(channel, umi_container_of(node, withdrawal, node));
    }
}

/* ---- loans that have ended -----------------------------------------------
 */

void
umi_withdraw_expect(umx_request *req)
{
    umi_channel *channel = umi_landing_of(req)->channel;

    umi_landing_of(req)->is_expecting = true;
    umi_list_append(&channel->ended_loans, &req->node);
}

void
umi_withdraw_fail_expected(umi_channel *channel, umx_status status)
{
    UMI_LIST_FOREACH_SAFE(node, &channel->ended_loans) {
        umx_request *req = umi_channel_request_at(node);

        umi_landing_of(req)->is_expecting = false;
        umi_request_complete(req, status);
    }
}
