#include "mem/memtype.h"

static umx_status
host_copy_in(void *dst, const void *src, size_t len)
{
    memcpy(dst, src, len);
    return UMX_OK;
}

/* Device memory is reached by rendezvous, where UCX moves the bytes; eager
 * data for a device buffer needs the CUDA driver. */
static umx_status
no_copy_in(void *dst, const void *src, size_t len)
{
    (void)dst;
    (void)src;
    (void)len;
    return UMX_ERR_UNSUPPORTED;
}

const umi_memtype_ops umi_memtypes[] = {
    [UMX_MEMTYPE_UNKNOWN]      = {"unknown", true, host_copy_in},
    [UMX_MEMTYPE_HOST]         = {"host", true, host_copy_in},
    [UMX_MEMTYPE_CUDA]         = {"cuda", false, no_copy_in},
    [UMX_MEMTYPE_CUDA_MANAGED] = {"cuda-managed", true, host_copy_in},
};
