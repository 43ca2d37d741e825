/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda.h: what is needed of NVIDIA's driver, if the machine has it. It is
 * looked for by dlopen() when it is first asked about a pointer; without it all
 * of this returns UMX_ERR_UNSUPPORTED. Thread: any. */
#ifndef UMI_CUDA_H
#define UMI_CUDA_H

#include <umx/memory.h>

/* umx_memory_query(); without a driver UMX_ERR_UNSUPPORTED. */
umx_status umi_cuda_describe(const void *data, size_t len,
                             umx_memory_info *info);

/* Find the device that memory is of. UMX_ERR_INVALID_PARAM: none, or it is
 * shorter. */
umx_status umi_cuda_device_of(const void *data, size_t len, int *device_p);

/* True if the memory is of the context of its device that the library uses, the
 * primary one, or of none. The kernels of a context reach no other's. */
bool umi_cuda_is_primary(const void *data, int device);

/* True if another process can map the memory by a handle of
 * cuIpcGetMemHandle(): that of cuMemAlloc() can be, pools and what is mapped in
 * pieces cannot. */
bool umi_cuda_is_exportable(const void *data);

/* Have the context of that memory's device as the current one, until leave().
 * UMX_ERR_INVALID_PARAM: it is of no device, or shorter;
 * UMX_ERR_DEVICE_FAILED. */
umx_status umi_cuda_enter(const void *data, size_t len);
void       umi_cuda_leave(void);

/* ---- between the files ---------------------------------------------------
 */

/* The functions of the driver (cuda_driver.h), which can be called once
 * umx_cuda_is_present() has returned true. */
extern struct umi_cuda_driver umi_cuda;

/* Translate a result into a status, and log a failure of `what`. `device`:
 * whose context is current, or UMX_DEVICE_NONE. An error after which the driver
 * refuses everything there marks the device as failed. */
umx_status umi_cuda_check(int result, int device, const char *what);

/* Have the context of a device as the current one, until umi_cuda_leave(). No
 * call in between is refused because another thread captures a graph.
 * UMX_ERR_DEVICE_FAILED: the device has failed. */
umx_status umi_cuda_enter_device(int device);

/* Find a device whose context the process has made: the calling thread's, or
 * another one. False: none, and none is made. */
bool umi_cuda_find_context(int *device_p);

/* Count the contexts of a device that have ended: streams and events of another
 * life are gone. */
unsigned umi_cuda_life(int device);

#endif
