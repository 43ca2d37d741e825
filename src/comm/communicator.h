/* SPDX-License-Identifier: BSD-3-Clause */
/* communicator.h: what the files of this room share. Thread: the worker's
 * owner.
 *
 *   hub      one for each worker: where messages of ranks arrive
 *   group    the processes that met in one umx_comm_create(), and the endpoints
 *            between them; communicators that are split off share it
 *   comm     ranks, messages and operations
 *   coll     one collective operation under way */
#ifndef UMI_COMM_COMMUNICATOR_H
#define UMI_COMM_COMMUNICATOR_H

#include <umx/address.h>
#include <umx/buffer.h>
#include <umx/channel.h>
#include <umx/collective.h>
#include <umx/layer.h>
#include <umx/listener.h>
#include <umx/loan.h>
#include <umx/worker.h>

#include "comm/wire.h"
#include "util/list.h"

enum {
    UMI_COMM_REASON_MAX = 256, /* bytes */
    UMI_COMM_PAST_MAX   = 256,
    /* Ranks that an operation between all exchanges bytes with at a time. */
    UMI_COMM_COLL_WINDOW = 32
};

typedef struct umi_comm_dispatch  umi_comm_dispatch;
typedef struct umi_comm_group     umi_comm_group;
typedef struct umi_comm_bootstrap umi_comm_bootstrap;
typedef struct umi_comm_coll      umi_comm_coll;
typedef struct umi_comm_inbox     umi_comm_inbox;
typedef struct umi_comm_label     umi_comm_label;

/* ---- dispatch.c
 * ---------------------------------------------------------------
 */

/* A message of a communicator that is not known here. */
typedef struct umi_comm_orphan {
    umi_node     node; /* dispatch->orphans */
    umx_ep      *ep;   /* of the message, which holds it */
    umx_message *message;
    /* Whose message it is: the endpoint may have ended when it is known what
     * for. */
    bool    has_id;
    uint8_t id[UMX_WORKER_ID_SIZE];
} umi_comm_orphan;

struct umi_comm_dispatch {
    umx_dependent dependent;
    umx_worker   *worker; /* NULL: it is being destroyed */
    umi_list      groups; /* umi_comm_group.node */
    umi_list      comms;  /* umx_comm.node */
    umi_list      orphans;
    unsigned      num_orphans;
    unsigned      max_orphans; /* until those of ended endpoints go */
    uint64_t      past[UMI_COMM_PAST_MAX]; /* ids of those that are no more */
    unsigned      num_past;
    unsigned      num_controls; /* control messages on their way */
    unsigned      refs;
};

/* The worker's, made with the first call; NULL: out of memory. The caller has
 * a reference. */
umi_comm_dispatch *umi_comm_dispatch_get(umx_worker *worker);
void               umi_comm_dispatch_put(umi_comm_dispatch *dispatch);

/* A communicator has been made, or waits for ranks: messages that came too
 * early may be its. */
void umi_comm_dispatch_adopt(umi_comm_dispatch *dispatch);

/* ---- group.c -------------------------------------------------------------
 */

/* A process. */
typedef struct umi_comm_member {
    umi_comm_group *group;
    int             rank; /* in the group */
    void           *address;
    size_t          address_len;
    uint8_t         worker_id[UMX_WORKER_ID_SIZE];
    umx_ep    *out;  /* one of the next two: all that is sent to it goes here */
    umx_ep    *mine; /* made here, held; or NULL */
    umx_ep    *theirs; /* made there, held; or NULL */
    bool       is_dead;
    bool       is_suspect; /* dead, but why is not known for certain yet */
    uint64_t   suspicion;  /* its number */
    umx_status cause;      /* of its end */
    char      *why;        /* of a suspect, of malloc(); or NULL */
    uint64_t   heard_ns;
} umi_comm_member;

