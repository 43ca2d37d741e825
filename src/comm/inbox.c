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
#include "comm/inbox_keys.h"
#include "comm/inbox_out.h"
#include "comm/member.h"
#include "util/clock.h"

#include <umx/rma.h>
#include <umx/wait.h>

enum {
    RING_SHARE = 2,         /* of a ring that a message may take at most */
    MAX_RANKS  = 256,       /* of a communicator with inboxes */
    STEP       = 16 * 1024, /* bytes */
    ONE_STEP   = 64 * 1024,
    PULL_MIN   = 16 * 1024,
    LEND_MIN   = 32 * 1024,
    KEY_MAX    = 4096,
    FILL_LOOKS = 200 /* without news, until a receive is put aside */
};

typedef struct peer {
    /* what it sends */
    bool          is_offered;
    char         *in;        /* its area here */
    uint64_t      seen;      /* cells */
    uint64_t      num_free;  /* of them, from the first on without a gap */
    uint64_t      free_bits; /* cells that are free behind those, by place */
    umi_comm_keys keys;
    umi_comm_out  out;
    const char   *why; /* not mapped; NULL: not offered */
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
free_inbox(umi_comm_inbox *inbox)
{
    for (int i = 0; i < inbox->comm->size; i++) {
        peer *p = &inbox->peers[i];

        umi_comm_keys_close(&p->keys);
        if (p->out.rkey != NULL) {
            umx_rkey_destroy(p->out.rkey);
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

/* Get shared memory with rings as large as they are to be, or as the system
 * gives. */
static umx_status
alloc_rings(umi_comm_inbox *inbox, umx_context *context)
{
    int        ranks  = inbox->comm->size;
    umx_status status = UMX_ERR_NO_MEMORY;

    inbox->ring = 2 * umi_comm_ring_size(ranks);
    while (status != UMX_OK && inbox->ring > UMI_COMM_RING_MIN) {
        inbox->ring /= 2;
        status = umx_memh_alloc(
            context, umi_comm_inbox_size(ranks, inbox->ring), &inbox->memh);
    }
    if (status == UMX_OK && !umx_memh_is_shared(inbox->memh)) {
        umx_memh_release(inbox->memh);
        status = UMX_ERR_UNSUPPORTED;
    }
    return status;
}

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
    if (alloc_rings(inbox, umx_worker_get_context(worker)) != UMX_OK) {
        goto free_it;
    }
    if (umx_lookout_start(worker, inbox->memh, look, inbox, &inbox->lookout) !=
        UMX_OK) {
        goto release_memory;
    }
    inbox->data = umx_memh_buffer(inbox->memh)->data;
    for (int i = 0; i < comm->size; i++) {
        inbox->peers[i].in = umi_comm_area_of(inbox->data, inbox->ring, i);
    }
    return inbox;

release_memory:
    umx_memh_release(inbox->memh);
free_it:
    free(inbox);
    return NULL;
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
    umx_rkey *rkey;
    char     *data;
    size_t    ring;

    if (umx_rkey_open(ep, key, len, &rkey) != UMX_OK) {
        return "its inbox has a key that is not its own";
    }
    data = umx_rkey_pointer(rkey);
    ring = umi_comm_ring_within(inbox->comm->size, umx_rkey_length(rkey));
    if (data == NULL || umx_rkey_is_readonly(rkey) || ring == 0 ||
        (uintptr_t)data % UMI_COMM_CELL_SIZE != 0) {
        umx_rkey_destroy(rkey);
        return "its inbox cannot be mapped";
    }
    p->out = (umi_comm_out){
        .rkey = rkey,
        .area = umi_comm_area_of(data, ring, inbox->comm->rank),
        .ring = ring};
    inbox->num_mapped++;
    __atomic_store_n(umi_comm_is_mapped_of(p->out.area), UINT64_C(1),
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
    if (p->out.rkey == NULL) {
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

    return (p != NULL && p->out.rkey != NULL &&
            umi_comm_member_is_up(comm->ranks[rank].member)) ?
               p :
               NULL;
}

/* Can the rank see whether this one is revoked? */
static bool
may_pull(peer *p)
{
    return __atomic_load_n(umi_comm_is_mapped_of(p->in), __ATOMIC_ACQUIRE) != 0;
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

/* Tell how many bytes are copied before the rank is shown that they are there.
 * A shorter message is copied as fast in one step, and a rank without a
 * processor of its own would only wait for the others. */
static size_t
step_of(const umx_comm *comm, size_t len)
{
    return (comm->group->is_crowded || len <= ONE_STEP) ? SIZE_MAX : STEP;
}

/* Tell from how many bytes on memory is lent, if the ring has room: two copies
 * that both ranks make at the same time take less long than one copy by the
 * system. */
static size_t
lend_min(const umi_comm_out *out)
{
    size_t most = out->ring / RING_SHARE;

    return (most + 1 > LEND_MIN) ? most + 1 : LEND_MIN;
}

static bool
put_cell(peer *p, umi_comm_cell *c)
{
    umx_buffer none = umx_host_buffer(NULL, 0);

    return umi_comm_out_put(&p->out, c, &none, SIZE_MAX);
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

/* Send the key of the memory that the bytes lie in. */
static umx_status
send_key(peer *p, umi_comm_cell *c, umx_memh *memh)
{
    umx_buffer  bytes;
    size_t      len;
    const void *key = umx_memh_key(memh, &len);

    bytes      = umx_host_buffer(key, len);
    c->kind    = UMI_COMM_CELL_PULL;
    c->key.len = (uint16_t)len;
    return (len <= KEY_MAX && umi_comm_out_put(&p->out, c, &bytes, SIZE_MAX)) ?
               UMX_INPROGRESS :
               UMX_ERR_UNSUPPORTED;
}

static umx_status
send_loan(umx_comm *comm, umi_comm_xfer *xfer, peer *p, umi_comm_cell *c)
{
    if (!lend(comm, xfer, c)) {
        return UMX_ERR_UNSUPPORTED;
    }
    if (!put_cell(p, c)) {
        umx_loan_end(xfer->ep, &xfer->loan);
        xfer->ep = NULL;
        return UMX_ERR_UNSUPPORTED;
    }
    return UMX_INPROGRESS;
}

/* Send bytes by the ring, or those that are in the cell. */
static umx_status
send_bytes(umx_comm *comm, peer *p, umi_comm_cell *c, const umx_buffer *bytes)
{
    if (umi_comm_out_is_ahead(&p->out)) {
        c->kind = UMI_COMM_CELL_SYNC;
    }
    if (!umi_comm_out_put(&p->out, c, bytes, step_of(comm, bytes->len))) {
        return UMX_ERR_UNSUPPORTED;
    }
    return (c->kind == UMI_COMM_CELL_SYNC) ? UMX_INPROGRESS : UMX_OK;
}

umx_status
umi_comm_inbox_send(umi_comm_coll *coll, umi_comm_xfer *xfer)
{
    umx_comm         *comm = coll->comm;
    umx_buffer        none = umx_host_buffer(NULL, 0);
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

    if (p == NULL || buf->memtype > UMX_MEMTYPE_HOST) {
        return UMX_ERR_UNSUPPORTED;
    }
    if (umi_comm_inbox_is_spoilt(comm, xfer->rank)) {
        return UMX_ERR_CONNECTION_RESET; /* it says why, or its end does */
    }
    if (buf->len >= PULL_MIN && is_in_shared_memory(buf, &c.word) &&
        may_pull(p)) {
        return send_key(p, &c, buf->memh);
    }
    if (buf->len <= sizeof(c.word)) {
        if (buf->len != 0) {
            memcpy(&c.word, buf->data, buf->len);
        }
        return send_bytes(comm, p, &c, &none);
    }
    if (buf->len <= p->out.ring / RING_SHARE &&
        umi_comm_out_has_room(&p->out, buf->len)) {
        return send_bytes(comm, p, &c, buf);
    }
    return (buf->len >= LEND_MIN && may_pull(p)) ?
               send_loan(comm, xfer, p, &c) :
               UMX_ERR_UNSUPPORTED;
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

    if (p == NULL || !put_cell(p, &c)) {
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
    umi_comm_keys *keys = &comm->inbox->peers[rank].keys;
    umx_ep        *ep;
    umx_status     status;

    *rkey_p = umi_comm_keys_find(keys, key, len);
    if (*rkey_p != NULL) {
        return UMX_OK;
    }
    status = umi_comm_member_ep(comm->ranks[rank].member, &ep);
    return (status == UMX_OK) ? umi_comm_keys_open(keys, ep, key, len, rkey_p) :
                                status;
}

bool
umi_comm_inbox_is_spoilt(const umx_comm *comm, int rank)
{
    const peer *p = &comm->inbox->peers[rank];
    const char *header;

    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    header = umx_rkey_pointer(p->out.rkey);
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

/* Copy what is in the ring of what has not been copied yet. Memory of devices
 * is written once all is there. */
static umx_status
copy_more(umi_comm_xfer *xfer, const peer *p, size_t there)
{
    umx_buffer rest   = xfer->buf;
    umx_status status = UMX_OK;

    if (there < rest.len && rest.memtype > UMX_MEMTYPE_HOST) {
        return UMX_OK;
    }
    rest.data = (char *)rest.data + xfer->filled;
    rest.len  = there - xfer->filled;
    status    = umx_buffer_write(
           &rest, umi_comm_ring_of(p->in) + xfer->at + xfer->filled, rest.len);
    xfer->filled = there;
    return status;
}

umx_status
umi_comm_inbox_fill(umi_comm_xfer *xfer)
{
    umx_comm   *comm   = xfer->coll->comm;
    const peer *p      = &comm->inbox->peers[xfer->rank];
    size_t      len    = xfer->buf.len;
    umx_status  status = UMX_OK;

    for (int i = 0; i < FILL_LOOKS; i++) {
        uint64_t there = __atomic_load_n(
            &umi_comm_cell_of(p->in, xfer->cell)->word, __ATOMIC_ACQUIRE);
        size_t before = xfer->filled;

        there = (there < len) ? there : len; /* the rank may store anything */
        if (there > before) {
            status = copy_more(xfer, p, (size_t)there);
        }
        if (xfer->filled == len || status != UMX_OK) {
            xfer->is_filling = false;
            umi_comm_inbox_stop_filling(xfer);
            return status;
        }
        if (xfer->filled != before) {
            i = 0;
        } else {
            umi_cpu_relax();
        }
    }
    return UMX_INPROGRESS;
}

void
umi_comm_inbox_stop_filling(umi_comm_xfer *xfer)
{
    umi_comm_parcel parcel = {.header.source = (uint32_t)xfer->rank,
                              .cell          = xfer->cell};

    umi_comm_inbox_drop(xfer->coll->comm, &parcel);
}

umx_status
umi_comm_inbox_recv(umi_comm_xfer *xfer, const umi_comm_parcel *parcel,
                    const umx_op_params *params)
{
    umx_comm         *comm   = xfer->coll->comm;
    const umx_buffer *buf    = &xfer->buf;
    umx_status        status = UMX_OK;

    if (parcel->is_pull) {
        status = pull(comm, parcel, buf, params, &xfer->sub);
    } else if (parcel->is_loan) {
        status = read_loan(comm, parcel, buf);
    } else if (parcel->len > sizeof(parcel->word)) {
        xfer->is_filling = true;
        xfer->is_sync    = parcel->is_sync;
        xfer->cell       = parcel->cell;
        xfer->at         = parcel->at;
        xfer->filled     = 0;
        return umi_comm_inbox_fill(xfer);
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
        inbox->peers[rank].out.rkey == NULL) {
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
        memcpy(&c, from, offsetof(umi_comm_cell, word));
        c.word = __atomic_load_n(&from->word, __ATOMIC_RELAXED);
        /* What is checked below is not read again: it may have changed. */
        __atomic_signal_fence(__ATOMIC_ACQ_REL);
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
    if (!inbox->is_ended) {
        is_any_new |= umi_comm_coll_fill_all(comm);
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
        if (p->out.rkey == NULL) {
            len = snprintf(text, size, "channel: %s",
                           (p->why != NULL) ? p->why :
                                              "it has offered no inbox");
        } else {
            len = snprintf(
                text, size,
                "shared memory: its inbox; from %d bytes on it "
                "copies from a Memory that they lie in, and from %zu "
                "on reads other memory",
                PULL_MIN, lend_min(&p->out));
        }
    }
    return (size_t)len;
}
