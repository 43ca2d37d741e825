/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_cuda.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_RANGES  = 4096,
    MAX_KERNELS = 64,
    NUM_STREAMS = 64,
    MAX_DEPTH   = 8,
    LEGACY      = 1 /* the default stream, which waits for all others */
};

typedef struct range {
    char  *data;
    size_t len;
    int    device;
    bool   is_managed;
} range;

typedef struct kernel {
    const void *stream;
    void       *data;
    size_t      len;
    int         value;
} kernel;

struct context {
    int device;
};

fake_cuda_state fake_cuda;

/* Of memory and kernels: threads of a program copy side by side. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static range           ranges[MAX_RANGES];
static kernel          kernels[MAX_KERNELS];
static unsigned        num_kernels;
static char            streams[NUM_STREAMS]; /* handles of the streams */
static unsigned        num_streams;
static _Thread_local const void *copying; /* the stream of a copy */
static struct context            contexts[FAKE_CUDA_DEVICES];
static _Thread_local int         stack[MAX_DEPTH]; /* devices */
static _Thread_local int         depth;

/* ---- for tests -----------------------------------------------------------
 */

void
fake_cuda_reset(void)
{
    memset(ranges, 0, sizeof(ranges));
    num_kernels = 0;
    copying     = NULL;
    fake_cuda   = (fake_cuda_state){0};
}

void
fake_cuda_add(void *data, size_t len, int device, bool is_managed)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_RANGES; i++) {
        if (ranges[i].data == NULL) {
            ranges[i] = (range){data, len, device, is_managed};
            pthread_mutex_unlock(&lock);
            return;
        }
    }
    abort();
}

void
fake_cuda_remove(const void *data)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_RANGES; i++) {
        if (ranges[i].data == data) {
            ranges[i] = (range){0};
            pthread_mutex_unlock(&lock);
            return;
        }
    }
    abort();
}

void
fake_cuda_launch(const void *stream, void *data, size_t len, int value)
{
    pthread_mutex_lock(&lock);
    if (num_kernels == MAX_KERNELS) {
        abort();
    }
    kernels[num_kernels++] = (kernel){stream, data, len, value};
    pthread_mutex_unlock(&lock);
}

int
fake_cuda_current(void)
{
    return (depth == 0) ? -1 : stack[depth - 1];
}

