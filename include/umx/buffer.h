/* SPDX-License-Identifier: BSD-3-Clause */
/** @file buffer.h  Helpers for umx_buffer. */
#ifndef UMX_BUFFER_H
#define UMX_BUFFER_H

#include <umx/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** `len` bytes of host memory at `data`. */
static inline umx_buffer
umx_host_buffer(const void *data, size_t len)
{
    umx_buffer buffer = {(void *)data, len, UMX_MEMTYPE_HOST, NULL, NULL};
    return buffer;
}

enum {
    UMX_LAYOUT_MAX_DIMS = 64
};

/** Items in a dimension, and bytes from one to the next: negative or 0, too. */
typedef struct umx_dim {
    size_t    count;
    ptrdiff_t stride;
} umx_dim;

/** Runs of contiguous bytes in dimensions, the innermost first. */
struct umx_layout {
    size_t   run; /* bytes */
    unsigned num_dims;
    umx_dim  dims[UMX_LAYOUT_MAX_DIMS];
};

/**
 * The layout of an array whose items have `itemsize` bytes; `dims` has the
 * outermost first. A message takes the items in that order (C order), whatever
 * their addresses. What lies together is merged.
 *
 * @return UMX_OK; UMX_ERR_OUT_OF_RANGE for more than UMX_LAYOUT_MAX_DIMS
 *         dimensions, or more bytes than size_t counts. `*len_p`: all bytes.
 */
UMX_API UMX_MUST_CHECK umx_status
umx_layout_init(umx_layout *layout, size_t itemsize, unsigned num_dims,
                const umx_dim *dims, size_t *len_p);

/**
 * True if no byte is in the array twice, so that it can be received into. A
 * stride of 0 puts bytes in twice.
 */
UMX_API bool umx_layout_is_writable(const umx_layout *layout);

/** Copy `len` bytes of the host's memory to a buffer, of a device, too.
 * UMX_OK, or what the driver says. */
UMX_API UMX_MUST_CHECK umx_status umx_buffer_write(const umx_buffer *buf,
                                                   const void       *data,
                                                   size_t            len);

/** Copy the first `len` bytes of a buffer to the host's memory. */
UMX_API UMX_MUST_CHECK umx_status umx_buffer_read(const umx_buffer *buf,
                                                  void *data, size_t len);

/**
 * Copy all bytes of a buffer to the beginning of another one. Each may be of
 * the host, of a device, or managed; they do not overlap.
 *
 * Completion: when it returns. The caller has waited for what writes `from` or
 *             uses `to`: the copy is on a stream of the library's own.
 * Thread:     any.
 *
 * @return UMX_OK; UMX_ERR_INVALID_PARAM, if `to` is shorter, or a pointer is
 *         not one of the device's; UMX_ERR_UNSUPPORTED for a layout in memory
 *         of a device, and for such memory without a driver; UMX_ERR_NO_MEMORY;
 *         UMX_ERR_IO_ERROR, if the driver fails
 */
UMX_API UMX_MUST_CHECK umx_status umx_buffer_copy(const umx_buffer *to,
                                                  const umx_buffer *from);

#ifdef __cplusplus
}
#endif
#endif
