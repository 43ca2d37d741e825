/* SPDX-License-Identifier: BSD-3-Clause */
/* link: wrap=syscall optimised */
#include "util/membarrier.h"

#include "unit.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    bool is_forbidden;
    int  num_registered;
    int  num_fences;
} fake;

long __wrap_syscall(long number, ...);

/* A system that has membarriers, until it is forbidden. */
long
__wrap_syscall(long number, ...)
{
    va_list list;
    int     command;

    assert_int_equal(number, SYS_membarrier);
    va_start(list, number);
    command = va_arg(list, int);
    va_end(list);
    if (fake.is_forbidden) {
        errno = EPERM;
        return -1;
    }
    switch (command) {
    case MEMBARRIER_CMD_QUERY:
        return MEMBARRIER_CMD_GLOBAL_EXPEDITED |
               MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED;
    case MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED:
        fake.num_registered++;
        return 0;
    case MEMBARRIER_CMD_GLOBAL_EXPEDITED:
        fake.num_fences++;
        return 0;
    default:
        errno = EINVAL;
        return -1;
    }
}

static void
test_a_system_without_is_found_out(void **state)
{
    (void)state;
    assert_true(umi_membarrier_is_possible());
    fake.is_forbidden = true;
    assert_false(umi_membarrier_is_possible());
    assert_false(umi_membarrier_fence());
    fake.is_forbidden = false;
    assert_true(umi_membarrier_fence());
    assert_int_equal(fake.num_fences, 1);
}

static void
test_a_process_registers_once_and_its_children_again(void **state)
{
    pid_t child;
    int   status;

    (void)state;
    assert_true(umi_membarrier_register());
    assert_true(umi_membarrier_register());
    assert_int_equal(fake.num_registered, 1);
    child = fork();
    if (child == 0) {
        _exit(fake.num_registered == 2 && umi_membarrier_register() ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(fake.num_registered, 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_system_without_is_found_out),
        cmocka_unit_test(test_a_process_registers_once_and_its_children_again),
    };

    return UNIT_RUN(tests);
}
