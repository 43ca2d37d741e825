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

enum {
    UNIT_TIME_LIMIT_S = 60
};

/* The whole program's time limit: SIGALRM ends it. TEST_TIME_FACTOR is how many
 * times as long it may take where programs are slow, as under valgrind. */
static inline void
unit_limit_time(void)
{
    const char *factor = getenv("TEST_TIME_FACTOR");

    alarm(UNIT_TIME_LIMIT_S * (factor == NULL ? 1 : (unsigned)atoi(factor)));
}

#define UNIT_RUN(tests) \
    (unit_limit_time(), cmocka_run_group_tests(tests, NULL, NULL))

#endif
