/* SPDX-License-Identifier: BSD-3-Clause */
/* group.h: the processes that met in one umx_comm_create(). */
#ifndef UMI_COMM_GROUP_H
#define UMI_COMM_GROUP_H

#include "comm/types.h"
#include "comm/wire.h"
#include "util/list.h"
#include "util/refcnt.h"

struct umi_comm_group {
    umi_node            node;       /* dispatch->groups */
    umi_comm_dispatch  *dispatch;   /* held */
    uint64_t            id;         /* 0: the processes have not met yet */
    uint64_t            timeout_ns; /* until all processes have come */
    int                 rank;       /* or UMX_RANK_ANY */
    int                 size;
    umi_comm_member    *members;
    umi_list            comms;     /* umx_comm.group_node */
    umi_comm_bootstrap *bootstrap; /* NULL: the processes have met */
    umx_timer verdict; /* declares suspects dead if nobody does so before */
    umx_timer heartbeat;
    uint64_t  heartbeat_ns; /* 0: none */
    uint64_t  next_beat_ns;
    uint64_t  num_suspicions;
    unsigned  num_judging; /* verdicts that are being carried out */
    uint64_t  late_ns;     /* by which the last beat was too late; 0: in time */
    bool      is_crowded;  /* more processes on this host than processors */
    umi_refs  refs;    /* one of each communicator, and of each closing ep */
    bool      is_left; /* this process closes its endpoints */
    unsigned  num_closing; /* endpoints; the root's is not closed before */
    umi_comm_member *lost; /* has perhaps not got all that was sent to it */
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

/* The processes have met: the group has an id, and its members addresses. */
void umi_comm_group_start(umi_comm_group *group);

/* Tell how long this process has been stopped just now, if for so long that the
 * others take it for dead; or 0. */
uint64_t umi_comm_group_stopped_ns(const umi_comm_group *group);

/* A member has sent a heartbeat, which is answered if this process sends it
 * none by itself. */
void umi_comm_group_on_ping(umi_comm_member *member, bool is_answer);

/* Tell the group, on its root, that a member is dead. */
void umi_comm_group_tell_dead(const umi_comm_member *member, const char *why);

/* `from`, which is the root or the process itself, says that a process has
 * ended. */
void umi_comm_group_on_failed(umi_comm_member       *from,
                              const umi_comm_failed *failed);

/* Start the time after which suspects count as dead. */
void umi_comm_group_await_verdict(umi_comm_group *group);

/* Declare those suspects dead whose suspicion has a lower number. The first is
 * the one that the failure is named after. `is_lost`: not those that have
 * closed their endpoint. */
void umi_comm_group_fail_suspects(umi_comm_group *group, uint64_t suspicion,
                                  bool is_lost);

#endif
