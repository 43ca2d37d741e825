/* SPDX-License-Identifier: BSD-3-Clause */
/* channel.h: an ordered sequence of messages. Thread: the worker's owner.
 *
 * Sending:   post() takes the next seq once UCX has accepted the message;
 *            without credit the request waits in `waiting`.
 * Receiving: a message is taken in seq order; what comes early is parked. It
 *            meets the first posted receive that matches, or waits in
 *            `unexpected`, sorted by seq. */
#ifndef UMI_CHANNEL_H
#define UMI_CHANNEL_H

#include <umx/channel.h>

#include "channel/land.h"
#include "channel/message.h"
#include "channel/offer.h"
#include "codec/header.h"
#include "endpoint/endpoint.h"
#include "mem/gather.h"
#include "util/lines.h"
#include "util/list.h"
#include "util/table.h"

/* Count a channel's own: eager messages, and messages of its reserve. */
typedef struct umi_counts {
    uint32_t messages;
    uint32_t reserve;
} umi_counts;

/* How much of a window is read in what time: see credit.c. */
typedef struct umi_pace {
    uint64_t begun_ns;
    uint64_t read; /* the running total then */
} umi_pace;

struct umi_channel;

/* What becomes of a message that arrives. */
typedef enum umi_arrived {
    UMI_ARRIVED, /* it is with a receive, or dropped */
    UMI_ARRIVED_TO_KEEP /* it is to be kept, and offered */,
    UMI_ARRIVED_REFUSED /* likewise, and a receive has ended that it does not
                           fit */
} umi_arrived;

/* What differs between kinds of channels. Places are of their order: seqs, or
 * of the bytes of a stream. */
typedef struct umi_channel_ops {
    /* A message that is next in order, inside UCX's callback. */
    umi_arrived (*arrive)(struct umi_channel   *channel,
                          const umx_recv_info  *info,
                          const umi_am_arrival *arrival);
    /* Put a message where it belongs: with a receive that waits for it, or in
     * the queue. */
    void (*offer)(struct umi_channel *channel, umx_message *message);
    /* A message of the queue has landed; or has not, then it is gone. */
    void (*landed)(struct umi_channel *channel, umx_message *message,
                   umx_status status);
    /* Hand out what there is: umi_channel_due(). NULL: never due. */
    void (*advance)(struct umi_channel *channel);
    /* Complete every receive that waits. */
    void (*fail_posted)(struct umi_channel *channel, umx_status status);

    /* cut.c calls these. cut() hears that the channel has been cut; NULL:
     * nothing to do. first_broken() gives the place of the first message in the
     * queue of which not all is here, or `none`; NULL: the first whose bytes
     * are not. place() gives a message's place. */
    void (*cut)(struct umi_channel *channel, umx_status status);
    uint64_t (*first_broken)(struct umi_channel *channel, uint64_t none);
    uint64_t (*place)(const umx_recv_info *info);
    /* Compute how far `a` is behind `b`. */
    int64_t (*distance)(uint64_t a, uint64_t b);
    /* Give the place of what comes next. */
    uint64_t (*next)(const struct umi_channel *channel);
    const umi_request_ops *lander; /* of requests by which its messages land */
} umi_channel_ops;

extern const umi_channel_ops umi_tagged_ops;
extern const umi_channel_ops umi_stream_ops;
extern const umi_channel_ops umi_frames_ops;

