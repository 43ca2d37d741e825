/* SPDX-License-Identifier: BSD-3-Clause */
/* link: bell child optimised */
/* BELL_ROUNDS: how many, of each kind of memory. BELL_LOAD: so many processes
 * take the cores away meanwhile. */
#include "bell.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "util/clock.h"

static uint64_t
num_rounds(void)
{
    const char *text = getenv("BELL_ROUNDS");

    return (text != NULL) ? strtoull(text, NULL, 10) : 5000;
}

static void
test_no_wake_up_is_lost(void **state)
{
    const bell_shape *shape = *state;
    uint64_t          start = umi_clock_ns();
    uint64_t          count = num_rounds();

    assert_int_equal(bell_rounds(shape, count, UINT64_C(5000000000)), count);
    if (getenv("BELL_ROUNDS") != NULL) {
        printf("%s: %llu rounds, %.1f us each\n", shape->name,
               (unsigned long long)count,
               (double)(umi_clock_ns() - start) / 1e3 / (double)count);
    }
}

static void
load_the_cores(void)
{
    const char *text = getenv("BELL_LOAD");

    for (int i = 0; text != NULL && i < atoi(text); i++) {
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;) {
                __asm__ volatile("" ::: "memory");
            }
        }
    }
}

int
main(int argc, char **argv)
{
    static const child_entry roles[] = {BELL_ROLE};

    struct CMUnitTest tests[BELL_SHAPES];

    child_role(argc, argv, roles, 1);
    for (int i = 0; i < BELL_SHAPES; i++) {
        tests[i] = (struct CMUnitTest){
            .name          = bell_shapes[i].name,
            .test_func     = test_no_wake_up_is_lost,
            .initial_state = (void *)(uintptr_t)&bell_shapes[i]};
    }
    load_the_cores();
    return UNIT_RUN_ONCE(tests, NULL, NULL);
}
