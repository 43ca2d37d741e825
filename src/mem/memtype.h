/* SPDX-License-Identifier: BSD-3-Clause */
/* memtype.h: what depends on where memory is. One row a memory type; adding
 * one touches no switch elsewhere. Thread: any. */
#ifndef UMI_MEMTYPE_H
#define UMI_MEMTYPE_H

#include <assert.h>
#include <umx/types.h>

#include "mem/copy.h"
#include "mem/layout.h"

typedef struct umi_memtype_ops {
    const char *name;
    bool        is_host_readable; /* eager sends may read it with the CPU */
    /* Host bytes into memory of this type, and out of it. */
    umx_status (*copy_in)(void *dst, const void *src, size_t len);
    umx_status (*copy_out)(void *dst, const void *src, size_t len);
    /* Enter and leave the context of device memory, around calls of UCX. */
    umx_status (*enter)(const void *data, size_t len);
    void (*leave)(void);
} umi_memtype_ops;

extern const umi_memtype_ops umi_memtypes[UMX_MEMTYPE_CUDA_MANAGED + 1];

/* `len` host bytes into `buf`, which is long enough. */
static inline umx_status
umi_copy_in(const umx_buffer *buf, const void *src, size_t len)
{
    assert(len <= buf->len);
    if (buf->layout != NULL) {
        umi_layout_write(buf, 0, src, len);
        return UMX_OK;
    }
    if (buf->memtype <= UMX_MEMTYPE_HOST) {
        umi_copy(buf->data, src, len);
        return UMX_OK;
    }
    return umi_memtypes[buf->memtype].copy_in(buf->data, src, len);
}

/* The first `len` bytes of `buf` into host memory. */
static inline umx_status
umi_copy_out(const umx_buffer *buf, void *dst, size_t len)
{
    assert(len <= buf->len);
    if (buf->layout != NULL) {
        umi_layout_read(buf, 0, dst, len);
        return UMX_OK;
    }
    if (buf->memtype <= UMX_MEMTYPE_HOST) {
        umi_copy(dst, buf->data, len);
        return UMX_OK;
    }
    return umi_memtypes[buf->memtype].copy_out(dst, buf->data, len);
}

/* All of `from` into `to`, each of any kind; they do not overlap.
 * UMX_ERR_INVALID_PARAM: `to` is shorter; UMX_ERR_UNSUPPORTED: a layout in
 * memory of a device. */
umx_status umi_copy_between(const umx_buffer *to, const umx_buffer *from);

/* umi_check_buffer() of device memory: it must be there. */
umx_status umi_check_device_buffer(const umx_buffer *buf);

/* Check a buffer for an operation that takes a layout. */
static inline umx_status
umi_check_buffer(const umx_buffer *buf)
{
    if (buf->memtype > UMX_MEMTYPE_HOST) {
        return umi_check_device_buffer(buf);
    }
    return (buf->data == NULL && buf->len != 0) ? UMX_ERR_INVALID_PARAM :
                                                  UMX_OK;
}

/* Check a buffer for an operation that takes no layout. */
static inline umx_status
umi_check_contiguous(const umx_buffer *buf)
{
    return (buf->layout != NULL) ? UMX_ERR_UNSUPPORTED : umi_check_buffer(buf);
}

/* Enter the context of `buf` before a call of UCX about it, and leave it after
 * the call. */
static inline umx_status
umi_memory_enter(const umx_buffer *buf)
{
    if (buf->memtype <= UMX_MEMTYPE_HOST || buf->len == 0) {
        return UMX_OK;
    }
    return umi_memtypes[buf->memtype].enter(buf->data, buf->len);
}

static inline void
umi_memory_leave(const umx_buffer *buf)
{
    if (buf->memtype > UMX_MEMTYPE_HOST && buf->len != 0) {
        umi_memtypes[buf->memtype].leave();
    }
}

/* True if the driver knows the memory as that of a device. */
static inline bool
umi_memtype_is_device(const umx_buffer *buf)
{
    return buf->memtype > UMX_MEMTYPE_HOST;
}

static inline bool
umi_memtype_is_host_readable(const umx_buffer *buf)
{
    return umi_memtypes[buf->memtype].is_host_readable;
}

#endif
