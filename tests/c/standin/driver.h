/* SPDX-License-Identifier: BSD-3-Clause */
/* driver.h: the functions that the stand-in has, as cuda.h of the toolkit
 * declares them: types and numbers are those of the driver's ABI. */
#ifndef STANDIN_DRIVER_H
#define STANDIN_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned long long      cu_pointer;
typedef struct standin_context  cu_context;
typedef struct standin_stream   cu_stream;
typedef struct standin_event    cu_event;
typedef struct standin_pool     cu_pool;
typedef struct standin_module   cu_module;
typedef struct standin_function cu_function;
typedef struct cu_ipc {
    char bytes[64];
} cu_ipc;
typedef struct cu_uuid {
    unsigned char bytes[16];
} cu_uuid;
typedef void (*cu_host_fn)(void *arg);
typedef void (*cu_callback)(cu_stream *stream, int result, void *arg);

#define STANDIN_DEVICE_FUNCTIONS(X)                                           \
    X(cuInit, (unsigned flags))                                               \
    X(cuDriverGetVersion, (int *version_p))                                   \
    X(cuGetErrorName, (int result, const char **name_p))                      \
    X(cuGetErrorString, (int result, const char **text_p))                    \
    X(cuGetProcAddress_v2, (const char *name, void **function_p, int version, \
                            uint64_t flags, int *status_p))                   \
    X(cuDeviceGetCount, (int *count_p))                                       \
    X(cuDeviceGet, (int *device_p, int ordinal))                              \
    X(cuDeviceGetName, (char *name, int len, int device))                     \
    X(cuDeviceGetUuid, (cu_uuid * uuid_p, int device))                        \
    X(cuDeviceGetUuid_v2, (cu_uuid * uuid_p, int device))                     \
    X(cuDeviceTotalMem_v2, (size_t * bytes_p, int device))                    \
    X(cuDeviceGetAttribute, (int *value_p, int attribute, int device))        \
    X(cuDeviceCanAccessPeer, (int *can_p, int device, int peer))              \
    X(cuDeviceGetPCIBusId, (char *text, int len, int device))                 \
    X(cuDevicePrimaryCtxRetain, (cu_context * *context_p, int device))        \
    X(cuDevicePrimaryCtxRelease_v2, (int device))                             \
    X(cuDevicePrimaryCtxReset_v2, (int device))                               \
    X(cuDevicePrimaryCtxGetState,                                             \
      (int device, unsigned *flags_p, int *is_active_p))                      \
    X(cuCtxCreate_v2, (cu_context * *context_p, unsigned flags, int device))  \
    X(cuCtxDestroy_v2, (cu_context * context))                                \
    X(cuCtxPushCurrent_v2, (cu_context * context))                            \
    X(cuCtxPopCurrent_v2, (cu_context * *context_p))                          \
    X(cuCtxGetCurrent, (cu_context * *context_p))                             \
    X(cuCtxSetCurrent, (cu_context * context))                                \
    X(cuCtxGetDevice, (int *device_p))                                        \
    X(cuCtxGetId, (cu_context * context, unsigned long long *id_p))           \
    X(cuCtxSetFlags, (unsigned flags))                                        \
    X(cuCtxSynchronize, (void))                                               \
    X(cuCtxEnablePeerAccess, (cu_context * peer, unsigned flags))

