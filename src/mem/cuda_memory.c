/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/cuda_memory.h"

#include <string.h>

#include "mem/cuda.h"
#include "mem/cuda_copy.h"
#include "mem/cuda_driver.h"

/* ---- allocation ----------------------------------------------------------
 */

/* The device whose context is current, or the first. */
static int
current_device(void)
{
    cu_device device;

    return (umi_cuda.current_device(&device) == CU_OK) ? device : 0;
}

static umx_status
zero(int device, cu_pointer pointer, size_t len)
{
    void      *stream;
    umx_status status = umi_cuda_stream(device, UMI_CUDA_AT_ONCE, &stream);

    if (status == UMX_OK) {
        status = umi_cuda_check(umi_cuda.fill(pointer, 0, len, stream), device,
                                "cuMemsetD8Async");
    }
    return (status == UMX_OK) ? umi_cuda_check(umi_cuda.stream_wait(stream),
                                               device, "cuStreamSynchronize") :
                                status;
}

static umx_status
alloc(umx_memtype memtype, int device, size_t len, void **data_p)
{
    cu_pointer pointer = 0;
    umx_status status;

    if (memtype == UMX_MEMTYPE_HOST) {
        status = umi_cuda_check(umi_cuda.alloc_pinned(data_p, len, CU_PORTABLE),
                                device, "cuMemHostAlloc");
        if (status == UMX_OK) {
            memset(*data_p, 0, len);
        }
        return status;
    }
    status = (memtype == UMX_MEMTYPE_CUDA) ?
                 umi_cuda_check(umi_cuda.alloc(&pointer, len), device,
                                "cuMemAlloc") :
                 umi_cuda_check(
                     umi_cuda.alloc_managed(&pointer, len, CU_ATTACH_GLOBAL),
                     device, "cuMemAllocManaged");
    if (status != UMX_OK) {
        return status;
    }
    status = zero(device, pointer, len);
    if (status != UMX_OK) {
        (void)umi_cuda.free(pointer);
        return status;
    }
    *data_p = (void *)(uintptr_t)pointer;
    return UMX_OK;
}

umx_status
umi_cuda_alloc(umx_memtype memtype, int device, size_t len, void **data_p)
{
    umx_status status;

    if (!umx_cuda_is_present()) {
        return UMX_ERR_UNSUPPORTED;
    }
    if (device == UMX_DEVICE_NONE) {
        device = current_device();
    }
    status = umi_cuda_enter_device(device);
    if (status == UMX_OK) {
        status = alloc(memtype, device, len, data_p);
        umi_cuda_leave();
    }
    return status;
}

void
umi_cuda_free(umx_memtype memtype, void *data)
{
    if (memtype == UMX_MEMTYPE_HOST) {
        (void)!umi_cuda_check(umi_cuda.free_pinned(data), UMX_DEVICE_NONE,
                              "cuMemFreeHost");
        return;
    }
    if (umi_cuda_enter(data, 1) == UMX_OK) {
        (void)!umi_cuda_check(umi_cuda.free((uintptr_t)data), UMX_DEVICE_NONE,
                              "cuMemFree");
        umi_cuda_leave();
    }
}

/* ---- memory that others map ----------------------------------------------
 */

umx_status
umi_cuda_alloc_exported(int device, size_t len, void **data_p,
                        umi_cuda_handle *handle_p)
{
    cu_pointer pointer = 0;
    umx_status status  = umi_cuda_enter_device(device);

    if (status != UMX_OK) {
        return status;
    }
    status = umi_cuda_check(umi_cuda.alloc(&pointer, len), device,
                            "cuMemAlloc");
    if (status == UMX_OK) {
        status = umi_cuda_check(umi_cuda.export_memory(handle_p, pointer),
                                device, "cuIpcGetMemHandle");
        if (status != UMX_OK) {
            (void)umi_cuda.free(pointer);
        }
    }
    umi_cuda_leave();
    *data_p = (void *)(uintptr_t)pointer;
    return status;
}

umx_status
umi_cuda_map(int device, const umi_cuda_handle *handle, void **data_p)
{
    cu_pointer pointer = 0;
    umx_status status  = umi_cuda_enter_device(device);

    if (status == UMX_OK) {
        status = umi_cuda_check(
            umi_cuda.open_memory(&pointer, *handle, CU_ENABLE_PEERS), device,
            "cuIpcOpenMemHandle");
        umi_cuda_leave();
    }
    *data_p = (void *)(uintptr_t)pointer;
    return status;
}

void
umi_cuda_unmap(int device, void *data)
{
    if (umi_cuda_enter_device(device) == UMX_OK) {
        (void)!umi_cuda_check(umi_cuda.close_memory((uintptr_t)data), device,
                              "cuIpcCloseMemHandle");
        umi_cuda_leave();
    }
}
