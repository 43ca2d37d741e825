/* SPDX-License-Identifier: BSD-3-Clause */
/* channel.h: one ordered lane of an endpoint. Thread: the worker's owner.
 *
 * Sending:   post() takes the next seq once UCX has accepted the message;
 *            without credit the request waits in `waiting`.
 * Receiving: a message is taken in seq order; what comes early is parked. It
 *            meets the first posted receive that matches, or waits in
 *            `unexpected`, sorted by seq. */
#ifndef UMI_CHANNEL_H
#define UMI_CHANNEL_H

#include <umx/channel.h>

#include "mem/gather.h"
#include "util/list.h"
#include "codec/control.h"
#include "codec/header.h"
#include "channel/message.h"

/* Of a channel's own: eager messages, and messages of its reserve. */
typedef struct umi_counts {
    uint32_t messages;
    uint32_t reserve;
} umi_counts;

typedef struct umi_channel {
    umi_link            link; /* ep->channels */
    umx_ep             *ep;
    uint32_t            id; /* umi_channel_id() */
    bool                owes_credit;
    bool                has_goodbye;
    bool                is_replies; /* to what we asked for: see rma.h */
    bool                is_ours;    /* counts as one that we send on */
    bool                is_peers;   /* as one that the peer sends on */
    bool                is_cut;     /* nothing from `cut_at` on is handed out */
    uint32_t            goodbye_seq; /* the peer's last seq + 1 */
    uint32_t            tx_seq;
    uint32_t            rx_seq;
    umi_counts          tx_sent;   /* running totals */
    umi_counts          tx_limits; /* what the peer allows of them */
    umi_counts          rx_read;
    umi_counts          rx_granted;
    umi_counts          rx_kept; /* not read yet */
    umi_list            waiting;
    umi_list            posted;
    umi_list            unexpected;
    umi_list            parked;
    umi_list            taken;  /* in the user's hands, bytes may be missing */
    uint64_t            cut_at; /* see cut.c */
    struct umi_am_user *user;   /* an AM id's handler, or NULL */
    umi_link            user_link; /* user->channels */
    /* Of a stream, and of frames: */
    unsigned num_returning; /* cancelled receives into which bytes land */
    /* Of frames: */
    umx_message *open; /* taken, and parts are missing; or NULL */
    /* Of a stream: */
    uint64_t place;   /* of the next byte to arrive */
    bool     has_end; /* the end has arrived */
    bool     is_shut; /* the end has been sent */
} umi_channel;

void umi_channel_init(umi_channel *channel, umx_ep *ep, uint32_t id);

/* UMI_AM_DATA's handler. */
int umi_channel_on_arrival(umx_worker *worker, const umi_am_arrival *arrival);

static inline umx_request *
umi_request_at(umi_link *link)
{
    return umi_container_of(link, umx_request, link);
}

static inline umx_message *
umi_message_at(umi_link *link)
{
    return umi_container_of(link, umx_message, link);
}