typedef struct umi_channel {
    umi_node               node;     /* umi_channels.others */
    umi_node               due_node; /* umi_channels.due */
    umx_ep                *ep;
    const umi_channel_ops *ops;
    uint32_t               id; /* umi_header_channel_id() */
    bool                   owes_credit;
    bool                   has_goodbye;
    bool                   is_replies;  /* to what we asked for: see rma.h */
    bool                   is_requests; /* what the peer asks for */
    bool                   is_ours;     /* counts as one that we send on */
    bool                   is_peers;    /* as one that the peer sends on */
    bool                   is_cut; /* nothing from `cut_at` on is handed out */
    uint32_t               goodbye_seq; /* the peer's last seq + 1 */
    uint32_t               tx_seq;
    uint32_t               rx_seq;
    umi_counts             tx_sent;   /* running totals */
    umi_counts             tx_limits; /* what the peer allows of them */
    umi_counts             rx_read;
    umi_counts             rx_granted;
    umi_counts             rx_kept;   /* not read yet */
    uint32_t               rx_window; /* eager messages that may be unread */
    uint32_t               rx_untold; /* read ones that need no CREDIT yet */
    uint32_t               keep_last; /* so many unread ones; 0: all */
    uint32_t num_unread; /* in `unexpected`: those that do not land */
    umi_pace pace;
    umi_list waiting;
    umi_list posted;
    umi_list late; /* receives that are not posted yet: tagged_recv.c */
    umi_list unexpected;
    umi_list parked;
    umi_list taken;       /* in the user's hands, bytes may be missing */
    umi_list withdrawn;   /* see withdraw.c */
    umi_list ended_loans; /* receives that found their loan ended */
    uint32_t num_recvs;   /* that were posted; wraps */
    uint64_t cut_at;      /* see cut.c */
    struct umi_channel_am_user *user;      /* an AM id's handler, or NULL */
    umi_node                    user_node; /* user->channels */
    /* Streams and frames: */
    unsigned num_returning; /* cancelled receives into which bytes land */
    /* Frames: */
    umx_message *open; /* taken, and parts are missing; or NULL */
    /* Streams: */
    uint64_t place;   /* of the next byte to arrive */
    bool     has_end; /* the end has arrived */
    bool     is_shut; /* the end has been sent */
} umi_channel;

/* Count, over all channels, bytes that eager messages are charged for, and
 * announcements. */
typedef struct umi_endpoint_counts {
    uint64_t bytes;
    uint32_t rndv;
} umi_endpoint_counts;

/* The channels of an endpoint; behind the umx_ep. */
typedef struct umi_channels {
    umi_channel  channel0;
    umi_list     others;
    umi_table    by_id;     /* those */
    umi_channel *recent;    /* found last; NULL at first */
    umi_list     due;       /* messages came that receives wait for */
    uint32_t     num_ours;  /* channels that we send on, without 0 */
    uint32_t     num_peers; /* that the peer sends on */
    /* Messages shorter than that go eagerly, if their memory is the host's and
     * there is credit. */
    size_t              plain_below;
    umi_lengths         lengths[UMI_NUM_OFFERS]; /* what may go by which way */
    uint64_t            sent_by[UMI_NUM_OFFERS]; /* messages; none eagerly */
    uint64_t            received_by[UMI_NUM_OFFERS];
    umi_endpoint_counts tx_sent;  /* running totals */
    umi_endpoint_counts tx_limit; /* what the peer allows of them */
    umi_endpoint_counts rx_read;
    umi_endpoint_counts rx_granted;
    umi_endpoint_counts rx_kept;   /* not read yet */
    uint64_t            rx_window; /* eager bytes that may be unread */
    umi_pace            pace;
    uint64_t            told_ns;  /* when rx_granted was told */
    uint64_t            grown_ns; /* when they grew for an announcement */
    uint64_t            trip_ns;  /* a round trip to a peer that is not on
                                     this host; 0: windows do not grow */
    unsigned num_descs;           /* kept eager descriptors of UCX */
    unsigned num_withdrawn;       /* WITHDRAWs not acted on */
    uint32_t num_queued;          /* places of sends, for flushes; wraps */
    uint32_t num_short; /* short messages that are announced: send.c */
} umi_channels;

_Static_assert(sizeof(umx_ep) % _Alignof(umi_channels) == 0, "behind it");

static inline umi_channels *
umi_channels_of(const umx_ep *ep)
{
    return (umi_channels *)(uintptr_t)(ep + 1);
}

/* True if the message of frames that is open is still read, though this side
 * closes (frames_queue.c). */
bool umi_frames_are_read(const umi_channel *channel);

/* True if messages of `channel` may be taken from the network: replies are read
 * until the end, and requests until this side says GOODBYE. Two sides that
 * close would otherwise wait for each other's replies. */
