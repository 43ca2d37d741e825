/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/memtype.h"

#include "unit.h"

static void
test_host_memory_is_copied_to(void **state)
{
    static const umx_memtype types[] = {UMX_MEMTYPE_UNKNOWN, UMX_MEMTYPE_HOST,
                                        UMX_MEMTYPE_CUDA_MANAGED};

    (void)state;
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        char       bytes[4] = {0};
        umx_buffer buf      = {.data = bytes, .len = 4, .memtype = types[i]};

        assert_int_equal(umi_copy_in(&buf, "abc", 3), UMX_OK);
        assert_string_equal(bytes, "abc");
        assert_true(umi_memtype_is_host_readable(&buf));
    }
}

static void
test_nothing_can_be_copied_to_nowhere(void **state)
{
    umx_buffer buf = {.memtype = UMX_MEMTYPE_HOST};

    (void)state;
    assert_int_equal(umi_copy_in(&buf, NULL, 0), UMX_OK);
}

/* Without the driver's help; UCX moves such bytes. */
static void
test_device_memory_is_not_touched(void **state)
{
    umx_buffer buf = {.len = 4, .memtype = UMX_MEMTYPE_CUDA};

    (void)state;
    assert_int_equal(umi_copy_in(&buf, "abc", 3), UMX_ERR_UNSUPPORTED);
    assert_false(umi_memtype_is_host_readable(&buf));
}

static void
test_each_type_has_a_row(void **state)
{
    (void)state;
    for (int i = UMX_MEMTYPE_UNKNOWN; i <= UMX_MEMTYPE_CUDA_MANAGED; i++) {
        assert_non_null(umi_memtypes[i].name);
        assert_non_null(umi_memtypes[i].copy_in);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_memory_is_copied_to),
        cmocka_unit_test(test_nothing_can_be_copied_to_nowhere),
        cmocka_unit_test(test_device_memory_is_not_touched),
        cmocka_unit_test(test_each_type_has_a_row),
    };

    return UNIT_RUN(tests);
}
