/* SPDX-License-Identifier: BSD-3-Clause */
/* late.h: which ranks have not come to a collective operation, as far as this
 * one knows. */
#ifndef UMI_COMM_LATE_H
#define UMI_COMM_LATE_H

#include "comm/collective.h"

/* A rank is heard of in an operation, which it has called. */
static inline void
umi_comm_late_note(umx_comm *comm, int rank, uint64_t number)
{
    if (comm->ranks[rank].come < number) {
        comm->ranks[rank].come = number;
    }
}

/* Tell the ranks that an operation waits for in which it waits, and ask those
 * that wait in it, too, for whom. */
void umi_comm_late_ask(umi_comm_coll *coll);

/* A rank says in which operation it waits. The communicator is revoked if this
 * rank has called another one. */
void umi_comm_late_on_state(umx_comm *comm, const umi_comm_header *header,
                            const umi_comm_state *state);

/* The operation is about to be cancelled: keep in comm->failure who had not
 * come. */
void umi_comm_late_keep(umi_comm_coll *coll);

/* Keep whom another rank names, and whom this one waits for in the same
 * operation; but nobody who has come, as this rank knows. */
void umi_comm_late_merge(umx_comm *comm, const umi_comm_failed *failed);

/* `comm` is derived from a communicator that fails, and has the same ranks. */
void umi_comm_late_inherit(umx_comm *comm, const umx_comm *parent);

/* Name the ranks that are kept at the end of comm->reason. */
void umi_comm_late_describe(umx_comm *comm);

#endif
