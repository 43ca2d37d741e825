/* SPDX-License-Identifier: BSD-3-Clause */
/* link: standin child */
#include "mem/cuda.h"
#include "mem/cuda_copy.h"
#include "mem/cuda_memory.h"

#include <string.h>
#include <sys/wait.h>

#include "child.h"
#include "standin/standin.h"
#include "mem/memtype.h"

/* Without a driver that can be used everything says so. */
static int
run(const char *why)
{
    umx_memory_info info;
    umx_buffer      buf  = {.memtype = UMX_MEMTYPE_CUDA};
    char            byte = 0;

    standin.is_missing    = strcmp(why, "missing") == 0;
    standin.is_deviceless = strcmp(why, "deviceless") == 0;
    standin.no_symbol = strcmp(why, "old") == 0 ? "cuMemcpyHtoDAsync_v2" : NULL;
    standin_add(&byte, 1, 0, false);
    buf.data = &byte;
    buf.len  = 1;
    if (umi_cuda_describe(&byte, 1, &info) != UMX_ERR_UNSUPPORTED ||
        umi_cuda_copy_in(&byte, "a", 1) != UMX_ERR_UNSUPPORTED ||
        umi_cuda_copy_out(&byte, "a", 1) != UMX_ERR_UNSUPPORTED ||
        umi_cuda_copy_across(&byte, "a", 1) != UMX_ERR_UNSUPPORTED ||
        umx_cuda_wait(0, 1) != UMX_ERR_UNSUPPORTED ||
        umi_copy_in(&buf, "a", 1) != UMX_ERR_UNSUPPORTED ||
        umi_copy_out(&buf, &byte, 1) != UMX_ERR_UNSUPPORTED) {
        return 1;
    }
    return (standin.pushes == 0 && standin.copies == 0) ? 0 : 2;
}

static void
check(const char *why)
{
    child c      = child_start("run", why);
    int   status = child_end(&c, 0);

    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void
test_without_a_driver_there_is_host_memory_only(void **state)
{
    (void)state;
    check("missing");
}

static void
test_without_a_device_there_is_host_memory_only(void **state)
{
    (void)state;
    check("deviceless");
}

static void
test_a_driver_that_is_too_old_is_none(void **state)
{
    (void)state;
    check("old");
}

int
main(int argc, char **argv)
{
    static const child_entry entries[] = {{"run", run}};
    const struct CMUnitTest  tests[]   = {
           cmocka_unit_test(test_without_a_driver_there_is_host_memory_only),
           cmocka_unit_test(test_without_a_device_there_is_host_memory_only),
           cmocka_unit_test(test_a_driver_that_is_too_old_is_none),
    };

    child_role(argc, argv, entries, 1);
    return UNIT_RUN(tests);
}
