/* SPDX-License-Identifier: BSD-3-Clause */
#include "util/process.h"

#include "unit.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Wait until a child of this process stops, or goes on. */
static void
wait_for(pid_t child, int options)
{
    int status;

    assert_int_equal(waitpid(child, &status, options), child);
}

static void
test_states_of_a_process(void **state)
{
    siginfo_t info;
    pid_t     child = fork();

    (void)state;
    if (child == 0) {
        for (;;) {
            (void)pause();
        }
    }
    assert_true(child > 0);
    assert_int_equal(umi_process_state_of(child), UMI_PROCESS_RUNS);
    assert_int_equal(kill(child, SIGSTOP), 0);
    wait_for(child, WUNTRACED);
    assert_int_equal(umi_process_state_of(child), UMI_PROCESS_STOPPED);
    assert_int_equal(kill(child, SIGCONT), 0);
    wait_for(child, WCONTINUED);
    assert_int_equal(umi_process_state_of(child), UMI_PROCESS_RUNS);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(umi_process_state_of(child), UMI_PROCESS_ENDED);
    wait_for(child, 0); /* its parent is told */
    assert_int_equal(umi_process_state_of(child), UMI_PROCESS_ENDED);
}

static void
test_this_process(void **state)
{
    (void)state;
    assert_true(umi_process_is_self(getpid()));
    assert_false(umi_process_is_self(getppid()));
    assert_int_equal(umi_process_state_of(getpid()), UMI_PROCESS_RUNS);
}

static void
test_memory_that_grows_is_never_above_its_peak(void **state)
{
    size_t     page   = (size_t)sysconf(_SC_PAGESIZE);
    char      *memory = mmap(NULL, 500 * page, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    umi_memory now;

    (void)state;
    assert_true(memory != MAP_FAILED);
    for (size_t i = 0; i < 500; i++) {
        memory[i * page] = 1;
        umi_process_memory(&now);
        assert_true(now.rss > 0 && now.rss <= now.peak);
    }
    assert_int_equal(munmap(memory, 500 * page), 0);
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states_of_a_process),
        cmocka_unit_test(test_this_process),
        cmocka_unit_test(test_memory_that_grows_is_never_above_its_peak),
    };

    return UNIT_RUN(tests);
}
