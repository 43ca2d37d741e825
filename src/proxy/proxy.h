/* SPDX-License-Identifier: BSD-3-Clause */
/* proxy.h: a proxy, its rings, and what its thread does for others.
 *
 * Two threads have a part of a proxy each. The home is the thread of the
 * worker on which the proxy was made: requests complete there. The proxy's own
 * thread has the second worker, the regions and the rings. What one wants of
 * the other is a task: any thread queues it by umi_proxy_post(), the proxy's
 * thread runs it and ends it by umi_proxy_end_task(), and its request completes
 * at home. */
#ifndef UMI_PROXY_H
#define UMI_PROXY_H

#include <pthread.h>
#include <stdatomic.h>
#include <umx/proxy.h>

#include "joint/joint.h"
#include "util/list.h"
#include "util/refcnt.h"

enum {
    UMI_PROXY_REASON_MAX = 320 /* bytes */
};

typedef struct umi_proxy_task    umi_proxy_task;
typedef struct umi_proxy_meeting umi_proxy_meeting;

/* Who blocks until a task has ended; in memory of its own. */
typedef struct umi_proxy_sleeper {
    pthread_cond_t cond;
    bool           is_over;
    umx_status     status;
} umi_proxy_sleeper;

/* What somebody waits for: the ring has retired all commands before `number`.
 */
typedef struct umi_proxy_goal {
    umx_proxy_ring *ring; /* held */
    umx_ring_u64    number;
    bool            is_reached;
} umi_proxy_goal;

struct umi_proxy_task {
    umi_proxy_task *next; /* of proxy->calls or proxy->done */
    umi_node        node; /* of proxy->waits; the proxy's thread */
    umi_node        home; /* of proxy->tasks; the home's */
    umx_proxy      *proxy;
    /* Runs in the proxy's thread; or the proxy has ended, with that status. */
    void (*run)(umi_proxy_task *task, umx_status status);
    umx_request       *req; /* the home's; NULL: cancelled, or there is none */
    bool               is_of_home; /* it ends there */
    umi_proxy_sleeper *sleeper;    /* under proxy->lock; or NULL */
    umx_status         status;
    union {
        struct { /* umx_proxy_close() */
            uint64_t deadline_ns;
        };
        struct { /* umx_proxy_add_region() */
            umx_memh *memh;
            umx_memh *source;
            unsigned  number;
        };
        struct { /* waits */
            umi_proxy_goal *goals;
            size_t          num_goals;
            bool            is_quiet;
        };
        umx_proxy_ring *ring; /* held: one to add, or to remove */
    };
};

/* Where commands of a region to a rank go. */
typedef struct umi_proxy_target {
    umx_rkey *rkey; /* the region's; NULL: this rank, or it has no memory */
    umx_ep   *ep;   /* kept by `rkey` */
} umi_proxy_target;

/* A region by the number that commands have, and what they need of it. */
typedef struct umi_proxy_entry {
    umx_region       *region;
    umx_memh         *memh;   /* held; or NULL */
    umx_memh         *source; /* held; or NULL */
    umi_proxy_target *targets;
} umi_proxy_entry;

/* What a ring waits for at its first command. */
typedef enum umi_proxy_held {
    UMI_PROXY_FREE,
    UMI_PROXY_QUIET,   /* until its puts and signals are over */
    UMI_PROXY_ARRIVE,  /* the same, before a barrier */
    UMI_PROXY_BARRIER, /* which is under way */
    UMI_PROXY_PASSED   /* which is over */
} umi_proxy_held;

/* A put or signal that is under way. */
typedef struct umi_proxy_op {
    struct umi_proxy_op *next; /* of ring->unused */
    umx_proxy_ring      *ring;
    umx_ring_u64         number;
    umx_ring_command     command;
} umi_proxy_op;