static inline bool
umi_channel_is_reading(const umi_channel *channel)
{
    const umx_ep *ep = channel->ep;

    return umi_endpoint_is_reading(ep) ||
           (ep->state == UMX_EP_DRAINING &&
            (channel->is_replies ||
             (channel->is_requests && !ep->is_goodbye_sent) ||
             umi_frames_are_read(channel)));
}

/* ---- channels.c: those of an endpoint ------------------------------------
 */

/* The channel; NULL if it has not been used. */
umi_channel *umi_channel_find(umx_ep *ep, uint32_t id);

/* umi_channel_get() of any channel but 0, whose id is the most frequent. */
umi_channel *umi_channel_make(umx_ep *ep, uint32_t id);

/* The channel; made on first use; NULL when out of memory. */
static inline umi_channel *
umi_channel_get(umx_ep *ep, uint32_t id)
{
    return (id == UMI_CHANNEL_0) ? &umi_channels_of(ep)->channel0 :
                                   umi_channel_make(ep, id);
}

/* True for a channel of the library's own, of which there are few, and which no
 * limit of the program's keeps back. */
static inline bool
umi_channel_is_of_library(uint32_t id)
{
    return id >> 16 == UMI_KIND_AM && (uint16_t)id < UMI_AM_USER &&
           (uint16_t)id != UMX_AM_ID_PLAIN;
}

/* Find or make a channel that the peer sends on. NULL: the channel is one more
 * than we accept, or there is no memory; then the endpoint fails. */
umi_channel *umi_channel_of_peer(umx_ep *ep, uint32_t id);

/* UMX_ERR_CHANNEL_LIMIT if the peer accepts no more channels. While the number
 * is not known all are taken; umi_channels_limit() ends what was sent on too
 * many. */
umx_status umi_channel_use(umi_channel *channel);
void       umi_channels_limit(umx_ep *ep);

/* Call `fn` for every channel. */
void umi_channels_each(umx_ep *ep, void (*fn)(umi_channel *channel));

/* umi_endpoint_hooks.init and fini */
void umi_channels_init(umx_ep *ep);
void umi_channels_fini(umx_ep *ep);

/* ---- connection.c: the others of umi_endpoint_hooks ----------------------
 */

void umi_channels_open(umx_ep *ep);
void umi_channels_grant(umx_ep *ep);
void umi_channels_send(umx_ep *ep);
void umi_channels_hand_out(umx_ep *ep);
void umi_channels_on_credit(umx_ep *ep, const umi_control *credit);
void umi_channels_on_goodbye(umx_ep *ep);
void umi_channels_on_withdraw(umx_ep *ep, const umi_control *withdraw);
void umi_channels_withdraw(umx_ep *ep);
void umi_channels_write_goodbye(umx_ep *ep, umi_control *goodbye);
bool umi_channels_read_goodbye(umx_ep *ep, const umi_control *goodbye);
bool umi_channels_have_arrived(const umx_ep *ep);
/* True if no message of a lower place than `place` (umi_channels.num_queued) is
 * on this side: waits, moves in pieces, or is announced for lack of credit and
 * not received. True if none of them is to go. */
bool umi_channels_have_sent(const umx_ep *ep, uint32_t place);

bool     umi_channels_have_waiting(const umx_ep *ep);
bool     umi_channels_have_deferred(const umx_ep *ep);
bool     umi_channels_are_receiving(const umx_ep *ep);
uint64_t umi_channels_unsent_bytes(const umx_ep *ep);
void     umi_channels_count_waiting(const umx_ep *ep, umx_ep_stats *stats);
bool     umi_channels_find_unread(const umx_ep *ep, umx_unread *unread);
void     umi_channels_fail_recvs(umx_ep *ep, umx_status status);
void     umi_channels_stop_reading(umx_ep *ep);
void     umi_channels_fail_sends(umx_ep *ep, umx_status status);
void     umi_channels_fetch(umx_ep *ep);
void     umi_channels_finish(umx_ep *ep, umx_status status);
void     umi_channels_discard(umx_ep *ep);

/* ---- describe.c ---- */
void umi_channels_describe(const umx_ep *ep, const umi_lines *lines);

