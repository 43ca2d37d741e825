/* SPDX-License-Identifier: BSD-3-Clause */
#include "host/watch.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "util/log.h"

/* Connections come and go in all workers' threads; not on any hot path. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static umi_list        all      = {&all, &all};

static void
register_watch(umi_watch *watch)
{
    pthread_mutex_lock(&all_lock);
    umi_list_append(&all, &watch->node);
    pthread_mutex_unlock(&all_lock);
}

static void
unregister_watch(umi_watch *watch)
{
    pthread_mutex_lock(&all_lock);
    umi_node_remove(&watch->node);
    pthread_mutex_unlock(&all_lock);
}

void
umi_watch_before_fork(void)
{
    pthread_mutex_lock(&all_lock);
}

void
umi_watch_after_fork(void)
{
    pthread_mutex_unlock(&all_lock);
}

/* Close the descriptors in a child. They stay in the epoll set, which is the
 * parent's. */
void
umi_watch_in_child(void)
{
    umi_node *node;

    while ((node = umi_list_pop(&all)) != NULL) {
        umi_watch *watch = umi_container_of(node, umi_watch, node);

        close(watch->fd);
        watch->fd = -1;
    }
    pthread_mutex_unlock(&all_lock);
}

umx_status
umi_watch_start(umi_watches *watches, umi_watch *watch, int fd, uint32_t events,
                umi_watch_fn fn)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};

    if (epoll_ctl(watches->fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        umi_log(UMI_LOG_ERROR, "epoll_ctl: %s", strerror(errno));
        return (errno == ENOMEM || errno == ENOSPC) ? UMX_ERR_NO_MEMORY :
                                                      UMX_ERR_IO_ERROR;
    }
    watch->fd = fd;
    watch->fn = fn;
    register_watch(watch);
    return UMX_OK;
}

void
umi_watch_change(umi_watches *watches, umi_watch *watch, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};

    if (watch->fd >= 0) {
        (void)epoll_ctl(watches->fd, EPOLL_CTL_MOD, watch->fd, &event);
    }
}

void
umi_watch_stop(umi_watches *watches, umi_watch *watch)
{
    struct epoll_event event = {0}; /* not NULL: Linux before 2.6.9 */

    if (watch->fd < 0) {
        return;
    }
    unregister_watch(watch);
    (void)epoll_ctl(watches->fd, EPOLL_CTL_DEL, watch->fd, &event);
    watch->fd = -1;
    for (int i = 0; i < watches->num_ready; i++) {
        if (watches->ready[i].data.ptr == watch) {
            watches->ready[i].data.ptr = NULL;
        }
    }
}

unsigned
umi_watches_run(umi_watches *watches)
{
    unsigned num_run = 0;

    watches->num_ready = epoll_wait(watches->fd, watches->ready, UMI_MAX_READY,
                                    0);
    if (watches->num_ready < 0) {
        watches->num_ready = 0; /* EINTR: next time */
    }
    for (int i = 0; i < watches->num_ready; i++) {
        umi_watch *watch = watches->ready[i].data.ptr;

        if (watch != NULL) { /* NULL: UCX's, or stopped meanwhile */
            watch->fn(watch, watches->ready[i].events);
            num_run++;
        }
    }
    watches->num_ready = 0;
    return num_run;
}
