/* SPDX-License-Identifier: BSD-3-Clause */
/* inbox.c: collective operations between ranks of one host: through an inbox of
 * the receiver, shared memory that the sender has mapped. Where there is no
 * room, or no inbox yet, a message takes the channel: the receiver takes
 * whatever comes.
 *
 * The inbox is offered to a rank when its first message has come over the
 * channel, or is waited for and there is a connection.
 *
 * A rank may write anything into the inbox, at any time. What is read of a cell
 * is read once, and checked; what a rank could spoil are the bytes of messages.
 * A sender that is revoked says so in its own inbox before its operations end:
 * what was pulled from it after that may be anything, and is not used. So a
 * rank is only told to pull once it has mapped the inbox of the sender. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/inbox.h"
#include "comm/inbox_cell.h"
#include "comm/member.h"

#include <umx/rma.h>
#include <umx/wait.h>

enum {
    RING_SHARE = 4,         /* of a ring that a message may take at most */
    MAX_RANKS  = 256,       /* of a communicator with inboxes */
    PULL_MIN   = 16 * 1024, /* bytes */
    LEND_MIN   = 32 * 1024,
    MAX_KEYS   = 8, /* of a rank, that are kept open */
    KEY_MAX    = 4096
};

/* A memory of another rank, which is open here. */
typedef struct known_key {
    umx_rkey *rkey; /* NULL: none */
    void     *key;
    size_t    len;
} known_key;

typedef struct peer {
    /* what it sends */
    bool      is_offered;
    char     *in;        /* its area here */
    uint64_t  seen;      /* cells */
    uint64_t  num_free;  /* of them, from the first on without a gap */
    uint64_t  free_bits; /* cells that are free behind those, by place */
    known_key keys[MAX_KEYS];
    unsigned  next_key;
    /* what is sent to it */
    umx_rkey   *mapped;               /* NULL: not mapped */
    char       *out;                  /* the area there */
    uint64_t    sent;                 /* cells */
    uint64_t    consumed;             /* of them, when it was last looked */
    uint64_t    used;                 /* bytes of the ring, ever */
    uint64_t    ends[UMI_COMM_CELLS]; /* `used` behind each cell */
    const char *why;                  /* not mapped; NULL: not offered */
} peer;

struct umi_comm_inbox {
    umx_comm    *comm;
    umx_memh    *memh;
    char        *data;
    umx_lookout *lookout;
    size_t       ring; /* bytes */
    unsigned     num_mapped;
    unsigned     busy; /* looks under way */
    bool         is_ended;
    peer         peers[];
};

/* ---- life ----------------------------------------------------------------
 */

static void
forget_key(known_key *known)
{
    if (known->rkey != NULL) {
        umx_rkey_destroy(known->rkey);
        free(known->key);
        *known = (known_key){0};
    }
}

static void
free_inbox(umi_comm_inbox *inbox)
{
    for (int i = 0; i < inbox->comm->size; i++) {
        peer *p = &inbox->peers[i];

        for (int k = 0; k < MAX_KEYS; k++) {
            forget_key(&p->keys[k]);
        }
        if (p->mapped != NULL) {
            umx_rkey_destroy(p->mapped);
        }
    }
    umx_memh_release(inbox->memh);
    free(inbox);
}

