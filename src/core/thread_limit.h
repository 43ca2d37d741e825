/* SPDX-License-Identifier: BSD-3-Clause */
/* thread_limit.h: may the process start another thread? UCX aborts the process
 * if it gets none for its events. Thread: any. */
#ifndef UMI_THREAD_LIMIT_H
#define UMI_THREAD_LIMIT_H

#include <stdbool.h>

/* True if the process may start one more thread now. This starts one, which
 * ends at once. */
bool umi_thread_is_allowed(void);

#endif
