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
    [UMX_MEMTYPE_UNKNOWN] = {"unknown", true, host_copy, host_copy},
    [UMX_MEMTYPE_HOST]    = {"host", true, host_copy, host_copy},
    [UMX_MEMTYPE_CUDA] = {"cuda", false, umi_cuda_copy_in, umi_cuda_copy_out},
    [UMX_MEMTYPE_CUDA_MANAGED] = {"cuda-managed", true, host_copy, host_copy},
};
