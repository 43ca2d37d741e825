/* SPDX-License-Identifier: BSD-3-Clause */
/* link: standin child tsan */
/* What the stand-in for NVIDIA's driver does, each once. */
#define _GNU_SOURCE
#include "standin/standin.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "child.h"

enum {
    OK         = 0,
    LEN        = 200000, /* four steps of a copy */
    PORTABLE   = 1,
    NO_WAIT    = 1, /* a stream that is not blocking */
    NOT_READY  = 600,
    DESTROYED  = 709,
    ILLEGAL    = 700, /* an error that stays */
    OTHER      = 304, /* and one that does not */
    IS_MANAGED = 8,
    LEGACY_IPC = 10,
    POOL       = 17,
    GLOBAL     = 0, /* modes of a capture */
    RELAXED    = 2
};

#define CALL(call) assert_int_equal(call, OK)

static cu_context *contexts[2];
static cu_stream  *stream;
static char        bytes[LEN], back[LEN];

static int
setup(void **state)
{
    (void)state;
    standin_reset();
    CALL(cuInit(0));
    for (int i = 0; i < 2; i++) {
        CALL(cuDevicePrimaryCtxRetain(&contexts[i], i));
    }
    CALL(cuCtxSetCurrent(contexts[0]));
    CALL(cuStreamCreate(&stream, NO_WAIT));
    memset(bytes, 7, LEN);
    memset(back, 0, LEN);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    standin_reset();
    (void)cuStreamDestroy_v2(stream);
    CALL(cuCtxSetCurrent(NULL));
    CALL(cuDevicePrimaryCtxReset_v2(0));
    CALL(cuDevicePrimaryCtxReset_v2(1));
    return 0;
}

/* Memory of the device, of zeros. */
static cu_pointer
zeros(void)
{
    cu_pointer pointer;

    CALL(cuMemAlloc_v2(&pointer, LEN));
    CALL(cuMemsetD8_v2(pointer, 0, LEN));
    return pointer;
}

static void *
at(cu_pointer pointer)
{
    return (void *)(uintptr_t)pointer;
}

/* The byte that all of device memory is, or -1. */
static int
byte_of(cu_pointer pointer)
{
    CALL(cuMemcpyDtoH_v2(back, pointer, LEN));
    for (int i = 1; i < LEN; i++) {
        if (back[i] != back[0]) {
            return -1;
        }
    }
    return back[0];
}

/* ---- memory --------------------------------------------------------------
 */

static void
test_the_cpu_cannot_touch_memory_of_a_device(void **state)
{
    cu_pointer device = zeros(), managed;
    int        ends[2];

    (void)state;
    CALL(cuMemAllocManaged(&managed, LEN, 1));
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], at(managed), 1), 1);
    assert_int_equal(write(ends[1], at(device), 1), -1);
    assert_int_equal(errno, EFAULT);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(standin.allocations, 2);
    CALL(cuMemFree_v2(managed));
    CALL(cuMemFree_v2(device));
    assert_int_equal(standin.allocations, 0);
    assert_int_equal(cuMemFree_v2(device), 1);
    assert_int_equal(cuMemcpyDtoH_v2(back, device, 1), 1);
}

static void
test_what_is_said_of_pointers(void **state)
{
    cu_pointer device = zeros(), start;
    unsigned   is     = 5;
    uint64_t   ids[2] = {0};
    size_t     len;
    void      *pinned;
    int        ordinal;

    (void)state;
    CALL(cuPointerGetAttribute(&is, LEGACY_IPC, device + 5));
    assert_int_equal(is, 1);
    CALL(cuMemGetAddressRange_v2(&start, &len, device + LEN - 1));
    assert_true(start == device && len == LEN);
    assert_int_equal(cuMemGetAddressRange_v2(&start, &len, device + LEN), 500);
    CALL(cuPointerGetAttribute(&ids[0], 7, device));
    CALL(cuMemFree_v2(device));
    assert_int_equal(cuPointerGetAttribute(&is, IS_MANAGED, device), 1);
    device = zeros();
    CALL(cuPointerGetAttribute(&ids[1], 7, device));
    assert_true(ids[0] != ids[1]);
    CALL(cuMemHostAlloc(&pinned, LEN, PORTABLE));
    CALL(cuPointerGetAttribute(&ordinal, 9, (uintptr_t)pinned));
    assert_int_equal(ordinal, 0);
    CALL(cuMemFreeHost(pinned));
    CALL(cuMemHostRegister_v2(bytes, LEN, PORTABLE));
    assert_int_equal(cuMemHostRegister_v2(bytes + 9, 1, PORTABLE), 712);
    CALL(cuMemHostUnregister(bytes));
    assert_int_equal(cuMemHostUnregister(bytes), 713);
}