struct umi_comm_group {
    umi_node            node;     /* dispatch->groups */
    umi_comm_dispatch  *dispatch; /* held */
    uint64_t            id;       /* 0: it is being made */
    int                 rank;     /* or UMX_RANK_ANY */
    int                 size;
    umi_comm_member    *members;
    umi_list            comms;     /* umx_comm.group_node */
    umi_comm_bootstrap *bootstrap; /* NULL: made */
    umx_timer           verdict;   /* on suspects, if nobody gives one before */
    umx_timer           heartbeat;
    uint64_t            heartbeat_ns; /* 0: none */
    uint64_t            next_beat_ns;
    uint64_t            num_suspicions;
    uint64_t late_ns;      /* by which the last beat was too late; 0: not */
    unsigned refs;         /* one of each comm, and of each that closes */
    bool     is_left;      /* this process closes its endpoints */
    unsigned num_closing;  /* endpoints; the root's is not closed before */
    umi_comm_member *lost; /* that what was sent to may not have come */
    umx_status       lost_status; /* why */
};

umi_comm_group *umi_comm_group_new(umi_comm_dispatch *dispatch, int rank,
                                   int size);
void            umi_comm_group_put(umi_comm_group *group);

/* Close the endpoints if the user has closed every communicator of the group
 * and nothing is under way, whenever the communicators are given back: a
 * process that ends waits for endpoints that close. The root's is closed last:
 * its end says that all has come that was sent to others. */
void umi_comm_group_close_eps(umi_comm_group *group);

/* All have met: it has an id and addresses. */
void umi_comm_group_start(umi_comm_group *group);

/* `address` becomes the member's; false: out of memory, or no address. */
bool umi_comm_member_set_address(umi_comm_member *member, const void *address,
                                 size_t len);

/* How long this process has been stopped just now, if for so long that the
 * others take it for dead; or 0. */
uint64_t umi_comm_group_stopped_ns(const umi_comm_group *group);

/* Endpoints of the member; their ends are the member's. */
void umi_comm_member_add_ep(umi_comm_member *member, umx_ep *ep, bool is_mine);

/* Where to send; makes an endpoint if there is none. */
umx_status umi_comm_member_ep(umi_comm_member *member, umx_ep **ep_p);

/* Did it come from that member? Takes an endpoint over that its process has
 * made.
 */
bool umi_comm_member_has_ep(umi_comm_member *member, umx_ep *ep);

/* It has ended, or is taken to have: revoke what it takes part in. */
void umi_comm_member_fail(umi_comm_member *member, umx_status cause,
                          const char *why);

/* It cannot be reached, or its memory cannot. It may have left because another
 * has failed, and what says so may be on its way: nothing is sent to it any
 * more, and operations wait, until it is known or VERDICT_NS have passed. */
void umi_comm_member_suspect(umi_comm_member *member, umx_status cause,
                             const char *why);

/* Something has come to `status`: suspect the member if that may be its end. */
void umi_comm_member_check(umi_comm_member *member, umx_status status,
                           const char *why);

/* The root says that a process has ended, or `from` that it has itself. */
void umi_comm_group_on_failed(umi_comm_member       *from,
                              const umi_comm_failed *failed);

/* Send a control message. To a member that cannot be told of an end the
 * connection ends, which tells it; other messages are dropped. */
void umi_comm_member_send(umi_comm_member       *member,
                          const umi_comm_header *header, const void *data,
                          size_t len);

/* False: it cannot be sent. */
bool umi_comm_send_control(umi_comm_dispatch *dispatch, umx_ep *ep,
                           const umi_comm_header *header, const void *data,
                           size_t len);

/* ---- bootstrap.c
 * --------------------------------------------------------------
 */

/* A control message of the bootstrap. False: it is for nobody here. */
bool umi_comm_bootstrap_on_hello(umi_comm_dispatch *dispatch, umx_ep *ep,
                                 umx_message *message);
bool umi_comm_bootstrap_on_answer(umi_comm_dispatch *dispatch, umx_ep *ep,
                                  const umi_comm_header *header,
                                  const void *data, size_t len);

