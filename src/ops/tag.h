/* SPDX-License-Identifier: BSD-3-Clause */
/* tag.h: messages with UCX's own tags. Thread: the worker's owner.
 *
 * UCX matches a message once: one that was taken from it, by a receive that was
 * given up after it had landed or by a probe, cannot go back. Such messages are
 * on umi_tags.returned, in the order in which UCX gave them. They are
 * older than what UCX keeps, so whoever asks for a message looks there first;
 * and if a posted receive waits for one, that is taken back from UCX and gets
 * it.
 *
 * A receive that is cancelled while its message lands leaves the message to the
 * next receive, and until all of it is there nobody may overtake it. UCX tells
 * the tag at the end only. So whatever may match the message, and was posted
 * after its receive, waits behind it, outside of UCX. */
#ifndef UMI_TAG_H
#define UMI_TAG_H

#include <umx/tag.h>

#include "worker/worker.h"

/* The messages of UCX's tags that a worker keeps. */
typedef struct umi_tags {
    umi_list returned; /* umx_tag_message.node */
    umi_list taken;    /* the same, in the user's hands */
    uint32_t seq;      /* of the next message, or receive */
    unsigned num_awaited;
    unsigned num_behind;
} umi_tags;

struct umx_tag_message {
    umi_node          node;   /* umi_tags.returned or taken */
    umx_worker       *worker; /* NULL once that is destroyed */
    umi_engine       *engine; /* held; of `handle`, or NULL */
    ucp_tag_message_h handle; /* UCX's; NULL: the bytes are in `data` */
    umx_recv_info     info;
    umi_spare        *spare; /* what the bytes are in instead; or NULL */
    uint8_t           data[];
};

/* A send or a receive. */
typedef struct umi_tag_op {
    void            *handle; /* UCX's request, to cancel it */
    umi_engine      *engine; /* held; where that is */
    uint64_t         tag;
    uint64_t         mask;
    umx_tag_message *message; /* one of ours */
    umx_tag_message *kept;    /* is_awaited: what its message will be */
    uint32_t         order;   /* umi_tags.seq when it was posted */
    bool             is_sync;
    bool             is_moving; /* UCX is to give it back, to be posted again */
    bool             is_probed; /* of a message that was taken before */
    bool             is_awaited; /* cancelled, and its message lands */
    bool             is_behind;  /* it waits for such, on worker->inflight */
} umi_tag_op;

UMI_REQUEST_TAIL(umi_tag_op, umi_tag_op_of);

/* Check a buffer for UCX's own messages: UCX must reach the bytes. */
umx_status umi_tag_check_buffer(const umx_worker *worker,
                                const umx_buffer *buf);

/* The first on umi_tags.returned that matches; NULL: none. */
umx_tag_message *umi_tag_find(umx_worker *worker, uint64_t tag, uint64_t mask);

/* True if a receive of these tags that is posted now, or `self`, must wait for
 * a message that lands. `found` is the first of umi_tags.returned for it, or
 * NULL.
 */
bool umi_tag_must_wait(const umx_worker *worker, uint64_t tag, uint64_t mask,
                       const umx_tag_message *found, const umx_request *self);

/* An endpoint has failed: stop waiting for the messages of cancelled
 * receives that are landing, since some of them may never be there. */
void umi_tag_doubt(umx_worker *worker);

/* A new receive, which has its buffer. */
void umi_tag_init_recv(umx_request *req, uint64_t tag, uint64_t mask);

/* Make the message that `worker` keeps of a receive; NULL when out of memory.
 */
umx_tag_message *umi_tag_message_new(umx_worker *worker, size_t len);

/* Free a message, which may be on a list. */
void umi_tag_message_free(umx_tag_message *message);

/* Put a copy of a message that lies in `buf` on umi_tags.returned. */
umx_status umi_tag_keep(umx_worker *worker, const umx_recv_info *info,
                        const umx_buffer *buf);

/* Post what has waited for messages that landed. */
void umi_tag_run_behind(umx_worker *worker);

/* `message` to umi_tags.returned. */
void umi_tag_return(umx_tag_message *message);

/* `req` gets the bytes of `message`, which is consumed. UMX_OK, UMX_INPROGRESS
 * or a failure. */
umx_status umi_tag_deliver(umx_request *req, umx_tag_message *message);

/* `req`, which is posted and has no message of ours, gets `message` instead of
 * one of UCX's. */
void umi_tag_redirect(umx_request *req, umx_tag_message *message);

extern const umi_request_ops umi_tag_send_ops;
extern const umi_request_ops umi_tag_recv_ops;

/* umi_post_result() of a receive in UCX's hands; and its end, in UCX's
 * callback. */
umx_status umi_tag_post_result(umx_request *req, umi_engine *engine,
                               ucs_status_ptr_t result);
void       umi_tag_end_post(umx_request *req, void *request);

/* `old` was the worker's engine: what is posted there, and has no message yet,
 * goes to the new one. */
void umi_tag_move(umx_worker *worker, const umi_engine *old);

/* A new worker, whose tags lie in `tags`. */
void umi_tag_init(umx_worker *worker, umi_tags *tags);

/* umi_worker_hooks.on_arrivals, and a part of umi_worker_hooks.abort */
void umi_tag_look(umx_worker *worker);
void umi_tag_abort(umx_worker *worker);

/* True if a message that comes may be given to the receive: nobody has
 * cancelled it, and it is in UCX's hands without a message that is known. */
static inline bool
umi_tag_is_open(const umx_request *req)
{
    return umi_tag_op_of(req)->message == NULL &&
           !umi_tag_op_of(req)->is_probed && !umi_tag_op_of(req)->is_behind &&
           !req->is_cancelled;
}

static inline bool
umi_tag_matches(uint64_t have, uint64_t tag, uint64_t mask)
{
    return ((have ^ tag) & mask) == 0;
}

#endif