struct umx_proxy_ring {
    umi_shared_refs refs;
    umx_proxy      *proxy; /* held */
    umx_ring        view;
    void           *memory; /* the library's; or NULL */
    umx_memh       *memh;   /* held; or NULL */
    bool            is_device;
    unsigned        limit; /* of `in_flight` */
    /* The proxy's thread. */
    umx_ring_u64   tail; /* the next command */
    umi_proxy_held held;
    unsigned       in_flight; /* a barrier counts, too */
    umi_proxy_op  *ops;
    umi_proxy_op  *unused;
    uint32_t      *num_puts; /* under way, by rank */
    bool           is_stalled;
    bool           is_ended;
    bool           has_hold; /* nothing from `hold` on begins, see wait.c */
    umx_ring_u64   hold;
    bool           has_end; /* nothing from `end` on begins: it is closing */
    umx_ring_u64   end;
    umx_proxy_ring_stats stats; /* others read it */
    /* Written once, then `has_error`. */
    umx_proxy_error error;
    char            reason[UMI_PROXY_REASON_MAX];
    atomic_bool     has_error;
};

typedef enum umi_proxy_state {
    UMI_PROXY_MEETING,
    UMI_PROXY_OPEN,
    UMI_PROXY_DRAINING, /* umx_proxy_close() */
    UMI_PROXY_OVER      /* its thread is about to end */
} umi_proxy_state;

struct umx_proxy {
    umx_joint joint; /* the home's, whose worker is that of the joint */
    uint64_t  spin_ns;
    int       cpu; /* -1: any */
    uint64_t  timeout_ns;
    uint64_t  deadline_ns; /* of the creation */
    uint32_t  made_in;     /* umi_proxy_forks */
    /* The home's. */
    umi_list           tasks; /* that end at home */
    bool               is_closing;
    bool               has_thread;
    pthread_t          thread;
    unsigned           num_numbers; /* of regions */
    umi_proxy_meeting *meeting;     /* until the ranks have met; or NULL */
    umi_proxy_task    *creation;    /* what the thread meets the others for */
    /* Shared. */
    pthread_mutex_t lock; /* of what follows, and of sleepers */
    umi_proxy_task *calls, **calls_end;
    umi_proxy_task *done, **done_end;
    umx_errand      errand; /* ends those of `done` */
    bool            is_errand_posted;
    bool            has_ended;      /* no task runs any more */
    bool            is_home_closed; /* nothing is posted there any more */
    atomic_bool     has_calls;
    atomic_bool     is_abort; /* end now */
    int             wake_fd;
    umx_proxy_stats stats;
    char            reason[UMI_PROXY_REASON_MAX];
    /* Why a region could not be added: the first time. */
    bool             has_failure;
    umx_comm_failure failure;
    char             why[UMI_PROXY_REASON_MAX];
    /* process.c: the thread has it while it may be in UCX. */
    pthread_mutex_t busy;
    umi_node        process_node;
    /* The proxy's thread. */
    umi_proxy_state  state;
    umx_worker      *worker;
    umx_comm        *comm;
    void            *root; /* the address of the root's worker */
    size_t           root_len;
    umx_comm        *groups[UMX_PROXY_GROUPS_MAX];
    umi_proxy_entry *entries[UMX_PROXY_REGIONS_MAX];
    umx_proxy_ring **rings;
    size_t           num_rings;
    size_t           max_rings;
    umi_list         waits;
    umi_proxy_task  *closing;
    unsigned         num_begun; /* since UCX was polled */
};

/* ---- proxy.c -------------------------------------------------------------
 */

static inline void
umi_proxy_hold(umx_proxy *proxy)
{
    umi_joint_hold(&proxy->joint);
}

static inline void
umi_proxy_put(umx_proxy *proxy)
{
    umi_joint_put(&proxy->joint);
}

/* A task of the kind, with a request of class `cls` unless that is NULL. NULL:
 * out of memory. */
umi_proxy_task *umi_proxy_task_new(umx_proxy *proxy,
                                   void (*run)(umi_proxy_task *, umx_status),
                                   const umx_request_class *cls,
                                   const umx_op_params     *op);
