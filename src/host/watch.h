/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.h: descriptors of ours in a worker's epoll set, beside UCX's event fds.
 * Their callbacks run from umi_watches_run(), never inside UCX. Thread: the
 * worker's owner. */
#ifndef UMI_WATCH_H
#define UMI_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <umx/status.h>

#include "util/list.h"

typedef struct umi_watch umi_watch;
typedef void (*umi_watch_fn)(umi_watch *watch, uint32_t events);

struct umi_watch {
    int          fd; /* -1: not watched */
    umi_watch_fn fn;
    umi_node     node; /* of all watches of the process */
};

enum {
    UMI_MAX_READY = 16
};

/* Of a worker. */
typedef struct umi_watches {
    int                fd; /* epoll set: UCX's event fds and watches */
    struct epoll_event ready[UMI_MAX_READY]; /* being run */
    int                num_ready;
} umi_watches;

/* fork.c calls these. The child closes its copies of the descriptors: else a
 * peer would not see the end of the parent before that of the child. */
void umi_watch_before_fork(void);
void umi_watch_after_fork(void);
void umi_watch_in_child(void);

/* Watch `fd` for `events` (EPOLLIN, EPOLLOUT), level-triggered. */
umx_status umi_watch_start(umi_watches *watches, umi_watch *watch, int fd,
                           uint32_t events, umi_watch_fn fn);
void umi_watch_change(umi_watches *watches, umi_watch *watch, uint32_t events);
/* Stop watching, also from inside a callback, the watch's own or another's.
 * Idempotent. */
void umi_watch_stop(umi_watches *watches, umi_watch *watch);

/* True in a callback. */
static inline bool
umi_watches_are_run(const umi_watches *watches)
{
    return watches->num_ready != 0;
}

/* Run the callbacks of what is ready; never blocks. Not from a callback.
 * Returns how many were run. */
unsigned umi_watches_run(umi_watches *watches);

#endif
