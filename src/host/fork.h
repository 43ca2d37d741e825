/* SPDX-License-Identifier: BSD-3-Clause */
/* fork.h: what a fork() leaves a child with. Thread: any. */
#ifndef UMI_FORK_H
#define UMI_FORK_H

#include <stdbool.h>
#include <umx/status.h>

#include "util/list.h"

extern unsigned umi_forks; /* for the next */

/* Give the number of forks that led to this process: an object of another
 * generation is the parent's. */
static inline unsigned
umi_fork_generation(void)
{
    return umi_forks;
}

/* Around the life of each context of UCX. */
umx_status umi_fork_enter(void);
void       umi_fork_leave(void);

typedef struct umi_fork_member umi_fork_member;

/* What is done around a fork(), with a lock held: these call nothing here. */
typedef struct umi_fork_ops {
    /* Keep the member's thread out of UCX, if it has one: then true. */
    bool (*hold)(umi_fork_member *member);
    void (*let_go)(umi_fork_member *member); /* if it is held */
    void (*in_child)(umi_fork_member *member);
    /* exit(): end the thread, which is not in UCX any more then. */
    void (*stop)(umi_fork_member *member);
} umi_fork_ops;

/* Of a worker. */
struct umi_fork_member {
    umi_node            node;
    const umi_fork_ops *ops;
    int  fd;      /* epoll set: a child closes the sockets that are in it */
    bool is_held; /* fork.c's */
};

/* Around the life of each member. */
void umi_fork_add(umi_fork_member *member);
void umi_fork_remove(umi_fork_member *member);

/* A fork() waits in between. */
void umi_fork_lock(void);
void umi_fork_unlock(void);

/* exit(): no thread of a member is in UCX any more, or will be. */
void umi_fork_stop_threads(void);

#endif
