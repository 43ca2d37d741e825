/* SPDX-License-Identifier: BSD-3-Clause */
/* dispatch.h: where the messages of ranks arrive on a worker. */
#ifndef UMI_COMM_DISPATCH_H
#define UMI_COMM_DISPATCH_H

#include "comm/types.h"
#include "util/list.h"
#include "util/map.h"
#include "util/pool.h"
#include "util/refcnt.h"

enum {
    /* Communicators that have been freed and are remembered: messages to them
     * may be on the way. */
    UMI_COMM_PAST_MAX = 65536
};

/* A communicator that has been freed. */
typedef struct umi_comm_past {
    umi_map_node map_node; /* dispatch->past */
    umi_node     node;     /* dispatch->oldest */
} umi_comm_past;

/* A message of a communicator that is not known here. */
typedef struct umi_comm_orphan {
    umi_node     node; /* dispatch->orphans */
    umx_ep      *ep;   /* the message's, which holds it */
    umx_message *message;
    /* The worker that has sent it: the endpoint may have ended by the time that
     * the communicator is known. */
    bool    has_id;
    uint8_t id[UMX_WORKER_ID_SIZE];
} umi_comm_orphan;

struct umi_comm_dispatch {
    umx_dependent dependent;
    umx_worker   *worker; /* NULL: the worker is being destroyed */
    umi_list      groups; /* umi_comm_group.node */
    umi_list      comms;  /* umx_comm.node */
    umi_map       by_id;  /* umx_comm.map_node */
    umi_list      doors;  /* umi_comm_door.node */
    umi_list      orphans;
    unsigned      num_orphans;
    unsigned max_orphans;  /* with more, those of ended endpoints are dropped */
    umi_map  past;         /* umi_comm_past.map_node */
    umi_list oldest;       /* umi_comm_past.node */
    umi_pool sends;        /* of umi_comm_send */
    umi_pool recvs;        /* of umi_comm_recv */
    umi_pool messages;     /* of umx_comm_message */
    unsigned num_controls; /* control messages that are being sent */
    umi_refs refs;
};

/* Get the dispatch of a worker, which the first call makes. The caller has a
 * reference. NULL: out of memory. */
umi_comm_dispatch *umi_comm_dispatch_get(umx_worker *worker);
void               umi_comm_dispatch_put(umi_comm_dispatch *dispatch);

/* Remember that a communicator has been freed. */
void umi_comm_dispatch_forget(umi_comm_dispatch *dispatch, uint64_t id);

/* Look again at the messages that came too early: a communicator has been made,
 * or a bootstrap has begun, that some of them may be for. */
void umi_comm_dispatch_adopt(umi_comm_dispatch *dispatch);

#endif
