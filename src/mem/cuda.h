/* cuda.h: what is needed of NVIDIA's driver, if the machine has it. It is
 * looked for by dlopen() when it is first asked about a pointer; without it all
 * of this returns UMX_ERR_UNSUPPORTED. Thread: any. */
#ifndef UMI_CUDA_H
#define UMI_CUDA_H

#include <umx/types.h>

/* What the driver knows about some memory. */
typedef struct umi_cuda_memory {
    umx_memtype memtype;
    int         device; /* its ordinal; -1: of none */
} umi_cuda_memory;

/* UMX_OK; UMX_ERR_INVALID_PARAM: there is nothing of that kind, or it is
 * shorter. Host memory that the driver does not know is HOST. */
umx_status umi_cuda_describe(const void *data, size_t len,
                             umi_cuda_memory *memory);

/* Copy between host memory and memory of a device, in that device's context;
 * the caller's current context is what it was. Returns when it is done. */
umx_status umi_cuda_copy_in(void *dst, const void *src, size_t len);
umx_status umi_cuda_copy_out(void *dst, const void *src, size_t len);

/* Return once what was queued in `stream` (a CUstream, or 1 and 2 for the
 * default ones) on that device is done. */
umx_status umi_cuda_wait(int device, uintptr_t stream);

#endif
