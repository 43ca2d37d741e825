/* SPDX-License-Identifier: BSD-3-Clause */
#include "mem/cuda_kernel.h"

#include <stdatomic.h>

#include "mem/cuda.h"
#include "mem/cuda_driver.h"
#include "mem/cuda_kernel_ptx.h"

enum {
    MOVES   = 128, /* as in cuda_kernel.cu */
    THREADS = 256,
    STEP    = 16 * 1024 /* bytes of a block */
};

typedef enum phase {
    NEW,
    LOADING,
    READY,
    MISSING
} phase;

/* Of one device; it is its primary context's. */
typedef struct kernel {
    atomic_int  phase;
    atomic_uint life; /* of its context, plus 1; 0: never loaded */
    cu_function function;
} kernel;

/* The parameters of cuda_kernel.cu. */
typedef struct run {
    cu_pointer dst, src;
    uint64_t   len;
} run;

typedef struct runs {
    run at[MOVES];
} runs;

static kernel kernels[MAX_DEVICES];

static bool
advance(kernel *k, int from, int to)
{
    return atomic_compare_exchange_strong(&k->phase, &from, to);
}

/* True if it is of the context that the device has now. */
static bool
is_alive(const kernel *k, int device)
{
    return atomic_load(&k->life) == umi_cuda_life(device) + 1;
}

bool
umi_cuda_kernel_is_to_load(int device)
{
    kernel *k = &kernels[device];

    if (atomic_load(&k->phase) == READY && !is_alive(k, device)) {
        (void)advance(k, READY, NEW);
    }
    return atomic_load(&k->phase) == NEW && advance(k, NEW, LOADING);
}

void
umi_cuda_kernel_unload(int device)
{
    (void)advance(&kernels[device], LOADING, NEW);
}

bool
umi_cuda_kernel_is_ready(int device)
{
    return atomic_load(&kernels[device].phase) == READY &&
           is_alive(&kernels[device], device);
}

/* Load the kernel now. The driver may put loading off until it is asked for
 * something of the kernel, so it is asked for the number of registers. */
static umx_status
load(int device, kernel *k)
{
    cu_module  module;
    int        registers;
    umx_status status = umi_cuda_enter_device(device);

    if (status != UMX_OK) {
        return status;
    }
    atomic_store(&k->life, umi_cuda_life(device) + 1);
    status = umi_cuda_check(umi_cuda.module_load(&module, umi_cuda_kernel_ptx),
                            device, "cuModuleLoadData");
    if (status == UMX_OK) {
        status = umi_cuda_check(
            umi_cuda.module_function(&k->function, module, "umx_move"), device,
            "cuModuleGetFunction");
    }
    if (status == UMX_OK) {
        status = umi_cuda_check(umi_cuda.function_attribute(
                                    &registers, ATTR_REGISTERS, k->function),
                                device, "cuFuncGetAttribute");
    }
    umi_cuda_leave();
    return status;
}

void
umi_cuda_kernel_load(int device)
{
    kernel    *k      = &kernels[device];
    umx_status status = load(device, k);

    (void)advance(k, LOADING, (status == UMX_OK) ? READY : MISSING);
}

/* Launch it once, for at most MOVES moves. */
static umx_status
launch(int device, const umi_cuda_move *moves, size_t count, cu_stream stream)
{
    runs     list;
    uint64_t step = STEP, longest = 0;
    void    *params[] = {&list, &step};

    for (size_t i = 0; i < count; i++) {
        list.at[i] = (run){.dst = (uintptr_t)moves[i].dst,
                           .src = (uintptr_t)moves[i].src,
                           .len = moves[i].len};
        longest    = (moves[i].len > longest) ? moves[i].len : longest;
    }
    return umi_cuda_check(
        umi_cuda.launch(
            kernels[device].function, (unsigned)((longest + STEP - 1) / STEP),
            (unsigned)count, 1, THREADS, 1, 1, 0, stream, params, NULL),
        device, "cuLaunchKernel");
}

umx_status
umi_cuda_kernel_queue(int device, const umi_cuda_move *moves, size_t count,
                      void *stream)
{
    umx_status status = UMX_OK;

    while (count != 0 && status == UMX_OK) {
        size_t some = (count < MOVES) ? count : MOVES;

        status = launch(device, moves, some, stream);
        moves += some;
        count -= some;
    }
    if (status != UMX_OK) {
        (void)advance(&kernels[device], READY, MISSING);
    }
    return status;
}