/* Messages of a stream or of frames have come that receives wait for; inside
 * UCX's callback. */
void umi_channel_due(umi_channel *channel);

/* ---- messages ------------------------------------------------------------
 */

void umi_channel_init(umi_channel *channel, umx_ep *ep, uint32_t id);

/* UMI_AM_DATA's handler. */
int umi_channel_on_arrival(umx_worker *worker, const umi_am_arrival *arrival);

/* A send. UCX reads the header until the operation completes. */
typedef struct umi_send {
    uint64_t     header[3];
    umx_message *longer; /* instead of `header`, or NULL */
    umx_message *memory; /* that they are in; or NULL */
    umi_channel *channel;
    uint32_t     header_len;
    uint8_t      way; /* umi_offer_id; decided as it goes, like the next two */
    bool         is_rndv : 1;       /* it is announced */
    bool         must_announce : 1; /* whatever credit there is */
    bool         is_unread : 1;     /* is_rndv: the peer has closed before */
    bool         is_lent : 1;       /* UMX_OP_FLAG_LEND */
    bool         is_part : 1;       /* it is not withdrawn by itself */
    bool         is_sent : 1;       /* the peer counts it */
    bool         is_queued : 1;     /* it waits in channel->waiting */
    bool         is_short : 1;      /* announced for lack of credit alone */
    bool         has_place : 1;     /* in `info.seq` */
    bool         is_withdrawn : 1;  /* the peer knows that it does not come */
} umi_send;

UMI_REQUEST_TAIL(umi_send, umi_send_of);

/* A receive of a message, or of its bytes. */
typedef struct umi_recv {
    umi_landing  landing;
    uint64_t     tag;
    uint64_t     mask;
    umx_message *message;
    uint32_t     flags;
    uint8_t      phase;
} umi_recv;

UMI_REQUEST_TAIL(umi_recv, umi_recv_of);

/* A request that is sent as several messages. */
typedef struct umi_split_send {
    umi_channel *channel;
    unsigned     count;
    unsigned     pending;
    umx_status   status;
} umi_split_send;

UMI_REQUEST_TAIL(umi_split_send, umi_split_send_of);

static inline umx_request *
umi_channel_request_at(umi_node *node)
{
    return umi_container_of(node, umx_request, node);
}

static inline umx_message *
umi_message_at(umi_node *node)
{
    return umi_container_of(node, umx_message, node);
}

/* A message to send, but for its bytes. */
typedef struct umi_outgoing {
    uint32_t    channel; /* umi_header_channel_id() */
    uint8_t     flags;
    bool        is_part; /* of what is sent as several messages, or of a put */
    uint64_t    tag;
    const void *header; /* the user's; copied */
    size_t      header_len;
    /* Taken over, whatever happens: */
    umx_message *memory; /* which the bytes are in, or `gather`; or NULL */
    umi_gather  *gather; /* instead of the buffer's memory, or NULL */
} umi_outgoing;

/* umx_channel_send() for every kind of channel. */
umx_status umi_channel_send(umx_ep *ep, const umi_outgoing *what,
                            const umx_buffer *buf, const umx_op_params *params,
                            umx_request **req_p);

/* inject.c: send a message of at most UMI_INJECT_MAX bytes of the host's
 * memory, without a user's header, if UCX takes it in the call. UMX_INPROGRESS:
 * nothing has been done; umi_channel_send() sends it, or tells why it cannot be
 * sent. */
umx_status umi_channel_inject(umx_ep *ep, uint32_t channel, uint8_t flags,
                              uint64_t tag, const void *data, size_t len);

/* Count a message of `len` bytes that has been sent. */
static inline void
umi_channel_count_sent(umx_ep *ep, size_t len)
{
    ep->stats.sent_messages++;
    ep->stats.sent_bytes += len;
    ep->traffic->sent_messages++;
    ep->traffic->sent_bytes += len;
}

/* umx_channel_recv_message() and umx_channel_probe() for every kind; `small` as
 * umx_am_recv(), or NULL. */
