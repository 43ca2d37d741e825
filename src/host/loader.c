/* SPDX-License-Identifier: BSD-3-Clause */
#include "host/loader.h"

#include "host/fork.h"
#include "host/thread_limit.h"
#include "mem/cuda_kernel.h"

static void *
run(void *arg)
{
    umi_loader *loader = arg;

    umi_cuda_kernel_load(loader->device);
    atomic_store(&loader->has_ended, true);
    return NULL;
}

void
umi_loader_end(umi_loader *loader)
{
    if (loader->is_started && loader->generation == umi_fork_generation()) {
        (void)pthread_join(loader->thread, NULL); /* else it is the parent's */
    }
    loader->is_started = false;
}

/* True if a thread of the loader's is at work. */
static bool
is_busy(const umi_loader *loader)
{
    return loader->is_started && !atomic_load(&loader->has_ended);
}

void
umi_loader_use(umi_loader *loader, int device)
{
    if (is_busy(loader) || !umi_cuda_kernel_is_to_load(device)) {
        return;
    }
    umi_loader_end(loader);
    loader->device     = device;
    loader->generation = umi_fork_generation();
    atomic_store(&loader->has_ended, false);
    if (umi_thread_create(&loader->thread, run, loader) == 0) {
        loader->is_started = true;
    } else {
        umi_cuda_kernel_unload(device); /* perhaps the next time */
    }
}
