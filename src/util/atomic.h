/* SPDX-License-Identifier: BSD-3-Clause */
/* atomic.h: atomic operations on memory of this process, or mapped into it.
 * Thread: any. */
#ifndef UMI_ATOMIC_H
#define UMI_ATOMIC_H

#include <umx/rma.h>

/* True if `atomic` is one of the operations, on an aligned number of 4 or 8
 * bytes. */
bool umi_atomic_is_valid(const umx_atomic *atomic);

/* Apply the operation to the number at `address`; returns what was there. */
uint64_t umi_atomic_apply(const umx_atomic *atomic, void *address);

#endif
