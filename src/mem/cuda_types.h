/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda_types.h: what is said of copies, and of memory of devices. */
#ifndef UMI_CUDA_TYPES_H
#define UMI_CUDA_TYPES_H

#include <stddef.h>

/* Where the bytes of a copy go. */
typedef enum umi_cuda_direction {
    UMI_CUDA_IN,      /* from the host to a device */
    UMI_CUDA_OUT,     /* from a device to the host */
    UMI_CUDA_ACROSS,  /* between devices, or within one */
    UMI_CUDA_AT_ONCE, /* any of these, and the caller waits for it */
    UMI_CUDA_AFTER,   /* no copy: what a program has queued in its stream */
    UMI_CUDA_NUM_DIRECTIONS
} umi_cuda_direction;

/* Bytes that a copy moves. */
typedef struct umi_cuda_move {
    void       *dst;
    const void *src;
    size_t      len;
} umi_cuda_move;

/* What another process maps memory of a device by. */
typedef struct umi_cuda_handle {
    unsigned char bytes[64];
} umi_cuda_handle;

#endif