static void
test_memory_of_pools_is_freed_in_order_and_not_exported(void **state)
{
    cu_pointer device;
    cu_pool   *pool;
    cu_ipc     handle;
    unsigned   is = 5;

    (void)state;
    CALL(cuMemAllocAsync(&device, LEN, stream));
    CALL(cuPointerGetAttribute(&is, LEGACY_IPC, device));
    assert_int_equal(is, 0);
    CALL(cuPointerGetAttribute(&pool, POOL, device));
    assert_non_null(pool);
    assert_int_equal(cuIpcGetMemHandle(&handle, device), 1);
    standin_hold(true);
    CALL(standin_launch(stream, at(device), LEN, 3, 0));
    CALL(cuMemFreeAsync(device, stream));
    CALL(cuPointerGetAttribute(&pool, POOL, device));
    standin_hold(false);
    CALL(cuStreamSynchronize(stream));
    assert_int_equal(cuPointerGetAttribute(&pool, POOL, device), 1);
}

/* ---- copies --------------------------------------------------------------
 */

static double
seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A byte that a copy may be writing to. */
__attribute__((no_sanitize("thread"))) static int
peek(const char *byte)
{
    return *(const volatile char *)byte;
}

static void
test_copies_are_done_in_steps_after_the_call(void **state)
{
    cu_pointer device = zeros();
    double     start  = seconds();
    char      *pinned;

    (void)state;
    CALL(cuMemHostAlloc((void **)&pinned, LEN, PORTABLE));
    memset(pinned, 1, LEN);
    standin_set_speed(100000, 0);
    CALL(cuMemcpyDtoHAsync_v2(pinned, device, LEN, stream));
    assert_int_equal(peek(pinned), 1);
    assert_int_equal(cuStreamQuery(stream), NOT_READY);
    while (peek(pinned) != 0) {
        usleep(1000);
    }
    assert_int_equal(cuStreamQuery(stream), NOT_READY);
    CALL(cuStreamSynchronize(stream));
    assert_true(seconds() - start > 0.4);
    assert_int_equal(pinned[LEN - 1], 0);
    standin_set_speed(0, 0.001); /* a megabyte a second */
    start = seconds();
    CALL(cuMemcpyHtoDAsync_v2(device, pinned, LEN, stream));
    CALL(cuStreamSynchronize(stream));
    assert_true(seconds() - start > 0.19);
    assert_int_equal(standin.copies, 2);
    assert_int_equal(standin.strays, 0);
}

/* The source may be written to when the call has returned. */
static void
test_ordinary_memory_is_staged(void **state)
{
    cu_pointer device = zeros();

    (void)state;
    standin_hold(true);
    CALL(standin_launch(stream, at(device), LEN, 3, 0));
    CALL(cuMemcpyHtoDAsync_v2(device, bytes, LEN, stream));
    memset(bytes, 8, LEN);
    standin_hold(false);
    CALL(cuMemcpyDtoHAsync_v2(back, device, LEN, stream));
    assert_int_equal(back[0], 7);
    assert_int_equal(back[LEN - 1], 7);
}

