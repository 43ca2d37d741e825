/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.h: descriptors of ours in the worker's epoll set, beside UCX's event
 * fd. Their callbacks run from umi_worker_run_watches(), never inside UCX.
 * Thread: the worker's owner. */
#ifndef UMI_WATCH_H
#define UMI_WATCH_H

#include <stdint.h>
#include <umx/types.h>

#include "util/list.h"

typedef struct umi_watch umi_watch;
typedef void (*umi_watch_fn)(umi_watch *watch, uint32_t events);

struct umi_watch {
    int          fd; /* -1: not watched */
    umi_watch_fn fn;
    umi_node     node; /* of all watches of the process */
};

/* fork.c calls these. The child closes its copies of the descriptors: else a
 * peer would not see the end of the parent before that of the child. */
void umi_watch_before_fork(void);
void umi_watch_after_fork(void);
void umi_watch_in_child(void);

/* Watch `fd` for `events` (EPOLLIN, EPOLLOUT), level-triggered. */
umx_status umi_watch_start(umx_worker *worker, umi_watch *watch, int fd,
                           uint32_t events, umi_watch_fn fn);
void umi_watch_change(umx_worker *worker, umi_watch *watch, uint32_t events);
/* Stop watching, also from inside a callback, the watch's own or another's.
 * Idempotent. */
void umi_watch_stop(umx_worker *worker, umi_watch *watch);

/* Run the callbacks of what is ready; never blocks. */
void umi_worker_run_watches(umx_worker *worker);

#endif