umx_status
umi_channel_recv_message(umx_ep *ep, uint32_t id, const umx_match *match,
                         const umx_buffer *small, const umx_op_params *params,
                         umx_request **req_p, umx_message **message_p);
umx_status umi_channel_probe(umx_ep *ep, uint32_t id, const umx_match *match,
                             umx_recv_info *info);

/* True if a message of `len` bytes is announced for its length alone. */
static inline bool
umi_channel_is_long(const umx_ep *ep, size_t len)
{
    return len >= umi_channels_of(ep)->lengths[UMI_OFFER_RNDV].min;
}

/* True if the bytes of a send are in device memory: all of them, or none. */
static inline bool
umi_channel_is_of_device(const umx_request *req)
{
    const umx_buffer *buf = (req->gather != NULL) ? req->gather->pieces :
                                                    &req->buf;

    return !umi_memtype_is_host_readable(buf);
}

/* Give the place of a send among all that are not with the peer at once, which
 * a flush looks at. */
static inline uint32_t
umi_channel_place(umx_request *req)
{
    if (!umi_send_of(req)->has_place) { /* `info.seq` means nothing else here */
        umi_send_of(req)->has_place = true;
        req->info.seq = umi_channels_of(umi_endpoint_of(req->ep))->num_queued++;
    }
    return req->info.seq;
}

/* umi_worker_hooks.find_sent, fail_sent and fail_landing */
umx_request *umi_channel_find_sent(const umi_ep_base *ep, uint32_t channel,
                                   uint32_t seq);
void         umi_channel_fail_sent(umx_request *req, umx_status status);
void         umi_channel_fail_landing(umx_request *req, umx_status status);

/* Post what credit and state allow of `waiting`. */
void umi_channel_send_waiting(umi_channel *channel);

/* Complete every waiting send. */
void umi_channel_fail_waiting(umi_channel *channel, umx_status status);

/* Drop all unread messages. */
void umi_channel_discard(umi_channel *channel);

/* Start fetching announced messages into memory of ours, at most `*budget_p`
 * bytes. */
void umi_channel_fetch(umi_channel *channel, size_t *budget_p);

/* Start to fetch a message. False when out of memory: the message stays with
 * its sender. */
bool umi_channel_fetch_one(umi_channel *channel, umx_message *message);

static inline void
umi_channel_offer(umi_channel *channel, umx_message *message)
{
    channel->ops->offer(channel, message);
}

static inline void
umi_channel_fail_posted(umi_channel *channel, umx_status status)
{
    channel->ops->fail_posted(channel, status);
}

/* Fail a receive whose message is gone (tagged.c). */
void umi_tagged_fail_claim(umx_request *claimant, umx_status status);

/* channel->num_unread counts the messages of the queue, but for those that
 * bytes land in: keep one out of the number while they do. */
static inline void
umi_channel_landing_begins(const umx_message *message)
{
    if (message->is_queued) {
        message->channel->num_unread--;
    }
}

static inline void
umi_channel_landing_ends(const umx_message *message)
{
    if (message->is_queued) {
        message->channel->num_unread++;
    }
}

/* Put a message into the queue, in order. umi_channel_queue() does so where the
 * queue may be empty, umi_channel_unqueue() takes a message out. */
void umi_channel_insert(umi_channel *channel, umx_message *message);

static inline void
umi_channel_queue(umi_channel *channel, umx_message *message)
{
    umx_worker_stats *stats = umi_endpoint_worker(channel->ep)->stats;

    stats->unexpected_messages++;
    stats->unexpected_bytes += message->info.length;
    assert(!message->is_queued && !message->is_taken);
    message->is_queued = true;
    channel->num_unread += message->storage != UMI_STORAGE_LANDING;
    if (umi_list_is_empty(&channel->unexpected)) {
        umi_list_append(&channel->unexpected, &message->node);
    } else {
        umi_channel_insert(channel, message);
    }
}

static inline void
umi_channel_unqueue(umi_channel *channel, umx_message *message)
{
    umx_worker_stats *stats = umi_endpoint_worker(channel->ep)->stats;

    stats->unexpected_messages--;
    stats->unexpected_bytes -= message->info.length;
    assert(message->is_queued && message->channel == channel);
    message->is_queued = false;
    channel->num_unread -= message->storage != UMI_STORAGE_LANDING;
    umi_node_remove(&message->node);
}

