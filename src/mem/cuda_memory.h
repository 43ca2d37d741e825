/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda_memory.h: memory of devices, and pinned memory of the host. Thread: any.
 */
#ifndef UMI_CUDA_MEMORY_H
#define UMI_CUDA_MEMORY_H

#include <umx/memory.h>

#include "mem/cuda_types.h"

/* Allocate memory of a device that others can map. */
umx_status umi_cuda_alloc_exported(int device, size_t len, void **data_p,
                                   umi_cuda_handle *handle_p);

/* Map such memory for copies of `device`; not in its own process. */
umx_status umi_cuda_map(int device, const umi_cuda_handle *handle,
                        void **data_p);
void       umi_cuda_unmap(int device, void *data);

/* `len` > 0 bytes of zeros: HOST is pinned. `device` UMX_DEVICE_NONE: that of
 * the current context, or the first. */
umx_status umi_cuda_alloc(umx_memtype memtype, int device, size_t len,
                          void **data_p);
void       umi_cuda_free(umx_memtype memtype, void *data);

#endif
