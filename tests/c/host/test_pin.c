/* SPDX-License-Identifier: BSD-3-Clause */
/* link: standin */
#include "host/pin.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/fork.h"
#include "mem/cuda.h"
#include "standin/standin.h"
#include "unit.h"

enum {
    LEN = 8192
};

static char memory[LEN];

static int
teardown(void **state)
{
    (void)state;
    umi_fork_leave();
    return 0;
}

/* The process has a context, as one whose program uses a device. */
static int
setup(void **state)
{
    (void)state;
    assert_int_equal(umi_fork_enter(), UMX_OK);
    standin_reset();
    assert_true(umx_cuda_is_present());
    assert_int_equal(umi_cuda_enter_device(0), UMX_OK);
    umi_cuda_leave();
    return 0;
}

static void
use(umi_pin *pin, int times)
{
    while (times-- > 0) {
        umi_pin_use(pin, memory, LEN);
    }
}

static unsigned
num_registered(void)
{
    return standin_num_calls("cuMemHostRegister_v2");
}

static unsigned
num_unregistered(void)
{
    return standin_num_calls("cuMemHostUnregister");
}

static void
test_memory_is_registered_once_when_it_is_used_again(void **state)
{
    umi_pin pin = {0};

    (void)state;
    for (unsigned life = 1; life <= 2; life++) {
        use(&pin, 1);
        umi_pin_end(&pin);
        assert_int_equal(num_registered(), life - 1);
        use(&pin, 5);
        umi_pin_end(&pin);
        assert_int_equal(num_registered(), life);
        assert_int_equal(num_unregistered(), life);
    }
}

static void
test_memory_that_cannot_be_registered_is_not_tried_again(void **state)
{
    umi_pin pin = {0};

    (void)state;
    standin_fail("cuMemHostRegister_v2", 2, 0);
    use(&pin, 9);
    umi_pin_end(&pin);
    standin_fail(NULL, 0, 0);
    assert_int_equal(num_registered(), 1);
    assert_int_equal(num_unregistered(), 0);
}

static void
test_without_a_device_nothing_is_registered(void **state)
{
    umi_pin pin = {0};

    (void)state;
    standin_fail("cuDevicePrimaryCtxGetState", 101, 0);
    use(&pin, 9);
    standin_fail(NULL, 0, 0);
    assert_int_equal(pin.state, UMI_PIN_SEEN);
    use(&pin, 1);
    assert_int_equal(pin.state, UMI_PIN_BEGUN);
    umi_pin_end(&pin);
    assert_int_equal(num_registered(), 1);
}

static void
test_a_child_leaves_it_to_its_parent(void **state)
{
    umi_pin pin = {0};
    int     status;
    pid_t   pid;

    (void)state;
    use(&pin, 2);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        unit_limit_time(); /* alarms are not inherited */
        umi_pin_end(&pin);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    umi_pin_end(&pin);
    assert_int_equal(num_unregistered(), 1);
}

#define PIN_TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        PIN_TEST(test_memory_is_registered_once_when_it_is_used_again),
        PIN_TEST(test_memory_that_cannot_be_registered_is_not_tried_again),
        PIN_TEST(test_without_a_device_nothing_is_registered),
        PIN_TEST(test_a_child_leaves_it_to_its_parent),
    };

    return UNIT_RUN(tests);
}
