/* SPDX-License-Identifier: BSD-3-Clause */
/* link: fake_ucp wrap=malloc wrap=calloc wrap=strndup */
/* link: wrap=shmget wrap=shmctl */
/* tests: host/segment_limit */
#include "keys/memh.h"

#include "fake_ucp.h"
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/shm.h>
#include <unistd.h>
#include <umx/buffer.h>
#include <umx/heap.h>

#include "keys/key.h"

int __real_shmget(key_t key, size_t size, int flags);
int __wrap_shmget(key_t key, size_t size, int flags);

static int shmget_error; /* 0: it works */

int
__wrap_shmget(key_t key, size_t size, int flags)
{
    if (shmget_error != 0) {
        errno = shmget_error;
        return -1;
    }
    return __real_shmget(key, size, flags);
}

int __real_shmctl(int number, int command, struct shmid_ds *info);
int __wrap_shmctl(int number, int command, struct shmid_ds *info);

static int set_error; /* of IPC_SET; 0: it works */

int
__wrap_shmctl(int number, int command, struct shmid_ds *info)
{
    if (command == IPC_SET && set_error != 0) {
        errno = set_error;
        return -1;
    }
    return __real_shmctl(number, command, info);
}

static umx_context *
make_context(void)
{
    umx_context *context;

    fake_reset();
    assert_int_equal(umx_context_create(NULL, &context, NULL), UMX_OK);
    return context;
}

static void
count_call(void *arg)
{
    ++*(int *)arg;
}

static umx_status
register_memory(umx_context *context, const umx_buffer *buf, uint64_t flags,
                int *calls, umx_memh **memh_p)
{
    umx_memh_params params = {
        .field_mask = UMX_MEMH_FIELD_FLAGS | UMX_MEMH_FIELD_ON_FREE,
        .flags      = flags,
        .on_free    = count_call,
        .arg        = calls,
    };

    return umx_memh_register(context, buf, &params, memh_p);
}

static umi_key
key_of(const umx_memh *memh)
{
    umi_key     key;
    size_t      len;
    const void *data = umx_memh_key(memh, &len);

    assert_true(umi_key_decode(&key, data, len));
    return key;
}

static void
test_allocated_memory_is_zero_and_its_own(void **state)
{
    umx_context      *context = make_context();
    umx_memh         *memh;
    const umx_buffer *buf;
    umi_key           key;

    (void)state;
    assert_int_equal(umx_memh_alloc(context, 100, &memh), UMX_OK);
    buf = umx_memh_buffer(memh);
    assert_int_equal(buf->len, 100);
    assert_int_equal(((char *)buf->data)[99], 0);
    key = key_of(memh);
    assert_int_equal(key.length, 100);
    assert_int_equal(key.address, (uintptr_t)buf->data);
    assert_int_equal(key.context, context->id);
    assert_int_equal(key.flags, UMI_KEY_SEGMENT);
    umx_memh_release(memh);
    umx_context_release(context);
    assert_int_equal(fake.live, 0);
}

static void
test_without_shared_memory_it_is_private(void **state)
{
    umx_context *context = make_context();
    umx_memh    *memh, *none;

    (void)state;
    shmget_error = ENOSYS;
    assert_int_equal(umx_memh_alloc(context, 100, &memh), UMX_OK);
    assert_int_equal(umx_memh_alloc(context, 0, &none), UMX_OK);
    shmget_error = 0;
    assert_int_equal(key_of(memh).flags, 0);
    assert_int_equal(((char *)umx_memh_buffer(memh)->data)[99], 0);
    umx_memh_release(memh);
    umx_memh_release(none);
    umx_context_release(context);
    assert_int_equal(fake.live, 0);
}

