/* unit.h: cmocka and what it wants included before it. */
#ifndef UNIT_H
#define UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#define UNIT_TIME_LIMIT_S 60

/* The whole program's time limit: SIGALRM ends it. */
#define UNIT_RUN(tests) \
    (alarm(UNIT_TIME_LIMIT_S), cmocka_run_group_tests(tests, NULL, NULL))

#endif
