/* SPDX-License-Identifier: BSD-3-Clause */
/* lend.h: messages that the receiver reads from their sender's memory, with one
 * copy and no part for the sender: cross-memory attach, Linux's
 * process_vm_readv().
 *
 * UCX's rendezvous over shared memory needs both sides awake, several times a
 * message. Where each sleeps in its event loop that costs more than the bytes.
 * (UCX has this transport too, but not for endpoints that handle errors.)
 *
 * A lender keeps a table of what it lends to a peer (loans.h). A message
 * that is lent travels as a header, with the number of its loan; the receiver
 * finds the bytes by the table, reads them when the program receives them, and
 * says RETURN (note.h). No address comes in a message, and none of a loan
 * that has ended is read: what the receiver has read by then is wiped, and
 * the receive gives UMX_ERR_WITHDRAWN. Whose memory the table is in is
 * known from the kernel (agree.h). A process never reads its own memory, and
 * there are no loans between peers without shared memory.
 *
 * A loan ends when it is returned or its endpoint ends. Thread: the worker's
 * owner. */
#ifndef UMI_LEND_H
#define UMI_LEND_H

#include "lend/note.h"
#include "ops/am.h"

/* Begin a new worker's loans, in `lend`; end them once UCX's worker is gone. */
void umi_lend_init(umx_worker *worker, umi_lend *lend);
void umi_lend_fini(umi_lend *lend);

/* Listen for loans and notes, after the handler of data messages has been set.
 */
umx_status umi_lend_listen(umx_worker *worker);

/* True if messages of `len` bytes may be lent; `is_asked_for`: whatever the
 * settings are. Asks the peer, if nobody has. */
bool umi_lend_is_agreed(umi_ep_base *ep, size_t len, bool is_asked_for);

/* True if this message may be lent: its memory can be, too. */
bool umi_lend_may_send(const umx_request *req, size_t header_len,
                       bool is_asked_for);

/* Send as umi_am_send() does, as a loan. UMX_INPROGRESS or a failure. */
umx_status umi_lend_send(umx_request *req, const void *header,
                         size_t header_len);

/* Lend the memory that `req`, which is lent, has now instead of that before. */
void umi_lend_turn(umx_request *req);

/* End the loan of `req`, which completes with UMX_ERR_CANCELED. Who reads it
 * finds out; nobody is told. */
void umi_lend_withdraw(umx_request *req);

/* How a loan is taken: it is read in the call. UMX_ERR_WITHDRAWN: its lender
 * has ended it. */
extern const umi_way umi_way_loan;

/* Lend memory to the peer, with no message: it must be told the loan. False: by
 * another way. Until umi_lend_take_back(), or the end of `ep`. */
bool umi_lend_memory(umi_ep_base *ep, const umx_buffer *buf,
                     umi_lend_loan *name);
void umi_lend_take_back(umi_ep_base *ep, const umi_lend_loan *name);

/* Read what the peer lends so. UMX_ERR_WITHDRAWN: it does not, or no longer;
 * UMX_ERR_CONNECTION_RESET: the peer is gone. */
umx_status umi_lend_read_memory(umi_ep_base *ep, const umi_lend_loan *name,
                                const umx_buffer *buf);

/* Begin the loans of a new endpoint, which lie in `lend`. */
void umi_lend_begin(umi_ep_base *ep, umi_lend_ep *lend);

/* End the loans of an endpoint that ends. */
void umi_lend_end(umi_ep_base *ep, umx_status status);

#endif
