/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda.c: see cuda.h. Types and numbers are those of the driver's ABI (cuda.h
 * of the toolkit, which is not needed to build this). */
#include "mem/cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "util/log.h"

typedef int                cu_result;
typedef int                cu_device;
typedef unsigned long long cu_pointer;
typedef struct cu_context *cu_context;
typedef struct cu_stream  *cu_stream;

enum {
    CU_OK             = 0,
    CU_INVALID_VALUE  = 1,
    CU_OUT_OF_MEMORY  = 2,
    CU_MEMORY_DEVICE  = 2,
    CU_ATTACH_GLOBAL  = 1,
    CU_PORTABLE       = 1,
    CU_NON_BLOCKING   = 1,
    ATTR_MEMORY_TYPE  = 2,
    ATTR_IS_MANAGED   = 8,
    ATTR_DEVICE       = 9,
    ATTR_RANGE_START  = 11,
    ATTR_RANGE_SIZE   = 12,
    NUM_ATTRS         = 5,
    MAX_DEVICES       = 64,
    FIRST_REAL_STREAM = 16 /* below: names of default streams */
};

/* The driver's functions. */
#define FUNCTIONS(X)                                                           \
    X(init, "cuInit", (unsigned flags))                                        \
    X(error_name, "cuGetErrorName", (cu_result result, const char **name_p))   \
    X(pointer_attributes, "cuPointerGetAttributes",                            \
      (unsigned count, const int *attributes, void **values,                   \
       cu_pointer pointer))                                                    \
    X(device_get, "cuDeviceGet", (cu_device * device_p, int ordinal))          \
    X(retain, "cuDevicePrimaryCtxRetain",                                      \
      (cu_context * context_p, cu_device device))                              \
    X(push, "cuCtxPushCurrent_v2", (cu_context context))                       \
    X(pop, "cuCtxPopCurrent_v2", (cu_context * context_p))                     \
    X(copy_htod, "cuMemcpyHtoDAsync_v2",                                       \
      (cu_pointer dst, const void *src, size_t len, cu_stream stream))         \
    X(copy_dtoh, "cuMemcpyDtoHAsync_v2",                                       \
      (void *dst, cu_pointer src, size_t len, cu_stream stream))               \
    X(copy_across, "cuMemcpyAsync",                                            \
      (cu_pointer dst, cu_pointer src, size_t len, cu_stream stream))          \
    X(current_device, "cuCtxGetDevice", (cu_device * device_p))                \
    X(alloc, "cuMemAlloc_v2", (cu_pointer * pointer_p, size_t len))            \
    X(alloc_managed, "cuMemAllocManaged",                                      \
      (cu_pointer * pointer_p, size_t len, unsigned flags))                    \
    X(alloc_pinned, "cuMemHostAlloc",                                          \
      (void **data_p, size_t len, unsigned flags))                             \
    X(free, "cuMemFree_v2", (cu_pointer pointer))                              \
    X(free_pinned, "cuMemFreeHost", (void *data))                              \
    X(fill, "cuMemsetD8Async",                                                 \
      (cu_pointer pointer, unsigned char value, size_t count,                  \
       cu_stream stream))                                                      \
    X(stream_create, "cuStreamCreate", (cu_stream * stream_p, unsigned flags)) \
    X(stream_wait, "cuStreamSynchronize", (cu_stream stream))

static struct {
    bool is_present;
#define MEMBER(name, symbol, args) cu_result(*name) args;
    FUNCTIONS(MEMBER)
#undef MEMBER
} driver;

static pthread_once_t  once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the next two */
static cu_context      contexts[MAX_DEVICES]; /* primary ones, retained */
/* The library's own, which no default stream waits for, and which waits for
 * none: a kernel there may run for ever, and need what is copied here. */
static cu_stream streams[MAX_DEVICES];

/* ---- the driver ----------------------------------------------------------
 */

static void
load(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (handle == NULL) {
        return; /* no NVIDIA driver: host memory only */
    }
#define LOOK_UP(name, symbol, args)                              \
    *(void **)&driver.name = dlsym(handle, symbol);              \
    if (driver.name == NULL) {                                   \
        umi_log(UMI_LOG_WARN, "libcuda.so.1 has no %s", symbol); \
        return;                                                  \
    }
    FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    driver.is_present = (driver.init(0) == CU_OK); /* no: no device */
}

bool
umx_cuda_is_present(void)
{
    (void)pthread_once(&once, load);
    return driver.is_present;
}

/* A failure as a status, logged. */
static umx_status
check(cu_result result, const char *what)
{
    const char *name = NULL;

    if (result == CU_OK) {
        return UMX_OK;
    }
    if (driver.error_name(result, &name) != CU_OK || name == NULL) {
        name = "an unknown error";
    }
    umi_log(UMI_LOG_WARN, "%s: %s (%d)", what, name, result);
    switch (result) {
    case CU_INVALID_VALUE:
        return UMX_ERR_INVALID_PARAM;
    case CU_OUT_OF_MEMORY:
        return UMX_ERR_NO_MEMORY;
    default:
        return UMX_ERR_IO_ERROR;
    }
}