void            umi_proxy_task_free(umi_proxy_task *task);

/* Have the proxy's thread run it. Any thread. UMX_ERR_CLOSED: it has ended, and
 * `task` stays the caller's. */
umx_status umi_proxy_post(umi_proxy_task *task);

/* The end of a task, in the proxy's thread: it is freed. */
void umi_proxy_end_task(umi_proxy_task *task, umx_status status);

/* Is it of this process, and was not closed? At home. */
umx_status umi_proxy_check(const umx_proxy *proxy);

/* At home: umx_worker_destroy() of its worker has begun; proxy->errand runs. */
void umi_proxy_on_home_destroy(umx_joint *joint);
void umi_proxy_run_errand(umx_errand *errand);

/* End the thread without waiting for commands. */
void umi_proxy_stop(umx_proxy *proxy);

/* Ask the thread to end, without waiting for that. */
void umi_proxy_give_up(umx_proxy *proxy);

/* ---- create.c ------------------------------------------------------------
 */

/* The thread has met the others, or has not. */
void umi_proxy_created(umx_proxy *proxy, umx_status status);

/* ---- thread.c ------------------------------------------------------------
 */

/* Tell why commands of its rings are not carried out any more; `status` is that
 * of the close(). */
const char *umi_proxy_why_over(const umx_proxy *proxy, umx_status status);

umx_status umi_proxy_start_thread(umx_proxy *proxy);
void       umi_proxy_kick(umx_proxy *proxy);

/* ---- fence.c -------------------------------------------------------------
 */

/* Can the proxy make a fence for all threads of the process? */
bool umi_proxy_can_fence(void);
/* Make such a fence: for this thread by an instruction, for the others by the
 * system. */
void umi_proxy_fence(void);

/* ---- process.c -----------------------------------------------------------
 */

extern uint32_t    umi_proxy_forks; /* that have led to this process */
extern atomic_bool umi_proxy_is_forking;

/* Around the life of a thread. */
void umi_proxy_process_add(umx_proxy *proxy);
void umi_proxy_process_remove(umx_proxy *proxy);

/* Let a fork() that is due go on. */
void umi_proxy_let_fork(umx_proxy *proxy);

static inline bool
umi_proxy_is_forked(const umx_proxy *proxy)
{
    return proxy->made_in != umi_proxy_forks;
}

/* ---- region.c ------------------------------------------------------------
 */

void umi_proxy_free_entries(umx_proxy *proxy);

/* ---- ring.c --------------------------------------------------------------
 */

void umi_proxy_ring_hold(umx_proxy_ring *ring);
void umi_proxy_ring_put(umx_proxy_ring *ring);

/* End a ring; the text says what was wrong with `command`, or without one why.
 */
void umi_proxy_ring_fail(umx_proxy_ring *ring, umx_status status, int rank,
                         umx_ring_u64 number, const umx_ring_command *command,
                         const char *text);

/* ---- take.c --------------------------------------------------------------
 */

/* Begin commands of the ring. Returns how many. */
unsigned umi_proxy_ring_take(umx_proxy_ring *ring);

/* Would umi_proxy_ring_take() find something to do? */
bool umi_proxy_ring_is_ready(const umx_proxy_ring *ring);

/* Nothing is left to do, and nothing under way. */
bool umi_proxy_ring_is_idle(const umx_proxy_ring *ring);

/* ---- wait.c --------------------------------------------------------------
 */

/* End the waits that are over. */
void umi_proxy_look_at_waits(umx_proxy *proxy);
void umi_proxy_end_waits(umx_proxy *proxy, umx_status status);

/* The proxy is closing: what is written to its rings from now on does not
 * begin. */
void umi_proxy_note_ends(umx_proxy *proxy);

/* Forget what a task waits for. */
void umi_proxy_free_goals(umi_proxy_task *task);

#endif
