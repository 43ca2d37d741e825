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
    umx_buffer buffer = {(void *)data, len, UMX_MEMTYPE_HOST, NULL};
    return buffer;
}

#ifdef __cplusplus
}
#endif
#endif
