/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda_driver.h: the functions of NVIDIA's driver, for the files of this room.
 * Types and numbers are those of the driver's ABI (cuda.h of the toolkit, which
 * is not needed to build this). Thread: any. */
#ifndef UMI_CUDA_DRIVER_H
#define UMI_CUDA_DRIVER_H

#include <umx/memory.h>

#include "mem/cuda_types.h"

typedef int                 cu_result;
typedef int                 cu_device;
typedef unsigned long long  cu_pointer;
typedef struct cu_context  *cu_context;
typedef struct cu_stream   *cu_stream;
typedef struct cu_event    *cu_event;
typedef struct cu_module   *cu_module;
typedef struct cu_function *cu_function;

enum {
    CU_OK                    = 0,
    CU_INVALID_VALUE         = 1,
    CU_OUT_OF_MEMORY         = 2,
    CU_ECC_UNCORRECTABLE     = 214,
    CU_INVALID_HANDLE        = 400,
    CU_NOT_READY             = 600,
    CU_ILLEGAL_ADDRESS       = 700,
    CU_LAUNCH_TIMEOUT        = 702,
    CU_CONTEXT_IS_DESTROYED  = 709,
    CU_ASSERT                = 710,
    CU_ALREADY_PINNED        = 712,
    CU_HARDWARE_STACK_ERROR  = 714,
    CU_ILLEGAL_INSTRUCTION   = 715,
    CU_MISALIGNED_ADDRESS    = 716,
    CU_INVALID_ADDRESS_SPACE = 717,
    CU_INVALID_PC            = 718,
    CU_LAUNCH_FAILED         = 719,
    CU_CAPTURE_RELAXED       = 2,
    CU_NO_TIMING             = 2,
    CU_ENABLE_PEERS          = 1, /* as the memory needs it */
    CU_MEMORY_DEVICE         = 2,
    CU_ATTACH_GLOBAL         = 1,
    CU_PORTABLE              = 1,
    CU_NON_BLOCKING          = 1,
    CU_FIRST                 = -100, /* the driver takes its highest priority */
    ATTR_REGISTERS           = 4,    /* of a function; the others of pointers */
    ATTR_CONTEXT             = 1,
    ATTR_MEMORY_TYPE         = 2,
    ATTR_IS_MANAGED          = 8,
    ATTR_DEVICE              = 9,
    ATTR_IS_EXPORTABLE       = 10,
    ATTR_RANGE_START         = 11,
    ATTR_RANGE_SIZE          = 12,
    NUM_ATTRS                = 5,
    MAX_DEVICES              = 64,
    FIRST_REAL_STREAM        = 16 /* below: names of default streams */
};

/* The driver's functions. */
#define UMI_CUDA_FUNCTIONS(X)                                                 \
    X(init, "cuInit", (unsigned flags))                                       \
    X(error_name, "cuGetErrorName", (cu_result result, const char **name_p))  \
    X(pointer_attributes, "cuPointerGetAttributes",                           \
      (unsigned count, const int *attributes, void **values,                  \
       cu_pointer pointer))                                                   \
    X(device_get, "cuDeviceGet", (cu_device * device_p, int ordinal))         \
    X(retain, "cuDevicePrimaryCtxRetain",                                     \
      (cu_context * context_p, cu_device device))                             \
    X(primary_state, "cuDevicePrimaryCtxGetState",                            \
      (cu_device device, unsigned *flags_p, int *is_active_p))                \
    X(push, "cuCtxPushCurrent_v2", (cu_context context))                      \
    X(pop, "cuCtxPopCurrent_v2", (cu_context * context_p))                    \
    X(copy_htod, "cuMemcpyHtoDAsync_v2",                                      \
      (cu_pointer dst, const void *src, size_t len, cu_stream stream))        \
    X(copy_dtoh, "cuMemcpyDtoHAsync_v2",                                      \
      (void *dst, cu_pointer src, size_t len, cu_stream stream))              \
    X(copy_across, "cuMemcpyAsync",                                           \
      (cu_pointer dst, cu_pointer src, size_t len, cu_stream stream))         \
    X(current_device, "cuCtxGetDevice", (cu_device * device_p))               \
    X(alloc, "cuMemAlloc_v2", (cu_pointer * pointer_p, size_t len))           \
    X(alloc_managed, "cuMemAllocManaged",                                     \
      (cu_pointer * pointer_p, size_t len, unsigned flags))                   \
    X(alloc_pinned, "cuMemHostAlloc",                                         \
      (void **data_p, size_t len, unsigned flags))                            \
    X(free, "cuMemFree_v2", (cu_pointer pointer))                             \
    X(free_pinned, "cuMemFreeHost", (void *data))                             \
    X(fill, "cuMemsetD8Async",                                                \
      (cu_pointer pointer, unsigned char value, size_t count,                 \
       cu_stream stream))                                                     \
    X(stream_create, "cuStreamCreateWithPriority",                            \
      (cu_stream * stream_p, unsigned flags, int priority))                   \
    X(stream_wait, "cuStreamSynchronize", (cu_stream stream))                 \
    X(stream_query, "cuStreamQuery", (cu_stream stream))                      \
    X(stream_context, "cuStreamGetCtx",                                       \
      (cu_stream stream, cu_context * context_p))                             \
    X(stream_wait_event, "cuStreamWaitEvent",                                 \
      (cu_stream stream, cu_event event, unsigned flags))                     \
    X(is_capturing, "cuStreamIsCapturing",                                    \
      (cu_stream stream, int *capturing_p))                                   \
    X(event_create, "cuEventCreate", (cu_event * event_p, unsigned flags))    \
    X(event_record, "cuEventRecord", (cu_event event, cu_stream stream))      \
    X(event_query, "cuEventQuery", (cu_event event))                          \
    X(event_destroy, "cuEventDestroy_v2", (cu_event event))                   \
    X(event_wait, "cuEventSynchronize", (cu_event event))                     \
    X(call_host, "cuLaunchHostFunc",                                          \
      (cu_stream stream, void (*fn)(void *arg), void *arg))                   \
    X(module_load, "cuModuleLoadData",                                        \
      (cu_module * module_p, const void *image))                              \
    X(module_function, "cuModuleGetFunction",                                 \
      (cu_function * function_p, cu_module module, const char *name))         \
    X(function_attribute, "cuFuncGetAttribute",                               \
      (int *value_p, int attribute, cu_function function))                    \
    X(launch, "cuLaunchKernel",                                               \
      (cu_function function, unsigned grid_x, unsigned grid_y,                \
       unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, \
       unsigned shared, cu_stream stream, void **params, void **extra))       \
    X(pin, "cuMemHostRegister_v2", (void *data, size_t len, unsigned flags))  \
    X(unpin, "cuMemHostUnregister", (void *data))                             \
    X(export_memory, "cuIpcGetMemHandle",                                     \
      (umi_cuda_handle * handle_p, cu_pointer pointer))                       \
    X(open_memory, "cuIpcOpenMemHandle_v2",                                   \
      (cu_pointer * pointer_p, umi_cuda_handle handle, unsigned flags))       \
    X(close_memory, "cuIpcCloseMemHandle", (cu_pointer pointer))              \
    X(capture_mode, "cuThreadExchangeStreamCaptureMode", (int *mode_p))

typedef struct umi_cuda_driver {
    bool is_present;
#define UMI_CUDA_MEMBER(name, symbol, args) cu_result(*name) args;
    UMI_CUDA_FUNCTIONS(UMI_CUDA_MEMBER)
#undef UMI_CUDA_MEMBER
} umi_cuda_driver;

#endif
