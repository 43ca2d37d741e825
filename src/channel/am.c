/* SPDX-License-Identifier: BSD-3-Clause */
#include "channel/am.h"

#include <stdlib.h>

#include "channel/channel.h"
#include "mem/memtype.h"

static const umx_match any = {.flags = UMX_MATCH_ANY};

static bool
is_users(uint16_t id)
{
    return id >= UMX_AM_ID_MIN || id == UMX_AM_ID_PLAIN;
}

/* ---- sending and receiving -----------------------------------------------
 */

umx_status
umi_channel_am_send(umx_ep *ep, uint16_t id, const void *header,
                    size_t header_len, const umx_buffer *buf,
                    const umx_op_params *params, umx_request **req_p)
{
    umi_outgoing what = {
        .channel    = umi_header_channel_id(UMI_KIND_AM, id),
        .flags      = UMI_FLAG_UNTAGGED,
        .header     = header,
        .header_len = header_len,
    };

    if (header == NULL && header_len != 0) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (header_len > UMX_AM_HEADER_MAX) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    return umi_channel_send(ep, &what, buf, params, req_p);
}

UMI_LOCKED(umx_status, umx_am_send, umi_endpoint_worker(ep),
           (umx_ep * ep, uint16_t id, const void *header, size_t header_len,
            const umx_buffer *buf, const umx_op_params *params,
            umx_request **req_p),
           (ep, id, header, header_len, buf, params, req_p))

umx_status
umx_am_send(umx_ep *ep, uint16_t id, const void *header, size_t header_len,
            const umx_buffer *buf, const umx_op_params *params,
            umx_request **req_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(umi_endpoint_worker(ep))) {
        return umx_am_send_locked(ep, id, header, header_len, buf, params,
                                  req_p);
    }
    return is_users(id) ? umi_channel_am_send(ep, id, header, header_len, buf,
                                              params, req_p) :
                          UMX_ERR_OUT_OF_RANGE;
}

UMI_LOCKED(umx_status, umx_am_recv, umi_endpoint_worker(ep),
           (umx_ep * ep, uint16_t id, const umx_buffer *small,
            const umx_op_params *params, umx_request **req_p,
            umx_message **message_p),
           (ep, id, small, params, req_p, message_p))

umx_status
umx_am_recv(umx_ep *ep, uint16_t id, const umx_buffer *small,
            const umx_op_params *params, umx_request **req_p,
            umx_message **message_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(umi_endpoint_worker(ep))) {
        return umx_am_recv_locked(ep, id, small, params, req_p, message_p);
    }
    if (!is_users(id)) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    if (small != NULL &&
        (small->memtype > UMX_MEMTYPE_HOST || small->memh != NULL ||
         umi_check_contiguous(small) != UMX_OK)) {
        return UMX_ERR_INVALID_PARAM;
    }
    return umi_channel_recv_message(ep, umi_header_channel_id(UMI_KIND_AM, id),
                                    &any, small, params, req_p, message_p);
}

umx_status
umx_am_probe(umx_ep *ep, uint16_t id, umx_recv_info *info)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return is_users(id) ?
               umi_channel_probe(ep, umi_header_channel_id(UMI_KIND_AM, id),
                                 &any, info) :
               UMX_ERR_OUT_OF_RANGE;
}

/* ---- handlers ------------------------------------------------------------
 */

void
umi_channel_am_init(umx_worker *worker, umi_channel_am *am)
{
    umi_list_init(&am->users);
    worker->am = am;
}

static umi_channel_am_user *
find_user(const umx_worker *worker, uint16_t id)
{
    UMI_LIST_FOREACH(node, &worker->am->users) {
        umi_channel_am_user *user = umi_container_of(node, umi_channel_am_user,
                                                     node);

        if (user->id == id) {
            return user;
        }
    }
    return NULL;
}

umi_channel_am_user *
umi_channel_am_find(const umx_worker *worker, uint32_t channel)
{
    return (channel >> 16 == UMI_KIND_AM) ?
               find_user(worker, (uint16_t)channel) :
               NULL;
}

static bool
may_take(const umi_channel *channel)
{
    return umi_endpoint_may_read(channel->ep) ||
           umi_channel_is_reading(channel);
}

/* Tell the program that an endpoint it has has messages to take. */
static void
tell_ready(umi_channel *channel)
{
    umi_channel_am_user *user = channel->user;

    if (!umi_node_is_linked(&channel->ep->untaken_node) &&
        !umi_list_is_empty(&channel->unexpected) &&
        !umi_node_is_linked(&channel->user_node)) {
        umi_list_append(&user->channels, &channel->user_node);
        user->ready(umi_endpoint_worker(channel->ep), user->id, user->arg);
    }
}

static void attach_user(umx_worker *worker, umi_channel_am_user *user);

