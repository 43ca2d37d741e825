/* SPDX-License-Identifier: BSD-3-Clause */
/* membarrier.h: a fence that one process executes for others as well: on the
 * processors of all those that have registered for it. Where two processes
 * store, fence and load, one of them then has both fences in its hands, and the
 * other one only keeps its compiler from exchanging the store and the load.
 * Thread: any. */
#ifndef UMI_MEMBARRIER_H
#define UMI_MEMBARRIER_H

#include <stdbool.h>

/* True if the system has it, and allows it to this process. */
bool umi_membarrier_is_possible(void);

/* Register this process, and what it forks from now on. It takes milliseconds
 * the first time. False: the system does not, and the process fences. */
bool umi_membarrier_register(void);

/* Fence. False: the system does not do it any more. */
bool umi_membarrier_fence(void);

#endif
