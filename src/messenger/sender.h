/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* sender.h: messages on their way. Thread: the worker's owner.
 *
 *   umx_message_send() --small--> the batch of its endpoint ---> a pack
 *           |                                                      |
 *           +--long------> a send_op --> umx_frames_send() <-------+
 *           +--no room---> a send_op in `waiting`, then either of these
 *
 * Bytes count while they are in a pack that is being filled, and those of each
 * destination (a send_op to one endpoint) from umx_frames_send() to its
 * completion.
 *
 * A settling request (umx_message_sender_drain()) ends with all that there was
 * when it was made. Things are told apart by `generation`, which grows with
 * each such request; a thing is a send_op, or a pack that is being filled,
 * which is of the oldest generation in it. */
/* clang-format on */
#ifndef UMI_MESSENGER_SENDER_H
#define UMI_MESSENGER_SENDER_H

#include "codec/pack.h"
#include "mem/memtype.h"
#include "util/refcnt.h"
#include "worker/request.h"
#include "worker/worker.h"

struct umx_message_sender {
    umx_worker   *worker; /* NULL: gone */
    umi_dependent dependent;
    uint64_t      max_bytes;
    uint16_t      channel;
    bool          is_advancing;
    umi_refs      refs;     /* the user, batches, send_ops */
    umi_list      batches;  /* umi_batch.node */
    umi_list      waiting;  /* umi_send_op.node */
    umi_list      settling; /* requests */
    uint64_t      generation;
    uint64_t      num_things;
    void         *spare; /* a pack's memory; or NULL */

    umx_message_sender_stats stats;
};

/* A batch: what a sender has for one endpoint, while it has something. */
typedef struct umi_batch {
    umi_gathered        base;
    umi_node            node; /* sender->batches */
    umx_message_sender *sender;
    uint8_t            *pack;        /* UMI_PACK_MAX bytes; NULL: none */
    size_t              len;         /* of it */
    uint64_t            generation;  /* of what is in it */
    unsigned            num_waiting; /* destinations */
    unsigned            refs;        /* one while there is either */
} umi_batch;

typedef struct umi_destination {
    struct umi_send_op *send_op;
    umx_ep             *ep; /* held; NULL once it is over */
    umx_request        *op; /* or NULL */
    umx_status          status;
    bool                is_posted;
    bool                is_lost;
} umi_destination;

/* A long message, one that waits, or a pack. */
typedef struct umi_send_op {
    umi_node            node; /* sender->waiting; or by itself */
    umx_message_sender *sender;
    umx_request        *req;      /* NULL: a pack */
    umx_status         *statuses; /* the user's; or NULL */
    uint64_t            generation;
    uint64_t            len;        /* to each endpoint */
    size_t              entry_size; /* 0: not a small one */
    size_t              num_destinations;
    size_t              num_waiting; /* of them, not posted */
    size_t              num_left;    /* not over */
    size_t              num_lost;    /* of these */
    size_t              num_batches; /* destinations that these know of */
    bool                has_buffers; /* a copy, with references */
    bool                is_ended;    /* no thing any more */
    size_t              header_len;
    uint8_t            *header; /* kind and metadata */
    umx_buffer         *buffers;
    size_t              num_buffers;
    umi_destination     destinations[];
} umi_send_op;

/* A message's request, while a send_op has it. */
typedef struct umi_message_op {
    umi_send_op *send_op;
} umi_message_op;

UMI_REQUEST_TAIL(umi_message_op, umi_message_op_of);

/* ---- sender.c ------------------------------------------------------------
 */

void umi_sender_put(umx_message_sender *sender);

/* Count a thing of `generation`, a send_op or a pack, that is under way. */
void umi_sender_begin(umx_message_sender *sender, uint64_t generation);

/* Count a thing of `generation` as ended, and complete the settling requests
 * that have waited for nothing else. */
void umi_sender_end(umx_message_sender *sender, uint64_t generation);

static inline void
umi_sender_count(umx_message_sender *sender, uint64_t len)
{
    sender->stats.bytes_pending += len;
    if (sender->stats.bytes_pending > sender->stats.bytes_peak) {
        sender->stats.bytes_peak = sender->stats.bytes_pending;
    }
}

static inline bool
umi_sender_has_room(const umx_message_sender *sender, uint64_t len)
{
    uint64_t pending = sender->stats.bytes_pending;

    return pending == 0 ||
           (pending <= sender->max_bytes && len <= sender->max_bytes - pending);
}

/* Post what waits and has room. */
void umi_sender_advance(umx_message_sender *sender);

/* ---- pack_entry.c -------------------------------------------------------
 */

/* Bytes of the entry of a message; 0 if it is not for packs. */
size_t umi_batch_entry_size(const umx_message_out *message);

/* Write a pack to memory of that size. */
umx_status umi_batch_write(const umx_message_out *message, void *data,
                           size_t size);

/* ---- batch.c ------------------------------------------------------------
 */

/* Tell why nothing can be sent to `ep`; UMX_OK if it can. */
umx_status umi_batch_status(const umx_ep *ep);

/* Find or make the batch for `ep`; NULL: out of memory. A new batch that gets
 * nothing goes to umi_batch_check(). */
umi_batch *umi_batch_get(umx_message_sender *sender, umx_ep *ep);
void       umi_batch_check(umi_batch *batch);

/* Find the batch for `ep`; NULL: there is none. */
umi_batch *umi_batch_find(const umx_message_sender *sender, umx_ep *ep);

/* Add a small message. */
umx_status umi_batch_add(umx_message_sender *sender, umx_ep *ep,
                         const umx_message_out *message, size_t entry_size,
                         uint64_t generation);

/* Hand over the batch's pack, if there is one. */
void umi_batch_flush(umi_batch *batch);

/* Forget a batch. */
void umi_batch_drop(umi_batch *batch);

/* ---- send_op.c -----------------------------------------------------------
 */

/* Make an operation with room for that; NULL: out of memory. */
umi_send_op *umi_send_op_new(umx_message_sender *sender, uint64_t generation,
                             size_t num_destinations, size_t header_len,
                             size_t num_buffers);
void         umi_send_op_free(umi_send_op *send_op);
void umi_send_op_set_destination(umi_send_op *send_op, size_t i, umx_ep *ep);

/* Make the operation of a message; `is_waiting`: it lasts longer than the call.
 */
umi_send_op *umi_send_op_from(umx_message_sender    *sender,
                              const umx_message_out *message, size_t entry_size,
                              uint64_t len, bool is_waiting);

/* Post the destinations to `ep`, NULL: to all. */
void umi_send_op_post(umi_send_op *send_op, const umx_ep *ep);

/* The first failure, or UMX_OK. */
umx_status umi_send_op_status(const umi_send_op *send_op);

/* Finish an operation that has no destination left: tell the request, and free
 * the operation. */
void umi_send_op_finish(umi_send_op *send_op);

/* Put an operation into `waiting`. */
umx_status umi_send_op_wait(umi_send_op *send_op);

/* End the destinations that are not posted. */
void umi_send_op_withdraw(umi_send_op *send_op, umx_status status);

extern const umi_request_ops umi_send_op_ops;

#endif
