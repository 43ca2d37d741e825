/* SPDX-License-Identifier: BSD-3-Clause */
/* cma.h: messages that the receiver reads from their sender's memory, with one
 * copy and no part for the sender: cross-memory attach, Linux's
 * process_vm_readv().
 *
 * UCX's rendezvous over shared memory needs both sides awake, several times a
 * message. Where each sleeps in its event loop that costs more than the bytes.
 * (UCX has this transport too, but not for endpoints that handle errors.)
 *
 * Messages of UCX's, header only:
 *   UMI_AM_LENT  loan | the header of the data message
 *   UMI_AM_NOTE  note
 *
 *   loan  id u64 | its address u64 | bytes' address u64 | length u64
 *   note  receiver's endpoint u64 | kind u32 | status i32 | a u64 | b u64 |
 *         nonce 16
 *
 * kinds, sent before the first loan between two workers, once:
 *   ASK     may I lend to you?
 *   INVITE  (nonce) put this in your memory, with who we are: a proof
 *   OFFER   (a: pid, b: address) there it is
 *   ACCEPT  I have read it
 * and for each:
 *   RETURN  (a: id, status) I am done with it
 * A receiver that cannot read, or does not want to, leaves ASK or OFFER
 * unanswered: messages go by rendezvous then. Each note is answered once. The
 * receiver takes bytes of no process that does not show the proof, before and
 * after: not of one that got the number of a process that is gone, nor of one
 * that lends to a peer that passes its notes on. Its own memory it never reads,
 * and none for peers without shared memory.
 *
 * A loan ends when it is returned or its endpoint ends. Whoever reads cannot
 * be told in time, so the id in the lender's memory is cleared first, and
 * compared after the bytes have been read: bytes of a loan that has ended, or
 * of another process by the same number, are not taken. Thread: the worker's
 * owner. */
#ifndef UMI_CMA_H
#define UMI_CMA_H

#include "ops/am.h"

/* After the handler of data messages has been set. */
umx_status umi_cma_init(umx_worker *worker);

/* May messages of `len` bytes be lent? Asks the peer, if nobody has. */
bool umi_cma_is_agreed(umi_ep *ep, size_t len);

/* The same of this one, which has memory that can be. */
bool umi_cma_may_lend(const umx_request *req, size_t header_len);

/* umi_am_send() as a loan. UMX_INPROGRESS or a failure. */
umx_status umi_cma_lend(umx_request *req, const void *header,
                        size_t header_len);

/* No address of a process has this bit; those of UCX's may be odd. */
#define UMI_CMA_MARK (UINTPTR_MAX - UINTPTR_MAX / 2)

/* `desc` of an arrival may be a loan. */
static inline bool
umi_cma_is_loan(const void *desc)
{
    return ((uintptr_t)desc & UMI_CMA_MARK) != 0;
}

/* umi_am_recv() and umi_am_release() of one. */
umx_status umi_cma_read(umx_request *req, void *desc);
void       umi_cma_release(umx_worker *worker, void *desc);

/* The endpoint ends: nothing of it is lent any more. */
void umi_cma_end(umi_ep *ep, umx_status status);

#endif
