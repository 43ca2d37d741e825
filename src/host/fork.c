/* SPDX-License-Identifier: BSD-3-Clause */
/* fork.c: what a fork() leaves a child with.
 *
 * UCX knows nothing of fork(), and a child cannot use it as it is:
 *   - Its thread for asynchronous events (connections that come in) is not in
 *     the child, and UCX does not start another, since its count of users came
 *     along. The child's connections would wait for ever.
 *   - The epoll set of that thread is the parent's as well: the child's
 *     descriptors would be reported to the parent, by numbers that mean
 *     something else there.
 *   - Sockets stay open in the child: when the parent ends, its peers hear
 *     nothing until the child ends, too.
 * So in the child, at once: the number of the epoll set gets a new, empty set,
 * the parent's handlers are taken out of UCX's table, and the sockets are
 * closed. And once the child makes a context of its own: a thread of ours does
 * what UCX's did. Its timers are not served, which only transports with
 * unreliable datagrams (ud) have.
 *
 * UCX tells nobody the number of that epoll set. An event fd of ours is in it,
 * as a handler like UCX's own; /proc says which set has it. The same event fd
 * parks UCX's thread during fork(), so that it holds no lock of UCX, and none
 * of ours, in the child. */
#define _GNU_SOURCE /* dup3 */
#include "host/thread_limit.h"
#include "host/fork.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <ucs/async/async_fwd.h>
#include <unistd.h>

#include "host/watch.h"
#include "util/log.h"

/* A function of UCX's that is in no installed header; UCX's thread calls it
 * with what epoll_wait() says. Weak, like the others: the unit tests have no
 * UCX. */
ucs_status_t ucs_async_dispatch_handlers(int *ids, size_t count,
                                         ucs_event_set_types_t events);
#pragma weak ucs_async_dispatch_handlers
#pragma weak ucs_async_set_event_handler
#pragma weak ucs_async_remove_handler

enum {
    PARK_TIMEOUT_MS = 100, /* then fork() goes on; UCX's thread is busy */
    MAX_DEPTH       = 4,   /* of epoll sets in epoll sets */
    MAX_EVENTS      = 16
};

static struct {
    pthread_mutex_t lock; /* held during fork() */
    umi_list        members;
    unsigned        users;    /* contexts of this process */
    int             probe_fd; /* in UCX's epoll set; or -1 */
    bool            is_lost;  /* a child that could not be put in order */
    /* parking */
    bool        is_parked;
    atomic_bool is_park_due;
    sem_t       parked, resume;
    /* a child's */
    int         epoll_fd; /* UCX's; -1 if this is no child, or not of a user */
    bool        has_thread;
    atomic_bool is_stop_due;
    pthread_t   thread;
} self = {
    .lock     = PTHREAD_MUTEX_INITIALIZER,
    .members  = {&self.members, &self.members},
    .probe_fd = -1,
    .epoll_fd = -1,
};

unsigned umi_forks;

/* ---- the probe -----------------------------------------------------------
 */

static void
ring(void)
{
    uint64_t one = 1;

    (void)!write(self.probe_fd, &one, sizeof(one));
}

/* Run in UCX's thread by UCX, or in ours that stands in for it. */
static void
on_probe(int fd, ucs_event_set_types_t events, void *arg)
{
    uint64_t count;

    (void)events;
    (void)arg;
    (void)!read(fd, &count, sizeof(count));
    if (atomic_exchange(&self.is_park_due, false)) {
        sem_post(&self.parked);
        while (sem_wait(&self.resume) != 0) {
        }
    }
}

static umx_status
add_probe(void)
{
    ucs_status_t status;

    if (ucs_async_set_event_handler == NULL) {
        return UMX_OK;
    }
    self.probe_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self.probe_fd < 0) {
        return UMX_ERR_IO_ERROR;
    }
    status = ucs_async_set_event_handler(UCS_ASYNC_MODE_THREAD_MUTEX,
                                         self.probe_fd, UCS_EVENT_SET_EVREAD,
                                         on_probe, NULL, NULL);
    if (status != UCS_OK) {
        close(self.probe_fd);
        self.probe_fd = -1;
    }
    return (umx_status)status;
}

static void
remove_probe(void)
{
    if (self.probe_fd >= 0) {
        (void)ucs_async_remove_handler(self.probe_fd, 1);
        close(self.probe_fd);
        self.probe_fd = -1;
    }
}

/* ---- UCX's thread in a child ---------------------------------------------
 */

static ucs_event_set_types_t
event_types(uint32_t events)
{
    return (
        ucs_event_set_types_t)(((events & EPOLLIN) ? UCS_EVENT_SET_EVREAD : 0) |
                               ((events & EPOLLOUT) ? UCS_EVENT_SET_EVWRITE :
                                                      0) |
                               ((events & EPOLLERR) ? UCS_EVENT_SET_EVERR : 0));
}