/* Give up: the worker, or the user, goes. */
void umi_comm_bootstrap_cancel(umi_comm_group *group, umx_status status);

/* ---- comm.c --------------------------------------------------------------
 */

/* A rank of a communicator. */
typedef struct umi_comm_rank {
    umi_comm_member *member;
    bool             is_gone;  /* it has said goodbye */
    uint64_t         gone_at;  /* the first operation without it */
    uint64_t         num_sent; /* messages */
    uint64_t         num_received;
    uint64_t         num_expected; /* is_gone: it has sent so many */
    unsigned         num_kept; /* unexpected messages that use up its credit */
} umi_comm_rank;

struct umx_comm {
    umi_node         node;       /* dispatch->comms, once it has an id */
    umi_node         group_node; /* group->comms */
    umi_comm_group  *group;      /* held */
    uint64_t         id;
    int              rank; /* -1: it is being made */
    int              size;
    umi_comm_rank   *ranks; /* NULL: it is being made */
    umi_comm_rank   *room;  /* for the group's; `ranks` are here */
    char             name[UMX_COMM_NAME_MAX + 1];
    unsigned         refs; /* the user, and each thing under way */
    bool             is_closed;
    bool             is_dropped; /* by the user */
    bool             is_revoked;
    umx_comm_failure failure;
    char             reason[UMI_COMM_REASON_MAX];
    /* messages */
    umi_list posted;     /* umi_comm_recv.node: receives, and those that look */
    umi_list unexpected; /* umx_comm_message.node */
    umi_list sends;      /* umi_comm_send.node: in progress */
    uint64_t num_came;
    uint64_t num_recvs; /* that were posted */
    /* collective operations */
    uint64_t        next_number;
    umi_list        colls;        /* umi_comm_coll.node */
    umi_list        early;        /* umi_comm_early.node */
    umi_comm_inbox *inbox;        /* NULL: there is no inbox ... */
    bool            has_no_inbox; /* ... and none can be made */
    umx_comm       *parent;       /* revokes it; NULL: it is not derived */
    umi_comm_label *labels;       /* of derived ones */
};

void umi_comm_hold(umx_comm *comm);
void umi_comm_put(umx_comm *comm);

static inline void
umi_comm_unlock(umx_guard *const *guard_p)
{
    if (*guard_p != NULL) {
        umx_worker_unlock(*guard_p);
    }
}

/* Keep the progress thread out until the end of the block. */
#define UMI_COMM_LOCK(comm)                           \
    __attribute__((cleanup(umi_comm_unlock), unused)) \
    umx_guard *const umi_comm_lock =                  \
        umx_worker_lock((comm)->group->dispatch->worker)

umx_comm *umi_comm_new(umi_comm_group *group, const char *name);

/* It has an id and ranks: `members`, of which this process is `rank`. */
void umi_comm_set_ranks(umx_comm *comm, uint64_t id, int rank, int size,
                        umi_comm_member *const *members);
void umi_comm_register(umx_comm *comm);

umx_comm *umi_comm_find(umi_comm_dispatch *dispatch, uint64_t id);

/* The rank of a process in it, or -1. */
int umi_comm_rank_of(const umx_comm *comm, const umi_comm_member *member);

/* Why no operation can begin; UMX_OK if it can. */
umx_status umi_comm_status(const umx_comm *comm);

/* End it here; `is_told`: the others know. */
void umi_comm_revoke(umx_comm *comm, int rank, umx_status cause, bool is_told,
                     const char *format, ...)
    __attribute__((format(printf, 5, 6)));

void umi_comm_on_failed(umx_comm *comm, umi_comm_member *from,
                        const umi_comm_failed *failed);
void umi_comm_on_bye(umx_comm *comm, const umi_comm_header *header,
                     const void *data, size_t len);

/* A member has died. */
void umi_comm_lose(umx_comm *comm, const umi_comm_member *member,
                   const char *why);

/* ---- derive.c ------------------------------------------------------------
 */

void umi_comm_free_labels(umx_comm *comm);

