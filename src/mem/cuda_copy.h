/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda_copy.h: copies between host memory and memory of devices. They run in
 * streams of the library's own, which no default stream waits for, and which
 * wait for none: a kernel there may run for ever, and need what is copied here.
 * The caller's current context is what it was. Thread: any. */
#ifndef UMI_CUDA_COPY_H
#define UMI_CUDA_COPY_H

#include <umx/memory.h>

#include "mem/cuda_types.h"

/* A copy that has begun. */
typedef struct umi_cuda_copy {
    void              *event;
    int                device;
    umi_cuda_direction direction;
} umi_cuda_copy;

/* Copy, and return when it is done: into memory of a device, out of it, or from
 * one such memory to another. */
umx_status umi_cuda_copy_in(void *dst, const void *src, size_t len);
umx_status umi_cuda_copy_out(void *dst, const void *src, size_t len);
umx_status umi_cuda_copy_across(void *dst, const void *src, size_t len);

/* Begin a copy of `count` runs of bytes, in the stream of that direction, of
 * the device whose memory is read or written; ACROSS: written. The copies of a
 * stream are done in order. Pageable memory of the host is read before this
 * returns. */
umx_status umi_cuda_copy_begin(int device, umi_cuda_direction direction,
                               const umi_cuda_move *moves, size_t count,
                               umi_cuda_copy *copy);

/* Ask whether a copy is done: UMX_OK, UMX_INPROGRESS, or how it has failed. It
 * is over unless UMX_INPROGRESS. */
umx_status umi_cuda_copy_test(umi_cuda_copy *copy);

/* Find out when all that a program has queued in a stream is done, which
 * umi_cuda_copy_test() tells from now on. UMX_INPROGRESS: it is not done yet;
 * UMX_OK: it is; or what umx_cuda_wait() returns. */
umx_status umi_cuda_after(int device, uintptr_t stream, umi_cuda_copy *copy);

/* Do not ask after such work any more. */
void umi_cuda_after_drop(const umi_cuda_copy *copy);

/* Return when a copy is done, which is over then. */
umx_status umi_cuda_copy_wait(umi_cuda_copy *copy);

/* Have `fn` called in a thread of the driver's once a copy is done. It may not
 * call the driver; it is never called if the device fails. */
umx_status umi_cuda_copy_call(const umi_cuda_copy *copy, void (*fn)(void *arg),
                              void                *arg);

/* Give the library's stream for a kind of work, a CUstream, of the device whose
 * context has been entered. */
umx_status umi_cuda_stream(int device, umi_cuda_direction direction,
                           void **stream_p);

/* Return when the copies that have begun on a device are done. */
void umi_cuda_settle(int device);

/* Let copies move host memory without the CPU, in the context of that device,
 * and all others. UMX_ERR_ALREADY_EXISTS: some of it is so already. */
umx_status umi_cuda_pin(int device, void *data, size_t len);
void       umi_cuda_unpin(int device, void *data);

#endif
