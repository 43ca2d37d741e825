/* SPDX-License-Identifier: BSD-3-Clause */
/* member.h: one process of a group, and the endpoints to it. */
#ifndef UMI_COMM_MEMBER_H
#define UMI_COMM_MEMBER_H

#include "comm/group.h"
#include "comm/types.h"
#include "comm/wire.h"

/*            an endpoint fails                verdict
 *   ALIVE -----------------------> SUSPECT -----------> DEAD
 *    ^  |                          ^                     ^
 *    |  | said goodbye,            |                     |
 *    |  | then closed its          |    known for        |
 *    |  v endpoints                |    certain          |
 *   LEFT --------------------------+---------------------+ also from ALIVE
 *
 * LEFT becomes ALIVE when there is a new endpoint to the member. DEAD stays. */
typedef enum umi_comm_member_state {
    UMI_COMM_MEMBER_ALIVE,
    /* The member cannot be reached, or its memory cannot. It may have left
     * because another member has failed, and the message that says so may be on
     * its way: nothing is sent to it, and operations with it wait. */
    UMI_COMM_MEMBER_SUSPECT,
    UMI_COMM_MEMBER_DEAD, /* its communicators are revoked */
    UMI_COMM_MEMBER_LEFT  /* there is no endpoint; no heartbeats are due */
} umi_comm_member_state;

struct umi_comm_member {
    umi_comm_group       *group;
    int                   rank; /* in the group */
    void                 *address;
    size_t                address_len;
    uint8_t               worker_id[UMX_WORKER_ID_SIZE];
    umx_ep               *out;    /* one of the next two: all is sent by it */
    umx_ep               *mine;   /* made here, held; or NULL */
    umx_ep               *theirs; /* made there, held; or NULL */
    umi_comm_member_state state;
    uint64_t              suspicion; /* SUSPECT: its number in the group */
    umx_status            cause;     /* SUSPECT, DEAD: of the end */
    char                 *why;       /* SUSPECT: of malloc(); or NULL */
    uint64_t heard_ns;   /* when its last message came, or a sign of life */
    unsigned num_signs;  /* of its endpoints, when it was last looked at */
    unsigned num_silent; /* looks in a row that found nothing new */
    uint64_t warned_ns;  /* when its silence was last logged; or 0 */
    bool     is_watched; /* heartbeats are exchanged with it */
    bool     is_due;     /* the same, while that is found out */
};

/* Is the member neither suspected nor dead? Then messages are sent to it. */
static inline bool
umi_comm_member_is_up(const umi_comm_member *member)
{
    return member->state == UMI_COMM_MEMBER_ALIVE ||
           member->state == UMI_COMM_MEMBER_LEFT;
}

/* Change the state, by an edge of the drawing. */
void umi_comm_member_set_state(umi_comm_member      *member,
                               umi_comm_member_state state);

/* Has the member said goodbye to every communicator that it shares with this
 * process, and that is in use here? */
bool umi_comm_member_has_said_goodbye(const umi_comm_member *member);

/* Copy `address`, which is the member's from now on. False: out of memory, or
 * the bytes are no address. */
bool umi_comm_member_set_address(umi_comm_member *member, const void *address,
                                 size_t len);

/* Give the member an endpoint. The end of the endpoint is the member's. */
void umi_comm_member_add_ep(umi_comm_member *member, umx_ep *ep, bool is_mine);

/* Get the endpoint to send by; make one if there is none. */
umx_status umi_comm_member_ep(umi_comm_member *member, umx_ep **ep_p);

/* Has the member hung up while this process made no progress, so that it does
 * not know that yet? It is asked of a process that is late with its heartbeats
 * only: the others have given it up. */
bool umi_comm_member_is_lost_unseen(const umi_comm_member *member);

/* The member has been heard of: its silence is counted from now on. */
void umi_comm_member_heard(umi_comm_member *member, uint64_t now);

/* Is `ep` an endpoint of the member? */
bool umi_comm_member_has_ep(const umi_comm_member *member, const umx_ep *ep);

/* Take an endpoint over that the member's process has made, as the handshake
 * has proved. False: another process has made it, or the member has one already
 * or is dead. */
bool umi_comm_member_claim_ep(umi_comm_member *member, umx_ep *ep);

/* Close an endpoint, if there is one, in the background: what was sent still
 * arrives. */
void umi_comm_release_ep(umx_ep **ep_p);

/* Close the endpoints of a member in that way. */
void umi_comm_member_release_eps(umi_comm_member *member);

/* The member has ended, or is taken to have: revoke what it takes part in. */
void umi_comm_member_fail(umi_comm_member *member, umx_status cause,
                          const char *why);

/* Suspect a member that is up, until its end is known for certain or a second
 * has passed. */
void umi_comm_member_suspect(umi_comm_member *member, umx_status cause,
                             const char *why);

/* May an operation come to `status` because the process that it is with has
 * ended? */
bool umi_comm_may_be_end(umx_status status);

/* An operation with the member has come to `status`: suspect the member if its
 * endpoint has ended, or none can be made. What becomes of one transfer says
 * nothing about the process. */
void umi_comm_member_check(umi_comm_member *member, umx_status status,
                           const char *why);

/* Send a control message. If the member cannot be told of an end, its
 * connection is ended instead, which tells as much; other messages that cannot
 * be sent are dropped. */
void umi_comm_member_send(umi_comm_member       *member,
                          const umi_comm_header *header, const void *data,
                          size_t len);

/* Send the last message of this process, by a new connection if the member is
 * suspected or dead. */
void umi_comm_member_send_last(umi_comm_member       *member,
                               const umi_comm_header *header, const void *data,
                               size_t len);

/* Send a control message by an endpoint. */
umx_status umi_comm_send_control(umi_comm_dispatch *dispatch, umx_ep *ep,
                                 const umi_comm_header *header,
                                 const void *data, size_t len);

#endif
