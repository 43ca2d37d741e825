/* SPDX-License-Identifier: BSD-3-Clause */
#include "host/pin.h"

#include "host/fork.h"
#include "host/thread_limit.h"
#include "mem/cuda.h"
#include "mem/cuda_copy.h"

static bool
advance(umi_pin *pin, int from, int to)
{
    return atomic_compare_exchange_strong(&pin->state, &from, to);
}

static void *
run(void *arg)
{
    umi_pin *pin = arg;

    pin->is_registered = umi_cuda_pin(pin->device, pin->data, pin->len) ==
                         UMX_OK;
    return NULL;
}

void
umi_pin_use(umi_pin *pin, void *data, size_t len)
{
    int device;

    if (atomic_load(&pin->state) == UMI_PIN_BEGUN ||
        advance(pin, UMI_PIN_NEW, UMI_PIN_SEEN) ||
        !umi_cuda_find_context(&device) ||
        !advance(pin, UMI_PIN_SEEN, UMI_PIN_BEGUN)) {
        return;
    }
    pin->data       = data;
    pin->len        = len;
    pin->device     = device;
    pin->generation = umi_fork_generation();
    if (umi_thread_create(&pin->thread, run, pin) != 0) {
        atomic_store(&pin->state, UMI_PIN_SEEN); /* perhaps the next time */
    }
}

/* The memory is used no more, so that no thread begins now. */
void
umi_pin_end(umi_pin *pin)
{
    if (atomic_load(&pin->state) != UMI_PIN_BEGUN ||
        pin->generation != umi_fork_generation()) {
        return; /* the thread is in the parent */
    }
    (void)pthread_join(pin->thread, NULL);
    if (pin->is_registered) {
        /* A message that was sent from it by its address does not hold it. */
        umi_cuda_settle(pin->device);
        umi_cuda_unpin(pin->device, pin->data);
    }
    atomic_store(&pin->state, UMI_PIN_NEW);
}
