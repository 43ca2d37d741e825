/* SPDX-License-Identifier: BSD-3-Clause */
/* describe.h: communicators in umx_worker_describe(), and in the log. */
#ifndef UMI_COMM_DESCRIBE_H
#define UMI_COMM_DESCRIBE_H

#include "comm/collective.h"

/* umx_dependent.describe of a dispatch. */
void umi_comm_describe(const umx_dependent *dependent, umx_line_fn fn,
                       void *arg);

/* Log that a communicator has its ranks, or how one ends. */
void umi_comm_log_made(const umx_comm *comm);
void umi_comm_log_revoked(const umx_comm *comm);
void umi_comm_log_closed(const umx_comm *comm);

/* Log for whom an operation has waited. */
void umi_comm_log_late(const umi_comm_coll *coll);

/* Log for whom the root of a communicator that is being made waits. */
void umi_comm_log_missing(const umi_comm_bootstrap *bootstrap);

#endif