static void
test_an_address_is_aligned_half_a_page_ahead(void **state)
{
    static const char zeros[100];

    umx_context *context = make_context();
    umx_memh    *memhs[6];

    (void)state;
    for (int i = 0; i < 6; i++) { /* of a segment, and private */
        size_t align = UMX_MEMH_PAGE << (4 * (i % 3));
        char  *data;

        shmget_error = (i < 3) ? 0 : EPERM;
        assert_int_equal(umx_memh_alloc_aligned(context, 100, align, &memhs[i]),
                         UMX_OK);
        data = umx_memh_buffer(memhs[i])->data;
        assert_int_equal((uintptr_t)data % align, UMX_MEMH_PAGE / 2);
        assert_memory_equal(data, zeros, 100);
        memset(data, i, 100);
    }
    assert_int_equal(
        umx_memh_alloc_aligned(context, SIZE_MAX - 8192, 65536, &memhs[0]),
        UMX_ERR_NO_MEMORY);
    shmget_error = 0;
    assert_int_equal(umx_memh_alloc_aligned(context, 100, 64, &memhs[0]),
                     UMX_ERR_INVALID_PARAM);
    assert_int_equal(umx_memh_alloc_aligned(context, 100, 12288, &memhs[0]),
                     UMX_ERR_INVALID_PARAM);
    for (int i = 0; i < 6; i++) {
        umx_memh_release(memhs[i]);
    }
    umx_context_release(context);
    assert_int_equal(fake.live, 0);
}

/* Count the segments that this process has made, and that somebody has. */
static int
count_segments(void)
{
    FILE *file  = fopen("/proc/sysvipc/shm", "r");
    int   count = 0, pid;
    char  line[512];

    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        /* key, number, permissions, size, maker */
        count += sscanf(line, "%*d %*d %*o %*u %d", &pid) == 1 &&
                 pid == getpid();
    }
    fclose(file);
    return count;
}

static void
test_readonly_memory_is_protected(void **state)
{
    umx_context *context = make_context();
    int          before  = count_segments();
    umx_memh    *memh;

    (void)state;
    assert_int_equal(umx_memh_alloc_readonly(context, 100, &memh), UMX_OK);
    assert_int_equal(key_of(memh).flags, UMI_KEY_READONLY | UMI_KEY_SEGMENT);
    memset(umx_memh_buffer(memh)->data, 'x', 100);
    assert_false(umx_memh_is_mapped_elsewhere(memh));
    umx_memh_release(memh);
    shmget_error = ENOSYS;
    assert_int_equal(umx_memh_alloc_readonly(context, 100, &memh), UMX_OK);
    shmget_error = 0;
    assert_int_equal(key_of(memh).flags, UMI_KEY_READONLY);
    assert_false(umx_memh_is_mapped_elsewhere(memh));
    umx_memh_release(memh);
    set_error = ENOMEM;
    assert_int_equal(umx_memh_alloc_readonly(context, 100, &memh),
                     UMX_ERR_NO_MEMORY);
    set_error = 0;
    assert_int_equal(context->memhs.count, 0);
    assert_int_equal(count_segments(), before);
    umx_context_release(context);
    assert_int_equal(fake.live, 0);
}

/* Not silently as private memory, which no peer could map. */
static void
test_at_the_systems_limit_there_is_no_memory(void **state)
{
    static const struct {
        int        error;
        umx_status status;
    } cases[] = {{ENOSPC, UMX_ERR_SEGMENT_LIMIT},
                 {EINVAL, UMX_ERR_NO_MEMORY}, /* not larger than shmmax */
                 {ENOMEM, UMX_ERR_NO_MEMORY}};

    umx_context *context = make_context();
    umx_memh    *memh;
    umx_heap    *heap;

    (void)state;
    assert_int_equal(umx_heap_create(context, NULL, &heap), UMX_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        shmget_error = cases[i].error;
        assert_int_equal(umx_memh_alloc(context, 100, &memh), cases[i].status);
        assert_int_equal(umx_take_errno(), cases[i].error);
        assert_int_equal(umx_heap_alloc(heap, 100, &memh), cases[i].status);
    }
    assert_int_equal(umx_memh_alloc_private(context, 100, &memh), UMX_OK);
    shmget_error = 0;
    assert_int_equal(key_of(memh).flags, 0);
    umx_memh_release(memh);
    umx_heap_destroy(heap);
    umx_context_release(context);
    assert_int_equal(fake.live, 0);
}