static void
test_what_cannot_be_copied(void **state)
{
    cu_pointer device = zeros();

    (void)state;
    assert_int_equal(cuMemcpyHtoD_v2(device + 1, bytes, LEN), 1);
    assert_int_equal(cuMemcpyHtoD_v2((uintptr_t)back, bytes, LEN), 1);
    CALL(cuMemcpyHtoDAsync_v2(device, bytes, LEN, NULL));
    assert_int_equal(standin.strays, 1);
    CALL(cuCtxSynchronize());
    assert_int_equal(
        cuMemcpyHtoDAsync_v2(device, bytes, LEN, (cu_stream *)bytes), 400);
    CALL(cuCtxSetCurrent(contexts[1]));
    CALL(cuMemcpyHtoDAsync_v2(device, bytes, LEN, stream));
    assert_int_equal(standin.strays, 2);
    assert_int_equal(cuMemsetD8Async(device, 1, LEN, stream), 400);
    CALL(cuCtxSetCurrent(NULL));
    assert_int_equal(cuMemcpyHtoD_v2(device, bytes, LEN), 201);
    assert_int_equal(cuMemcpyHtoDAsync_v2(device, bytes, LEN, stream), 201);
}

/* ---- streams and events --------------------------------------------------
 */

static void
test_default_streams_and_those_that_block_wait_for_each_other(void **state)
{
    cu_pointer device = zeros();
    cu_stream *blocking;

    (void)state;
    CALL(cuStreamCreate(&blocking, 0));
    CALL(standin_launch(blocking, at(device), LEN, 4, 5000));
    assert_int_equal(byte_of(device), 4); /* a copy in the default stream */
    CALL(standin_launch(NULL, at(device), LEN, 5, 5000));
    CALL(cuMemsetD8Async(device, 6, LEN, blocking));
    CALL(cuStreamSynchronize(blocking));
    assert_int_equal(byte_of(device), 6);
    CALL(cuStreamDestroy_v2(blocking));
    assert_int_equal(cuStreamSynchronize(blocking), 400);
}

static void
test_events_are_of_a_context(void **state)
{
    cu_pointer  device = zeros();
    cu_context *context;
    cu_stream  *other;
    cu_event   *events[2];
    float       ms = 0;

    (void)state;
    CALL(cuEventCreate(&events[0], 0));
    CALL(cuEventCreate(&events[1], 0));
    CALL(cuEventQuery(events[0])); /* never recorded */
    standin_hold(true);
    CALL(cuEventRecord(events[0], stream));
    CALL(standin_launch(stream, at(device), LEN, 9, 5000));
    CALL(cuEventRecord(events[1], stream));
    assert_int_equal(cuEventQuery(events[1]), NOT_READY);
    CALL(cuCtxSetCurrent(contexts[1]));
    CALL(cuStreamCreate(&other, NO_WAIT));
    assert_int_equal(cuEventRecord(events[1], other), 400);
    CALL(cuStreamWaitEvent(other, events[1], 0));
    assert_int_equal(cuStreamQuery(other), NOT_READY);
    standin_hold(false);
    CALL(cuStreamSynchronize(other));
    CALL(cuEventQuery(events[1]));
    CALL(cuEventElapsedTime(&ms, events[0], events[1]));
    assert_true(ms > 4);
    CALL(cuStreamGetCtx(stream, &context));
    assert_ptr_equal(context, contexts[0]);
    CALL(cuEventSynchronize(events[1]));
    CALL(cuEventDestroy_v2(events[0]));
    CALL(cuEventDestroy_v2(events[1]));
    assert_int_equal(cuEventQuery(events[1]), 400);
    CALL(cuStreamDestroy_v2(other));
}

static void
on_host(void *arg)
{
    __atomic_fetch_add((int *)arg, 1, __ATOMIC_RELEASE);
}

static void
on_callback(cu_stream *handle, int result, void *arg)
{
    (void)handle;
    __atomic_store_n((int *)arg, result, __ATOMIC_RELEASE);
}