/* ---- match.c -------------------------------------------------------------
 */

/* One that no receive has taken. */
struct umx_comm_message {
    umi_node              node;
    umx_comm             *comm; /* held once it is taken */
    umx_comm_status       info;
    uint64_t              order;   /* of arrival */
    umx_message          *message; /* the peer's; or ... */
    struct umi_comm_send *send;    /* ... a send to oneself that waits; or */
    void                 *data;    /* ... a copy, ... */
    umx_request          *sub;    /* ... which comes from the sender; or NULL */
    struct umi_comm_recv *waiter; /* gets it then; or NULL */
    bool                  is_dropped; /* nobody wants what comes */
    bool                  is_lost;    /* taken, and its bytes have not come */
    bool                  is_kept;    /* counted in umi_comm_rank.num_kept */
    bool is_taken;     /* by umx_comm_improbe(): the program has it */
    bool is_copy;      /* `data` is of umx_copy_new() */
    bool is_withdrawn; /* taken, and its sender has cancelled it */
};

/* A message has come; it is taken over. */
void umi_comm_message_arrive(umx_comm *comm, int source, uint64_t tag,
                             umx_message *message);

/* Nothing more comes of that rank: receives of it alone fail, and those of any
 * rank if it was the last. */
void umi_comm_messages_end_rank(umx_comm *comm, int rank);

/* It is revoked, or closed: end it all with `status`. */
void umi_comm_messages_end(umx_comm *comm, umx_status status);

/* ---- coll.c --------------------------------------------------------------
 */

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
    UMI_COMM_COLL_ALLTOALL_BUFFERS
} umi_comm_coll_kind;

/* "barrier"; "an unknown operation". */
const char *umi_comm_coll_name(unsigned kind);

typedef struct umi_comm_coll_type {
    umi_comm_coll_kind kind;
    size_t             size; /* of a struct that begins with umi_comm_coll */
    /* Post the next round: UMX_INPROGRESS. UMX_OK: that was the last. A failure
     * revokes the communicator. */
    umx_status (*next)(umi_comm_coll *coll);
    /* Free what it has. The request of an operation that failed may be
     * complete. May be NULL. */
    void (*fini)(umi_comm_coll *coll, umx_status status);
} umi_comm_coll_type;

/* A message of an operation. */
typedef struct umi_comm_xfer {
    umi_node       node; /* coll->recvs, or by itself */
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
    bool           is_lost;    /* it does not end but with the operation */
    umx_ep        *ep;         /* that `loan` is of; or NULL */
    umx_loan       loan;
} umi_comm_xfer;

/* A message of an operation that has come, and not been received: by the
 * channel, or in a cell of the inbox. */
typedef struct umi_comm_parcel {
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
} umi_comm_parcel;

struct umi_comm_coll {
    umi_node                  node; /* comm->colls */
    const umi_comm_coll_type *type;
    umx_comm                 *comm; /* held */
    umx_request   *req; /* NULL: the call has not returned, or it ended */
    uint64_t       number;
    int            root;  /* or -1 */
    uint64_t       what;  /* the same on every rank */
    uint64_t       bytes; /* that too, if not 0 */
    unsigned       round;
    unsigned       num_pending; /* xfers */
    umx_status     status;
    bool           is_moving; /* in move() */
    umi_list       recvs;     /* umi_comm_xfer.node: that wait for messages */
    umi_comm_xfer *xfers;
    size_t         max_xfers;
    umx_timer      timer; /* says what is waited in */
};

/* A new operation, with the next number; `max_xfers` are under way at a time.
 */
umx_status umi_comm_coll_new(umx_comm *comm, const umi_comm_coll_type *type,
                             size_t max_xfers, umi_comm_coll **coll_p);

/* Begin: what the posting call returns. */
umx_status umi_comm_coll_start(umi_comm_coll *coll, const umx_op_params *params,
                               umx_request **req_p);

/* Something that next() waits for has come, and counts as pending no longer.
 * The operation may end. */
