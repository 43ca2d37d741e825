/* SPDX-License-Identifier: BSD-3-Clause */
/* event_fd.h: sleeping until the worker has something to do. Thread: the
 * worker's owner. */
#ifndef UMI_EVENT_FD_H
#define UMI_EVENT_FD_H

#include "core/worker.h"

/* A new worker: umx_worker.nap. */
void umi_nap_init(umx_worker *worker);

#endif
