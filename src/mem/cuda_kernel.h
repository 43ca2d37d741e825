/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda_kernel.h: one kernel that moves many runs of bytes between memory of
 * devices. To queue a copy takes microseconds, so that many short ones take
 * longer than their bytes: a kernel has one start for all of them.
 *
 * The kernel is cuda_kernel.cu. The library has it as text in PTX, which the
 * driver compiles (cuda_kernel_ptx.h, made by `make ptx`). That takes
 * milliseconds, and the driver may wait for kernels of the program meanwhile,
 * so a thread of host/loader.c does it. Where it fails, or a launch does,
 * copies are queued one by one from then on. Thread: any. */
#ifndef UMI_CUDA_KERNEL_H
#define UMI_CUDA_KERNEL_H

#include <umx/types.h>

#include "mem/cuda_types.h"

enum {
    UMI_CUDA_KERNEL_MIN = 8 /* runs of bytes: fewer are as fast by copies */
};

static inline bool
umi_cuda_kernel_is_for(size_t count)
{
    return count >= UMI_CUDA_KERNEL_MIN;
}

/* True if the caller is to have a thread load the kernel for a device. It is
 * the first who asks, in this life of the device. */
bool umi_cuda_kernel_is_to_load(int device);

/* Load the kernel; a failure is logged, and means that there is none. */
void umi_cuda_kernel_load(int device);

/* Nothing loads it, as there is no thread: the next one who asks may. */
void umi_cuda_kernel_unload(int device);

/* True if the kernel is there. */
bool umi_cuda_kernel_is_ready(int device);

/* Queue the moves, or some of them if it fails: then there is no kernel any
 * more. Each is from memory of a device that the device reaches into
 * memory of its own, or the other way round. The context of `device` has been
 * entered. */
umx_status umi_cuda_kernel_queue(int device, const umi_cuda_move *moves,
                                 size_t count, void *stream);

#endif
