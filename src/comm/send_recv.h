/* SPDX-License-Identifier: BSD-3-Clause */
/* send_recv.h: messages between ranks, and the receives that they are for.
 *
 * A receive takes the first message, in the order of arrival, whose source and
 * tag it asks for; a message goes to the first receive that asks for it, in the
 * order of posting. Messages that no receive waits for are kept in
 * `unexpected`. Their bytes stay where they are, at the sender or in the
 * channel's memory, while there are few; then they are brought here, so that
 * what a rank does not want yet never keeps back what it waits for.
 *
 * A cancelled receive gives its message back to its place in `unexpected`. If
 * the bytes are coming they land in memory of the library's from then on: the
 * request ends, and the umi_comm_recv lives until they have come. In the same
 * way a cancelled send ends while the channel goes on with a copy. A message
 * that its sender has withdrawn counts as sent and as received, and nobody gets
 * it. */
#ifndef UMI_COMM_SEND_RECV_H
#define UMI_COMM_SEND_RECV_H

#include "comm/communicator.h"

/* A receive, a probe that waits, the receive of a message that was taken, or a
 * watch, which has the life of a receive. */
typedef struct umi_comm_recv {
    umi_node          node; /* comm->posted; or by itself: bytes are coming */
    umx_comm         *comm; /* held */
    umx_request      *req;  /* NULL: ended, but the bytes are coming */
    int               source;
    uint64_t          tag;
    uint64_t          mask;
    umx_buffer        buf;
    uint64_t          order; /* of posting */
    bool              is_probe;
    bool              is_watch;      /* of umx_comm_watch(): takes no message */
    bool              is_of_message; /* of umx_comm_mrecv() */
    umx_request      *sub;           /* whose bytes are coming; or NULL */
    umx_comm_message *from; /* the message whose bytes are coming; or NULL */
    umx_comm_message *back; /* cancelled: gets what comes by `sub`; or NULL */
    bool              is_lost; /* like umi_comm_send.is_lost */
    umx_comm_status   got;
} umi_comm_recv;

/* A send that is under way. */
typedef struct umi_comm_send {
    umi_node          node;       /* comm->sends */
    umx_comm         *comm;       /* held */
    umx_request      *req;        /* NULL: ended, but the channel goes on */
    umx_request      *sub;        /* NULL: to oneself, or lost */
    bool              is_counted; /* in umi_comm_rank.num_sent */
    bool              is_large;   /* in umx_comm.num_large */
    bool              is_lost;    /* the rank may have ended */
    umx_comm_message *message;    /* to oneself, in `unexpected`; or NULL */
    umx_buffer        buf;
    int               dest;
} umi_comm_send;

/* A message that no receive has taken. */
struct umx_comm_message {
    umi_node        node;
    umx_comm       *comm; /* held while the program has the message */
    umx_comm_status info;
    uint64_t        order;        /* of arrival */
    umx_message    *message;      /* the peer's; or ... */
    umi_comm_send  *send;         /* ... a send to oneself that waits; or */
    void           *data;         /* ... a copy, ... */
    umx_request    *sub;          /* ... which comes from the sender; or NULL */
    umi_comm_recv  *waiter;       /* the receive that gets the copy; or NULL */
    bool            is_dropped;   /* nobody wants what comes */
    bool            is_lost;      /* taken, and the bytes have not come */
    bool            is_kept;      /* counted in umi_comm_rank.num_kept */
    bool            is_taken;     /* the program has it: umx_comm_improbe() */
    bool            is_copy;      /* `data` is of umx_copy_new() */
    bool            is_withdrawn; /* taken; its sender has cancelled it */
};

/* ---- message.c: messages that wait for a receive -------------------------
 */

/* A message has come, and is taken over. */
void umi_comm_message_arrive(umx_comm *comm, int source, uint64_t tag,
                             umx_message *message);

umx_comm_message *umi_comm_message_new(umx_comm *comm, int source, uint64_t tag,
                                       size_t len);

/* Make a message again of one that a receive has got; without its bytes. */
umx_comm_message *umi_comm_message_remake(umx_comm              *comm,
                                          const umx_comm_status *got);
void              umi_comm_message_free(umx_comm_message *message);

/* Find the first message that a receive asks for, and drop those before it that
 * were withdrawn. NULL: there is none. */
umx_comm_message *umi_comm_message_find(umx_comm *comm, int source,
                                        uint64_t tag, uint64_t mask);

/* Put the message into the queue again, or let a receive that waits have it. */
void umi_comm_message_requeue(umx_comm *comm, umx_comm_message *message);

/* Put the message back that a receive has got in `buf`. */
umx_status umi_comm_message_put_back(umx_comm *comm, const umx_comm_status *got,
                                     const umx_buffer *buf);

/* A message cannot be put back: revoke the communicator. */
void umi_comm_message_cannot_put_back(umx_comm *comm, umx_status status);

/* A message that came is lost, and nobody has asked for it yet. */
void umi_comm_message_lose(umx_comm *comm, int source, umx_status status);

/* The bytes of a message have come into memory of the library's, or not. */
void umi_comm_message_end_copy(umx_comm_message *message, umx_status status);

static inline bool
umi_comm_message_is_for(const umx_comm_status *info, int source, uint64_t tag,
                        uint64_t mask)
{
    return (source == UMX_ANY_SOURCE || source == info->source) &&
           ((info->tag ^ tag) & mask) == 0;
}

/* The communicator is revoked, or closed: end all messages, receives and sends
 * with `status`. */
void umi_comm_messages_end(umx_comm *comm, umx_status status);

/* ---- recv.c --------------------------------------------------------------
 */

/* Give the message to the first receive that it is for, and tell the probes;
 * `is_back`: the message comes back from a receive that was cancelled, and
 * those that are too short for it keep waiting for theirs. False: no receive
 * waits for it. */
bool umi_comm_recv_offer(umx_comm *comm, umx_comm_message *message,
                         bool is_back);

/* Complete the request, and free the receive. */
void umi_comm_recv_end(umi_comm_recv *recv, umx_status status);

/* The bytes of a message that a receive waits for have come, or have not. */
void umi_comm_recv_end_wait(umx_comm_message *message, umx_status status);

/* The bytes that the receive waits for are lost. */
void umi_comm_recv_lose(umi_comm_recv *recv, umx_status status);

/* Has the rank left, and has all come that it has sent? */
static inline bool
umi_comm_rank_is_finished(const umi_comm_rank *rank)
{
    return rank->is_gone && rank->num_received == rank->num_expected;
}

/* Nothing more comes of that rank: end the receives of it alone, and those of
 * any rank if it was the last. */
void umi_comm_messages_end_rank(umx_comm *comm, int rank);

/* ---- send.c --------------------------------------------------------------
 */

/* A large message has come: note whether large ones are sent both ways at a
 * time. */
void umi_comm_send_note_crossing(umx_comm *comm);

/* Complete the request, and free the send. */
void umi_comm_send_end(umi_comm_send *send, umx_status status);

/* End the sends to `dest`, or to all (-1), that were lost. */
void umi_comm_sends_end_lost(umx_comm *comm, int dest, umx_status status);

/* The communicator is revoked: cancel the sends that the channel still has. */
void umi_comm_sends_cancel(umx_comm *comm, int dest, umx_status status);

/* The status that an operation whose bytes are lost will end with. */
static inline umx_status
umi_comm_lost_status(const umx_comm *comm, umx_status status)
{
    return comm->is_revoked ? UMX_ERR_RANK_FAILED : status;
}

#endif