static void
test_host_functions_are_not_called_after_an_error(void **state)
{
    cu_pointer device = zeros();
    int        called = 0, result = -1;

    (void)state;
    CALL(cuLaunchHostFunc(stream, on_host, &called));
    CALL(cuStreamSynchronize(stream));
    assert_int_equal(__atomic_load_n(&called, __ATOMIC_ACQUIRE), 1);
    standin_hold(true);
    CALL(standin_launch(stream, at(device), LEN, 3, 0));
    CALL(cuMemcpyHtoDAsync_v2(device, bytes, LEN, stream));
    CALL(cuLaunchHostFunc(stream, on_host, &called));
    CALL(cuStreamAddCallback(stream, on_callback, &result, 0));
    standin_fail("copy", ILLEGAL, 1);
    standin_hold(false);
    assert_int_equal(cuStreamSynchronize(stream), ILLEGAL);
    assert_int_equal(__atomic_load_n(&called, __ATOMIC_ACQUIRE), 1);
    assert_int_equal(__atomic_load_n(&result, __ATOMIC_ACQUIRE), ILLEGAL);
    assert_int_equal(cuStreamQuery(stream), ILLEGAL);
    assert_int_equal(cuMemFree_v2(device), ILLEGAL);
    standin_reset();
    assert_int_equal(byte_of(device), 3);
}

static void
test_streams_wait_for_words_and_write_them(void **state)
{
    uint32_t  *words;
    cu_pointer pointer;

    (void)state;
    CALL(cuMemHostAlloc((void **)&words, 8, PORTABLE));
    pointer = (uintptr_t)words;
    memset(words, 0, 8);
    CALL(cuStreamWaitValue32_v2(stream, pointer, 5, 1));
    CALL(cuStreamWriteValue32_v2(stream, pointer + 4, 6, 0));
    assert_int_equal(cuStreamQuery(stream), NOT_READY);
    __atomic_store_n(&words[0], 5, __ATOMIC_RELEASE);
    CALL(cuStreamSynchronize(stream));
    assert_int_equal(__atomic_load_n(&words[1], __ATOMIC_ACQUIRE), 6);
    assert_int_equal(cuStreamWaitValue32_v2(stream, pointer + 2, 5, 1), 1);
}

/* ---- captures ------------------------------------------------------------
 */

static int thread_mode;

static void *
allocate_elsewhere(void *arg)
{
    cu_pointer pointer;
    int        mode = thread_mode;

    CALL(cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, GLOBAL);
    CALL(cuCtxSetCurrent(contexts[0]));
    *(int *)arg = cuMemAlloc_v2(&pointer, LEN);
    return NULL;
}

static int
result_elsewhere(int mode)
{
    pthread_t thread;
    int       result;

    thread_mode = mode;
    pthread_create(&thread, NULL, allocate_elsewhere, &result);
    pthread_join(thread, NULL);
    return result;
}

static void
test_what_is_unsafe_ends_a_capture(void **state)
{
    cu_pointer device = zeros();
    cu_event  *event;
    void      *graph;
    int        status;

    (void)state;
    CALL(cuEventCreate(&event, 0));
    CALL(cuStreamBeginCapture_v2(stream, GLOBAL));
    CALL(cuMemsetD8Async(device, 1, LEN, stream));
    assert_int_equal(result_elsewhere(RELAXED), OK);
    CALL(cuStreamIsCapturing(stream, &status));
    assert_int_equal(status, 1);
    assert_int_equal(result_elsewhere(GLOBAL), 900);
    CALL(cuStreamIsCapturing(stream, &status));
    assert_int_equal(status, 2);
    assert_int_equal(cuMemsetD8Async(device, 1, LEN, stream), 901);
    assert_int_equal(cuStreamEndCapture(stream, &graph), 901);
    assert_null(graph);
    assert_int_equal(byte_of(device), 0); /* it was not done */

    CALL(cuStreamBeginCapture_v2(stream, RELAXED));
    assert_int_equal(result_elsewhere(GLOBAL), OK);
    CALL(cuEventRecord(event, stream));
    CALL(cuStreamEndCapture(stream, &graph));
    CALL(cuGraphDestroy(graph));

    CALL(cuStreamBeginCapture_v2(stream, RELAXED));
    CALL(cuEventRecord(event, stream));
    assert_int_equal(cuEventQuery(event), 907);
    assert_int_equal(cuStreamEndCapture(stream, &graph), 901);
}

