/* SPDX-License-Identifier: BSD-3-Clause */
/* loader.h: a thread that has the driver compile mem/cuda_kernel.h's kernel,
 * which takes milliseconds: until it is there, copies are queued one by one.
 * Thread: the worker's owner. */
#ifndef UMI_LOADER_H
#define UMI_LOADER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Of a worker; zeros: no thread. */
typedef struct umi_loader {
    pthread_t   thread;
    unsigned    generation; /* umi_fork_generation() when it was started */
    int         device;
    bool        is_started;
    atomic_bool has_ended;
} umi_loader;

/* Have the kernel loaded for a device, unless it has been, or another thread is
 * at it. */
void umi_loader_use(umi_loader *loader, int device);

/* Return when the thread has ended. */
void umi_loader_end(umi_loader *loader);

#endif
