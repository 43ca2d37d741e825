/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* A running examples/hello and its standard output. */
typedef struct program {
    pid_t pid;
    FILE *out;
} program;

/* build/KIND/tests/test_hello -> build/KIND/examples/hello */
static void
example_path(char *path, size_t size)
{
    ssize_t len = readlink("/proc/self/exe", path, size - 1);

    assert_true(len > 0);
    path[len]           = '\0';
    *strrchr(path, '/') = '\0';
    *strrchr(path, '/') = '\0';
    strcat(path, "/examples/hello");
}

static program
start(char *const *argv)
{
    char    path[PATH_MAX + 32];
    program child;
    int     fds[2];

    example_path(path, PATH_MAX);
    assert_int_equal(pipe(fds), 0);
    child.pid = fork();
    assert_true(child.pid >= 0);
    if (child.pid == 0) {
        unit_limit_time();
        dup2(fds[1], STDOUT_FILENO);
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

static void
read_line(program *child, char *line, int size)
{
    assert_non_null(fgets(line, size, child->out));
    line[strcspn(line, "\n")] = '\0';
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
    assert_int_equal(finish(&client), 0);
    assert_int_equal(finish(&server), 0);
}

static void
test_nobody_listens(void **state)
{
    char   *args[] = {"hello", "connect", "127.0.0.1", "1", NULL};
    program client = start(args);

    (void)state;
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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_processes_talk),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_wrong_arguments),
    };

    unit_limit_time(); /* no UNIT_RUN(): other processes allocate, too */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