static void
test_a_heap_without_shared_memory_has_private_memories(void **state)
{
    umx_context *context = make_context();
    umx_memh    *memh;
    umx_heap    *heap;

    (void)state;
    shmget_error = EPERM;
    assert_int_equal(umx_heap_create(context, NULL, &heap), UMX_OK);
    assert_int_equal(umx_heap_alloc(heap, 100, &memh), UMX_OK);
    shmget_error = 0;
    assert_int_equal(key_of(memh).flags, 0);
    umx_memh_release(memh);
    umx_heap_destroy(heap);
    umx_context_release(context);
    assert_int_equal(fake.live, 0);
}

static void
test_the_limits_are_told(void **state)
{
    char   text[512];
    size_t len = umx_segment_limits(text, sizeof(text));

    (void)state;
    assert_int_equal(len, strlen(text));
    assert_memory_equal(text, "kernel.shmm", 11); /* ax, or even ni */
    assert_non_null(strstr(text, " of this process"));
    assert_int_equal(umx_segment_limits(NULL, 0), len);
}

static void
test_registered_memory_is_given_back_once(void **state)
{
    umx_context *context  = make_context();
    char         data[10] = {0};
    umx_buffer   buf      = umx_host_buffer(data, sizeof(data));
    int          calls    = 0;
    umx_memh    *memh;

    (void)state;
    assert_int_equal(
        register_memory(context, &buf, UMX_MEMH_FLAG_READONLY, &calls, &memh),
        UMX_OK);
    assert_ptr_equal(umx_memh_buffer(memh)->data, data);
    assert_int_equal(key_of(memh).flags, UMI_KEY_READONLY);
    umx_memh_close(memh);
    assert_int_equal(calls, 0);
    umx_memh_release(memh);
    assert_int_equal(calls, 1);
    umx_context_release(context);
    assert_int_equal(fake.live, 0);
}

static void
test_no_bytes_are_memory_too(void **state)
{
    umx_context *context = make_context();
    umx_buffer   none    = {0};
    umx_memh    *memhs[2];

    (void)state;
    assert_int_equal(umx_memh_alloc(context, 0, &memhs[0]), UMX_OK);
    assert_int_equal(umx_memh_register(context, &none, NULL, &memhs[1]),
                     UMX_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(key_of(memhs[i]).length, 0);
        umx_memh_release(memhs[i]);
    }
    umx_context_release(context);
}

static void
test_what_cannot_be_reached_is_refused(void **state)
{
    umx_context *context = make_context();
    umx_buffer   nowhere = {.len = 1, .memtype = UMX_MEMTYPE_HOST};
    umx_buffer   device  = {
           .data = context, .len = 1, .memtype = UMX_MEMTYPE_CUDA};
    umx_memh *memh;

    (void)state;
    assert_int_equal(umx_memh_register(context, &nowhere, NULL, &memh),
                     UMX_ERR_INVALID_PARAM);
    /* No driver is there, or the driver does not know the memory. */
    assert_int_not_equal(umx_memh_register(context, &device, NULL, &memh),
                         UMX_OK);
    assert_int_equal(umx_memh_alloc(context, SIZE_MAX, &memh),
                     UMX_ERR_NO_MEMORY);
    assert_int_equal(umx_memh_alloc(context, SIZE_MAX / 4, &memh),
                     UMX_ERR_NO_MEMORY);
    umx_context_release(context);
}

/* UCX would have to pack for a hundred network cards. */
static void
test_an_rkey_that_is_too_long_is_refused(void **state)
{
    umx_context *context = make_context();
    umx_memh    *memh;

    (void)state;
    fake.rkey_len = UMI_RKEY_MAX + 1;
    assert_int_equal(umx_memh_alloc(context, 8, &memh), UMX_ERR_UNSUPPORTED);
    fake.rkey_len = SIZE_MAX;
    assert_int_equal(umx_memh_alloc(context, 8, &memh), UMX_ERR_UNSUPPORTED);
    umx_context_release(context);
    assert_int_equal(fake.live, 0);
}