/* The memory that a byte is of; `len` 0: of none. */
static range
find(fake_pointer pointer)
{
    range found = {.device = -2};

    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_RANGES; i++) {
        fake_pointer start = (uintptr_t)ranges[i].data;

        if (pointer >= start && pointer - start < ranges[i].len) {
            found = ranges[i];
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* `len` bytes of device memory from there on. */
static bool
is_memory(const range *r, fake_pointer pointer, size_t len)
{
    return r->data != NULL && len <= r->len - (pointer - (uintptr_t)r->data);
}

static int
result_of(const char *name)
{
    return (fake_cuda.failing != NULL && strcmp(fake_cuda.failing, name) == 0) ?
               fake_cuda.result :
               0;
}

/* `len` bytes of device memory, in its context. */
static void
check_place(fake_pointer pointer, size_t len)
{
    range r = find(pointer);

    if (r.device != fake_cuda_current() || !is_memory(&r, pointer, len)) {
        abort();
    }
}

/* ---- the driver ----------------------------------------------------------
 */

int
cuInit(unsigned flags)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    (void)flags;
    return (fake_cuda.is_deviceless || (visible && visible[0] == '\0')) ? 100 :
                                                                          0;
}

int
cuGetErrorName(int result, const char **name_p)
{
    *name_p = "CUDA_ERROR_OF_A_TEST";
    return (result == 999) ? 1 : 0;
}

int
cuPointerGetAttributes(unsigned count, const int *attributes, void **values,
                       fake_pointer pointer)
{
    range r = find(pointer);

    for (unsigned i = 0; i < count; i++) {
        switch (attributes[i]) {
        case 2:
            *(unsigned *)values[i] = (r.data == NULL) ? 0 :
                                     (r.device < 0)   ? 1 :
                                                        2;
            break;
        case 8:
            *(unsigned *)values[i] = r.is_managed;
            break;
        case 9:
            *(int *)values[i] = r.device;
            break;
        case 11:
            *(uint64_t *)values[i] = (uintptr_t)r.data;
            break;
        case 12:
            *(size_t *)values[i] = r.len;
            break;
        default:
            abort();
        }
    }
    return result_of("cuPointerGetAttributes");
}

int
cuDeviceGet(int *device_p, int ordinal)
{
    *device_p = ordinal;
    return (ordinal < FAKE_CUDA_DEVICES) ? result_of("cuDeviceGet") : 101;
}

int
cuDeviceGetCount(int *count_p)
{
    *count_p = FAKE_CUDA_DEVICES;
    return 0;
}

int
cuDevicePrimaryCtxRetain(struct context **context_p, int device)
{
    int result = result_of("cuDevicePrimaryCtxRetain");

    if (result == 0) {
        fake_cuda.retained[device]++;
        contexts[device].device = device;
        *context_p              = &contexts[device];
    }
    return result;
}

int
cuCtxGetDevice(int *device_p)
{
    if (depth == 0) {
        return 201;
    }
    *device_p = fake_cuda_current();
    return 0;
}

int
cuCtxPushCurrent_v2(struct context *context)
{
    int result = result_of("cuCtxPushCurrent_v2");

    if (depth == MAX_DEPTH) {
        abort();
    }
    if (result == 0) {
        stack[depth++] = context->device;
        fake_cuda.pushes++;
    }
    return result;
}

int
cuCtxPopCurrent_v2(struct context **context_p)
{
    if (depth == 0) {
        abort();
    }
    *context_p = &contexts[stack[--depth]];
    fake_cuda.pops++;
    return 0;
}

int
cuMemcpyHtoD_v2(fake_pointer dst, const void *src, size_t len)
{
    check_place(dst, len);
    memcpy((void *)(uintptr_t)dst, src, len);
    fake_cuda.copies++;
    return result_of("cuMemcpyHtoD_v2");
}

int
cuMemcpyDtoH_v2(void *dst, fake_pointer src, size_t len)
{
    check_place(src, len);
    memcpy(dst, (void *)(uintptr_t)src, len);
    fake_cuda.copies++;
    return result_of("cuMemcpyDtoH_v2");
}

/* A copy was queued, and its stream is waited for next. A kernel of the program
 * may keep a default stream for ever. */
static int
queued(const char *name, const void *stream)
{
    int result = result_of(name);

    if ((uintptr_t)stream <= LEGACY || copying != NULL) {
        abort();
    }
    if (result == 0) {
        copying = stream;
        fake_cuda.copies++;
    }
    return result;
}

int
cuMemcpyHtoDAsync_v2(fake_pointer dst, const void *src, size_t len,
                     const void *stream)
{
    check_place(dst, len);
    memcpy((void *)(uintptr_t)dst, src, len);
    return queued("cuMemcpyHtoDAsync_v2", stream);
}

int
cuMemcpyDtoHAsync_v2(void *dst, fake_pointer src, size_t len,
                     const void *stream)
{
    check_place(src, len);
    memcpy(dst, (void *)(uintptr_t)src, len);
    return queued("cuMemcpyDtoHAsync_v2", stream);
}

/* Between devices, of which the current one is that of `dst`. */
int
cuMemcpyAsync(fake_pointer dst, fake_pointer src, size_t len,
              const void *stream)
{
    range r = find(src);

    check_place(dst, len);
    if (!is_memory(&r, src, len)) {
        abort();
    }
    memcpy((void *)(uintptr_t)dst, (void *)(uintptr_t)src, len);
    return queued("cuMemcpyAsync", stream);
}

int
cuMemcpyDtoD_v2(fake_pointer dst, fake_pointer src, size_t len)
{
    check_place(dst, len);
    check_place(src, len);
    memcpy((void *)(uintptr_t)dst, (void *)(uintptr_t)src, len);
    return result_of("cuMemcpyDtoD_v2");
}

int
cuCtxSynchronize(void)
{
    return (depth == 0) ? 201 : 0;
}

/* Memory of the current device, or pinned. */
static int
allocate(const char *name, void **data_p, size_t len, int device,
         bool is_managed)
{
    int result = result_of(name);

    if (result != 0) {
        return result;
    }
    *data_p = malloc(len);
    if (*data_p == NULL) {
        return 2;
    }
    memset(*data_p, 0xee, len);
    fake_cuda_add(*data_p, len, device, is_managed);
    fake_cuda.allocated = device;
    fake_cuda.allocations++;
    return 0;
}

static int
give_back(void *data)
{
    fake_cuda_remove(data);
    free(data);
    fake_cuda.allocations--;
    return 0;
}

int
cuMemAlloc_v2(fake_pointer *pointer_p, size_t len)
{
    void *data   = NULL;
    int   result = allocate("cuMemAlloc_v2", &data, len, fake_cuda_current(),
                            false);

    *pointer_p = (uintptr_t)data;
    return result;
}

int
cuMemAllocManaged(fake_pointer *pointer_p, size_t len, unsigned flags)
{
    void *data = NULL;
    int result = allocate("cuMemAllocManaged", &data, len, fake_cuda_current(),
                          true);

    (void)flags;
    *pointer_p = (uintptr_t)data;
    return result;
}

int
cuMemHostAlloc(void **data_p, size_t len, unsigned flags)
{
    (void)flags;
    return allocate("cuMemHostAlloc", data_p, len, -1, false);
}

int
cuMemFree_v2(fake_pointer pointer)
{
    check_place(pointer, 1);
    return give_back((void *)(uintptr_t)pointer);
}

int
cuMemFreeHost(void *data)
{
    return give_back(data);
}

int
cuMemsetD8_v2(fake_pointer pointer, unsigned char value, size_t n)
{
    check_place(pointer, n);
    memset((void *)(uintptr_t)pointer, value, n);
    return result_of("cuMemsetD8_v2");
}

int
cuMemsetD8Async(fake_pointer pointer, unsigned char value, size_t n,
                const void *stream)
{
    int result = result_of("cuMemsetD8Async");

    check_place(pointer, n);
    if (result == 0) {
        fake_cuda_launch(stream, (void *)(uintptr_t)pointer, n, value);
    }
    return result;
}

int
cuStreamCreate(void **stream_p, unsigned flags)
{
    (void)flags;
    *stream_p = &streams[num_streams++ % NUM_STREAMS];
    return result_of("cuStreamCreate");
}

int
cuStreamDestroy_v2(void *stream)
{
    (void)stream;
    return 0;
}

int
cuStreamSynchronize(const void *stream)
{
    bool     is_default = (uintptr_t)stream == LEGACY;
    unsigned kept       = 0;

    if (is_default && depth == 0) {
        abort(); /* of which device? */
    }
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < num_kernels; i++) {
        kernel *k = &kernels[i];

        if (is_default || k->stream == stream) {
            memset(k->data, k->value, k->len);
        } else {
            kernels[kept++] = *k;
        }
    }
    num_kernels = kept;
    pthread_mutex_unlock(&lock);
    if (stream == copying) {
        copying = NULL;
        return result_of("cuStreamSynchronize");
    }
    fake_cuda.waits++;
    fake_cuda.waited = stream;
    return result_of("cuStreamSynchronize");
}