void
umi_comm_inbox_revoke(umx_comm *comm)
{
    if (comm->inbox != NULL) {
        __atomic_store_n((uint64_t *)(void *)comm->inbox->data, UINT64_C(1),
                         __ATOMIC_SEQ_CST);
        /* The mark is seen before anything that the program stores to its
         * buffers. */
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
}

void
umi_comm_inbox_end(umx_comm *comm)
{
    umi_comm_inbox *inbox = comm->inbox;

    if (inbox == NULL || inbox->is_ended) {
        return;
    }
    inbox->is_ended = true;
    comm->inbox     = NULL;
    umx_lookout_stop(inbox->lookout);
    if (inbox->busy == 0) {
        free_inbox(inbox);
    }
}

static bool look(void *arg);

static umi_comm_inbox *
new_inbox(umx_comm *comm)
{
    umx_worker     *worker = comm->group->dispatch->worker;
    umi_comm_inbox *inbox  = calloc(
         1, sizeof(*inbox) + (size_t)comm->size * sizeof(*inbox->peers));

    if (inbox == NULL) {
        return NULL;
    }
    inbox->comm = comm;
    inbox->ring = umi_comm_ring_size(comm->size);
    if (umx_memh_alloc(umx_worker_get_context(worker),
                       umi_comm_inbox_size(comm->size),
                       &inbox->memh) != UMX_OK) {
        free(inbox);
        return NULL;
    }
    inbox->data = umx_memh_buffer(inbox->memh)->data;
    if (!umx_memh_is_shared(inbox->memh) ||
        umx_lookout_start(worker, inbox->memh, look, inbox, &inbox->lookout) !=
            UMX_OK) {
        umx_memh_release(inbox->memh);
        free(inbox);
        return NULL;
    }
    for (int i = 0; i < comm->size; i++) {
        inbox->peers[i].in = umi_comm_area_of(inbox->data, comm->size, i);
    }
    return inbox;
}

void
umi_comm_inbox_offer(umx_comm *comm, int rank)
{
    umi_comm_header  header = {.kind   = UMI_COMM_INBOX,
                               .source = (uint32_t)comm->rank,
                               .comm   = comm->id};
    umi_comm_member *member = comm->ranks[rank].member;
    const void      *key;
    size_t           len;

    if (member->out == NULL || !umi_comm_member_is_up(member) ||
        comm->has_no_inbox ||
        (comm->inbox != NULL && comm->inbox->peers[rank].is_offered)) {
        return;
    }
    if (comm->inbox == NULL) {
        comm->inbox = (comm->size <= MAX_RANKS) ? new_inbox(comm) : NULL;
        if (comm->inbox == NULL) {
            comm->has_no_inbox = true;
            return;
        }
    }
    comm->inbox->peers[rank].is_offered = true;
    key                                 = umx_memh_key(comm->inbox->memh, &len);
    umi_comm_member_send(member, &header, key, len);
}

/* Map the inbox of a rank. Returns why the inbox cannot be used; NULL: it can.
 */
static const char *
map_inbox(umi_comm_inbox *inbox, peer *p, umx_ep *ep, const void *key,
          size_t len)
{
    int       ranks = inbox->comm->size;
    umx_rkey *rkey;
    char     *data;

    if (umx_rkey_open(ep, key, len, &rkey) != UMX_OK) {
        return "its inbox has a key that is not its own";
    }
    data = umx_rkey_pointer(rkey);
    if (data == NULL || umx_rkey_is_readonly(rkey) ||
        umx_rkey_length(rkey) != umi_comm_inbox_size(ranks) ||
        (uintptr_t)data % UMI_COMM_CELL_SIZE != 0) {
        umx_rkey_destroy(rkey);
        return "its inbox cannot be mapped";
    }
    p->mapped = rkey;
    p->out    = umi_comm_area_of(data, ranks, inbox->comm->rank);
    inbox->num_mapped++;
    __atomic_store_n(umi_comm_is_mapped_of(p->out), UINT64_C(1),
                     __ATOMIC_RELEASE);
    return NULL;
}

void
umi_comm_inbox_on_offer(umx_comm *comm, int rank, umx_ep *ep, const void *key,
                        size_t len)
{
    peer *p;

    if (comm->is_revoked || comm->is_closed || rank == comm->rank) {
        return;
    }
    umi_comm_inbox_offer(comm, rank);
    if (comm->inbox == NULL) {
        return;
    }
    p = &comm->inbox->peers[rank];
    if (p->mapped == NULL) {
        p->why = map_inbox(comm->inbox, p, ep, key, len);
    }
}

bool
umi_comm_inbox_is_busy_wait(const umx_comm *comm)
{
    return comm->inbox != NULL && !comm->group->is_crowded &&
           comm->inbox->num_mapped == (unsigned)comm->size - 1;
}

/* ---- sending -------------------------------------------------------------
 */

static peer *
peer_to(const umx_comm *comm, int rank)
{
    peer *p = (comm->inbox != NULL) ? &comm->inbox->peers[rank] : NULL;

    return (p != NULL && p->mapped != NULL &&
            umi_comm_member_is_up(comm->ranks[rank].member)) ?
               p :
               NULL;
}

/* How many bytes of the ring, of all ever used, are free again? */
static uint64_t
freed_bytes(const peer *p)
{
    return (p->consumed == 0) ? 0 : p->ends[(p->consumed - 1) % UMI_COMM_CELLS];
}

/* Find room for a message: true if there is a cell, and room for `len` bytes of
 * the ring, at `*at_p`. */
static bool
find_room(const umi_comm_inbox *inbox, peer *p, size_t len, uint64_t *at_p)
{
    uint64_t at = p->used;

    if (at % inbox->ring + len > inbox->ring) { /* not in two parts */
        at += inbox->ring - at % inbox->ring;
    }
    *at_p = at;
    return p->sent - p->consumed < UMI_COMM_CELLS &&
           at + len - freed_bytes(p) <= inbox->ring;
}

/* Look at what the rank has consumed. False: there is no news, or nonsense. */
static bool
look_consumed(peer *p)
{
    uint64_t consumed = __atomic_load_n(umi_comm_consumed_of(p->out),
                                        __ATOMIC_ACQUIRE);

    if (consumed <= p->consumed || consumed > p->sent) {
        return false;
    }
    p->consumed = consumed;
    return true;
}

static bool
get_room(const umi_comm_inbox *inbox, peer *p, size_t len, uint64_t *at_p)
{
    return len <= inbox->ring / RING_SHARE &&
           (find_room(inbox, p, len, at_p) ||
            (look_consumed(p) && find_room(inbox, p, len, at_p)));
}

/* Has half of the inbox not been consumed, as far as is known here? */
static bool
seems_ahead(const umi_comm_inbox *inbox, const peer *p)
{
    return p->sent - p->consumed >= UMI_COMM_CELLS / 2 ||
           p->used - freed_bytes(p) >= inbox->ring / 2;
}

/* Is this rank far ahead of the other one? */
static bool
is_ahead(const umi_comm_inbox *inbox, peer *p)
{
    return seems_ahead(inbox, p) &&
           (!look_consumed(p) || seems_ahead(inbox, p));
}

/* Can the rank see whether this one is revoked? */
static bool
may_pull(peer *p)
{
    return __atomic_load_n(umi_comm_is_mapped_of(p->in), __ATOMIC_ACQUIRE) != 0;
}

/* Write into a cell where in the ring its bytes, or its key, are. */
static void
set_place(umi_comm_cell *c, size_t at)
{
    if (c->kind == UMI_COMM_CELL_PULL) {
        c->key.line = (uint16_t)(at / UMI_COMM_CELL_SIZE);
    } else {
        c->at = (uint32_t)at;
    }
}

/* Write a cell, and `len` bytes of the ring. False: there is no room. */
static bool
put(umx_comm *comm, peer *p, umi_comm_cell *c, const void *data, size_t len)
{
    umi_comm_inbox *inbox = comm->inbox;
    umi_comm_cell  *to    = umi_comm_cell_of(p->out, p->sent);
    uint64_t        at;

    if (!get_room(inbox, p, len, &at)) {
        return false;
    }
    if (len != 0) {
        set_place(c, at % inbox->ring);
        memcpy(umi_comm_ring_of(p->out) + at % inbox->ring, data, len);
        p->used = (at + len + UMI_COMM_CELL_SIZE - 1) / UMI_COMM_CELL_SIZE *
                  UMI_COMM_CELL_SIZE;
    }
    p->ends[p->sent % UMI_COMM_CELLS] = p->used;
    p->sent++;
    memcpy((char *)to + sizeof(c->stamp), (char *)c + sizeof(c->stamp),
           sizeof(*c) - sizeof(c->stamp));
    __atomic_store_n(&to->stamp, p->sent, __ATOMIC_RELEASE);
    (void)!umx_rkey_notify(p->mapped); /* who has ended is told of elsewhere */
    return true;
}

/* Can the peer map the memory that the buffer lies in? */
static bool
is_in_shared_memory(const umx_buffer *buf, uint64_t *offset_p)
{
    const umx_buffer *all;

    if (buf->memh == NULL || !umx_memh_is_shared(buf->memh)) {
        return false;
    }
    all       = umx_memh_buffer(buf->memh);
    *offset_p = (uintptr_t)buf->data - (uintptr_t)all->data;
    return *offset_p <= all->len && buf->len <= all->len - *offset_p;
}

/* Tell from how many bytes on memory is lent: a message that the ring can take
 * is not worth a call of the system. */
static size_t
lend_min(const umi_comm_inbox *inbox)
{
    size_t most = inbox->ring / RING_SHARE;

    return (most + 1 > LEND_MIN) ? most + 1 : LEND_MIN;
}

/* Lend the bytes to the rank, if it reads what others lend. */
static bool
lend(umx_comm *comm, umi_comm_xfer *xfer, umi_comm_cell *c)
{
    umx_ep *ep = comm->ranks[xfer->rank].member->out;

    if (ep == NULL || umx_loan_begin(ep, &xfer->buf, &xfer->loan) != UMX_OK) {
        return false;
    }
    xfer->ep = ep;
    c->kind  = UMI_COMM_CELL_LOAN;
    c->word  = xfer->loan.id;
    c->slot  = xfer->loan.slot;
    return true;
}

umx_status
umi_comm_inbox_send(umi_comm_coll *coll, umi_comm_xfer *xfer)
{
    umx_comm         *comm = coll->comm;
    const umx_buffer *buf  = &xfer->buf;
    peer             *p    = peer_to(comm, xfer->rank);
    umi_comm_cell     c    = {.kind    = UMI_COMM_CELL_DATA,
                              .op      = (uint8_t)coll->type->kind,
                              .round   = xfer->round,
                              .number  = coll->number,
                              .what    = coll->what,
                              .bytes   = coll->bytes,
                              .history = coll->history,
                              .len     = buf->len};
    const void       *key;
    size_t            len = buf->len;

    if (p == NULL || buf->memtype > UMX_MEMTYPE_HOST) {
        return UMX_ERR_UNSUPPORTED;
    }
    if (umi_comm_inbox_is_spoilt(comm, xfer->rank)) {
        return UMX_ERR_CONNECTION_RESET; /* it says why, or its end does */
    }
    if (len >= PULL_MIN && is_in_shared_memory(buf, &c.word) && may_pull(p)) {
        key       = umx_memh_key(buf->memh, &len);
        c.kind    = UMI_COMM_CELL_PULL;
        c.key.len = (uint16_t)len;
        if (len <= KEY_MAX && put(comm, p, &c, key, len)) {
            return UMX_INPROGRESS;
        }
        return UMX_ERR_UNSUPPORTED;
    }
    if (len >= lend_min(comm->inbox) && may_pull(p) && lend(comm, xfer, &c)) {
        if (put(comm, p, &c, NULL, 0)) {
            return UMX_INPROGRESS;
        }
        umx_loan_end(xfer->ep, &xfer->loan);
        xfer->ep = NULL;
        return UMX_ERR_UNSUPPORTED;
    }
    if (len != 0 && len <= sizeof(c.word)) {
        memcpy(&c.word, buf->data, len);
        len = 0;
    }
    if (is_ahead(comm->inbox, p)) {
        c.kind = UMI_COMM_CELL_SYNC;
    }
    if (!put(comm, p, &c, buf->data, len)) {
        return UMX_ERR_UNSUPPORTED;
    }
    return (c.kind == UMI_COMM_CELL_SYNC) ? UMX_INPROGRESS : UMX_OK;
}

void
umi_comm_inbox_say_done(umx_comm *comm, int rank, uint64_t number,
                        unsigned round)
{
    peer         *p = peer_to(comm, rank);
    umi_comm_cell c = {
        .kind = UMI_COMM_CELL_DONE, .round = (uint16_t)round, .number = number};
    umi_comm_header header = {.kind   = UMI_COMM_DONE,
                              .round  = (uint16_t)round,
                              .source = (uint32_t)comm->rank,
                              .comm   = comm->id,
                              .number = number};

    if (p == NULL || !put(comm, p, &c, NULL, 0)) {
        umi_comm_member_send(comm->ranks[rank].member, &header, NULL, 0);
    }
}

/* ---- receiving -----------------------------------------------------------
 */

void
umi_comm_inbox_drop(umx_comm *comm, const umi_comm_parcel *parcel)
{
    peer *p;

    if (comm->inbox == NULL) {
        return;
    }
    p = &comm->inbox->peers[parcel->header.source];
    p->free_bits |= UINT64_C(1) << parcel->cell % UMI_COMM_CELLS;
    while (p->num_free < p->seen &&
           (p->free_bits & UINT64_C(1) << p->num_free % UMI_COMM_CELLS) != 0) {
        p->free_bits &= ~(UINT64_C(1) << p->num_free % UMI_COMM_CELLS);
        p->num_free++;
    }
    __atomic_store_n(umi_comm_consumed_of(p->in), p->num_free,
                     __ATOMIC_RELEASE);
}

/* Open a key of a rank, or find it among those that are open. `*rkey_p` lasts
 * until another key takes its place. */
static umx_status
open_key(umx_comm *comm, int rank, const void *key, size_t len,
         umx_rkey **rkey_p)
{
    peer      *p = &comm->inbox->peers[rank];
    known_key *known;
    umx_ep    *ep;
    umx_status status;

    for (int i = 0; i < MAX_KEYS; i++) {
        known = &p->keys[i];
        if (known->rkey != NULL && known->len == len &&
            memcmp(known->key, key, len) == 0) {
            *rkey_p = known->rkey;
            return UMX_OK;
        }
    }
    known = &p->keys[p->next_key++ % MAX_KEYS];
    forget_key(known);
    known->key = malloc(len);
    if (known->key == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    memcpy(known->key, key, len);
    known->len = len;
    status     = umi_comm_member_ep(comm->ranks[rank].member, &ep);
    if (status == UMX_OK) {
        /* of the copy: the sender may change the other */
        status = umx_rkey_open(ep, known->key, len, &known->rkey);
    }
    if (status != UMX_OK) {
        free(known->key);
        *known = (known_key){0};
        return status;
    }
    *rkey_p = known->rkey;
    return UMX_OK;
}

bool
umi_comm_inbox_is_spoilt(const umx_comm *comm, int rank)
{
    const peer *p = &comm->inbox->peers[rank];
    const char *header;

    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    header = umx_rkey_pointer(p->mapped);
    return __atomic_load_n((const uint64_t *)(const void *)header,
                           __ATOMIC_ACQUIRE) != 0;
}

static umx_status
pull(umx_comm *comm, const umi_comm_parcel *parcel, const umx_buffer *buf,
     const umx_op_params *params, umx_request **req_p)
{
    int          rank = (int)parcel->header.source;
    umx_rma_item item = {.offset = parcel->word, .buf = *buf};
    umx_rkey    *rkey;
    umx_status   status;

    status = open_key(
        comm, rank, umi_comm_ring_of(comm->inbox->peers[rank].in) + parcel->at,
        parcel->key_len, &rkey);
    return (status == UMX_OK) ? umx_rma_get(rkey, &item, params, req_p) :
                                status;
}

/* Read what the rank lends. */
static umx_status
read_loan(umx_comm *comm, const umi_comm_parcel *parcel, const umx_buffer *buf)
{
    umi_comm_member *member = comm->ranks[parcel->header.source].member;
    umx_loan         loan   = {
                  .id = parcel->word, .len = parcel->len, .slot = parcel->slot};

    return (member->out != NULL) ? umx_loan_read(member->out, &loan, buf) :
                                   UMX_ERR_CONNECTION_RESET;
}

umx_status
umi_comm_inbox_recv(umx_comm *comm, const umi_comm_parcel *parcel,
                    const umx_buffer *buf, const umx_op_params *params,
                    umx_request **req_p)
{
    char *ring = umi_comm_ring_of(comm->inbox->peers[parcel->header.source].in);
    umx_status status = UMX_OK;

    if (parcel->is_pull) {
        status = pull(comm, parcel, buf, params, req_p);
    } else if (parcel->is_loan) {
        status = read_loan(comm, parcel, buf);
    } else if (parcel->len > sizeof(parcel->word)) {
        status = umx_buffer_write(buf, ring + parcel->at, parcel->len);
    } else if (parcel->len != 0) {
        status = umx_buffer_write(buf, &parcel->word, parcel->len);
    }
    umi_comm_inbox_drop(comm, parcel);
    return status;
}

/* Tell where in the ring the bytes of a cell, or its key, are. */
static size_t
place_of(const umi_comm_cell *c)
{
    return (c->kind == UMI_COMM_CELL_PULL) ?
               (size_t)c->key.line * UMI_COMM_CELL_SIZE :
               c->at;
}

/* Check what a cell says: a rank may write anything into it. */
static bool
is_sound(const umi_comm_inbox *inbox, int rank, const umi_comm_cell *c)
{
    size_t in_ring = 0;

    if ((c->kind == UMI_COMM_CELL_PULL || c->kind == UMI_COMM_CELL_LOAN) &&
        inbox->peers[rank].mapped == NULL) {
        return false; /* it could not be known whether the bytes are right */
    }
    switch ((umi_comm_cell_kind)c->kind) {
    case UMI_COMM_CELL_DATA:
    case UMI_COMM_CELL_SYNC:
        in_ring = (c->len > sizeof(c->word)) ? c->len : 0;
        break;
    case UMI_COMM_CELL_PULL:
        in_ring = c->key.len;
        break;
    case UMI_COMM_CELL_DONE:
    case UMI_COMM_CELL_LOAN:
        return true;
    default:
        return false;
    }
    return in_ring <= inbox->ring && place_of(c) <= inbox->ring - in_ring &&
           (c->kind != UMI_COMM_CELL_PULL ||
            (c->key.len != 0 && c->key.len <= KEY_MAX));
}

static void
take_cell(umi_comm_inbox *inbox, int rank, const umi_comm_cell *c,
          uint64_t index)
{
    umx_comm       *comm   = inbox->comm;
    umi_comm_parcel parcel = {.header  = {.kind    = UMI_COMM_COLLECTIVE,
                                          .op      = c->op,
                                          .round   = c->round,
                                          .source  = (uint32_t)rank,
                                          .comm    = comm->id,
                                          .number  = c->number,
                                          .what    = c->what,
                                          .bytes   = c->bytes,
                                          .history = c->history},
                              .cell    = index,
                              .is_pull = c->kind == UMI_COMM_CELL_PULL,
                              .is_loan = c->kind == UMI_COMM_CELL_LOAN,
                              .is_sync = c->kind == UMI_COMM_CELL_SYNC,
                              .len     = c->len,
                              .at      = place_of(c),
                              .word    = c->word,
                              .key_len = c->key.len,
                              .slot    = c->slot};

    if (!is_sound(inbox, rank, c)) {
        umi_comm_revoke(comm, rank, UMX_ERR_PROTOCOL, false,
                        "rank %d has written nonsense into the inbox of rank "
                        "%d",
                        rank, comm->rank);
    } else if (c->kind == UMI_COMM_CELL_DONE) {
        umi_comm_inbox_drop(comm, &parcel);
        umi_comm_coll_on_done(comm, rank, c->number, c->round);
    } else {
        umi_comm_coll_arrive(comm, &parcel);
    }
}

static bool
look_at(umi_comm_inbox *inbox, int rank)
{
    peer *p          = &inbox->peers[rank];
    bool  is_any_new = false;

    /* Take no more than a full circle at a time: a rank may write as fast as it
     * is read. */
    for (int i = 0; i < UMI_COMM_CELLS && !inbox->is_ended; i++) {
        umi_comm_cell *from = umi_comm_cell_of(p->in, p->seen);
        umi_comm_cell  c;

        if (__atomic_load_n(&from->stamp, __ATOMIC_ACQUIRE) != p->seen + 1 ||
            p->seen - p->num_free >= UMI_COMM_CELLS) {
            break;
        }
        memcpy(&c, from, sizeof(c));
        is_any_new = true;
        take_cell(inbox, rank, &c, p->seen++);
    }
    return is_any_new;
}

static bool
look(void *arg)
{
    umi_comm_inbox *inbox      = arg;
    umx_comm       *comm       = inbox->comm;
    bool            is_any_new = false;

    if (inbox->busy != 0) {
        return false;
    }
    inbox->busy++;
    umi_comm_hold(comm);
    for (int i = 0; i < comm->size && !inbox->is_ended; i++) {
        if (inbox->peers[i].is_offered) {
            is_any_new |= look_at(inbox, i);
        }
    }
    if (--inbox->busy == 0 && inbox->is_ended) {
        free_inbox(inbox);
    }
    umi_comm_put(comm);
    return is_any_new;
}

bool
umi_comm_inbox_look(umx_comm *comm)
{
    return comm->inbox != NULL && look(comm->inbox);
}

/* ---- for people ----------------------------------------------------------
 */

size_t
umx_comm_explain(const umx_comm *comm, int rank, char *text, size_t size)
{
    UMI_COMM_LOCK(comm);
    const peer *p;
    int         len;

    if (rank < 0 || rank >= comm->size || comm->ranks == NULL) {
        len = snprintf(text, size, "no such rank");
    } else if (rank == comm->rank) {
        len = snprintf(text, size, "this rank: copies");
    } else if (comm->has_no_inbox) {
        len = snprintf(text, size,
                       "channel: this rank has no shared memory for an inbox");
    } else if (comm->inbox == NULL) {
        len = snprintf(text, size,
                       "channel: there has been no collective operation");
    } else {
        p = &comm->inbox->peers[rank];
        if (p->mapped == NULL) {
            len = snprintf(text, size, "channel: %s",
                           (p->why != NULL) ? p->why :
                                              "it has offered no inbox");
        } else {
            len = snprintf(
                text, size,
                "shared memory: its inbox; from %d bytes on it "
                "copies from a Memory that they lie in, and from %zu "
                "on reads other memory",
                PULL_MIN, lend_min(comm->inbox));
        }
    }
    return (size_t)len;
}