static void *
run_handlers(void *arg)
{
    struct epoll_event events[MAX_EVENTS];

    while (!atomic_load(&self.is_stop_due)) {
        int  n         = epoll_wait(self.epoll_fd, events, MAX_EVENTS, -1);
        bool is_missed = false;

        for (int i = 0; i < n; i++) {
            int id = events[i].data.fd;

            if (id == self.probe_fd) {
                /* Not by UCX: fork() has copied a table in which UCX's thread
                 * is in this handler, which UCX 1.13 of Debian asserts. */
                on_probe(id, UCS_EVENT_SET_EVREAD, NULL);
                continue;
            }
            is_missed |= (ucs_async_dispatch_handlers(
                              &id, 1, event_types(events[i].events)) ==
                          UCS_ERR_NO_PROGRESS);
        }
        if (is_missed) {
            sched_yield(); /* the worker is in UCX: let it go on */
        }
    }
    return arg;
}

static umx_status
start_thread(void)
{
    if (self.is_lost || ucs_async_dispatch_handlers == NULL) {
        umi_log(UMI_LOG_ERROR, "UCX cannot be used in this forked child");
        return UMX_ERR_FORKED;
    }
    atomic_store(&self.is_stop_due, false);
    self.has_thread = umi_thread_create(&self.thread, run_handlers, NULL) == 0;
    return self.has_thread ? UMX_OK : UMX_ERR_THREAD_LIMIT;
}

static void
stop_thread(void)
{
    atomic_store(&self.is_stop_due, true);
    ring();
    pthread_join(self.thread, NULL);
    self.has_thread = false;
}

/* ---- putting a child in order --------------------------------------------
 */

/* Call `fn` for each descriptor in an epoll set. `inode` is that of the file
 * that was added under that number. */
typedef void (*target_fn)(int fd, ino_t inode, int depth, void *arg);

static bool
each_target(int epoll_fd, int depth, target_fn fn, void *arg)
{
    char          path[64], line[256];
    FILE         *file;
    int           fd;
    unsigned long inode;

    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", epoll_fd);
    file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *ino = strstr(line, "ino:");

        if (sscanf(line, "tfd: %d", &fd) == 1) {
            inode = (ino != NULL) ? strtoul(ino + 4, NULL, 16) : 0;
            fn(fd, (ino_t)inode, depth, arg);
        }
    }
    fclose(file);
    return true;
}

static bool
is_epoll(int fd)
{
    static const char expected[] = "anon_inode:[eventpoll]";
    char              path[64], target[sizeof(expected)] = "";

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return readlink(path, target, sizeof(target) - 1) ==
               (ssize_t)sizeof(expected) - 1 &&
           memcmp(target, expected, sizeof(expected) - 1) == 0;
}

static void
close_sockets(int fd, ino_t inode, int depth, void *arg)
{
    struct stat st;

    if (depth < MAX_DEPTH && is_epoll(fd)) {
        (void)each_target(fd, depth + 1, close_sockets, arg);
    } else if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) &&
               st.st_ino == inode) {
        close(fd);
    }
}

static void
look_for_probe(int fd, ino_t inode, int depth, void *arg)
{
    (void)inode;
    (void)depth;
    *(bool *)arg |= (fd == self.probe_fd);
}

