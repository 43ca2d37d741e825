/* SPDX-License-Identifier: BSD-3-Clause */
/* link: pair */
#include "pair.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* By a pointer: a call of fork() would be gcov's, which forgets what runs
 * inside of it in the child. */
static pid_t (*volatile real_fork)(void) = fork;

/* Run `fn` in a child, which leaves by exit(): normally. */
static void
in_child(void (*fn)(pair *p), pair *p)
{
    int   status;
    pid_t pid = real_fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        unit_limit_time(); /* alarms are not inherited */
        fn(p);
        exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void
check(bool is_ok)
{
    if (!is_ok) {
        abort();
    }
}

static void
start_anew(pair *p)
{
    void *state = (void *)p->tls;

    check(pair_setup(&state) == 0);
    pair_open(state);
    pair_settle(state);
    check(pair_teardown(&state) == 0);
}

static void
start_twice(pair *p)
{
    start_anew(p);
    start_anew(p);
}

static void
use_the_parents(pair *p)
{
    umx_match    tag    = pair_tag(1);
    umx_buffer   buffer = umx_host_buffer((char[1]){0}, 1);
    umx_request *req;

    check(umx_channel_send(p->client, 0, &tag, &buffer, NULL, &req) ==
          UMX_ERR_FORKED);
    check(umx_worker_poll(p->client_worker) == 0);
    check(umx_worker_drain(p->client_worker) == UMX_ERR_FORKED);
}

static void
fork_again(pair *p)
{
    void *state = (void *)p->tls;

    in_child(start_anew, p);
    check(pair_setup(&state) == 0);
    pair_open(state);
    in_child(start_anew, p);
    pair_settle(state);
    check(pair_teardown(&state) == 0);
}

static void
be_refused(pair *p)
{
    umx_context  *context;
    struct rlimit limit;

    (void)p;
    check(umx_context_create(NULL, &context, NULL) == UMX_ERR_DESCRIPTOR_LIMIT);
    check(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    check(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    check(umx_context_create(NULL, &context, NULL) == UMX_ERR_FORKED);
}

static void
test_a_child_starts_anew_and_the_parent_goes_on(void **state)
{
    pair *p = *state;

    pair_open(p);
    for (int i = 0; i < 3; i++) {
        in_child(start_twice, p);
        pair_settle(p);
    }
}

static void
test_the_parents_objects_are_dead_in_a_child(void **state)
{
    pair *p = *state;

    pair_open(p);
    in_child(use_the_parents, p);
    pair_settle(p);
}

static void
test_a_child_of_a_child_starts_anew(void **state)
{
    pair *p = *state;

    pair_open(p);
    in_child(fork_again, p);
    pair_settle(p);
}

static void
test_a_child_of_a_process_that_uses_nothing(void **state)
{
    in_child(start_anew, *state);
}

/* Without descriptors UCX's epoll set is not to be found. */
static void
test_a_child_that_cannot_be_put_in_order_says_so(void **state)
{
    pair         *p = *state;
    struct rlimit limit, none;

    pair_open(p);
    pair_settle(p); /* UCX's own threads open no files any more */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none          = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    in_child(be_refused, p);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    pair_settle(p);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(test_a_child_of_a_process_that_uses_nothing),
        PAIR_TEST(test_a_child_starts_anew_and_the_parent_goes_on),
        PAIR_TEST(test_the_parents_objects_are_dead_in_a_child),
        PAIR_TEST(test_a_child_of_a_child_starts_anew),
        PAIR_TEST(test_a_child_that_cannot_be_put_in_order_says_so),
    };

    return UNIT_RUN(tests);
}