/* ---- what a pointer is ---------------------------------------------------
 */

umx_status
umi_cuda_describe(const void *data, size_t len, umx_memory_info *info)
{
    static const int attributes[NUM_ATTRS] = {ATTR_MEMORY_TYPE, ATTR_IS_MANAGED,
                                              ATTR_DEVICE, ATTR_RANGE_START,
                                              ATTR_RANGE_SIZE};

    unsigned   type = 0, is_managed = 0;
    int        device            = -1;
    cu_pointer start             = 0;
    size_t     size              = 0;
    cu_pointer pointer           = (uintptr_t)data;
    void      *values[NUM_ATTRS] = {&type, &is_managed, &device, &start, &size};
    umx_status status;

    if (!umx_cuda_is_present()) {
        return UMX_ERR_UNSUPPORTED;
    }
    /* What the driver does not know leaves zeros: it is no error. */
    status = check(
        driver.pointer_attributes(NUM_ATTRS, attributes, values, pointer),
        "cuPointerGetAttributes");
    if (status != UMX_OK) {
        return status;
    }
    if (size != 0 && (pointer < start || len > size - (pointer - start))) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (is_managed) {
        info->memtype = UMX_MEMTYPE_CUDA_MANAGED;
    } else {
        info->memtype = (type == CU_MEMORY_DEVICE) ? UMX_MEMTYPE_CUDA :
                                                     UMX_MEMTYPE_HOST;
    }
    info->is_cuda = (type != 0);
    info->device  = info->is_cuda ? device : UMX_DEVICE_NONE;
    return UMX_OK;
}

/* ---- contexts ------------------------------------------------------------
 */

/* The primary context, which libraries share; it stays retained. */
static umx_status
primary_context(int device, cu_context *context_p)
{
    cu_device  handle;
    umx_status status = UMX_OK;

    if (device < 0 || device >= MAX_DEVICES) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    pthread_mutex_lock(&lock);
    if (contexts[device] == NULL) {
        status = check(driver.device_get(&handle, device), "cuDeviceGet");
        if (status == UMX_OK) {
            status = check(driver.retain(&contexts[device], handle),
                           "cuDevicePrimaryCtxRetain");
        }
    }
    *context_p = contexts[device];
    pthread_mutex_unlock(&lock);
    return status;
}

static umx_status
enter(int device)
{
    cu_context context;
    umx_status status = primary_context(device, &context);

    return (status == UMX_OK) ?
               check(driver.push(context), "cuCtxPushCurrent") :
               status;
}

void
umi_cuda_leave(void)
{
    cu_context context;

    (void)!check(driver.pop(&context), "cuCtxPopCurrent");
}

/* Enter the context of the memory's device. */
static umx_status
enter_of(const void *data, size_t len, int *device_p)
{
    umx_memory_info info;
    umx_status      status = umi_cuda_describe(data, len, &info);

    if (status != UMX_OK) {
        return status;
    }
    *device_p = info.device;
    return (info.device >= 0) ? enter(info.device) : UMX_ERR_INVALID_PARAM;
}

umx_status
umi_cuda_enter(const void *data, size_t len)
{
    int device;

    return enter_of(data, len, &device);
}

/* ---- the library's stream ------------------------------------------------
 */

/* The stream of the device whose context has been entered. */
static umx_status
get_stream(int device, cu_stream *stream_p)
{
    umx_status status = UMX_OK;

    pthread_mutex_lock(&lock);
    if (streams[device] == NULL) {
        status = check(driver.stream_create(&streams[device], CU_NON_BLOCKING),
                       "cuStreamCreate");
    }
    *stream_p = streams[device];
    pthread_mutex_unlock(&lock);
    return status;
}

/* Wait for what was queued with this result. */
static umx_status
finish(cu_result result, const char *what, cu_stream stream)
{
    umx_status status = check(result, what);

    return (status == UMX_OK) ?
               check(driver.stream_wait(stream), "cuStreamSynchronize") :
               status;
}

/* ---- bytes ---------------------------------------------------------------
 */

/* Enter the context of the memory's device, and find its stream. */
static umx_status
enter_to_copy(const void *data, size_t len, cu_stream *stream_p)
{
    int        device;
    umx_status status = enter_of(data, len, &device);

    if (status != UMX_OK) {
        return status;
    }
    status = get_stream(device, stream_p);
    if (status != UMX_OK) {
        umi_cuda_leave();
    }
    return status;
}

