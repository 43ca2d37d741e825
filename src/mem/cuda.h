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

/* Have the context of that memory's device as the current one, until leave().
 * UMX_ERR_INVALID_PARAM: it is of no device, or shorter. */
umx_status umi_cuda_enter(const void *data, size_t len);
void       umi_cuda_leave(void);

/* Copy between host memory and memory of a device, in that device's context;
 * the caller's current context is what it was. Returns when it is done. */
umx_status umi_cuda_copy_in(void *dst, const void *src, size_t len);
umx_status umi_cuda_copy_out(void *dst, const void *src, size_t len);

/* Copy between memories of devices, of one or of two; as those. */
umx_status umi_cuda_copy_across(void *dst, const void *src, size_t len);

/* `len` > 0 bytes of zeros: HOST is pinned. `device` UMX_DEVICE_NONE: that of
 * the current context, or the first. */
umx_status umi_cuda_alloc(umx_memtype memtype, int device, size_t len,
                          void **data_p);
void       umi_cuda_free(umx_memtype memtype, void *data);

#endif
