/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file memory.h  What memory a pointer leads to, and when its bytes are there.
 *
 * NVIDIA's driver is asked, if the machine has one; it is loaded by the first
 * of these calls, and by the first operation on device memory. Operations take
 * device memory (`umx_buffer.memtype` CUDA or CUDA_MANAGED) with the context
 * of its device as the current one, whatever the caller's is. UCX is not
 * ordered with the streams of a device: what computes the bytes of a send must
 * be done, and what reads those under a receive, before it is posted. Sends and
 * receives of messages wait for a stream by themselves: UMX_OP_FIELD_STREAM.
 */
#ifndef UMX_MEMORY_H
#define UMX_MEMORY_H

#include <umx/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UMX_DEVICE_NONE (-1)

typedef struct umx_memory_info {
    umx_memtype memtype;
    bool        is_cuda; /* the driver knows it; pinned host memory, too */
    int         device;  /* ordinal, or UMX_DEVICE_NONE */
} umx_memory_info;

/** True if there is a driver, and a device. Thread: any. */
UMX_API bool umx_cuda_is_present(void);

/**
 * Find out what memory `len` bytes at `data` are. Without a driver everything
 * is HOST; so is what the driver does not know. Thread: any.
 *
 * @return UMX_OK; UMX_ERR_INVALID_PARAM: the allocation is shorter; what the
 *         driver says
 */
UMX_API UMX_MUST_CHECK umx_status umx_memory_query(const void      *data,
                                                   size_t           len,
                                                   umx_memory_info *info);

/**
 * Return once everything that was queued in `stream` is done.
 *
 * @param device  the stream's; UMX_DEVICE_NONE: of the current context
 * @param stream  a CUstream; 1: the default stream, 2: the thread's
 * @return UMX_OK; UMX_ERR_UNSUPPORTED: no driver; UMX_ERR_INVALID_PARAM: not a
 *         stream; UMX_ERR_OUT_OF_RANGE: not a device; what the driver says
 */
UMX_API UMX_MUST_CHECK umx_status umx_cuda_wait(int device, uintptr_t stream);

/**
 * Find out, without waiting, whether everything that was queued in `stream` is
 * done.
 *
 * @return UMX_OK; UMX_INPROGRESS: it is not; UMX_ERR_BUSY: the stream captures a
 *         graph, which nobody can wait for; else as umx_cuda_wait()
 */
UMX_API UMX_MUST_CHECK umx_status umx_cuda_query(int device, uintptr_t stream);

#ifdef __cplusplus
}
#endif
#endif
