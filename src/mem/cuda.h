/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda.h: what is needed of NVIDIA's driver, if the machine has it. It is
 * looked for by dlopen() when it is first asked about a pointer; without it all
 * of this returns UMX_ERR_UNSUPPORTED. Thread: any. */
#ifndef UMI_CUDA_H
#define UMI_CUDA_H

#include <umx/memory.h>

/* Where the bytes of a copy go. */
typedef enum umi_cuda_direction {
    UMI_CUDA_IN,      /* from the host to a device */
    UMI_CUDA_OUT,     /* from a device to the host */
    UMI_CUDA_ACROSS,  /* between devices, or within one */
    UMI_CUDA_AT_ONCE, /* any of these, and the caller waits for it */
    UMI_CUDA_NUM_DIRECTIONS
} umi_cuda_direction;

/* umx_memory_query(); without a driver UMX_ERR_UNSUPPORTED. */
umx_status umi_cuda_describe(const void *data, size_t len,
                             umx_memory_info *info);

/* Find the device that memory is of. UMX_ERR_INVALID_PARAM: none, or it is
 * shorter. */
umx_status umi_cuda_device_of(const void *data, size_t len, int *device_p);

/* True if another process can map the memory by a handle of
 * cuIpcGetMemHandle(): that of cuMemAlloc() can be, pools and what is mapped in
 * pieces cannot. */
bool umi_cuda_is_exportable(const void *data);

/* Have the context of that memory's device as the current one, until leave().
 * UMX_ERR_INVALID_PARAM: it is of no device, or shorter;
 * UMX_ERR_DEVICE_FAILED. */
umx_status umi_cuda_enter(const void *data, size_t len);
void       umi_cuda_leave(void);

/* What another process maps memory of a device by. */
typedef struct umi_cuda_handle {
    unsigned char bytes[64];
} umi_cuda_handle;

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