#define STANDIN_MEMORY_FUNCTIONS(X)                                            \
    X(cuMemAlloc_v2, (cu_pointer * pointer_p, size_t len))                     \
    X(cuMemAllocManaged, (cu_pointer * pointer_p, size_t len, unsigned flags)) \
    X(cuMemHostAlloc, (void **data_p, size_t len, unsigned flags))             \
    X(cuMemAllocHost_v2, (void **data_p, size_t len))                          \
    X(cuMemFree_v2, (cu_pointer pointer))                                      \
    X(cuMemFreeHost, (void *data))                                             \
    X(cuMemHostRegister_v2, (void *data, size_t len, unsigned flags))          \
    X(cuMemHostUnregister, (void *data))                                       \
    X(cuMemHostGetDevicePointer_v2,                                            \
      (cu_pointer * pointer_p, void *data, unsigned flags))                    \
    X(cuMemGetInfo_v2, (size_t * free_p, size_t * total_p))                    \
    X(cuMemGetAddressRange_v2,                                                 \
      (cu_pointer * start_p, size_t * len_p, cu_pointer pointer))              \
    X(cuPointerGetAttribute, (void *value, int attribute, cu_pointer pointer)) \
    X(cuPointerGetAttributes, (unsigned count, const int *attributes,          \
                               void **values, cu_pointer pointer))             \
    X(cuPointerSetAttribute,                                                   \
      (const void *value, int attribute, cu_pointer pointer))                  \
    X(cuMemRangeGetAttribute, (void *value, size_t len, int attribute,         \
                               cu_pointer pointer, size_t count))              \
    X(cuIpcGetMemHandle, (cu_ipc * handle_p, cu_pointer pointer))              \
    X(cuIpcOpenMemHandle_v2,                                                   \
      (cu_pointer * pointer_p, cu_ipc handle, unsigned flags))                 \
    X(cuIpcCloseMemHandle, (cu_pointer pointer))                               \
    X(cuMemPoolCreate, (cu_pool * *pool_p, const void *properties))            \
    X(cuMemPoolDestroy, (cu_pool * pool))                                      \
    X(cuMemPoolTrimTo, (cu_pool * pool, size_t len))                           \
    X(cuMemPoolSetAttribute, (cu_pool * pool, int attribute, void *value))     \
    X(cuDeviceGetDefaultMemPool, (cu_pool * *pool_p, int device))              \
    X(cuDeviceGetMemPool, (cu_pool * *pool_p, int device))                     \
    X(cuMemAllocAsync,                                                         \
      (cu_pointer * pointer_p, size_t len, cu_stream * stream))                \
    X(cuMemAllocFromPoolAsync, (cu_pointer * pointer_p, size_t len,            \
                                cu_pool * pool, cu_stream * stream))           \
    X(cuMemFreeAsync, (cu_pointer pointer, cu_stream * stream))

#define STANDIN_STREAM_FUNCTIONS(X)                                           \
    X(cuStreamCreate, (cu_stream * *stream_p, unsigned flags))                \
    X(cuStreamCreateWithPriority,                                             \
      (cu_stream * *stream_p, unsigned flags, int priority))                  \
    X(cuStreamDestroy_v2, (cu_stream * stream))                               \
    X(cuStreamSynchronize, (cu_stream * stream))                              \
    X(cuStreamQuery, (cu_stream * stream))                                    \
    X(cuStreamGetCtx, (cu_stream * stream, cu_context * *context_p))          \
    X(cuStreamWaitEvent,                                                      \
      (cu_stream * stream, cu_event * event, unsigned flags))                 \
    X(cuStreamAddCallback,                                                    \
      (cu_stream * stream, cu_callback callback, void *arg, unsigned flags))  \
    X(cuLaunchHostFunc, (cu_stream * stream, cu_host_fn function, void *arg)) \
    X(cuStreamWaitValue32_v2, (cu_stream * stream, cu_pointer pointer,        \
                               uint32_t value, unsigned flags))               \
    X(cuStreamWriteValue32_v2, (cu_stream * stream, cu_pointer pointer,       \
                                uint32_t value, unsigned flags))              \
    X(cuStreamWaitValue32, (cu_stream * stream, cu_pointer pointer,           \
                            uint32_t value, unsigned flags))                  \
    X(cuStreamWriteValue32, (cu_stream * stream, cu_pointer pointer,          \
                             uint32_t value, unsigned flags))                 \
    X(cuStreamIsCapturing, (cu_stream * stream, int *status_p))               \
    X(cuStreamBeginCapture_v2, (cu_stream * stream, int mode))                \
    X(cuStreamEndCapture, (cu_stream * stream, void **graph_p))               \
    X(cuThreadExchangeStreamCaptureMode, (int *mode_p))                       \
    X(cuGraphDestroy, (void *graph))                                          \
    X(cuEventCreate, (cu_event * *event_p, unsigned flags))                   \
    X(cuEventDestroy_v2, (cu_event * event))                                  \
    X(cuEventRecord, (cu_event * event, cu_stream * stream))                  \
    X(cuEventQuery, (cu_event * event))                                       \
    X(cuEventSynchronize, (cu_event * event))                                 \
    X(cuEventElapsedTime, (float *ms_p, cu_event *begin, cu_event *end))

