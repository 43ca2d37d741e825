/* SPDX-License-Identifier: BSD-3-Clause */
/* direct.h: messages between two workers of one process. The receiver reads the
 * sender's memory by copies of its own device, in front of which it looks
 * whether that is lent still, and again behind the last. A loan has a
 * random number, which the sender tells instead of FILLED: who does not know it
 * reads nothing. No address is sent. Thread: any;
 * one at a time for a loan's lender, and one for its reader. */
#ifndef UMI_BOUNCE_DIRECT_H
#define UMI_BOUNCE_DIRECT_H

#include <umx/types.h>

typedef struct umi_direct umi_direct;

/* Give a random number that workers of this process know; 0: there is none. */
uint64_t umi_direct_process(void);

/* Lend memory; NULL when out of memory. */
umi_direct *umi_direct_lend(const umx_buffer *buf);

/* Give the number of a loan, for its reader. */
uint64_t umi_direct_id(const umi_direct *direct);

/* End a loan: nobody begins to read the memory any more, and what is read of it
 * does not count. */
void umi_direct_end(umi_direct *direct);

/* Find the loan of that number and length, which nobody else reads; NULL: there
 * is none. Until umi_direct_put(). */
umi_direct *umi_direct_take(uint64_t id, size_t len);
void        umi_direct_put(umi_direct *direct);

/* Keep the loan from ending, until umi_direct_unlock(). NULL: it has ended. */
const umx_buffer *umi_direct_lock(umi_direct *direct);
void              umi_direct_unlock(void);

#endif
