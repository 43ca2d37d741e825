/* SPDX-License-Identifier: BSD-3-Clause */
/* layout.h: the bytes of arrays with gaps, in C order. Thread: any. */
#ifndef UMI_LAYOUT_H
#define UMI_LAYOUT_H

#include <umx/buffer.h>

/* `len` bytes from `offset` on, of those in `buf`, to or from `packed`. */
void umi_layout_read(const umx_buffer *buf, size_t offset, void *packed,
                     size_t len);
void umi_layout_write(const umx_buffer *buf, size_t offset, const void *packed,
                      size_t len);

#endif