static int
find_epoll(void)
{
    DIR           *dir   = opendir("/proc/self/fd");
    int            found = -1;
    struct dirent *entry;

    while (dir != NULL && found < 0 && (entry = readdir(dir)) != NULL) {
        int  fd        = atoi(entry->d_name);
        bool has_probe = false;

        if (entry->d_name[0] != '.' && is_epoll(fd)) {
            (void)each_target(fd, 0, look_for_probe, &has_probe);
            found = has_probe ? fd : -1;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return found;
}

/* Give `fd` to another file that only this process has. */
static bool
replace(int fd, int other)
{
    bool is_ok = other >= 0 && dup3(other, fd, O_CLOEXEC) == fd;

    if (other >= 0) {
        close(other);
    }
    return is_ok;
}

typedef struct targets {
    int   *fds;
    ino_t *inodes;
    size_t count;
} targets;

static void
add_target(int fd, ino_t inode, int depth, void *arg)
{
    targets *list   = arg;
    int     *fds    = realloc(list->fds, (list->count + 1) * sizeof(*fds));
    ino_t   *inodes = NULL;

    (void)depth;
    if (fds != NULL) {
        list->fds = fds;
        inodes    = realloc(list->inodes, (list->count + 1) * sizeof(*inodes));
    }
    if (inodes != NULL) {
        list->inodes              = inodes;
        list->fds[list->count]    = fd;
        list->inodes[list->count] = inode;
        list->count++;
    }
}

/* A handler of the parent's. Being in the set keeps UCX from an error message
 * when it takes it out. What is no handler is UCX's own pipe. */
static void
drop_handler(int fd, ino_t inode)
{
    struct epoll_event none = {.data.fd = fd};

    (void)epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, fd, &none);
    if (ucs_async_remove_handler(fd, 0) == UCS_OK) {
        close_sockets(fd, inode, 0, NULL);
    } else {
        (void)epoll_ctl(self.epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    }
}

static bool
take_over_epoll(void)
{
    struct epoll_event readable = {.events = EPOLLIN, .data.fd = self.probe_fd};
    targets            list     = {0};
    bool               is_ok;

    if (self.epoll_fd < 0) {
        self.epoll_fd = find_epoll();
    }
    is_ok = self.epoll_fd >= 0 &&
            each_target(self.epoll_fd, 0, add_target, &list) &&
            replace(self.epoll_fd, epoll_create1(0)) &&
            replace(self.probe_fd, eventfd(0, EFD_NONBLOCK)) &&
            epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, self.probe_fd, &readable) ==
                0;
    for (size_t i = 0; is_ok && i < list.count; i++) {
        if (list.fds[i] != self.probe_fd) {
            drop_handler(list.fds[i], list.inodes[i]);
        }
    }
    free(list.fds);
    free(list.inodes);
    return is_ok;
}

/* ---- around fork() -------------------------------------------------------
 */

/* No thread of ours holds a lock of UCX in the child. */
static void
hold_members(void)
{
    UMI_LIST_FOREACH(node, &self.members) {
        umi_fork_member *member = umi_container_of(node, umi_fork_member, node);

        member->is_held = member->ops->hold(member);
    }
}

void
umi_fork_stop_threads(void)
{
    pthread_mutex_lock(&self.lock);
    UMI_LIST_FOREACH(node, &self.members) {
        umi_fork_member *member = umi_container_of(node, umi_fork_member, node);

        member->ops->stop(member);
    }
    pthread_mutex_unlock(&self.lock);
}

static void
let_members_go(void)
{
    UMI_LIST_FOREACH(node, &self.members) {
        umi_fork_member *member = umi_container_of(node, umi_fork_member, node);

        if (member->is_held) {
            member->is_held = false;
            member->ops->let_go(member);
        }
    }
}

static void
before_fork(void)
{
    struct timespec until;
    int             rc;

    pthread_mutex_lock(&self.lock);
    hold_members();
    umi_watch_before_fork();
    if (self.users == 0 || self.probe_fd < 0) {
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += PARK_TIMEOUT_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    atomic_store(&self.is_park_due, true);
    ring();
    do {
        rc = sem_timedwait(&self.parked, &until);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0 && !atomic_exchange(&self.is_park_due, false)) {
        while ((rc = sem_wait(&self.parked)) != 0) { /* it parks just now */
        }
    }
    self.is_parked = (rc == 0);
}

static void
after_fork_in_parent(void)
{
    if (self.is_parked) {
        self.is_parked = false;
        sem_post(&self.resume);
    }
    umi_watch_after_fork();
    let_members_go();
    pthread_mutex_unlock(&self.lock);
}

static void
after_fork_in_child(void)
{
    umi_forks++;
    umi_watch_in_child();
    if (self.probe_fd >= 0) {
        self.is_lost = !take_over_epoll();
    }
    UMI_LIST_FOREACH(node, &self.members) {
        umi_fork_member *member = umi_container_of(node, umi_fork_member, node);

        (void)each_target(member->fd, 0, close_sockets, NULL);
        member->ops->in_child(member);
    }
    umi_list_init(&self.members);
    self.users      = 0;
    self.has_thread = false;
    self.is_parked  = false;
    sem_init(&self.parked, 0, 0);
    sem_init(&self.resume, 0, 0);
    pthread_mutex_unlock(&self.lock);
}

static void
init_once(void)
{
    sem_init(&self.parked, 0, 0);
    sem_init(&self.resume, 0, 0);
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

umx_status
umi_fork_enter(void)
{
    static pthread_once_t once   = PTHREAD_ONCE_INIT;
    umx_status            status = UMX_OK;

    pthread_once(&once, init_once);
    pthread_mutex_lock(&self.lock);
    if (self.users == 0) {
        bool is_child = self.epoll_fd >= 0 || self.is_lost;

        status = is_child ? start_thread() : add_probe();
    }
    if (status == UMX_OK) {
        self.users++;
    }
    pthread_mutex_unlock(&self.lock);
    return status;
}

void
umi_fork_leave(void)
{
    pthread_mutex_lock(&self.lock);
    if (--self.users == 0) {
        if (self.has_thread) {
            stop_thread(); /* the probe stays, for the next one */
        } else {
            remove_probe();
        }
    }
    pthread_mutex_unlock(&self.lock);
}

void
umi_fork_add(umi_fork_member *member)
{
    pthread_mutex_lock(&self.lock);
    umi_list_append(&self.members, &member->node);
    pthread_mutex_unlock(&self.lock);
}

void
umi_fork_remove(umi_fork_member *member)
{
    pthread_mutex_lock(&self.lock);
    umi_node_remove(&member->node);
    pthread_mutex_unlock(&self.lock);
}

void
umi_fork_lock(void)
{
    pthread_mutex_lock(&self.lock);
}

void
umi_fork_unlock(void)
{
    pthread_mutex_unlock(&self.lock);
}