static void
attach_later(umi_put_off *put_off)
{
    umi_channel_am_user *user = umi_container_of(put_off, umi_channel_am_user,
                                                 put_off);

    attach_user(user->worker, user);
}

void
umi_channel_am_run_one(umi_channel *channel)
{
    umi_channel_am_user *user = channel->user;
    umx_message         *message;

    if (user == NULL || umi_list_is_empty(&channel->unexpected) ||
        (!user->is_internal &&
         umi_worker_put_off(user->worker, &user->put_off, attach_later))) {
        return;
    }
    if (user->ready != NULL) {
        tell_ready(channel);
    }
    while (user->fn != NULL && may_take(channel) &&
           (message = umi_channel_take_first(channel)) != NULL) {
        user->fn(channel->ep, message, user->arg);
    }
}

void
umi_channel_am_run(umx_ep *ep)
{
    if (ep->handshake == NULL) { /* else the user has not seen `ep` yet */
        umi_channels_each(ep, umi_channel_am_run_one);
    }
}

/* Give channels that exist the handler, too; what waits in them is handed over.
 */
static void
attach_user(umx_worker *worker, umi_channel_am_user *user)
{
    uint32_t id = umi_header_channel_id(UMI_KIND_AM, user->id);

    UMI_LIST_FOREACH(node, &worker->eps) {
        umx_ep *ep = umi_endpoint_of(umi_container_of(node, umi_ep_base, node));
        umi_channel *channel = umi_channel_find(ep, id);

        if (channel != NULL) {
            channel->user = user;
            umi_endpoint_due(ep, UMI_DUE_HANDLERS);
        }
    }
}

static void
forget_channels(umi_channel_am_user *user)
{
    while (umi_list_pop(&user->channels) != NULL) {
    }
}

static umx_status
set_user(umx_worker *worker, uint16_t id, umx_am_fn fn, umx_am_ready_fn ready,
         void *arg)
{
    umx_status           status = umi_worker_check(worker);
    umi_channel_am_user *user;

    if (status != UMX_OK) {
        return status;
    }
    user = find_user(worker, id);
    if (user == NULL) {
        user = malloc(sizeof(*user));
        if (user == NULL) {
            return UMX_ERR_NO_MEMORY;
        }
        user->id          = id;
        user->is_internal = false;
        user->worker      = worker;
        umi_node_init(&user->put_off.node);
        umi_list_init(&user->channels);
        umi_list_append(&worker->am->users, &user->node);
    }
    forget_channels(user); /* the new one is told of them */
    user->fn    = fn;
    user->ready = ready;
    user->arg   = arg;
    attach_user(worker, user);
    return UMX_OK;
}

umx_status
umi_channel_am_set_user(umx_worker *worker, uint16_t id, umx_am_fn fn,
                        void *arg)
{
    return set_user(worker, id, fn, NULL, arg);
}

umx_status
umi_channel_am_set_internal(umx_worker *worker, uint16_t id, umx_am_fn fn,
                            void *arg)
{
    umx_status status = set_user(worker, id, fn, NULL, arg);

    if (status == UMX_OK) {
        find_user(worker, id)->is_internal = true;
    }
    return status;
}

umx_status
umx_worker_set_am_handler(umx_worker *worker, uint16_t id, umx_am_fn fn,
                          void *arg)
{
    UMI_GUARD(worker);
    return is_users(id) ? umi_channel_am_set_user(worker, id, fn, arg) :
                          UMX_ERR_OUT_OF_RANGE;
}

umx_status
umx_worker_set_am_ready(umx_worker *worker, uint16_t id, umx_am_ready_fn fn,
                        void *arg)
{
    UMI_GUARD(worker);
    return is_users(id) ? set_user(worker, id, NULL, fn, arg) :
                          UMX_ERR_OUT_OF_RANGE;
}

umx_message *
umx_worker_take_am(umx_worker *worker, uint16_t id, umx_ep **ep_p)
{
    UMI_GUARD(worker);
    umi_channel_am_user *user = find_user(worker, id);

    while (user != NULL && !umi_list_is_empty(&user->channels)) {
        umi_channel *channel = umi_container_of(user->channels.next,
                                                umi_channel, user_node);
        umx_message *message = may_take(channel) ?
                                   umi_channel_take_first(channel) :
                                   NULL;

        umi_node_remove(&channel->user_node);
        if (message != NULL) {
            umi_list_append(&user->channels, &channel->user_node);
            *ep_p = channel->ep;
            return message;
        }
    }
    return NULL;
}

void
umi_channel_am_fini(umx_worker *worker)
{
    while (!umi_list_is_empty(&worker->am->users)) {
        umi_channel_am_user *user = umi_container_of(worker->am->users.next,
                                                     umi_channel_am_user, node);

        umi_node_remove(&user->node);
        umi_node_remove(&user->put_off.node);
        forget_channels(user);
        free(user);
    }
}