/* ---- contexts ------------------------------------------------------------
 */

static void
test_a_context_that_is_reset_takes_all_with_it(void **state)
{
    cu_pointer  device = zeros();
    cu_context *again;
    cu_event   *event;
    unsigned    flags;
    int         is_active;

    (void)state;
    CALL(cuEventCreate(&event, 0));
    standin_hold(true);
    CALL(standin_launch(stream, at(device), LEN, 3, 0));
    CALL(cuDevicePrimaryCtxReset_v2(0));
    CALL(cuDevicePrimaryCtxGetState(0, &flags, &is_active));
    assert_int_equal(is_active, 0);
    assert_int_equal(cuStreamSynchronize(stream), DESTROYED);
    assert_int_equal(cuEventQuery(event), DESTROYED);
    assert_int_equal(cuMemAlloc_v2(&device, LEN), DESTROYED);
    assert_int_equal(cuCtxPushCurrent_v2(contexts[0]), DESTROYED);
    assert_int_equal(standin.allocations, 0);
    CALL(cuDevicePrimaryCtxRetain(&again, 0));
    assert_ptr_not_equal(again, contexts[0]);
    CALL(cuCtxSetCurrent(again));
    assert_int_equal(byte_of(zeros()), 0);
    CALL(cuDevicePrimaryCtxRelease_v2(0)); /* nobody else retains it */
    assert_int_equal(cuMemAlloc_v2(&device, LEN), DESTROYED);
    CALL(cuCtxSetCurrent(NULL));
    assert_int_equal(cuMemAlloc_v2(&device, LEN), 201);
}

/* ---- errors --------------------------------------------------------------
 */

static void
test_the_call_that_a_test_names_fails(void **state)
{
    cu_pointer  device;
    const char *text;
    unsigned    count = 0, number = 0;

    (void)state;
    standin_fail("cuMemAlloc_v2", OTHER, 2);
    CALL(cuMemAlloc_v2(&device, LEN));
    assert_int_equal(cuMemAlloc_v2(&device, LEN), OTHER);
    CALL(cuMemAlloc_v2(&device, LEN));
    standin_fail("cuMemAlloc_v2", OTHER, 0);
    assert_int_equal(cuMemAlloc_v2(&device, LEN), OTHER);
    assert_int_equal(cuMemAlloc_v2(&device, LEN), OTHER);
    standin_fail("cuMemAlloc_v2", OK, 0);
    CALL(cuMemAlloc_v2(&device, LEN));
    assert_int_equal(standin_num_calls("cuMemAlloc_v2"), 6);
    while ((text = standin_called(number, &count)) != NULL &&
           strcmp(text, "cuMemAlloc_v2") != 0) {
        number++;
    }
    assert_non_null(text);
    assert_int_equal(count, 6);

    standin_fail("cuMemGetInfo_v2", ILLEGAL, 1);
    assert_int_equal(cuMemGetInfo_v2(NULL, NULL), ILLEGAL);
    assert_int_equal(cuMemAlloc_v2(&device, LEN), ILLEGAL);
    assert_int_equal(cuStreamSynchronize(stream), ILLEGAL);
    CALL(cuGetErrorString(ILLEGAL, &text));
    assert_string_equal(text, "an illegal memory access was encountered");
}

/* ---- other processes -----------------------------------------------------
 */

static int
child_begin(void)
{
    cu_context *context;

    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) ||
           cuCtxSetCurrent(context);
}

