/* SPDX-License-Identifier: BSD-3-Clause */
/* event.h: what libumx tells about memory that was lent. */
#ifndef UCP_EXT_BUFFER_EVENT_H
#define UCP_EXT_BUFFER_EVENT_H

#include "base/event.h"

struct memory_loan;

/* Lend the memory of `loan` until event_take_freed() returns the loan. */
void event_watch_memory(umx_memh_params *params, struct memory_loan *loan);

struct memory_loan *event_take_freed(void);
bool                event_has_freed(void);

#endif
