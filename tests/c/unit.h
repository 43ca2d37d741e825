/* SPDX-License-Identifier: BSD-3-Clause */
/* unit.h: cmocka and what it wants included before it. */
#ifndef UNIT_H
#define UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <unistd.h>

/* cmocka 2 deprecates this name for those of signed and unsigned numbers. */
#ifdef assert_uint_in_range
#undef assert_in_range
#define assert_in_range assert_uint_in_range
#endif

enum {
    UNIT_TIME_LIMIT_S = 120
};

/* A time limit, from now on: SIGALRM ends the process. TEST_TIME_FACTOR is how
 * many times as long it may take where programs are slow, as under valgrind. */
static inline void
unit_limit_time(void)
{
    const char *factor = getenv("TEST_TIME_FACTOR");

    alarm(UNIT_TIME_LIMIT_S * (factor == NULL ? 1 : (unsigned)atoi(factor)));
}

/* The setup of each test: its state is the test whose setup is meant. */
static inline int
unit_begin(void **state)
{
    const struct CMUnitTest *test = *state;

    unit_limit_time();
    *state = test->initial_state;
    return (test->setup_func == NULL) ? 0 : test->setup_func(state);
}

/* Run tests, each with the time limit. */
static inline int
unit_run(const struct CMUnitTest *tests, size_t num_tests,
         CMFixtureFunction setup, CMFixtureFunction teardown)
{
    struct CMUnitTest limited[num_tests];

    for (size_t i = 0; i < num_tests; i++) {
        limited[i]               = tests[i];
        limited[i].setup_func    = unit_begin;
        limited[i].initial_state = (void *)&tests[i];
    }
    unit_limit_time();
    return cmocka_run_group_tests(limited, setup, teardown);
}

/* Run tests of a program that nomem.c does not run. */
#define UNIT_RUN_ONCE(tests, setup, teardown) \
    unit_run(tests, sizeof(tests) / sizeof(*(tests)), setup, teardown)

#ifdef UNIT_NOMEM
/* nomem.c: each test with each allocation of libumx failing; a test waits, and
 * nothing comes; an operation has told it how it ended; a test waits for what
 * libumx does without where memory is short, and which so may never come. */
int  nomem_run(const struct CMUnitTest *tests, size_t num_tests);
void nomem_idle(void);
void nomem_told(int status);
void nomem_optional(int is_optional);

#define UNIT_RUN(tests) nomem_run(tests, sizeof(tests) / sizeof(*(tests)))
#define UNIT_IDLE() nomem_idle()
#define UNIT_TOLD(s) nomem_told(s)
#define UNIT_OPTIONAL(is) nomem_optional(is)
#else
#define UNIT_RUN(tests) UNIT_RUN_ONCE(tests, NULL, NULL)
#define UNIT_IDLE() ((void)0)
#define UNIT_TOLD(s) ((void)(s))
#define UNIT_OPTIONAL(is) ((void)(is))
#endif

#endif