umx_status
umi_cuda_copy_in(void *dst, const void *src, size_t len)
{
    cu_stream  stream;
    umx_status status;

    if (len == 0) {
        return UMX_OK;
    }
    status = enter_to_copy(dst, len, &stream);
    if (status == UMX_OK) {
        status = finish(driver.copy_htod((uintptr_t)dst, src, len, stream),
                        "cuMemcpyHtoDAsync", stream);
        umi_cuda_leave();
    }
    return status;
}

umx_status
umi_cuda_copy_out(void *dst, const void *src, size_t len)
{
    cu_stream  stream;
    umx_status status;

    if (len == 0) {
        return UMX_OK;
    }
    status = enter_to_copy(src, len, &stream);
    if (status == UMX_OK) {
        status = finish(driver.copy_dtoh(dst, (uintptr_t)src, len, stream),
                        "cuMemcpyDtoHAsync", stream);
        umi_cuda_leave();
    }
    return status;
}

umx_status
umi_cuda_copy_across(void *dst, const void *src, size_t len)
{
    umx_memory_info info;
    cu_stream       stream;
    umx_status      status;

    if (len == 0) {
        return UMX_OK;
    }
    status = umi_cuda_describe(src, len, &info);
    if (status == UMX_OK && info.device < 0) {
        status = UMX_ERR_INVALID_PARAM;
    }
    if (status == UMX_OK) {
        status = enter_to_copy(dst, len, &stream);
    }
    if (status == UMX_OK) {
        status = finish(
            driver.copy_across((uintptr_t)dst, (uintptr_t)src, len, stream),
            "cuMemcpyAsync", stream);
        umi_cuda_leave();
    }
    return status;
}

/* ---- allocation ----------------------------------------------------------
 */

/* The device whose context is current, or the first. */
static int
current_device(void)
{
    cu_device device;

    return (driver.current_device(&device) == CU_OK) ? device : 0;
}

static umx_status
alloc(umx_memtype memtype, int device, size_t len, void **data_p)
{
    cu_pointer pointer = 0;
    cu_stream  stream;
    umx_status status;

    if (memtype == UMX_MEMTYPE_HOST) {
        status = check(driver.alloc_pinned(data_p, len, CU_PORTABLE),
                       "cuMemHostAlloc");
        if (status == UMX_OK) {
            memset(*data_p, 0, len);
        }
        return status;
    }
    status = (memtype == UMX_MEMTYPE_CUDA) ?
                 check(driver.alloc(&pointer, len), "cuMemAlloc") :
                 check(driver.alloc_managed(&pointer, len, CU_ATTACH_GLOBAL),
                       "cuMemAllocManaged");
    if (status != UMX_OK) {
        return status;
    }
    status = get_stream(device, &stream);
    if (status == UMX_OK) {
        status = finish(driver.fill(pointer, 0, len, stream), "cuMemsetD8Async",
                        stream);
    }
    if (status != UMX_OK) {
        (void)driver.free(pointer);
        return status;
    }
    *data_p = (void *)(uintptr_t)pointer;
    return UMX_OK;
}

umx_status
umi_cuda_alloc(umx_memtype memtype, int device, size_t len, void **data_p)
{
    umx_status status;

    if (!umx_cuda_is_present()) {
        return UMX_ERR_UNSUPPORTED;
    }
    if (device == UMX_DEVICE_NONE) {
        device = current_device();
    }
    status = enter(device);
    if (status == UMX_OK) {
        status = alloc(memtype, device, len, data_p);
        umi_cuda_leave();
    }
    return status;
}

void
umi_cuda_free(umx_memtype memtype, void *data)
{
    if (memtype == UMX_MEMTYPE_HOST) {
        (void)!check(driver.free_pinned(data), "cuMemFreeHost");
        return;
    }
    if (umi_cuda_enter(data, 1) == UMX_OK) {
        (void)!check(driver.free((uintptr_t)data), "cuMemFree");
        umi_cuda_leave();
    }
}

/* ---- public --------------------------------------------------------------
 */

umx_status
umx_memory_query(const void *data, size_t len, umx_memory_info *info)
{
    umx_status status = umi_cuda_describe(data, len, info);

    if (status == UMX_ERR_UNSUPPORTED) {
        *info = (umx_memory_info){.memtype = UMX_MEMTYPE_HOST,
                                  .device  = UMX_DEVICE_NONE};
        return UMX_OK;
    }
    return status;
}

umx_status
umx_cuda_wait(int device, uintptr_t stream)
{
    bool       is_default = (stream == 1 || stream == 2);
    umx_status status;

    if (!umx_cuda_is_present()) {
        return UMX_ERR_UNSUPPORTED;
    }
    if (!is_default && stream < FIRST_REAL_STREAM) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (device != UMX_DEVICE_NONE) {
        status = enter(device);
        if (status != UMX_OK) {
            return status;
        }
    }
    status = check(driver.stream_wait((cu_stream)stream),
                   "cuStreamSynchronize");
    if (device != UMX_DEVICE_NONE) {
        umi_cuda_leave();
    }
    return status;
}
