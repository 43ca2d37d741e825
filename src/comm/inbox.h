/* SPDX-License-Identifier: BSD-3-Clause */
/* inbox.h: shared memory of a rank, into which ranks of its host write messages
 * of collective operations. */
#ifndef UMI_COMM_INBOX_H
#define UMI_COMM_INBOX_H

#include "comm/collective.h"

/* Let a rank map the inbox here, unless it has been offered. */
void umi_comm_inbox_offer(umx_comm *comm, int rank);

/* A rank offers its inbox: map it. */
void umi_comm_inbox_on_offer(umx_comm *comm, int rank, umx_ep *ep,
                             const void *key, size_t len);

/* Send a message of an operation. UMX_OK: the bytes are copied. UMX_INPROGRESS:
 * the bytes are lent until umi_comm_coll_on_done(). UMX_ERR_UNSUPPORTED: the
 * message has to take the channel. UMX_ERR_CONNECTION_RESET: the communicator
 * has ended there. */
umx_status umi_comm_inbox_send(umi_comm_coll *coll, umi_comm_xfer *xfer);

/* Receive the bytes of a parcel, which is gone then, as umx_rma_get() does. Or
 * they are still being copied: UMX_INPROGRESS, and xfer->is_filling. */
umx_status umi_comm_inbox_recv(umi_comm_xfer         *xfer,
                               const umi_comm_parcel *parcel,
                               const umx_op_params   *params);

/* Copy more of the bytes of a message for which xfer->is_filling is set.
 * Returns as umi_comm_inbox_recv() does. */
umx_status umi_comm_inbox_fill(umi_comm_xfer *xfer);

/* Receive no more bytes of such a message. */
void umi_comm_inbox_stop_filling(umi_comm_xfer *xfer);

/* May the bytes that have just been pulled from a rank be wrong, because the
 * rank was revoked meanwhile? */
bool umi_comm_inbox_is_spoilt(const umx_comm *comm, int rank);

/* Tell a rank that its bytes have been pulled. */
void umi_comm_inbox_say_done(umx_comm *comm, int rank, uint64_t number,
                             unsigned round);

/* Drop a parcel of a cell. */
void umi_comm_inbox_drop(umx_comm *comm, const umi_comm_parcel *parcel);

/* Take what has come. True if there was anything. */
bool umi_comm_inbox_look(umx_comm *comm);

/* Does it pay to look at the inbox again and again instead of sleeping? It does
 * if all ranks write into it, and each has a core. */
bool umi_comm_inbox_is_busy_wait(const umx_comm *comm);

/* This rank is revoked: tell those that pull from it. */
void umi_comm_inbox_revoke(umx_comm *comm);

/* Free the inbox: nothing comes any more. */
void umi_comm_inbox_end(umx_comm *comm);

#endif