#define STANDIN_KERNEL_FUNCTIONS(X)                                           \
    X(cuModuleLoadData, (cu_module * *module_p, const void *image))           \
    X(cuModuleGetFunction,                                                    \
      (cu_function * *function_p, cu_module * module, const char *name))      \
    X(cuFuncGetAttribute,                                                     \
      (int *value_p, int attribute, cu_function *function))                   \
    X(cuLaunchKernel,                                                         \
      (cu_function * function, unsigned grid_x, unsigned grid_y,              \
       unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, \
       unsigned shared, cu_stream *stream, void **params, void **extra))

#define STANDIN_COPY_FUNCTIONS(X)                                         \
    X(cuMemcpy, (cu_pointer dst, cu_pointer src, size_t len))             \
    X(cuMemcpyHtoD_v2, (cu_pointer dst, const void *src, size_t len))     \
    X(cuMemcpyDtoH_v2, (void *dst, cu_pointer src, size_t len))           \
    X(cuMemcpyDtoD_v2, (cu_pointer dst, cu_pointer src, size_t len))      \
    X(cuMemcpyAsync,                                                      \
      (cu_pointer dst, cu_pointer src, size_t len, cu_stream * stream))   \
    X(cuMemcpyHtoDAsync_v2,                                               \
      (cu_pointer dst, const void *src, size_t len, cu_stream *stream))   \
    X(cuMemcpyDtoHAsync_v2,                                               \
      (void *dst, cu_pointer src, size_t len, cu_stream *stream))         \
    X(cuMemcpyDtoDAsync_v2,                                               \
      (cu_pointer dst, cu_pointer src, size_t len, cu_stream * stream))   \
    X(cuMemsetD8_v2, (cu_pointer pointer, unsigned char value, size_t n)) \
    X(cuMemsetD8Async,                                                    \
      (cu_pointer pointer, unsigned char value, size_t n, cu_stream *stream))

/* What the stand-in does not support: it is linked with, and says so. */
#define STANDIN_LACKING_FUNCTIONS(X)          \
    X(cuMemAddressFree)                       \
    X(cuMemAddressReserve)                    \
    X(cuMemCreate)                            \
    X(cuMemExportToShareableHandle)           \
    X(cuMemGetAllocationGranularity)          \
    X(cuMemGetAllocationPropertiesFromHandle) \
    X(cuMemImportFromShareableHandle)         \
    X(cuMemMap)                               \
    X(cuMemPoolExportPointer)                 \
    X(cuMemPoolExportToShareableHandle)       \
    X(cuMemPoolImportFromShareableHandle)     \
    X(cuMemPoolImportPointer)                 \
    X(cuMemPoolSetAccess)                     \
    X(cuMemRelease)                           \
    X(cuMemRetainAllocationHandle)            \
    X(cuMemSetAccess)                         \
    X(cuMemUnmap)

#define STANDIN_DECLARE(name, args) int name args;
STANDIN_DEVICE_FUNCTIONS(STANDIN_DECLARE)
STANDIN_MEMORY_FUNCTIONS(STANDIN_DECLARE)
STANDIN_STREAM_FUNCTIONS(STANDIN_DECLARE)
STANDIN_COPY_FUNCTIONS(STANDIN_DECLARE)
STANDIN_KERNEL_FUNCTIONS(STANDIN_DECLARE)
#undef STANDIN_DECLARE
#define STANDIN_DECLARE(name) int name(void);
STANDIN_LACKING_FUNCTIONS(STANDIN_DECLARE)
#undef STANDIN_DECLARE

#endif
