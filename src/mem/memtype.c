/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/memtype.h"

#include <stdlib.h>

#include "mem/cuda.h"
#include "mem/cuda_copy.h"

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

static bool
has_device_layout(const umx_buffer *buf)
{
    return buf->layout != NULL && buf->memtype > UMX_MEMTYPE_HOST;
}

/* Is it one run of bytes that the CPU may read and write? */
static bool
is_host_run(const umx_buffer *buf)
{
    return buf->layout == NULL && umi_memtype_is_host_readable(buf);
}

static umx_status
copy_staged(const umx_buffer *to, const umx_buffer *from)
{
    void      *bytes = malloc(from->len);
    umx_status status;

    if (bytes == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = umi_copy_out(from, bytes, from->len);
    if (status == UMX_OK) {
        status = umi_copy_in(to, bytes, from->len);
    }
    free(bytes);
    return status;
}

umx_status
umi_copy_between(const umx_buffer *to, const umx_buffer *from)
{
    if (to->len < from->len) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (has_device_layout(to) || has_device_layout(from)) {
        return UMX_ERR_UNSUPPORTED;
    }
    if (from->len == 0) {
        return UMX_OK;
    }
    if (is_host_run(from)) {
        return umi_copy_in(to, from->data, from->len);
    }
    if (is_host_run(to)) {
        return umi_copy_out(from, to->data, from->len);
    }
    if (to->layout == NULL && from->layout == NULL) {
        return umi_cuda_copy_across(to->data, from->data, from->len);
    }
    return copy_staged(to, from);
}

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