void umi_comm_coll_advance(umi_comm_coll *coll);

/* One that does not begin: free it. Returns `status`. */
umx_status umi_comm_coll_give_up(umi_comm_coll *coll, umx_status status);

/* Can an operation take the buffer? UMX_ERR_UNSUPPORTED: a layout;
 * UMX_ERR_INVALID_PARAM. */
umx_status umi_comm_coll_check_buffer(const umx_buffer *buf);

bool umi_comm_buffers_overlap(const umx_buffer *a, const umx_buffer *b);

/* Copy this rank's own part, in host memory. */
umx_status umi_comm_coll_copy(const umx_buffer *to, const umx_buffer *from);

/* In next(): a message of this round, or another. */
umx_status umi_comm_coll_send(umi_comm_coll *coll, int rank, unsigned round,
                              const umx_buffer *buf);
umx_status umi_comm_coll_recv(umi_comm_coll *coll, int rank, unsigned round,
                              const umx_buffer *buf);

/* A message has come; it is taken over. */
void umi_comm_coll_arrive(umx_comm *comm, const umi_comm_parcel *parcel);

/* Rank `rank` has pulled what was lent to it. */
void umi_comm_coll_on_done(umx_comm *comm, int rank, uint64_t number,
                           unsigned round);

/* What rank `rank` says that it waits in. */
void umi_comm_coll_on_state(umx_comm *comm, int rank,
                            const umi_comm_header *header, uint64_t what);

/* The communicator is revoked. */
void umi_comm_coll_fail_all(umx_comm *comm);

/* No operation begins any more: what has come for later ones goes. */
void umi_comm_coll_drop_early(umx_comm *comm);

/* Does an operation wait for that rank? */
bool umi_comm_coll_awaits(const umx_comm *comm, int rank);

/* A rank has left before operation `number`: those from then on cannot end. */
bool umi_comm_coll_needs(const umx_comm *comm, uint64_t number);

/* The first operation under way; its name and number, or "" and 0. */
void umi_comm_coll_describe_first(const umx_comm *comm, const char **name_p,
                                  uint64_t *number_p);

/* ---- inbox.c -------------------------------------------------------------
 */

/* Let a rank map the inbox here, if it is not offered yet. */
void umi_comm_inbox_offer(umx_comm *comm, int rank);

/* A rank offers its inbox: map it. */
void umi_comm_inbox_on_offer(umx_comm *comm, int rank, umx_ep *ep,
                             const void *key, size_t len);

/* Send a message of an operation. UMX_OK: it has gone; UMX_INPROGRESS: it is
 * lent until umi_comm_coll_on_done(); UMX_ERR_UNSUPPORTED: by the channel. */
umx_status umi_comm_inbox_send(umi_comm_coll *coll, umi_comm_xfer *xfer);

/* Receive the bytes of a parcel, which is gone then, as umx_rma_get() does. */
umx_status umi_comm_inbox_recv(umx_comm *comm, const umi_comm_parcel *parcel,
                               const umx_buffer    *buf,
                               const umx_op_params *params,
                               umx_request        **req_p);

/* May the bytes that have just been pulled from a rank be wrong? It has been
 * revoked. */
bool umi_comm_inbox_is_spoilt(const umx_comm *comm, int rank);

/* They have been pulled. */
void umi_comm_inbox_say_done(umx_comm *comm, int rank, uint64_t number,
                             unsigned round);

/* Drop a parcel of a cell. */
void umi_comm_inbox_drop(umx_comm *comm, const umi_comm_parcel *parcel);

/* Take what has come. True if there was anything. */
bool umi_comm_inbox_look(umx_comm *comm);

/* Does it pay to look again and again for what all ranks send? */
bool umi_comm_inbox_is_busy_wait(const umx_comm *comm);

/* It is revoked: say so to who pulls from this rank. */
void umi_comm_inbox_revoke(umx_comm *comm);

/* Nothing comes any more. */
void umi_comm_inbox_end(umx_comm *comm);

#endif
