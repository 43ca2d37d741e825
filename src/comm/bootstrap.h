/* SPDX-License-Identifier: BSD-3-Clause */
/* bootstrap.h: how the processes of a group meet. */
#ifndef UMI_COMM_BOOTSTRAP_H
#define UMI_COMM_BOOTSTRAP_H

#include <sys/socket.h>
#include <umx/listener.h>

#include "comm/group.h"
#include "comm/types.h"
#include "comm/wire.h"
#include "util/list.h"
#include "util/refcnt.h"

enum {
    UMI_COMM_RANKS_TEXT_MAX = 160, /* bytes of a text that names ranks */
    UMI_COMM_PENDING_MAX    = 64   /* ranks that PENDING names */
};

/* Where a root listens. Communicators of several names can be made there at the
 * same time. */
typedef struct umi_comm_door {
    umi_node                node; /* dispatch->doors */
    umi_comm_dispatch      *dispatch;
    umx_listener           *listener;
    struct sockaddr_storage addr;
    size_t                  addr_len;
    umi_refs                refs; /* one of each bootstrap */
} umi_comm_door;

struct umi_comm_bootstrap {
    umi_comm_group *group;
    umx_comm       *comm; /* held */
    umx_request    *req;
    uint64_t        timeout_ns;
    umx_timer       timer;
    /* on the root */
    umi_comm_door *door;       /* NULL: guests use the worker's address */
    umi_list       guests;     /* umi_comm_guest.node */
    int            num_guests; /* whose HELLO has come */
    /* on the other processes */
    umx_ep                 *ep; /* to the root */
    umx_timer               retry;
    unsigned                retry_ms;
    struct sockaddr_storage addr;
    size_t                  addr_len;
    void                   *root; /* its worker's address; NULL: `addr` */
    size_t                  root_len;
    char missing[UMI_COMM_RANKS_TEXT_MAX]; /* ranks, as the root says */
    char last_error[UMI_COMM_RANKS_TEXT_MAX];
};

static inline bool
umi_comm_bootstrap_is_root(const umi_comm_bootstrap *bootstrap)
{
    return bootstrap->group->rank == 0;
}

/* ---- bootstrap.c: what every process does --------------------------------
 */

/* The user, or the worker, goes: give up. */
void umi_comm_bootstrap_cancel(umi_comm_group *group, umx_status status);

/* End with a failure, and tell those that have come. */
void umi_comm_bootstrap_fail(umi_comm_bootstrap *bootstrap, umx_status status,
                             const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Free the bootstrap, and complete the user's request. */
void umi_comm_bootstrap_end(umi_comm_bootstrap *bootstrap, umx_status status);

/* Make the communicator of all members, whose ranks are the group's. */
umx_status umi_comm_bootstrap_make_world(umi_comm_bootstrap *bootstrap);

/* Take an endpoint back that the group had taken over. NULL: it has ended. */
umx_ep *umi_comm_bootstrap_take_back(umi_comm_member *member);

/* Write the numbers of ranks to a text, `count` of `total`. */
void umi_comm_bootstrap_name_ranks(char *text, size_t size,
                                   const uint32_t *ranks, unsigned count,
                                   unsigned total);

bool umi_comm_bootstrap_has_name(const umi_comm_bootstrap *bootstrap,
                                 const umi_comm_text      *name);

/* ---- bootstrap_root.c: rank 0 --------------------------------------------
 */

umx_status umi_comm_bootstrap_listen(umi_comm_bootstrap    *bootstrap,
                                     const umx_comm_params *params);

/* Leave the door: those that have not said for whom they come stay for another
 * bootstrap that is there, if any is. */
void umi_comm_bootstrap_leave_door(umi_comm_bootstrap *bootstrap);

/* Tell the guests why there will be no communicator. */
void umi_comm_bootstrap_refuse_guests(umi_comm_bootstrap *bootstrap,
                                      umx_status status, const char *text);
void umi_comm_bootstrap_free_guests(umi_comm_bootstrap *bootstrap);

/* Write at most `max` ranks that have not come; returns how many. */
unsigned umi_comm_bootstrap_find_missing(const umi_comm_bootstrap *bootstrap,
                                         uint32_t *ranks, unsigned max);

/* A HELLO has come. False: no root here waits for it. */
bool umi_comm_bootstrap_on_hello(umi_comm_dispatch *dispatch, umx_ep *ep,
                                 umx_message *message);

/* ---- bootstrap_join.c: the other ranks -----------------------------------
 */

umx_status umi_comm_bootstrap_connect(umi_comm_bootstrap *bootstrap);

/* Connect again after the root's endpoint has failed. */
void umi_comm_bootstrap_on_retry(umx_timer *timer);

/* An answer of the root has come. False: nobody here waits for it. */
bool umi_comm_bootstrap_on_answer(umi_comm_dispatch *dispatch, umx_ep *ep,
                                  const umi_comm_header *header,
                                  const void *data, size_t len);

#endif