/* The memory whose handle comes is filled; the result of opening it goes. */
static int
run_open(const char *arg)
{
    cu_pointer pointer = 0;
    cu_ipc     handle;
    int        result = child_begin();

    (void)arg;
    child_read(CHILD_IN, &handle, sizeof(handle));
    if (result == OK) {
        result = cuIpcOpenMemHandle_v2(&pointer, handle, 1);
    }
    if (result == OK && (cuMemsetD8_v2(pointer, 4, LEN) != OK ||
                         cuIpcCloseMemHandle(pointer) != OK ||
                         cuIpcCloseMemHandle(pointer) != 1)) {
        result = -1;
    }
    child_write(CHILD_OUT, &result, sizeof(result));
    return 0;
}

static int
result_of_open(const cu_ipc *handle)
{
    child c = child_start("open", NULL);
    int   result;

    child_write(c.out, handle, sizeof(*handle));
    child_read(c.in, &result, sizeof(result));
    assert_int_equal(child_end(&c, 0), 0);
    return result;
}

static void
test_memory_is_opened_by_other_processes(void **state)
{
    cu_pointer device = zeros(), own;
    cu_ipc     handle;

    (void)state;
    CALL(cuIpcGetMemHandle(&handle, device + 9));
    assert_int_equal(result_of_open(&handle), OK);
    assert_int_equal(byte_of(device), 4);
    assert_int_equal(cuIpcOpenMemHandle_v2(&own, handle, 1), 201);
    setenv("STANDIN_IPC", "export", 1);
    assert_int_equal(result_of_open(&handle), 801);
    unsetenv("STANDIN_IPC");
    setenv("STANDIN_PEER", "0", 1);
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    assert_int_equal(result_of_open(&handle), 217);
    unsetenv("STANDIN_PEER");
    unsetenv("CUDA_VISIBLE_DEVICES");
    CALL(cuMemFree_v2(device));
    assert_int_equal(result_of_open(&handle), 1);
}

/* What the environment says. */
static int
run_settings(const char *arg)
{
    cu_pointer pointer;
    cu_uuid    uuid;
    size_t     free_bytes, total;
    int        count, can;

    (void)arg;
    assert_int_equal(child_begin(), OK);
    CALL(cuDeviceGetCount(&count));
    assert_int_equal(count, 2);
    CALL(cuDeviceGetUuid_v2(&uuid, 0));
    assert_int_equal(uuid.bytes[0], 3);
    CALL(cuDeviceGetUuid_v2(&uuid, 1));
    assert_int_equal(uuid.bytes[0], 1);
    CALL(cuDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 0);
    assert_int_equal(cuMemAlloc_v2(&pointer, 1000001), 2);
    assert_int_equal(cuMemAlloc_v2(&pointer, LEN), OTHER); /* the second call */
    CALL(cuMemAlloc_v2(&pointer, LEN));
    CALL(cuMemGetInfo_v2(&free_bytes, &total));
    assert_int_equal(total, 1000000);
    assert_in_range(free_bytes, total - LEN - 4096, total - LEN);
    *(volatile char *)at(pointer) = 1;
    return 0;
}

static void
test_the_environment_says_what_there_is(void **state)
{
    static const char *const settings[][2] = {
        {"CUDA_VISIBLE_DEVICES", "GPU-03,0,9,1"},
        {"STANDIN_PEER", "0"},
        {"STANDIN_MEMORY", "1000000"},
        {"STANDIN_OPEN", "1"},
        {"STANDIN_FAIL", "cuMemAlloc_v2:304:2"},
    };
    child c;

    (void)state;
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
        setenv(settings[i][0], settings[i][1], 1);
    }
    c = child_start("settings", NULL);
    assert_int_equal(child_end(&c, 0), 0);
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
        unsetenv(settings[i][0]);
    }
}