static void
test_a_closed_memory_is_not_found(void **state)
{
    umx_context *context = make_context();
    umx_memh    *memh;
    uint64_t     id;

    (void)state;
    assert_int_equal(umx_memh_alloc(context, 8, &memh), UMX_OK);
    id = key_of(memh).memory;
    assert_null(umi_memh_find(context, id + 1));
    assert_null(umi_memh_find(context, id ^ 1ull << 40));
    assert_ptr_equal(umi_memh_find(context, id), memh);
    umx_memh_close(memh);
    assert_null(umi_memh_find(context, id));
    umx_memh_close(memh);
    umx_memh_release(memh);
    umi_memh_put(memh); /* the finder's reference goes last */
    umx_context_release(context);
    assert_int_equal(fake.live, 0);
}

static void
test_a_transfer_keeps_registered_memory(void **state)
{
    umx_context *context  = make_context();
    char         data[10] = {0};
    umx_buffer   buf      = umx_host_buffer(data, sizeof(data));
    int          calls    = 0;
    umx_memh    *memh;

    (void)state;
    assert_int_equal(register_memory(context, &buf, 0, &calls, &memh), UMX_OK);
    assert_non_null(umi_memh_find(context, key_of(memh).memory));
    umx_memh_release(memh);
    umx_context_release(context);
    assert_int_equal(calls, 0);
    umi_memh_put(memh);
    assert_int_equal(calls, 1);
    assert_int_equal(fake.live, 0);
}

static void
check_failure(bool is_registered, unsigned fail_at)
{
    umx_context *context = make_context();
    char         data[8] = {0};
    umx_buffer   buf     = umx_host_buffer(data, sizeof(data));
    int          calls   = 0;
    unsigned     live    = fake.live;
    umx_memh    *memh;
    umx_status   status;

    fake.calls   = 0;
    fake.fail_at = fail_at;
    status = is_registered ? register_memory(context, &buf, 0, &calls, &memh) :
                             umx_memh_alloc(context, 8, &memh);
    assert_non_null(fake.failed);
    assert_int_not_equal(status, UMX_OK);
    assert_int_equal(fake.live, live);
    assert_int_equal(context->memhs.count, 0);
    assert_int_equal(calls, 0);
    umx_context_release(context);
    assert_int_equal(fake.live, 0);
}

static void
test_each_failure_leaves_nothing_behind(void **state)
{
    (void)state;
    /* the object, mem_map, rkey_pack, the key */
    for (unsigned i = 1; i <= 4; i++) {
        check_failure(false, i);
        check_failure(true, i);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allocated_memory_is_zero_and_its_own),
        cmocka_unit_test(test_without_shared_memory_it_is_private),
        cmocka_unit_test(test_an_address_is_aligned_half_a_page_ahead),
        cmocka_unit_test(test_readonly_memory_is_protected),
        cmocka_unit_test(test_at_the_systems_limit_there_is_no_memory),
        cmocka_unit_test(
            test_a_heap_without_shared_memory_has_private_memories),
        cmocka_unit_test(test_the_limits_are_told),
        cmocka_unit_test(test_registered_memory_is_given_back_once),
        cmocka_unit_test(test_no_bytes_are_memory_too),
        cmocka_unit_test(test_what_cannot_be_reached_is_refused),
        cmocka_unit_test(test_an_rkey_that_is_too_long_is_refused),
        cmocka_unit_test(test_a_closed_memory_is_not_found),
        cmocka_unit_test(test_a_transfer_keeps_registered_memory),
        cmocka_unit_test(test_each_failure_leaves_nothing_behind),
    };

    return UNIT_RUN(tests);
}
