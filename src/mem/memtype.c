/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/memtype.h"

#include "mem/cuda.h"

static umx_status
host_copy(void *dst, const void *src, size_t len)
{
    if (len != 0) {
        memcpy(dst, src, len);
    }
    return UMX_OK;
}

const umi_memtype_ops umi_memtypes[] = {
    [UMX_MEMTYPE_UNKNOWN] = {"unknown", true, host_copy, host_copy, NULL, NULL},
    [UMX_MEMTYPE_HOST]    = {"host", true, host_copy, host_copy, NULL, NULL},
    [UMX_MEMTYPE_CUDA]    = {"cuda", false, umi_cuda_copy_in, umi_cuda_copy_out,
                             umi_cuda_enter, umi_cuda_leave},
    [UMX_MEMTYPE_CUDA_MANAGED] = {"cuda-managed", true, host_copy, host_copy,
                                  umi_cuda_enter, umi_cuda_leave},
};

umx_status
umi_check_device_buffer(const umx_buffer *buf)
{
    umx_status status;

    if (buf->memtype > UMX_MEMTYPE_CUDA_MANAGED) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (buf->layout != NULL) {
        return UMX_ERR_UNSUPPORTED;
    }
    status = umi_memory_enter(buf);
    if (status == UMX_OK) {
        umi_memory_leave(buf);
    }
    return status;
}
