/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* transfer.h: messages whose bytes go over a network in pieces.
 *
 * All connections of two workers share one endpoint of UCX, which sends what it
 * is given in order. A long message in one go would hold up all the others, so
 * its header goes alone, and its bytes in pieces behind it, of which UCX has
 * few at a time (turns.h):
 *
 *   UMI_AM_TRANSFER  id u64 | length u64 | announced u32, 0 u32 | the header of
 *                    the data message
 *   UMI_AM_PIECE     receiver's endpoint u64 | id u64 | bytes
 *   UMI_AM_ASK       sender's endpoint u64 | id u64 | is_over u32 | status i32
 *
 * The sender of an endpoint numbers its transfers from 1 on. The pieces of one
 * come in order. Those of a message that is not announced come unasked: the
 * receiver takes it at once, as in follow.h. For one that is announced the
 * receiver asks when a receive matches, or says that it is over, as with UCX's
 * rendezvous.
 *
 *   sender      announced --ASK--> sending --the last piece is packed--> over
 *   receiver    offered --umi_way.recv()--> receiving --the last piece--> over
 *
 * A message that is short enough for one piece, and that nobody need ask for,
 * waits for its turn like a piece, and goes whole, as any other message: by one
 * UMI_AM_DATA. It has no number, unless its link turns out to be slow at that
 * moment, or it is withdrawn before: then it goes as the others.
 *
 * A piece is copied from the request's memory into a block of the library's,
 * and at the receiver from UCX's memory into the request's: where that is at
 * that moment (detach.c). UCX never has the program's memory. A transfer ends
 * early when its sender withdraws it, which the receiver hears by a WITHDRAW of
 * the channel behind the last piece; an ASK that crosses that is for nobody.
 * Thread: the worker's owner. */
/* clang-format on */
#ifndef UMI_TRANSFER_H
#define UMI_TRANSFER_H

#include "codec/header.h"
#include "ops/am.h"
#include "util/pool.h"

enum {
    /* The shortest message that waits for a turn. Many that take no turns would
     * leave the others little of the network. */
    UMI_TRANSFER_MIN = 4 * 1024,
    /* The longest piece, which all that comes later has in front of it. */
    UMI_PIECE_BYTES = 48 * 1024,
    /* The longest message that goes whole, with its header: 64 KiB do, which
     * would be three messages of UCX's otherwise. */
    UMI_WHOLE_BYTES = 65 * 1024,
    /* The longest header of a data message that travels with a transfer. */
    UMI_TRANSFER_HEADER_MAX = 1024 + 56, /* umx/am.h: the program's own */
    /* Messages whose bytes nobody has asked for and that wait here: more are
     * announced. The peer may have more, as bytes are on their way. */
    UMI_TRANSFER_UNASKED_MAX = 1024
};

typedef struct umi_transfer_header {
    uint64_t id;
    uint64_t len;
    uint32_t is_announced;
    uint32_t zero;
} umi_transfer_header;

typedef struct umi_piece_header {
    uint64_t endpoint;
    uint64_t id;
} umi_piece_header;

typedef struct umi_transfer_note {
    uint64_t endpoint;
    uint64_t id;
    uint32_t is_over;
    int32_t  status;
} umi_transfer_note;

_Static_assert(sizeof(umi_transfer_header) == 24 &&
                   sizeof(umi_piece_header) == 16 &&
                   sizeof(umi_transfer_note) == 24,
               "wire format");

/* A transfer, at either side. */
typedef struct umi_transfer {
    umi_node     node; /* of a list of umi_transfer_ep */
    umi_ep_base *ep;
    umx_request *req; /* at the receiver NULL: nobody gets the bytes */
    uint64_t     id;
    size_t       len;
    size_t       moved;
    uint32_t     number;       /* at the sender: umi_transfer_send() */
    bool         is_announced; /* and the receiver has not asked */
    /* Of a message that is to go whole, and about which nothing has gone. */
    uint8_t   header_len; /* 0: it goes in pieces */
    uint8_t   header[UMI_HEADER_MAX];
    unsigned *count; /* of the endpoint's, which it is in; or NULL */
} umi_transfer;

/* The transfers of an endpoint. */
typedef struct umi_transfer_ep {
    umi_node turn_node; /* umi_turns.eps */
    umi_list announced; /* by this side */
    umi_list sending;   /* in order */
    umi_list offered;   /* by the peer */
    umi_list receiving;
    uint64_t last_sent;     /* id */
    uint64_t last_received; /* id */
    unsigned num_unasked;   /* by this side, and not over */
    unsigned num_got;       /* by the peer, likewise */
    size_t   budget;        /* bytes that it may send in its turn */
} umi_transfer_ep;

