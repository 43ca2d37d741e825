/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda.c: see cuda.h; the driver, and contexts. Copies are in cuda_copy.c,
 * memory is in cuda_memory.c. */
#include "mem/cuda.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "mem/cuda_driver.h"
#include "util/log.h"

umi_cuda_driver umi_cuda;

static pthread_once_t  once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the next two */
static cu_context      contexts[MAX_DEVICES]; /* primary ones, retained */
static bool            has_failed[MAX_DEVICES];
static atomic_uint     lives[MAX_DEVICES]; /* of contexts that have ended */

/* Contexts that this thread has entered, and the capture mode that it had
 * before the first. */
static _Thread_local unsigned depth;
static _Thread_local int      capture_mode;

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
    *(void **)&umi_cuda.name = dlsym(handle, symbol);            \
    if (umi_cuda.name == NULL) {                                 \
        umi_log(UMI_LOG_WARN, "libcuda.so.1 has no %s", symbol); \
        return;                                                  \
    }
    UMI_CUDA_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    umi_cuda.is_present = (umi_cuda.init(0) == CU_OK); /* no: no device */
}

bool
umx_cuda_is_present(void)
{
    (void)pthread_once(&once, load);
    return umi_cuda.is_present;
}

/* True for errors after which nothing that uses the device works in this
 * process any more: a kernel of the program has failed, or the device itself.
 */
static bool
is_lasting(cu_result result)
{
    switch (result) {
    case CU_ECC_UNCORRECTABLE:
    case CU_HARDWARE_STACK_ERROR:
    case CU_ILLEGAL_ADDRESS:
    case CU_LAUNCH_TIMEOUT:
    case CU_ASSERT:
    case CU_ILLEGAL_INSTRUCTION:
    case CU_MISALIGNED_ADDRESS:
    case CU_INVALID_ADDRESS_SPACE:
    case CU_INVALID_PC:
    case CU_LAUNCH_FAILED:
        return true;
    default:
        return false;
    }
}

static void
note_failure(int device, const char *name, cu_result result)
{
    bool is_first;

    pthread_mutex_lock(&lock);
    is_first           = !has_failed[device];
    has_failed[device] = true;
    pthread_mutex_unlock(&lock);
    if (is_first) {
        umi_log(UMI_LOG_ERROR,
                "CUDA device %d has failed for this process: %s (%d), perhaps "
                "by a kernel of the program; operations on its memory fail "
                "from now on, others go on",
                device, name, result);
    }
}

static void
note_end(int device)
{
    if (device != UMX_DEVICE_NONE) {
        atomic_fetch_add(&lives[device], 1);
    }
}

unsigned
umi_cuda_life(int device)
{
    return atomic_load(&lives[device]);
}

