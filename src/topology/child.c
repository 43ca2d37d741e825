/* SPDX-License-Identifier: BSD-3-Clause */
/* child.c: hwloc reads an XML in a child process.
 *
 * The child writes a report to a pipe, a status and the encoded tree, and ends.
 * The parent does not wait for the end of the pipe, because a process that
 * another thread has forked meanwhile may keep it open, but for the length that
 * the report says. It checks all of the tree, since a damaged child may write
 * anything. */
#define _GNU_SOURCE /* pipe2() */
#include "topology/read.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "topology/tree.h"
#include "util/clock.h"

typedef struct report {
    int32_t  status;
    uint32_t len; /* bytes of the tree, which follow; 0 without UMX_OK */
} report;

/* ---- the child -----------------------------------------------------------
 */

/* Let a crash be silent: no text of hwloc's, and no core file. Signals are
 * blocked, so no handler of the program's is called; only abort() ends that for
 * its signal. */
static void
be_silent(void)
{
    const struct rlimit none = {0, 0};
    int                 null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    if (null >= 0) {
        (void)dup2(null, STDOUT_FILENO);
        (void)dup2(null, STDERR_FILENO);
    }
    (void)signal(SIGABRT, SIG_DFL);
    (void)setrlimit(RLIMIT_CORE, &none);
}

static void
write_all(int fd, const void *data, size_t len)
{
    const char *pos = data;

    while (len > 0) {
        ssize_t written = write(fd, pos, len);

        if (written < 0 && errno != EINTR) {
            return; /* the parent does not read any more */
        }
        pos += (written > 0) ? written : 0;
        len -= (written > 0) ? (size_t)written : 0;
    }
}

static void
run_child(const umi_hwloc *hwloc, const char *xml, int size, int fd)
{
    umx_topology *tree;
    void         *data = NULL;
    size_t        len  = 0;
    report        said;

    fd = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1); /* not an output */
    be_silent();
    said.status = umi_topology_read(hwloc, xml, size, &tree);
    if (said.status == UMX_OK) {
        said.status = umi_tree_pack(tree, &data, &len);
    }
    if (len > UMI_TREE_BYTES_MAX) {
        said.status = UMX_ERR_EXCEEDS_LIMIT;
    }
    said.len = (said.status == UMX_OK) ? (uint32_t)len : 0;
    write_all(fd, &said, sizeof(said));
    write_all(fd, data, said.len);
}

/* Fork with all signals blocked in the child: a handler of the program's would
 * act there a second time. */
static pid_t
fork_without_signals(void)
{
    sigset_t all, before;
    pid_t    pid;

    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid != 0) {
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return pid;
}

/* Start the child; it ends within this function. */
static umx_status
start(const umi_hwloc *hwloc, const char *xml, int size, pid_t *pid_p,
      int *fd_p)
{
    int   fds[2];
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) != 0) {
        return UMX_ERR_NO_RESOURCE;
    }
    pid = fork_without_signals();
    if (pid < 0) {
        (void)close(fds[0]);
        (void)close(fds[1]);
        return UMX_ERR_NO_RESOURCE;
    }
    if (pid == 0) {
        run_child(hwloc, xml, size, fds[1]);
        _exit(0); /* the functions of atexit() are the parent's */
    }
    (void)close(fds[1]);
    *pid_p = pid;
    *fd_p  = fds[0];
    return UMX_OK;
}

/* ---- the parent ----------------------------------------------------------
 */

static umx_status
wait_readable(int fd, uint64_t deadline_ns)
{
    uint64_t      now_ns = umi_clock_ns();
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    uint64_t      left_ms;
    int           rc;

    if (now_ns >= deadline_ns) {
        return UMX_ERR_TIMED_OUT;
    }
    left_ms = (deadline_ns - now_ns) / 1000000 + 1;
    rc      = poll(&wanted, 1, (left_ms > 60000) ? 60000 : (int)left_ms);
    return (rc >= 0 || errno == EINTR) ? UMX_OK : UMX_ERR_NO_RESOURCE;
}

/* Read exactly `len` bytes. A child that has ended before is one that hwloc
 * crashed. */
static umx_status
read_all(int fd, void *data, size_t len, uint64_t deadline_ns)
{
    char *pos = data;

    while (len > 0) {
        umx_status status = wait_readable(fd, deadline_ns);
        ssize_t    got;

        if (status != UMX_OK) {
            return status;
        }
        got = read(fd, pos, len);
        if (got == 0) {
            return UMX_ERR_INVALID_PARAM;
        }
        if (got < 0 && errno != EINTR && errno != EAGAIN) {
            return UMX_ERR_NO_RESOURCE;
        }
        pos += (got > 0) ? got : 0;
        len -= (got > 0) ? (size_t)got : 0;
    }
    return UMX_OK;
}

static umx_status
read_tree(int fd, uint32_t len, uint64_t deadline_ns, umx_topology **tree_p)
{
    void      *data;
    umx_status status;

    if (len > UMI_TREE_BYTES_MAX) {
        return UMX_ERR_INVALID_PARAM;
    }
    data = malloc(len);
    if (data == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = read_all(fd, data, len, deadline_ns);
    if (status == UMX_OK) {
        status = umi_tree_unpack(data, len, tree_p);
    }
    free(data);
    return (status == UMX_ERR_PROTOCOL) ? UMX_ERR_INVALID_PARAM : status;
}

static umx_status
read_report(int fd, uint64_t deadline_ns, umx_topology **tree_p)
{
    report     said;
    umx_status status = read_all(fd, &said, sizeof(said), deadline_ns);

    if (status != UMX_OK) {
        return status;
    }
    switch (said.status) {
    case UMX_OK:
        return read_tree(fd, said.len, deadline_ns, tree_p);
    case UMX_ERR_EXCEEDS_LIMIT:
    case UMX_ERR_NO_MEMORY:
        return (umx_status)said.status;
    default:
        return UMX_ERR_INVALID_PARAM;
    }
}

/* Set the descriptor so that a spurious wake-up of poll() cannot block. */
static void
set_nonblocking(int fd)
{
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

umx_status
umi_topology_read_in_child(const umi_hwloc *hwloc, const char *xml, int size,
                           uint64_t timeout_ns, umx_topology **tree_p)
{
    uint64_t   now_ns = umi_clock_ns();
    uint64_t   deadline_ns;
    int        fd;
    pid_t      pid;
    umx_status status = start(hwloc, xml, size, &pid, &fd);

    if (status != UMX_OK) {
        return status;
    }
    deadline_ns = (timeout_ns > UINT64_MAX - now_ns) ? UINT64_MAX :
                                                       now_ns + timeout_ns;
    set_nonblocking(fd);
    status = read_report(fd, deadline_ns, tree_p);
    (void)close(fd);
    (void)kill(pid, SIGKILL); /* the child has said everything, or too little */
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
    return status;
}
