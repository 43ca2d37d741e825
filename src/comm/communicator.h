/* SPDX-License-Identifier: BSD-3-Clause */
/* communicator.h: the ranks, and all that is under way between them. */
#ifndef UMI_COMM_COMMUNICATOR_H
#define UMI_COMM_COMMUNICATOR_H

#include "comm/dispatch.h"
#include "comm/group.h"
#include "comm/types.h"
#include "comm/wire.h"
#include "util/list.h"
#include "util/refcnt.h"

enum {
    UMI_COMM_CALLS = 32 /* the last calls, with which those of others are
                           compared */
};

/* A rank of a communicator. */
struct umi_comm_rank {
    umi_comm_member *member;
    bool             is_gone; /* the rank has said goodbye */
    uint64_t         gone_at; /* the first operation without the rank */
    umi_comm_call    last;    /* is_gone: what the rank has called before it */
    uint64_t *labels; /* is_gone: of what it has derived, each followed by
                         how many; of malloc(), or NULL */
    size_t   num_labels;
    uint64_t num_sent; /* messages */
    uint64_t num_received;
    uint64_t num_expected; /* is_gone: so many has the rank sent */
    unsigned num_kept;     /* unexpected messages that use its credit */
    /* collective operations, by number: the last one that the rank is known to
     * have called, and the last one in which it has said that it waits. */
    uint64_t         come;
    uint64_t         asked;
    umi_comm_report *report; /* of malloc(); or NULL */
};

struct umx_comm {
    umi_node         node;       /* dispatch->comms, once it has an id */
    umi_node         group_node; /* group->comms */
    umi_map_node     map_node;   /* dispatch->by_id, with `node` */
    umi_comm_group  *group;      /* held */
    uint64_t         id;
    int              rank; /* -1: the communicator is being made */
    int              size;
    umi_comm_rank   *ranks; /* NULL: the communicator is being made */
    int              num_gone;
    umi_comm_rank   *room; /* memory of `ranks`, enough for the group's */
    char             name[UMX_COMM_NAME_MAX + 1];
    umi_refs         refs; /* the user, and each thing under way */
    bool             is_closed;
    bool             is_dropped; /* by the user */
    bool             is_revoked;
    umx_comm_failure failure;
    char             reason[UMI_COMM_REASON_MAX];
    size_t reason_len;    /* is_revoked: what others are told; ranks that had
                             not come are named behind it */
    uint64_t late_number; /* of the operation that failure.late had not come to
                           */
    umx_timer  doubt;     /* revokes, if nobody says why an operation is lost */
    int        doubt_rank; /* with which it was lost; or -1 */
    umx_status doubt_status;
    /* messages */
    umi_list posted;     /* umi_comm_recv.node: receives and probes */
    umi_list unexpected; /* umx_comm_message.node */
    umi_list sends;      /* umi_comm_send.node: in progress */
    unsigned num_large;  /* of `sends`: UMI_COMM_LEND_MIN bytes or more */
    unsigned crossings;  /* >0: large messages are sent both ways at a time */
    uint64_t num_came;
    uint64_t num_recvs; /* that were posted */
    /* collective operations */
    uint64_t        next_number;
    uint64_t        history; /* a hash of all calls so far; never 0 */
    umi_comm_call   calls[UMI_COMM_CALLS]; /* by number % UMI_COMM_CALLS */
    umi_list        colls;                 /* umi_comm_coll.node */
    umi_list        fillings;              /* umi_comm_xfer.node */
    umi_list        early;                 /* umi_comm_early.node */
    umi_comm_inbox *inbox;                 /* NULL: there is no inbox ... */
    bool            has_no_inbox;          /* ... and none can be made */
    umx_comm       *parent;      /* revokes a derived communicator; or NULL */
    unsigned        num_derived; /* whose parent this one is */
    uint64_t        label; /* of a derived one: what it was derived for, ... */
    uint64_t        label_index; /* ... after how many others */
    umi_comm_label *labels;      /* of derived ones */
};

void umi_comm_hold(umx_comm *comm);
void umi_comm_put(umx_comm *comm);

/* Keep the progress thread out until the end of the block. */
#define UMI_COMM_LOCK(comm) UMX_LAYER_LOCK((comm)->group->dispatch->worker)

umx_comm *umi_comm_new(umi_comm_group *group, const char *name);

/* Give the communicator an id and ranks: `members`, of which this process is
 * `rank`. */
void umi_comm_set_ranks(umx_comm *comm, uint64_t id, int rank, int size,
                        umi_comm_member *const *members);

/* Let messages find the communicator. */
void umi_comm_register(umx_comm *comm);

umx_comm *umi_comm_find(umi_comm_dispatch *dispatch, uint64_t id);

/* The rank of a process in the communicator, or -1. */
int umi_comm_rank_of(const umx_comm *comm, const umi_comm_member *member);

/* Tell why no operation can begin; UMX_OK if one can. */
umx_status umi_comm_status(const umx_comm *comm);

/* End the communicator on this rank; `is_told`: the other ranks know. */
void umi_comm_revoke(umx_comm *comm, int rank, umx_status cause, bool is_told,
                     const char *format, ...)
    __attribute__((format(printf, 5, 6)));

void umi_comm_on_failed(umx_comm *comm, umi_comm_member *from,
                        const umi_comm_failed *failed);
void umi_comm_on_bye(umx_comm *comm, const umi_comm_header *header,
                     const void *data, size_t len);

/* An operation with a rank has come to `status`. True: the operation is lost,
 * and the message that says why is on its way, or the rank is suspected: so the
 * operation waits for the end of the communicator, for a second at most. */
bool umi_comm_doubt(umx_comm *comm, int rank, umx_status status,
                    const char *why);

/* A member has died. */
void umi_comm_lose(umx_comm *comm, const umi_comm_member *member,
                   const char *why);

/* A rank that has left without having derived this communicator will never take
 * part in it. */
void umi_comm_rank_is_absent(umx_comm *comm, int rank);

#endif