/* What is in front of the bytes of a message. */
typedef struct umi_outgoing {
    uint32_t    channel; /* umi_channel_id() */
    uint8_t     flags;
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

/* umx_channel_recv_message() and umx_channel_probe() for every kind; `small` as
 * umx_am_recv(), or NULL. */
umx_status
umi_channel_recv_message(umx_ep *ep, uint32_t id, const umx_match *match,
                         const umx_buffer *small, const umx_op_params *params,
                         umx_request **req_p, umx_message **message_p);
umx_status umi_channel_probe(umx_ep *ep, uint32_t id, const umx_match *match,
                             umx_recv_info *info);

/* Post what credit and state allow of `waiting`. */
void umi_channel_send_waiting(umi_channel *channel);

/* The peer has closed: what it has not received by now it never will. Inside
 * UCX's callback, so that it comes in the order of arrival. */
void umi_channel_on_goodbye(umx_ep *ep);

/* Complete every queued receive / every waiting send. */
void umi_channel_fail_posted(umi_channel *channel, umx_status status);
void umi_channel_fail_waiting(umi_channel *channel, umx_status status);

/* Drop all unread messages. */
void umi_channel_discard(umi_channel *channel);

/* Start pulling announced messages into memory of ours, at most `*budget_p`
 * bytes. */
void umi_channel_pull(umi_channel *channel, size_t *budget_p);

/* Start to pull one. False when out of memory: it stays with its sender. */
bool umi_channel_pull_one(umi_channel *channel, umx_message *message);

/* Put `message` where it belongs: with a receive that waits for it, or in the
 * queue. */
void umi_channel_offer(umi_channel *channel, umx_message *message);

/* In and out of the queue. */
void umi_channel_queue(umi_channel *channel, umx_message *message);
void umi_channel_unqueue(umi_channel *channel, umx_message *message);

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

/* It ends with `status` at once, not reported: free it. The status. */
umx_status umi_channel_end_recv(umx_request *req, umx_status status);

/* The bytes of `message`, which is off its queue, into `buf`, or of an
 * announced one into `req`; the message is gone after it. */
umx_status umi_channel_copy_out(umi_channel *channel, umx_message *message,
                                const umx_buffer *buf, uint32_t flags);
umx_status umi_channel_deliver_announced(umi_channel *channel,
                                         umx_message *message,
                                         umx_request *req);

/* The message that a receive left in `buf`, and the user's header that was in
 * front of it, back to its place, by copy. */
umx_status umi_channel_unrecv(umi_channel *channel, const umx_recv_info *info,
                              const void *header, size_t header_len,
                              const umx_buffer *buf);

/* Checks that every receive shares; gives the channel. */
umx_status umi_channel_check_recv(umx_ep *ep, uint32_t id,
                                  umi_channel **channel_p);

/* What the message has cost of the peer's credit goes back, once. */
void umi_channel_credit(umi_channel *channel, umx_message *message);

/* A message that was counted as received was not, after all. */
void umi_channel_uncount(umi_channel *channel);

/* A message that is in the queue has landed, or will not: `status`. */
void umi_channel_landed(umi_channel *channel, umx_message *message,
                        umx_status status);

/* Bytes of sends not completed. */
uint64_t umi_channel_waiting_bytes(const umi_channel *channel);

/* What an arriving message has cost its sender. */
static inline umi_charge
umi_charge_of(const umi_am_arrival *arrival)
{
    const uint8_t *header = arrival->header;
    uint8_t        flags  = header[offsetof(umi_header, flags)];

    if (flags & UMI_FLAG_RESERVE) {
        return (umi_charge){.kind = UMI_CHARGE_RESERVE};
    }
    if (arrival->is_rndv) {
        return (umi_charge){.kind = UMI_CHARGE_RNDV};
    }
    return umi_charge_eager(arrival->len,
                            arrival->header_len - umi_header_size(flags));
}

/* credit.c */
void umi_credit_init(umx_ep *ep);
bool umi_credit_allows(const umi_channel *channel, umi_charge charge);
void umi_credit_sent(umi_channel *channel, umi_charge charge);
/* An arriving message is to be kept. False: the peer had no credit for it. */
bool umi_credit_keep(umi_channel *channel, umi_charge charge);
/* One that was kept has been read. */
void umi_credit_unkeep(umi_channel *channel, umi_charge charge);
/* A message has been read: its credit goes back, in time. */
void umi_credit_read(umi_channel *channel, umi_charge charge);
/* The CREDIT message that is due. */
void umi_credit_grant(umi_channel *channel, umi_limits *limits,
                      uint32_t *reserve_p);
/* What the peer grants each channel at first. */
void umi_credit_start(umi_channel *channel);
/* One that has come. */
void umi_credit_take(umi_channel *channel, const umi_limits *limits,
                     uint32_t reserve);

/* ---- cut.c ---------------------------------------------------------------
 */

/* The message at `place` cannot be had: drop what is queued from there on.
 * Receives that wait for some of it fail with `status`. */
void umi_channel_cut(umi_channel *channel, uint64_t place, umx_status status);

/* The same, and the endpoint, if it is open, fails. Not inside UCX's callbacks.
 */
void umi_channel_lose(umi_channel *channel, uint64_t place, umx_status status);

/* The endpoint has failed: cut at the first message that has not come. */
void umi_channel_cut_at_end(umi_channel *channel, umx_status status);

/* Where the message is in the order of its channel: its seq, or its place in
 * the stream. */
uint64_t umi_channel_place(const umi_channel *channel,
                           const umx_message *message);

/* Is the message of that place lost, or behind one that is; is it behind one?
 */
bool umi_channel_is_lost(const umi_channel *channel, uint64_t place);
bool umi_channel_is_behind_lost(const umi_channel *channel, uint64_t place);

/* channel.c: is `req` a receive of `channel` into which a message lands? */
bool umi_channel_is_landing(const umi_channel *channel, const umx_request *req,
                            uint64_t *place_p);

extern const umi_request_ops umi_channel_send_ops;

/* stream_send.c: of a request that is sent as several messages, `u.pieces`,
 * whose `arg` it is. They are done; withdraw it if all of it still waits. */
void umi_pieces_on_done(umx_request *piece, umx_status status, void *arg);
void umi_pieces_cancel(umx_request *req);

#endif
