/* SPDX-License-Identifier: BSD-3-Clause */
/* collective.h: one collective operation under way.
 *
 * An operation goes round by round: its type posts the messages of a round, and
 * when all are complete the next. Messages are matched by the number of the
 * operation, the round and the rank; one that comes before its operation has
 * begun here, or its receive been posted, waits in `early`. Each says which
 * operation its sender is in, so that ranks that call different ones find out.
 */
#ifndef UMI_COMM_COLLECTIVE_H
#define UMI_COMM_COLLECTIVE_H

#include <umx/collective.h>
#include <umx/loan.h>

#include "comm/communicator.h"

enum {
    /* Ranks that an operation between all exchanges bytes with at a time. */
    UMI_COMM_COLL_WINDOW = 32
};

typedef enum umi_comm_coll_kind {
    UMI_COMM_COLL_BARRIER = 1,
    UMI_COMM_COLL_BCAST,
    UMI_COMM_COLL_GATHER,
    UMI_COMM_COLL_SCATTER,
    UMI_COMM_COLL_ALLGATHER,
    UMI_COMM_COLL_ALLTOALL,
    UMI_COMM_COLL_REDUCE,
    UMI_COMM_COLL_ALLREDUCE,
    UMI_COMM_COLL_SPLIT,
    UMI_COMM_COLL_ALLTOALL_BUFFERS,
    UMI_COMM_COLL_SCAN,
    UMI_COMM_COLL_EXSCAN,
    UMI_COMM_COLL_REDUCE_SCATTER
} umi_comm_coll_kind;

typedef struct umi_comm_coll_type {
    umi_comm_coll_kind kind;
    size_t             size; /* of a struct that begins with umi_comm_coll */
    /* Post the next round: UMX_INPROGRESS. UMX_OK: the last round is over. A
     * failure revokes the communicator. */
    umx_status (*next)(umi_comm_coll *coll);
    /* Free what the operation has. The request of an operation that failed may
     * be complete. May be NULL. */
    void (*fini)(umi_comm_coll *coll, umx_status status);
} umi_comm_coll_type;

/* Memory of an operation: the items of a buffer with a layout, one after the
 * other. */
typedef struct umi_comm_packed {
    struct umi_comm_packed *next;
    umx_buffer              user;
    bool                    is_result; /* goes to `user` in the end */
    max_align_t             items[];
} umi_comm_packed;

/* A message of an operation. */
struct umi_comm_xfer {
    umi_node       node; /* coll->recvs, comm->fillings, or by itself */
    umi_comm_coll *coll;
    umx_request   *sub; /* or NULL */
    umx_buffer     buf;
    int            rank;
    uint16_t       round;
    bool           is_used;
    bool           is_lent;    /* to the rank, which pulls it and says DONE */
    bool           is_pull;    /* from a rank, which waits for DONE */
    bool           is_landing; /* `sub` is of umx_message_recv() */
    bool           is_free;    /* `sub` was cancelled and uses `buf` no more */
    bool           is_lost;    /* ends with the operation only */
    bool           is_filling; /* its bytes are being copied to the ring */
    bool           is_sync;    /* like the next three: while it is filling */
    uint64_t       cell;
    size_t         at;
    size_t         filled; /* bytes of `buf` */
    umx_ep        *ep;     /* that `loan` is of; or NULL */
    umx_loan       loan;
};

/* A message of an operation that has come, and not been received: by the
 * channel, or in a cell of the inbox. */
struct umi_comm_parcel {
    umi_comm_header header;
    size_t          len;
    umx_message    *message; /* NULL: the rest is of a cell */
    uint64_t        cell;
    bool            is_pull; /* like the next two: the sender waits for DONE */
    bool            is_loan;
    bool            is_sync;
    size_t          at;
    uint64_t        word;
    size_t          key_len;
    uint32_t        slot;
};

struct umi_comm_coll {
    umi_node                  node; /* comm->colls */
    const umi_comm_coll_type *type;
    umx_comm                 *comm; /* held */
    umx_request   *req; /* NULL: the call has not returned, or has ended it */
    uint64_t       number;
    int            root;    /* or -1 */
    uint64_t       what;    /* root, dtype and op: the same on every rank */
    uint64_t       bytes;   /* the same on every rank, if not 0 */
    uint64_t       history; /* of the calls before, the same on every rank */
    unsigned       round;
    unsigned       num_pending; /* xfers */
    umx_status     status;
    bool           is_moving; /* rounds are being posted */
    umi_list       recvs;     /* umi_comm_xfer.node: that wait for messages */
    umi_comm_xfer *xfers;
    size_t         max_xfers;
    umx_timer      timer;     /* tells the ranks which operation this one is in,
                                 and the log for whom this one waits */
    uint64_t         wait_ns; /* of the timer, each time twice as long */
    uint64_t         waited_ns; /* so far, when the timer was last due */
    uint64_t         told;      /* a hash of the late ranks that were told */
    umi_comm_packed *packed;    /* the buffers with a layout */
};

/* ---- collective_rounds.c: the life of an operation -----------------------
 */

/* Name an operation: "barrier"; "an unknown operation". */
const char *umi_comm_coll_name(unsigned kind);

/* Make an operation, with the next number; `max_xfers` messages are under way
 * at a time. */
umx_status umi_comm_coll_new(umx_comm *comm, const umi_comm_coll_type *type,
                             size_t max_xfers, umi_comm_coll **coll_p);

