/* SPDX-License-Identifier: BSD-3-Clause */
/* link: standin */
#include "mem/cuda.h"
#include "mem/cuda_copy.h"
#include "mem/cuda_memory.h"

#include <string.h>
#include <umx/buffer.h>

#include "standin/standin.h"
#include "mem/memtype.h"
#include "unit.h"
#include "util/log.h"

enum {
    LEN = 64
};

static char device_memory[LEN], other_device[LEN], managed[LEN], pinned[LEN];
static char ordinary[LEN];
static unsigned num_lines;
static char     last_line[256];

static void
on_line(int level, const char *text, void *arg)
{
    (void)level;
    (void)arg;
    num_lines++;
    strncpy(last_line, text, sizeof(last_line) - 1);
}

static int
setup(void **state)
{
    (void)state;
    standin_reset();
    standin_add(device_memory, LEN, 0, false);
    standin_add(other_device, LEN, 3, false);
    standin_add(managed, LEN, 1, true);
    standin_add(pinned, LEN, -1, false);
    num_lines = 0;
    umi_log_set_sink(on_line, NULL);
    return 0;
}

/* Check that each context that was pushed has been popped. */
static int
teardown(void **state)
{
    (void)state;
    assert_int_equal(standin.pushes, standin.pops);
    assert_int_equal(standin.strays, 0);
    assert_int_equal(standin_current(), -1);
    return 0;
}

static void
test_the_driver_tells_what_memory_is(void **state)
{
    static const struct {
        const void *data;
        umx_memtype memtype;
        int         device;
    } cases[] = {
        {device_memory, UMX_MEMTYPE_CUDA, 0},
        {other_device, UMX_MEMTYPE_CUDA, 3},
        {managed, UMX_MEMTYPE_CUDA_MANAGED, 1},
        {pinned, UMX_MEMTYPE_HOST, -1},
        {ordinary, UMX_MEMTYPE_HOST, -1},
    };
    umx_memory_info info;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(umi_cuda_describe(cases[i].data, LEN, &info), UMX_OK);
        assert_int_equal(info.memtype, cases[i].memtype);
        assert_int_equal(info.device, cases[i].device);
    }
}

