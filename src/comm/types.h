/* SPDX-License-Identifier: BSD-3-Clause */
/* types.h: the nouns of this room, each with a header of its name.
 *
 *   wire          the bytes that ranks send each other
 *   dispatch      one for each worker: finds out whose each message is
 *   bootstrap     how the processes of a group meet
 *   group         the processes that met in one umx_comm_create();
 *                 communicators that are split off or derived share it
 *   member        one process of a group, and the endpoints to it
 *   communicator  the ranks, and all that is under way between them
 *   send_recv     messages between ranks: send.c, recv.c, message.c
 *   collective    a collective operation under way: the rounds of any, the
 *                 messages of a round, and the calls of each; collective_move
 *                 has what those share that move bytes
 *   arithmetic    how the items of arrays are combined
 *   inbox         shared memory for the messages of collective operations
 *
 * Thread: all of it is used by the worker's owner, or by its progress thread
 * under the worker's lock. */
#ifndef UMI_COMM_TYPES_H
#define UMI_COMM_TYPES_H

#include <umx/buffer.h>
#include <umx/channel.h>
#include <umx/comm.h>
#include <umx/layer.h>
#include <umx/worker.h>

enum {
    UMI_COMM_REASON_MAX = 256, /* bytes */
    UMI_COMM_FAILED_MAX = 32 + UMI_COMM_REASON_MAX + 4 * UMX_COMM_LATE_MAX,
    UMI_COMM_LEND_MIN   = 64 * 1024 /* bytes: so many may be lent to ranks of
                                       this host, and not sent */
};

typedef struct umi_comm_dispatch  umi_comm_dispatch;
typedef struct umi_comm_bootstrap umi_comm_bootstrap;
typedef struct umi_comm_group     umi_comm_group;
typedef struct umi_comm_member    umi_comm_member;
typedef struct umi_comm_rank      umi_comm_rank;
typedef struct umi_comm_label     umi_comm_label;
typedef struct umi_comm_report    umi_comm_report;
typedef struct umi_comm_coll      umi_comm_coll;
typedef struct umi_comm_xfer      umi_comm_xfer;
typedef struct umi_comm_parcel    umi_comm_parcel;
typedef struct umi_comm_inbox     umi_comm_inbox;

#endif
