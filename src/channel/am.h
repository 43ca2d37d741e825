/* SPDX-License-Identifier: BSD-3-Clause */
/* am.h: who gets active messages. Thread: the worker's owner. */
#ifndef UMI_CHANNEL_AM_H
#define UMI_CHANNEL_AM_H

#include "channel/channel.h"

/* The handler of an id. It stays, without a function, until the worker goes:
 * channels point at it. */
typedef struct umi_channel_am_user {
    umi_node        node; /* umi_channel_am.users */
    uint16_t        id;
    umx_am_fn       fn;       /* NULL: none */
    umx_am_ready_fn ready;    /* instead, or NULL */
    umi_list        channels; /* umi_channel.user_node: with messages to take */
    void           *arg;
    bool            is_internal; /* the library's: the thread calls `fn` */
    umx_worker     *worker;
    umi_put_off     put_off; /* of the calls that are due */
} umi_channel_am_user;

/* The handlers of a worker. */
typedef struct umi_channel_am {
    umi_list users; /* umi_channel_am_user.node */
} umi_channel_am;

/* A new worker, whose handlers lie in `am`. */
void umi_channel_am_init(umx_worker *worker, umi_channel_am *am);

/* The handler for a new channel; NULL if there is none or it is not of AMs. */
umi_channel_am_user *umi_channel_am_find(const umx_worker *worker,
                                         uint32_t          channel);

/* Hand over what waits for handlers of `ep`. Not inside UCX's callbacks. */
void umi_channel_am_run(umx_ep *ep);

/* umi_channel_am_run() for one channel. */
void umi_channel_am_run_one(umi_channel *channel);

/* Free the handlers: the worker ends. */
void umi_channel_am_fini(umx_worker *worker);

/* Send, and set a handler, as umx_am_send() and umx_worker_set_am_handler() do,
 * but for every id. */
umx_status umi_channel_am_send(umx_ep *ep, uint16_t id, const void *header,
                               size_t header_len, const umx_buffer *buf,
                               const umx_op_params *params,
                               umx_request        **req_p);
umx_status umi_channel_am_set_user(umx_worker *worker, uint16_t id,
                                   umx_am_fn fn, void *arg);

/* umi_channel_am_set_user() of the library's own: the progress thread calls
 * `fn`, too.
 */
umx_status umi_channel_am_set_internal(umx_worker *worker, uint16_t id,
                                       umx_am_fn fn, void *arg);

#endif