/* Drop a queued message, unread; a receive that waits for it fails. */
void umi_channel_discard_message(umi_channel *channel, umx_message *message,
                                 umx_status status);

/* The first message in the queue, for the user; NULL if there is none that can
 * be read. */
umx_message *umi_channel_take_first(umi_channel *channel);

/* A receive for `buf`, not queued; NULL when out of memory. */
umx_request *umi_channel_new_recv(umi_channel *channel, const umx_match *match,
                                  uint32_t flags, const umx_buffer *buf,
                                  const umx_op_params *params);

/* The bytes of `message`, which is off its queue, into `buf`, or of an
 * announced one into `req`; the message is gone after it. */
umx_status umi_channel_copy_out(umi_channel *channel, umx_message *message,
                                const umx_buffer *buf);
umx_status umi_channel_deliver_announced(umi_channel *channel,
                                         umx_message *message,
                                         umx_request *req);

/* Put the message that a receive left in `buf`, and the user's header that was
 * in front, back to its place, by copy. */
umx_status umi_channel_unrecv(umi_channel *channel, const umx_recv_info *info,
                              const void *header, size_t header_len,
                              const umx_buffer *buf);

/* Check what every receive checks; gives the channel. */
umx_status umi_channel_check_recv(umx_ep *ep, uint32_t id,
                                  umi_channel **channel_p);

/* A message that is in the queue has landed, or will not: `status`. */
void umi_channel_landed(umi_channel *channel, umx_message *message,
                        umx_status status);

/* Bytes of sends not completed. */
uint64_t umi_channel_waiting_bytes(const umi_channel *channel);

/* Does a peer with these limits count all messages of a channel alike? */
static inline bool
umi_credit_counts_all(const umi_limits *limits)
{
    return limits->rndv == 0;
}

/* Compute what an arriving message has cost its sender. */
static inline umi_charge
umi_charge_of(const umi_channel *channel, const umi_am_arrival *arrival)
{
    const uint8_t *header = arrival->header;
    uint8_t        flags  = header[offsetof(umi_header, flags)];

    if (umi_credit_counts_all(&channel->ep->own_limits) &&
        (umi_am_is_announced(arrival) || arrival->len == 0)) {
        return (umi_charge){.kind = UMI_CHARGE_ANY};
    }
    if (flags & UMI_FLAG_RESERVE) {
        return (umi_charge){.kind = UMI_CHARGE_RESERVE};
    }
    if (umi_am_is_announced(arrival)) {
        return (umi_charge){.kind = UMI_CHARGE_RNDV};
    }
    return umi_charge_eager(arrival->len,
                            arrival->header_len - umi_header_size(flags));
}

/* credit.c */
bool umi_credit_allows_odd(const umi_channel *channel, umi_charge charge);
static inline bool
umi_credit_allows(const umi_channel *channel, umi_charge charge)
{
    const umi_channels *channels = umi_channels_of(channel->ep);

    if (charge.kind != UMI_CHARGE_EAGER) {
        return umi_credit_allows_odd(channel, charge);
    }
    return (int32_t)(channel->tx_limits.messages - channel->tx_sent.messages) >
               0 &&
           (int64_t)(channels->tx_limit.bytes - channels->tx_sent.bytes) >=
               (int64_t)charge.bytes;
}
void umi_credit_sent(umi_channel *channel, umi_charge charge);
/* An arriving message is to be kept. False: the peer had no credit for it. */
bool umi_credit_keep(umi_channel *channel, umi_charge charge);
/* A message of `len` bytes has been announced, and a receive waited for it. */
void umi_credit_waited(umi_channel *channel, size_t len);
/* Count a message that was kept as read. */
void umi_credit_unkeep(umi_channel *channel, umi_charge charge);
/* A message has been read: its credit goes back, in time. */
void umi_credit_read(umi_channel *channel, umi_charge charge);
/* Give back, once, what a message that was kept has cost of the peer's credit.
 */
