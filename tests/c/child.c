/* SPDX-License-Identifier: BSD-3-Clause */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static void
exec_self(const char *role, const char *arg, int in, int out)
{
    char *argv[] = {(char *)"child", (char *)role, (char *)arg, NULL};
    char  path[PATH_MAX + 1] = {0};

    /* Above the numbers they may have to move to. */
    in  = fcntl(in, F_DUPFD, 10);
    out = fcntl(out, F_DUPFD, 10);
    dup2(in, CHILD_IN);
    dup2(out, CHILD_OUT);
    for (int fd = CHILD_OUT + 1; fd < 64; fd++) {
        close(fd);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* Not that link itself: under valgrind it names valgrind. */
    if (readlink("/proc/self/exe", path, PATH_MAX) > 0) {
        execv(path, argv);
    }
    _exit(127);
}

child
child_start(const char *role, const char *arg)
{
    int   to[2], from[2];
    child c;

    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    c.pid = fork();
    assert_true(c.pid >= 0);
    if (c.pid == 0) {
        exec_self(role, arg, to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    c.in  = from[0];
    c.out = to[1];
    return c;
}

int
child_end(child *c, int signal)
{
    int status;

    if (signal != 0) {
        kill(c->pid, signal);
    }
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    close(c->in);
    close(c->out);
    return status;
}

/* In the child there is no test that could fail. */
static void
check(bool is_ok)
{
    if (!is_ok) {
        perror("child");
        abort();
    }
}

void
child_read(int fd, void *data, size_t len)
{
    char *bytes = data;

    while (len > 0) {
        ssize_t n = read(fd, bytes, len);

        check(n > 0 || (n < 0 && errno == EINTR));
        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        }
    }
}

void
child_write(int fd, const void *data, size_t len)
{
    check(write(fd, data, len) == (ssize_t)len);
}

void
child_role(int argc, char **argv, const child_entry *entries, int count)
{
    if (argc < 2) {
        return;
    }
    unit_limit_time();
    for (int i = 0; i < count; i++) {
        if (strcmp(argv[1], entries[i].role) == 0) {
            exit(entries[i].run(argc > 2 ? argv[2] : NULL));
        }
    }
    abort();
}
