/* SPDX-License-Identifier: BSD-3-Clause */
/* engines.h: more engines for a worker. Thread: the worker's owner. */
#ifndef UMI_ENGINES_H
#define UMI_ENGINES_H

#include "worker/worker.h"

/* Create an engine beside the worker's own, which the caller holds. */
umx_status umi_ops_engines_add(umx_worker *worker, umi_engine **engine_p);

/* Create an engine that is the worker's own from now on. The old one stays as
 * long as it is needed. */
umx_status umi_ops_engines_renew(umx_worker *worker);

#endif