static inline void
umi_channel_credit(umi_channel *channel, umx_message *message)
{
    umi_charge charge = message->charge;

    if (charge.kind != UMI_CHARGE_NONE) {
        message->charge.kind = UMI_CHARGE_NONE;
        umi_credit_unkeep(channel, charge);
        umi_credit_read(channel, charge);
    }
}

/* The CREDIT message that is due. */
void umi_credit_grant(umi_channel *channel, umi_limits *limits,
                      uint32_t *reserve_p);
/* Begin with what this side grants. The peer gets CREDIT once more than half of
 * a window is read, or of a small one whenever something is. */
void umi_credit_init(umi_channel *channel);
/* Begin with what the peer grants each channel at first. */
void umi_credit_start(umi_channel *channel);
/* Take a grant of the peer's. */
void umi_credit_take(umi_channel *channel, const umi_limits *limits,
                     uint32_t reserve);

/* ---- keep_last.c ---------------------------------------------------------
 */

/* Drop messages that are not among the last that are kept. */
void umi_channel_trim(umi_channel *channel);

/* Count a message that has been queued as read, where only the last ones are
 * kept: they are few, and their sender does not wait for the reader. */
static inline void
umi_channel_keep(umi_channel *channel, umx_message *message)
{
    if (channel->keep_last != 0) {
        umi_channel_credit(channel, message);
    }
}

/* ---- misfit.c ------------------------------------------------------------
 */

/* Log that a message of `len` bytes is dropped, which does not fit a receive of
 * `capacity` bytes, nor the one before. */
void umi_misfit_log(const umi_channel *channel, size_t len, size_t capacity);

/* Drop a message that is off its queue. */
void umi_misfit_drop(umi_channel *channel, umx_message *message);

/* A receive that has ended for the message of that number has been cancelled
 * before it was reported: the next one is told again. */
void umi_misfit_forget(umi_channel *channel, uint32_t seq);

/* ---- withdraw.c ----------------------------------------------------------
 */

/* Let `req`, whose loan has ended, wait for the WITHDRAW that says why, or for
 * the end of the endpoint. */
void umi_withdraw_expect(umx_request *req);

/* Fail what waits so: the endpoint has ended. */
void umi_withdraw_fail_expected(umi_channel *channel, umx_status status);

/* Act on WITHDRAWs of messages that have come by now; inside UCX's callback. */
static inline void
umi_withdraw_due(umi_channel *channel)
{
    if (!umi_list_is_empty(&channel->withdrawn)) {
        umi_endpoint_due(channel->ep, UMI_DUE_WITHDRAW);
    }
}

/* Forget WITHDRAWs. */
void umi_withdraw_fini(umi_channel *channel);

/* ---- cut.c ---------------------------------------------------------------
 */

/* The message at `place` cannot be had: drop what is queued from there on.
 * Receives that wait for some of it fail with `status`. */
void umi_channel_cut(umi_channel *channel, uint64_t place, umx_status status);

/* Cut the channel there, and fail the endpoint if it is open. Not inside UCX's
 * callbacks. */
void umi_channel_lose(umi_channel *channel, uint64_t place, umx_status status);

/* The endpoint has failed: cut at the first message that has not come. */
void umi_channel_cut_at_end(umi_channel *channel, umx_status status);

/* umi_channel_ops.place and distance of channels whose order is that of seqs.
 */
uint64_t umi_channel_seq_place(const umx_recv_info *info);
int64_t  umi_channel_seq_distance(uint64_t a, uint64_t b);

/* True if the message of that place is lost, or behind a lost one; true if it
 * is behind one. */
bool umi_channel_is_lost(const umi_channel *channel, uint64_t place);
bool umi_channel_is_behind_lost(const umi_channel *channel, uint64_t place);

extern const umi_request_ops umi_channel_send_ops;

/* stream_send.c: count a message of a request with umi_split_send as done,
 * whose `arg` that request is; cancel the request if all of it still waits. */
void umi_split_send_on_done(umx_request *piece, umx_status status, void *arg);
void umi_split_send_cancel(umx_request *req);

#endif