/* Copies are queued into a file of the test's. */
static int
run_copies(const char *path)
{
    cu_pointer device;
    cu_stream *s;
    int        fd     = open(path, O_RDWR);
    int        called = 0;
    char *file = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    assert_ptr_not_equal(file, MAP_FAILED);
    assert_int_equal(child_begin(), OK);
    CALL(cuStreamCreate(&s, NO_WAIT));
    CALL(cuLaunchHostFunc(s, on_host, &called));
    CALL(cuStreamSynchronize(s));
    assert_int_equal(__atomic_load_n(&called, __ATOMIC_ACQUIRE), 1);
    CALL(cuMemHostRegister_v2(file, LEN, PORTABLE));
    device = zeros();
    CALL(cuMemsetD8_v2(device, 4, LEN));
    standin_set_speed(20000, 0);
    for (int i = 0; i < 3; i++) {
        CALL(cuMemcpyDtoHAsync_v2(file, device, LEN, s));
    }
    CALL(cuLaunchHostFunc(s, on_host, &called));
    child_write(CHILD_OUT, &called, 1);
    pause();
    return 0;
}

/* Bytes of the file that are overwritten after the child has been sent that. */
static int
overwritten_after(int signal)
{
    char  path[64], byte;
    int   fd = memfd_create("file", 0), count = 0;
    char *file;
    child c;

    assert_int_equal(ftruncate(fd, LEN), 0);
    file = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", getpid(), fd);
    c = child_start("copies", path);
    child_read(c.in, &byte, 1);
    kill(c.pid, signal);
    usleep(10000);
    memset(file, 1, LEN);
    usleep(600000);
    for (int i = 0; i < LEN; i++) {
        count += (file[i] == 4);
    }
    (void)child_end(&c, SIGKILL);
    munmap(file, LEN);
    close(fd);
    return count;
}

static void
test_copies_go_on_when_their_process_is_stopped_or_killed(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it cannot follow a process that shares memory */
#endif
    assert_int_equal(overwritten_after(SIGSTOP), 0);
    setenv("STANDIN_ENGINE", "1", 1);
    assert_int_equal(overwritten_after(SIGSTOP), LEN);
    assert_int_equal(overwritten_after(SIGKILL), LEN);
    unsetenv("STANDIN_ENGINE");
}

static void
test_a_forked_child_has_no_driver(void **state)
{
    cu_pointer pointer = 0;
    int        status;
    pid_t      pid = fork();

    (void)state;
    if (pid == 0) {
        _exit(cuInit(0) == 3 && cuMemAlloc_v2(&pointer, LEN) == 3 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

#define STANDIN_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int
main(int argc, char **argv)
{
    static const child_entry entries[] = {
        {"open", run_open}, {"settings", run_settings}, {"copies", run_copies}};
    const struct CMUnitTest tests[] = {
        STANDIN_TEST(test_the_cpu_cannot_touch_memory_of_a_device),
        STANDIN_TEST(test_what_is_said_of_pointers),
        STANDIN_TEST(test_memory_of_pools_is_freed_in_order_and_not_exported),
        STANDIN_TEST(test_copies_are_done_in_steps_after_the_call),
        STANDIN_TEST(test_ordinary_memory_is_staged),
        STANDIN_TEST(test_what_cannot_be_copied),
        STANDIN_TEST(
            test_default_streams_and_those_that_block_wait_for_each_other),
        STANDIN_TEST(test_events_are_of_a_context),
        STANDIN_TEST(test_host_functions_are_not_called_after_an_error),
        STANDIN_TEST(test_streams_wait_for_words_and_write_them),
        STANDIN_TEST(test_what_is_unsafe_ends_a_capture),
        STANDIN_TEST(test_a_context_that_is_reset_takes_all_with_it),
        STANDIN_TEST(test_the_call_that_a_test_names_fails),
        STANDIN_TEST(test_memory_is_opened_by_other_processes),
        STANDIN_TEST(test_the_environment_says_what_there_is),
        STANDIN_TEST(test_copies_go_on_when_their_process_is_stopped_or_killed),
        STANDIN_TEST(test_a_forked_child_has_no_driver),
    };

    child_role(argc, argv, entries, 3);
    return UNIT_RUN_ONCE(tests, NULL, NULL);
}
