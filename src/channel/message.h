/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* message.h: a message that has arrived and waits for its reader.
 *
 * Where its bytes are:
 *   INLINE   in the object
 *   HEAP     in memory of ours
 *   COPY     in `copy`, that of a cancelled receive
 *   BLOCK    in one of the worker's blocks
 *   EAGER    in UCX's descriptor, kept
 *   RNDV     with the sender, or on their way: `data` is the way's
 *   LANDING  on their way into the buffer of `lander`
 *   MOVED    nowhere: a receive has them
 * Thread: the worker's owner. */
/* clang-format on */
#ifndef UMI_CHANNEL_MESSAGE_H
#define UMI_CHANNEL_MESSAGE_H

#include <umx/channel.h>

#include "ops/am.h"
#include "util/list.h"

struct umi_channel;

enum {
    UMI_MESSAGE_INLINE = 128
};

typedef enum umi_storage {
    UMI_STORAGE_INLINE,
    UMI_STORAGE_HEAP,
    UMI_STORAGE_COPY,
    UMI_STORAGE_BLOCK,
    UMI_STORAGE_EAGER,
    UMI_STORAGE_RNDV,
    UMI_STORAGE_LANDING,
    UMI_STORAGE_MOVED
} umi_storage;

/* The kinds of what a message costs of its sender's credit; see credit.c. */
typedef enum umi_charge_kind {
    UMI_CHARGE_NONE,    /* paid back, or never paid for */
    UMI_CHARGE_EAGER,   /* one of the channel's messages, and `bytes` */
    UMI_CHARGE_RNDV,    /* one of the endpoint's announcements */
    UMI_CHARGE_RESERVE, /* one of the channel's reserve */
    UMI_CHARGE_ANY      /* one of the channel's messages, however it goes */
} umi_charge_kind;

typedef struct umi_charge {
    umi_charge_kind kind;
    size_t          bytes; /* EAGER */
} umi_charge;

/* Constants of the wire: both sides count alike. */
enum {
    UMI_CREDIT_OVERHEAD = 512, /* bytes, for each eager message */
    UMI_CREDIT_RESERVE  = 16,  /* messages a channel; fewer if credit_rndv is */
    UMI_CREDIT_OWN      = 64   /* messages, at least, of the library's own
                                  channels, which it reads at once */
};

/* An eager message of `len` bytes behind a header of the user's. */
static inline umi_charge
umi_charge_eager(size_t len, size_t header_len)
{
    return (umi_charge){.kind  = UMI_CHARGE_EAGER,
                        .bytes = len + header_len + UMI_CREDIT_OVERHEAD};
}

struct umx_message {
    umi_node            node;
    umx_ep             *ep;
    umx_worker         *worker;  /* of a taken one: good after its end */
    struct umi_channel *channel; /* NULL for a control message */
    umx_recv_info       info;
    umi_storage         storage;
    bool                is_taken;     /* in the user's hands */
    bool                is_to_fetch;  /* and its bytes are with the sender */
    bool                is_withdrawn; /* by its sender, after it was taken */
    bool                is_refused;   /* a receive has ended that it does not
                                         fit: misfit.c */
    bool               is_queued;     /* in channel->unexpected */
    uint8_t            inline_used;   /* of `bytes`, by the header */
    umi_charge         charge;
    uint32_t           header_len;
    void              *header; /* the user's; in `bytes`, or of malloc */
    const umi_way     *way;    /* EAGER, RNDV: how `data` is taken */
    void              *data;
    struct umi_spare  *copy;   /* COPY: what `data` is in */
    size_t             read;   /* of a stream: bytes that receives have got */
    struct umi_frames *frames; /* a head that is taken: decoded; or NULL */
    umx_request       *lander;
    umx_request       *claimant; /* receives it once it has landed */
    _Alignas(8) uint8_t bytes[UMI_MESSAGE_INLINE];
};

/* Keep what arrives; NULL when out of memory. `*verdict_p` is what to tell
 * UCX. */
umx_message *umi_message_keep(umx_ep *ep, const umi_am_arrival *arrival,
                              int *verdict_p);

/* A message without bytes; NULL when out of memory. */
umx_message *umi_message_empty(umx_ep *ep);

/* Make a message from bytes in any memory, with a header of the user's in
 * front. */
umx_status umi_message_rebuild(umx_ep *ep, const void *header,
                               size_t header_len, const umx_buffer *buf,
                               size_t len, umx_message **message_p);

/* Room for `len` bytes, INLINE, BLOCK or HEAP; false when out of memory. */
bool umi_message_make_room(umx_message *message, size_t len);

/* Ready to read at once, without a request. */
static inline bool
umi_message_is_at_hand(const umx_message *message)
{
    return message->storage != UMI_STORAGE_RNDV &&
           message->storage != UMI_STORAGE_LANDING;
}

/* Give the bytes of a message back, wherever they are. */
void umi_message_release_bytes(umx_message *message, umx_worker *worker);

/* The sender has withdrawn a message that is in the user's hands. */
void umi_message_withdraw(umx_message *message);

/* Hand a message to the user; message_api.c. */
void umi_message_take(umx_message *message);

/* End the user's hold on a message: the message itself may be gone, a close may
 * have waited for it. */
void umi_message_end_taken(umx_worker *worker, umx_ep *ep);

/* The worker has been destroyed: nothing of the message can be received. */
void umi_message_free_orphan(umx_message *message);

/* Free a message: give its bytes back, wherever they are, and the object. */
void umi_message_free(umx_message *message);

#endif