/* The transfers of a worker. */
typedef struct umi_transfers {
    umi_pool      objects;  /* transfers */
    umi_pool      blocks;   /* pieces that UCX has not sent yet */
    umi_pool      told;     /* likewise: umi_transfer_tell() */
    umi_list      due;      /* umi_turns.due_node */
    umi_transfer *arriving; /* whose handler runs; or NULL */
} umi_transfers;

/* Begin a new worker's transfers; end them once UCX's worker is gone. */
void umi_transfer_init(umx_worker *worker, umi_transfers *transfers);
void umi_transfer_fini(umi_transfers *transfers);

/* Listen for transfers, after the handler of data messages has been set. */
umx_status umi_transfer_listen(umx_worker *worker);

/* Begin the transfers of a new endpoint, which lie in `transfers`. */
void umi_transfer_begin(umi_ep_base *ep, umi_transfer_ep *transfers);

/* End the transfers of an endpoint that ends. */
void umi_transfer_end(umi_ep_base *ep, umx_status status);

/* ---- sending -------------------------------------------------------------
 */

/* True if the memory of `req` can be sent so, behind such a header. */
bool umi_transfer_may_send(const umx_request *req, size_t header_len);

/* Send as umi_am_send() does; the header is copied. `number` is the place of
 * the message for umi_transfer_first(). UMX_INPROGRESS or a failure. */
umx_status umi_transfer_send(umx_request *req, const void *header,
                             size_t header_len, bool is_announced,
                             uint32_t number);

/* True if a message may go whose bytes nobody asks for. */
static inline bool
umi_transfer_has_room(const umi_ep_base *ep)
{
    return ep->transfers->num_unasked < UMI_TRANSFER_UNASKED_MAX;
}

/* The transfer that sends `req`; NULL if none does. */
umi_transfer *umi_transfer_of(const umx_request *req);

/* End a transfer of ours: its request completes with `status`. The peer is told
 * by the caller. */
void umi_transfer_withdraw(umi_transfer *transfer, umx_status status);

/* Give the lowest number of the messages whose bytes are on their way, and not
 * all with UCX; `none` if there is no such message. */
uint32_t umi_transfer_first(const umi_ep_base *ep, uint32_t none);

/* ---- receiving -----------------------------------------------------------
 */

/* How a transfer is taken that is announced, and one whose bytes come unasked.
 */
extern const umi_way umi_way_pieces;
extern const umi_way umi_way_pieces_unasked;

/* The peer has withdrawn what `req` receives: no byte comes any more. True if
 * it was a transfer; then `req` completes with UMX_OK. */
bool umi_transfer_stop(umx_request *req);

/* ---- between the files ---------------------------------------------------
 */

/* A new transfer on `list`, counted in `count` unless that is NULL; NULL when
 * out of memory. umi_transfer_free() takes it off. */
umi_transfer *umi_transfer_new(umi_ep_base *ep, umi_list *list, unsigned *count,
                               uint64_t id, size_t len);
void          umi_transfer_free(umi_transfer *transfer);

static inline umi_transfer *
umi_transfer_at(umi_node *node)
{
    return umi_container_of(node, umi_transfer, node);
}

/* The endpoint that a message is for, whose number is at `at`; NULL: there is
 * none, or it has ended. */
umi_ep_base *umi_transfer_find_ep(umx_worker *worker, const void *at);

/* The transfer of that id; NULL if there is none. */
umi_transfer *umi_transfer_find(umi_list *list, uint64_t id);

/* Begin a transfer of ours that was to go whole: it goes in pieces. */
umx_status umi_transfer_start(umi_transfer *transfer);

/* Send `len` bytes, a note or a start, as an active message that is all header.
 * What cannot be sent is lost: its endpoint is as good as failed. */
umx_status umi_transfer_tell(const umi_ep_base *ep, unsigned id,
                             const void *bytes, size_t len);

/* End the sending, or the receiving, of `transfer`. */
void umi_transfer_finish(umi_transfer *transfer, umx_status status);

/* UMI_AM_ASK's handler. */
int umi_transfer_on_ask(umx_worker *worker, const umi_am_arrival *arrival);

#endif