/* Begin; returns what the posting call returns. */
umx_status umi_comm_coll_start(umi_comm_coll *coll, const umx_op_params *params,
                               umx_request **req_p);

/* The operation of that number that is under way here, or NULL. */
umi_comm_coll *umi_comm_coll_find(const umx_comm *comm, uint64_t number);

/* A message that next() waits for has come, and counts as pending no longer.
 * The operation may end. */
void umi_comm_coll_advance(umi_comm_coll *coll);

/* Free an operation that does not begin. Returns `status`. */
umx_status umi_comm_coll_give_up(umi_comm_coll *coll, umx_status status);

/* The operation fails by rank `rank`, and with it the communicator. */
void umi_comm_coll_fail(umi_comm_coll *coll, int rank, umx_status status,
                        const char *why);

/* End the request of an operation that has failed, if no buffer is in use any
 * more. What the channel still does by itself is waited for without the
 * request. */
void umi_comm_coll_end_request_early(umi_comm_coll *coll);

/* The communicator is revoked: end its operations. */
void umi_comm_coll_fail_all(umx_comm *comm);

/* Can an operation take the buffer? UMX_ERR_UNSUPPORTED: a layout in device
 * memory; UMX_ERR_INVALID_PARAM. */
umx_status umi_comm_coll_check_buffer(const umx_buffer *buf);

/* Get memory for `len` bytes, which is freed with the operation. */
umx_status umi_comm_coll_get_room(umi_comm_coll *coll, size_t len,
                                  umx_buffer *room);

/* Copy a buffer with a layout, or of a device, to such memory, which is
 * `*taken`; a result is copied back when the operation ends well. */
umx_status umi_comm_coll_pack(umi_comm_coll *coll, const umx_buffer *buf,
                              bool is_result, umx_buffer *taken);

/* Take a buffer that is sent: of one with a layout a copy, which is `*taken`.
 */
static inline umx_status
umi_comm_coll_take_send(umi_comm_coll *coll, const umx_buffer *buf,
                        umx_buffer *taken)
{
    *taken = *buf;
    return (buf->layout == NULL) ? UMX_OK :
                                   umi_comm_coll_pack(coll, buf, false, taken);
}

/* Take a buffer that is received into. Of one with a layout a copy is, which is
 * copied back when the operation ends well: nothing is written otherwise. */
static inline umx_status
umi_comm_coll_take_recv(umi_comm_coll *coll, const umx_buffer *buf,
                        umx_buffer *taken)
{
    *taken = *buf;
    return (buf->layout == NULL) ? UMX_OK :
                                   umi_comm_coll_pack(coll, buf, true, taken);
}

/* Do the two share bytes? A buffer with a layout is packed elsewhere first, and
 * shares none. */
bool umi_comm_buffers_overlap(const umx_buffer *a, const umx_buffer *b);

/* Copy this rank's own part, in memory of any kind. */
umx_status umi_comm_coll_copy(const umx_buffer *to, const umx_buffer *from);

/* Does an operation wait for that rank? */
bool umi_comm_coll_awaits(const umx_comm *comm, int rank);

/* Is an operation under way that a rank takes no part in which has left before
 * operation `number`? */
bool umi_comm_coll_needs(const umx_comm *comm, uint64_t number);

/* Name the first operation under way, and tell its number; or "" and 0. */
void umi_comm_coll_describe_first(const umx_comm *comm, const char **name_p,
                                  uint64_t *number_p);

/* ---- collective_agree.c: do the ranks call the same operations? ----------
 */

/* Give an operation, which begins, its number, and remember the call. */
void umi_comm_coll_note(umi_comm_coll *coll);

/* Compare what a rank has called with the call of the same number here. False:
 * they differ, or those before do, and the communicator is revoked. A call that
 * has not been made here yet is compared when it is. */
bool umi_comm_call_check(umx_comm *comm, int rank, const umi_comm_call *theirs);

/* A message has come that no operation here takes, as it is over or another
 * one: the rank has called something else. */
void umi_comm_call_refuse(umx_comm *comm, int rank,
                          const umi_comm_call *theirs);

/* ---- collective_messages.c: the messages of a round ----------------------
 */

/* In next(): send or receive a message of this round, or another. */
umx_status umi_comm_coll_send(umi_comm_coll *coll, int rank, unsigned round,
                              const umx_buffer *buf);
umx_status umi_comm_coll_recv(umi_comm_coll *coll, int rank, unsigned round,
                              const umx_buffer *buf);

/* A message has come, and is taken over. */
void umi_comm_coll_arrive(umx_comm *comm, const umi_comm_parcel *parcel);

/* Go on with messages whose bytes come to the ring. True: some have come. */
bool umi_comm_coll_fill_all(umx_comm *comm);

/* Rank `rank` has pulled what was lent to it. */
void umi_comm_coll_on_done(umx_comm *comm, int rank, uint64_t number,
                           unsigned round);

/* End a message that was lent to a rank of this host, or pulled from it. */
void umi_comm_xfer_end_lent(umi_comm_xfer *xfer);

/* End a message whose bytes come to the ring. */
void umi_comm_xfer_end_filling(umi_comm_xfer *xfer);

/* Compare with what has come for the operation already. False: another rank is
 * in another operation, and the communicator is revoked. */
bool umi_comm_coll_check_early(umi_comm_coll *coll);

/* No operation begins any more: drop what has come for later ones. */
void umi_comm_coll_drop_early(umx_comm *comm);

#endif