umx_status
umi_cuda_check(int result, int device, const char *what)
{
    const char *name = NULL;

    if (result == CU_OK) {
        return UMX_OK;
    }
    if (umi_cuda.error_name(result, &name) != CU_OK || name == NULL) {
        name = "an unknown error";
    }
    umi_log(UMI_LOG_WARN, "%s: %s (%d)", what, name, result);
    if (is_lasting(result) && device != UMX_DEVICE_NONE) {
        note_failure(device, name, result);
        return UMX_ERR_DEVICE_FAILED;
    }
    switch (result) {
    case CU_INVALID_VALUE:
        return UMX_ERR_INVALID_PARAM;
    case CU_OUT_OF_MEMORY:
        return UMX_ERR_NO_MEMORY;
    case CU_CONTEXT_IS_DESTROYED:
    case CU_INVALID_HANDLE:
        note_end(device); /* what is of that context, is gone */
        return UMX_ERR_IO_ERROR;
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
    status = umi_cuda_check(
        umi_cuda.pointer_attributes(NUM_ATTRS, attributes, values, pointer),
        UMX_DEVICE_NONE, "cuPointerGetAttributes");
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

bool
umi_cuda_is_exportable(const void *data)
{
    static const int attributes[] = {ATTR_IS_EXPORTABLE};

    unsigned is_exportable = 0;
    void    *values[]      = {&is_exportable};

    return umi_cuda.pointer_attributes(1, attributes, values,
                                       (uintptr_t)data) == CU_OK &&
           is_exportable != 0;
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
    if (has_failed[device]) {
        status = UMX_ERR_DEVICE_FAILED;
    } else if (contexts[device] == NULL) {
        status = umi_cuda_check(umi_cuda.device_get(&handle, device),
                                UMX_DEVICE_NONE, "cuDeviceGet");
        if (status == UMX_OK) {
            status = umi_cuda_check(umi_cuda.retain(&contexts[device], handle),
                                    UMX_DEVICE_NONE,
                                    "cuDevicePrimaryCtxRetain");
        }
    }
    *context_p = contexts[device];
    pthread_mutex_unlock(&lock);
    return status;
}

bool
umi_cuda_is_primary(const void *data, int device)
{
    static const int attributes[] = {ATTR_CONTEXT};

    cu_context own, its = NULL;
    void      *values[] = {&its};

    return primary_context(device, &own) == UMX_OK &&
           umi_cuda.pointer_attributes(1, attributes, values,
                                       (uintptr_t)data) == CU_OK &&
           (its == NULL || its == own);
}

umx_status
umi_cuda_enter_device(int device)
{
    cu_context context;
    umx_status status = primary_context(device, &context);

    if (status == UMX_OK) {
        status = umi_cuda_check(umi_cuda.push(context), device,
                                "cuCtxPushCurrent");
    }
    if (status == UMX_OK && depth++ == 0) {
        capture_mode = CU_CAPTURE_RELAXED;
        (void)umi_cuda.capture_mode(&capture_mode);
    }
    return status;
}

void
umi_cuda_leave(void)
{
    cu_context context;

    assert(depth != 0);
    if (--depth == 0) {
        (void)umi_cuda.capture_mode(&capture_mode);
    }
    (void)!umi_cuda_check(umi_cuda.pop(&context), UMX_DEVICE_NONE,
                          "cuCtxPopCurrent");
}

/* True if some library of the process has made the primary context. */
static bool
has_context(int device)
{
    cu_device handle;
    unsigned  flags     = 0;
    int       is_active = 0;

    return umi_cuda.device_get(&handle, device) == CU_OK &&
           umi_cuda.primary_state(handle, &flags, &is_active) == CU_OK &&
           is_active != 0;
}

bool
umi_cuda_find_context(int *device_p)
{
    cu_device device;

    if (!umx_cuda_is_present()) {
        return false;
    }
    if (umi_cuda.current_device(&device) == CU_OK && has_context(device)) {
        *device_p = device;
        return true;
    }
    for (device = 0; device < MAX_DEVICES; device++) {
        if (has_context(device)) {
            *device_p = device;
            return true;
        }
    }
    return false;
}

umx_status
umi_cuda_device_of(const void *data, size_t len, int *device_p)
{
    umx_memory_info info;
    umx_status      status = umi_cuda_describe(data, len, &info);

    if (status != UMX_OK) {
        return status;
    }
    *device_p = info.device;
    return (info.device >= 0) ? UMX_OK : UMX_ERR_INVALID_PARAM;
}

umx_status
umi_cuda_enter(const void *data, size_t len)
{
    int        device;
    umx_status status = umi_cuda_device_of(data, len, &device);

    return (status == UMX_OK) ? umi_cuda_enter_device(device) : status;
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

/* Call `fn` with the context of a stream's device as the current one. */
static umx_status
with_stream(int device, uintptr_t stream,
            umx_status (*fn)(int device, cu_stream stream))
{
    bool       is_default = (stream == 1 || stream == 2);
    umx_status status;

    if (!umx_cuda_is_present()) {
        return UMX_ERR_UNSUPPORTED;
    }
    if (!is_default && stream < FIRST_REAL_STREAM) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (device == UMX_DEVICE_NONE) {
        return fn(device, (cu_stream)stream);
    }
    status = umi_cuda_enter_device(device);
    if (status == UMX_OK) {
        status = fn(device, (cu_stream)stream);
        umi_cuda_leave();
    }
    return status;
}

static umx_status
wait_for(int device, cu_stream stream)
{
    return umi_cuda_check(umi_cuda.stream_wait(stream), device,
                          "cuStreamSynchronize");
}

umx_status
umx_cuda_wait(int device, uintptr_t stream)
{
    return with_stream(device, stream, wait_for);
}

/* A capture would not outlive a query. */
static umx_status
query(int device, cu_stream stream)
{
    int       capturing = 0;
    cu_result result    = umi_cuda.is_capturing(stream, &capturing);

    if (result == CU_OK && capturing != 0) {
        return UMX_ERR_BUSY;
    }
    if (result == CU_OK) {
        result = umi_cuda.stream_query(stream);
    }
    return (result == CU_NOT_READY) ?
               UMX_INPROGRESS :
               umi_cuda_check(result, device, "cuStreamQuery");
}

umx_status
umx_cuda_query(int device, uintptr_t stream)
{
    return with_stream(device, stream, query);
}
