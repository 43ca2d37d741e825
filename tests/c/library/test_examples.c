/* SPDX-License-Identifier: BSD-3-Clause */
/* link: port */
#include "unit.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "port.h"

enum {
    RANKS = 3
};

/* A running example, and what it writes to a descriptor. */
typedef struct program {
    pid_t pid;
    FILE *out;
} program;

/* build/KIND/tests/test_examples -> build/KIND/examples/hello */
static void
example_path(char *path, size_t size, const char *name)
{
    ssize_t len = readlink("/proc/self/exe", path, size - 1);

    assert_true(len > 0);
    path[len]           = '\0';
    *strrchr(path, '/') = '\0';
    *strrchr(path, '/') = '\0';
    strcat(path, "/examples/");
    strcat(path, name);
}

static program
start_reading(char *const *argv, int fd)
{
    char    path[PATH_MAX + 32];
    program child;
    int     fds[2];

    example_path(path, PATH_MAX, argv[0]);
    assert_int_equal(pipe(fds), 0);
    child.pid = fork();
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        unit_limit_time();
        dup2(fds[1], fd);
        close(fds[0]);
        close(fds[1]);
        execv(path, argv);
        _exit(127);
    }
    close(fds[1]);
    child.out = fdopen(fds[0], "r");
    assert_non_null(child.out);
    return child;
}

static program
start(char *const *argv)
{
    return start_reading(argv, STDOUT_FILENO);
}

static void
read_line(program *child, char *line, int size)
{
    assert_non_null(fgets(line, size, child->out));
    line[strcspn(line, "\n")] = '\0';
}

/* Read a line in which a figure of microseconds follows `what`. */
static void
read_figure(program *child, const char *what)
{
    char   line[64];
    char  *end;
    double us;

    read_line(child, line, sizeof(line));
    assert_memory_equal(line, what, strlen(what));
    us = strtod(line + strlen(what), &end);
    assert_true(us > 0);
    assert_string_equal(end, " us");
}

static int
finish(program *child)
{
    int status;

    fclose(child->out);
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void
test_two_processes_talk(void **state)
{
    char  port[32], line[64];
    char *listen_args[]  = {"hello", "listen", "0", NULL};
    char *connect_args[] = {"hello", "connect", "127.0.0.1", port, NULL};

    program server = start(listen_args), client;

    (void)state;
    read_line(&server, port, sizeof(port));
    client = start(connect_args);
    read_line(&client, line, sizeof(line));
    assert_string_equal(line, "hello from C");
    read_figure(&client, "a round trip takes ");
    assert_int_equal(finish(&client), 0);
    assert_int_equal(finish(&server), 0);
}

static void
test_nobody_listens(void **state)
{
    char    line[128];
    char   *args[] = {"hello", "connect", "127.0.0.1", "1", NULL};
    program client = start_reading(args, STDERR_FILENO);

    (void)state;
    read_line(&client, line, sizeof(line));
    assert_string_equal(
        line, "hello: connect to 127.0.0.1:1: Connection refused (errno 111): "
              "does a process listen there?");
    assert_int_equal(finish(&client), 1);
}

static void
check_usage(char *const *argv)
{
    program child = start(argv);

    assert_int_equal(finish(&child), 2);
}

static void
test_wrong_arguments(void **state)
{
    char *none[]  = {"hello", NULL};
    char *verb[]  = {"hello", "speak", "0", NULL};
    char *port[]  = {"hello", "listen", "70000", NULL};
    char *empty[] = {"hello", "listen", "", NULL};
    char *junk[]  = {"hello", "listen", "12a", NULL};
    char *host[]  = {"hello", "connect", "nowhere", "1", NULL};
    char *few[]   = {"hello", "connect", "1", NULL};

    (void)state;
    check_usage(none);
    check_usage(verb);
    check_usage(port);
    check_usage(empty);
    check_usage(junk);
    check_usage(host);
    check_usage(few);
}

/* ---- alltoall ------------------------------------------------------------
 */

static void
set_rank(int rank, const char *root)
{
    char number[16];

    (void)snprintf(number, sizeof(number), "%d", rank);
    setenv("UCP_RANK", number, 1);
    (void)snprintf(number, sizeof(number), "%d", RANKS);
    setenv("UCP_SIZE", number, 1);
    setenv("UCP_ROOT", root, 1);
}

static void
start_ranks(program *ranks)
{
    char *args[] = {"alltoall", NULL};
    char  root[32];

    (void)snprintf(root, sizeof(root), "127.0.0.1:%u", port_choose());
    for (int i = 0; i < RANKS; i++) {
        set_rank(i, root);
        ranks[i] = start(args);
    }
}

static void
test_ranks_exchange_numbers(void **state)
{
    program ranks[RANKS];
    char    line[64];

    (void)state;
    start_ranks(ranks);
    read_line(&ranks[0], line, sizeof(line));
    assert_string_equal(line, "3 ranks have exchanged 27 numbers");
    read_figure(&ranks[0], "an exchange takes ");
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(finish(&ranks[i]), 0);
    }
}

static void
check_refused(int rank, const char *root)
{
    char *args[] = {"alltoall", NULL};

    set_rank(rank, root);
    check_usage(args);
}

static void
test_wrong_environments(void **state)
{
    char *args[] = {"alltoall", NULL};

    (void)state;
    check_refused(-1, "127.0.0.1:1");
    check_refused(0, "localhost");
    check_refused(0, "127.0.0.1:0");
    check_refused(0, "127.0.0.1:70000");
    check_refused(0, "nowhere:1");
    setenv("UCP_ROOT", "127.0.0.1:1", 1);
    setenv("UCP_SIZE", "", 1);
    check_usage(args);
    unsetenv("UCP_SIZE");
    check_usage(args);
    unsetenv("UCP_RANK");
    check_usage(args);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_processes_talk),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_ranks_exchange_numbers),
        cmocka_unit_test(test_wrong_environments),
    };

    return UNIT_RUN_ONCE(tests, NULL, NULL);
}