static void
test_memory_that_is_too_short_is_refused(void **state)
{
    umx_memory_info info;
    char            bytes[LEN + 1];

    (void)state;
    assert_int_equal(umi_cuda_describe(device_memory, LEN + 1, &info),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(umi_cuda_describe(device_memory + 1, LEN, &info),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(umi_cuda_copy_in(device_memory, bytes, LEN + 1),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(umi_cuda_copy_out(bytes, device_memory, LEN + 1),
                     UMX_ERR_INVALID_PARAM);
}

static void
test_bytes_are_copied_in_the_devices_context(void **state)
{
    char back[LEN] = {0};

    (void)state;
    assert_int_equal(umi_cuda_copy_in(other_device, "abc", 4), UMX_OK);
    assert_string_equal(other_device, "abc");
    assert_int_equal(umi_cuda_copy_out(back, other_device, 4), UMX_OK);
    assert_string_equal(back, "abc");
    assert_int_equal(umi_cuda_copy_in(device_memory + LEN - 1, "z", 1), UMX_OK);
    assert_int_equal(umi_cuda_copy_in(managed, "m", 2), UMX_OK);
    assert_int_equal(umi_cuda_copy_in(NULL, NULL, 0), UMX_OK);
    assert_int_equal(umi_cuda_copy_out(NULL, NULL, 0), UMX_OK);
    assert_int_equal(standin.retained[3], 1); /* once for all */
}

/* Whatever the two buffers are: of the host with a layout or without one, of a
 * device, managed. */
static void
test_bytes_are_copied_between_memories_of_all_kinds(void **state)
{
    enum {
        COUNT = 8,
        KINDS = 6
    };

    umx_layout layout;
    umx_dim    dim = {.count = COUNT, .stride = 2};
    size_t     len;
    char       gaps[2][LEN], plain[2][LEN];

    (void)state;
    assert_int_equal(umx_layout_init(&layout, 1, 1, &dim, &len), UMX_OK);
    for (int i = 0; i < KINDS * KINDS; i++) {
        umx_buffer kinds[2][KINDS];
        umx_buffer from, to, read = umx_host_buffer(plain[0], COUNT);

        for (int side = 0; side < 2; side++) {
            char *of_device = (side == 0) ? device_memory : device_memory + 32;

            kinds[side][0]        = umx_host_buffer(plain[side], COUNT);
            kinds[side][1]        = umx_host_buffer(gaps[side], COUNT);
            kinds[side][1].layout = &layout;
            kinds[side][2]        = (umx_buffer){
                       .data = of_device, .len = COUNT, .memtype = UMX_MEMTYPE_CUDA};
            kinds[side][3] = (umx_buffer){.data    = other_device + 32 * side,
                                          .len     = COUNT,
                                          .memtype = UMX_MEMTYPE_CUDA};
            kinds[side][4] = (umx_buffer){.data    = managed + 32 * side,
                                          .len     = COUNT,
                                          .memtype = UMX_MEMTYPE_CUDA_MANAGED};
            kinds[side][5] = umx_host_buffer(pinned + 32 * side, COUNT);
        }
        from = kinds[0][i / KINDS];
        to   = kinds[1][i % KINDS];
        assert_int_equal(umi_copy_in(&from, "abcdefgh", COUNT), UMX_OK);
        assert_int_equal(umi_copy_in(&to, "--------", COUNT), UMX_OK);
        assert_int_equal(umi_copy_between(&to, &from), UMX_OK);
        assert_int_equal(umi_copy_between(&read, &to), UMX_OK);
        assert_memory_equal(plain[0], "abcdefgh", COUNT);
    }
}

static void
test_a_copy_that_cannot_be_is_refused(void **state)
{
    umx_layout layout = {.run = 1};
    umx_buffer here   = {device_memory, LEN, UMX_MEMTYPE_CUDA, NULL, NULL};
    umx_buffer there  = {other_device, LEN - 1, UMX_MEMTYPE_CUDA, NULL, NULL};
    unsigned   before = standin.copies;

    (void)state;
    assert_int_equal(umi_copy_between(&there, &here), UMX_ERR_INVALID_PARAM);
    there.len    = LEN;
    there.layout = &layout;
    assert_int_equal(umi_copy_between(&there, &here), UMX_ERR_UNSUPPORTED);
    assert_int_equal(umi_copy_between(&here, &there), UMX_ERR_UNSUPPORTED);
    there.layout = NULL;
    there.data   = ordinary;
    assert_int_equal(umi_copy_between(&there, &here), UMX_ERR_INVALID_PARAM);
    assert_int_equal(umi_copy_between(&here, &there), UMX_ERR_INVALID_PARAM);
    there.data = other_device;
    here.len   = 0;
    assert_int_equal(umi_copy_between(&there, &here), UMX_OK);
    assert_int_equal(standin.copies, before);
    here.len = LEN;
    standin_fail("cuMemcpyAsync", 304, 1);
    assert_int_equal(umi_copy_between(&there, &here), UMX_ERR_IO_ERROR);
    assert_int_equal(strncmp(last_line, "cuMemcpyAsync", 13), 0);
}

static void
test_memory_of_no_device_is_not_copied(void **state)
{
    unsigned before = standin.copies;
    char     byte   = 0;

    (void)state;
    assert_int_equal(umi_cuda_copy_in(ordinary, "a", 1), UMX_ERR_INVALID_PARAM);
    assert_int_equal(umi_cuda_copy_out(&byte, pinned, 1),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(standin.copies, before);
}

static void
test_streams_are_waited_for(void **state)
{
    cu_context *context;
    cu_stream  *stream;

    (void)state;
    assert_int_equal(umx_cuda_wait(2, 1), UMX_OK);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 2), 0);
    assert_int_equal(cuCtxPushCurrent_v2(context), 0);
    assert_int_equal(cuStreamCreate(&stream, 0), 0);
    assert_int_equal(cuCtxPopCurrent_v2(NULL), 0);
    standin.waits = 0;
    assert_int_equal(umx_cuda_wait(2, 1), UMX_OK);
    assert_ptr_equal(standin.waited, (void *)1);
    assert_int_equal(umx_cuda_wait(2, 2), UMX_OK);
    assert_int_equal(umx_cuda_wait(2, (uintptr_t)stream), UMX_OK);
    assert_ptr_equal(standin.waited, stream);
    assert_int_equal(standin.waits, 3);
    for (uintptr_t bad = 0; bad < 16; bad = (bad == 0) ? 3 : bad + 1) {
        assert_int_equal(umx_cuda_wait(2, bad), UMX_ERR_INVALID_PARAM);
    }
    assert_int_equal(umx_cuda_wait(-2, 1), UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(umx_cuda_wait(64, 1), UMX_ERR_OUT_OF_RANGE);
    assert_int_equal(umx_cuda_wait(STANDIN_DEVICES, 1), UMX_ERR_IO_ERROR);
}

static void
test_failures_of_the_driver_are_told(void **state)
{
    static const struct {
        const char *function;
        int         result;
        umx_status  status;
    } cases[] = {
        {"cuPointerGetAttributes", 1, UMX_ERR_INVALID_PARAM},
        {"cuCtxPushCurrent_v2", 201, UMX_ERR_IO_ERROR},
        {"cuMemcpyHtoDAsync_v2", 2, UMX_ERR_NO_MEMORY},
        {"cuMemcpyHtoDAsync_v2", 999, UMX_ERR_IO_ERROR},
        {"cuDeviceGet", 101, UMX_ERR_IO_ERROR},
        {"cuDevicePrimaryCtxRetain", 2, UMX_ERR_NO_MEMORY},
        {"cuStreamCreateWithPriority", 2, UMX_ERR_NO_MEMORY},
    };
    char first[LEN]; /* of a device without a context yet */

    (void)state;
    standin_add(first, LEN, 2, false);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char *dst = (i < 4) ? device_memory : first;

        standin_fail(cases[i].function, cases[i].result, 1);
        num_lines = 0;
        assert_int_equal(umi_cuda_copy_in(dst, "a", 1), cases[i].status);
        assert_int_equal(num_lines, 1);
        assert_int_equal(strncmp(last_line, cases[i].function, 8), 0);
    }
}

static void
test_memory_is_allocated_on_a_device(void **state)
{
    static const umx_memtype memtypes[] = {
        UMX_MEMTYPE_CUDA, UMX_MEMTYPE_CUDA_MANAGED, UMX_MEMTYPE_HOST};
    char            bytes[LEN], zeros[LEN] = {0};
    umx_memory_info info;
    void           *data;

    (void)state;
    for (int i = 0; i < 3; i++) {
        umx_buffer buf = {.len = LEN, .memtype = memtypes[i]};

        assert_int_equal(umi_cuda_alloc(memtypes[i], 3, LEN, &data), UMX_OK);
        buf.data = data;
        assert_int_equal(umx_memory_query(data, LEN, &info), UMX_OK);
        assert_int_equal(info.memtype, memtypes[i]);
        assert_true(info.is_cuda);
        assert_int_equal(info.device, 3);
        assert_int_equal(umi_copy_out(&buf, bytes, LEN), UMX_OK);
        assert_memory_equal(bytes, zeros, LEN);
        umi_cuda_free(memtypes[i], data);
        assert_int_equal(standin.allocations, 0);
    }
    assert_int_equal(
        umi_cuda_alloc(UMX_MEMTYPE_CUDA, UMX_DEVICE_NONE, LEN, &data), UMX_OK);
    assert_int_equal(standin.allocated, 0);
    umi_cuda_free(UMX_MEMTYPE_CUDA, data);
}

static void
test_an_allocation_that_fails_leaves_nothing(void **state)
{
    static const char *const functions[] = {"cuMemAlloc_v2", "cuMemsetD8Async",
                                            "cuStreamSynchronize",
                                            "cuCtxPushCurrent_v2"};
    void                    *data;

    (void)state;
    for (int i = 0; i < 4; i++) {
        standin_fail(functions[i], 2, 1);
        assert_int_equal(umi_cuda_alloc(UMX_MEMTYPE_CUDA, 0, LEN, &data),
                         UMX_ERR_NO_MEMORY);
        assert_int_equal(standin.allocations, 0);
    }
    standin_fail("cuMemAllocManaged", 2, 1);
    assert_int_equal(umi_cuda_alloc(UMX_MEMTYPE_CUDA_MANAGED, 0, LEN, &data),
                     UMX_ERR_NO_MEMORY);
    standin_fail("cuMemHostAlloc", 2, 1);
    assert_int_equal(umi_cuda_alloc(UMX_MEMTYPE_HOST, 0, LEN, &data),
                     UMX_ERR_NO_MEMORY);
}

/* The pointer tells the device: the caller's context stays as it is. */
static void
test_calls_about_device_memory_are_made_in_its_context(void **state)
{
    umx_buffer host = umx_host_buffer(ordinary, LEN);
    umx_buffer buf  = {
         .data = other_device, .len = LEN, .memtype = UMX_MEMTYPE_CUDA};

    (void)state;
    assert_int_equal(umi_memory_enter(&buf), UMX_OK);
    assert_int_equal(standin_current(), 3);
    umi_memory_leave(&buf);
    assert_int_equal(umi_memory_enter(&host), UMX_OK);
    assert_int_equal(standin_current(), -1);
    umi_memory_leave(&host);
    assert_int_equal(umi_check_buffer(&buf), UMX_OK);
    buf.len++;
    assert_int_equal(umi_check_buffer(&buf), UMX_ERR_INVALID_PARAM);
    buf.data = ordinary;
    assert_int_equal(umi_check_buffer(&buf), UMX_ERR_INVALID_PARAM);
    buf.memtype = UMX_MEMTYPE_CUDA_MANAGED + 1;
    assert_int_equal(umi_check_buffer(&buf), UMX_ERR_INVALID_PARAM);
}

#define CUDA_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        CUDA_TEST(test_the_driver_tells_what_memory_is),
        CUDA_TEST(test_memory_that_is_too_short_is_refused),
        CUDA_TEST(test_memory_of_no_device_is_not_copied),
        CUDA_TEST(test_failures_of_the_driver_are_told),
        CUDA_TEST(test_bytes_are_copied_in_the_devices_context),
        CUDA_TEST(test_bytes_are_copied_between_memories_of_all_kinds),
        CUDA_TEST(test_a_copy_that_cannot_be_is_refused),
        CUDA_TEST(test_streams_are_waited_for),
        CUDA_TEST(test_memory_is_allocated_on_a_device),
        CUDA_TEST(test_an_allocation_that_fails_leaves_nothing),
        CUDA_TEST(test_calls_about_device_memory_are_made_in_its_context),
    };

    return UNIT_RUN(tests);
}
