/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_cuda.h: NVIDIA's driver without one: memory of its devices is the
 * host's.
 *
 * A test in C finds it by dlopen("libcuda.so.1") if it says `link: fake_cuda
 * fake_cuda_link wrap=dlopen wrap=dlsym`; tests in Python build that library
 * of it. What a call needs is checked: a copy in the context of the memory's
 * device, a context that was pushed and is popped. Thread: any; what is counted
 * may miss something then. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>

enum {
    FAKE_CUDA_DEVICES = 4
};

typedef struct fake_cuda_state {
    unsigned    pushes; /* of contexts, ... */
    unsigned    pops;
    unsigned    copies;
    unsigned    waits;       /* for streams but those of copies */
    unsigned    allocations; /* not freed */
    const void *waited;      /* the newest stream */
    int         allocated;   /* the newest's device */
    unsigned    retained[FAKE_CUDA_DEVICES];
    bool        is_missing;    /* no library */
    bool        is_deviceless; /* cuInit() fails */
    const char *no_symbol;     /* a symbol that the library lacks */
    const char *failing;       /* the function that fails, ... */
    int         result;        /* ... how */
} fake_cuda_state;

extern fake_cuda_state fake_cuda;

/* Reset the driver to its start: it knows no memory of a device. */
void fake_cuda_reset(void);

/* Say that `len` bytes at `data` are of `device`; -1: pinned, of none. */
void fake_cuda_add(void *data, size_t len, int device, bool is_managed);

/* Forget the memory that fake_cuda_add() was told of at `data`. */
void fake_cuda_remove(const void *data);

/* Queue a kernel that sets `len` bytes to `value`: it runs when `stream`, or a
 * default stream, is waited for. */
void fake_cuda_launch(const void *stream, void *data, size_t len, int value);

/* The context of this thread, by its device; -1: none. */
int fake_cuda_current(void);

/* Functions that the library has. */
struct context;
typedef unsigned long long fake_pointer;

#define FAKE_CUDA_FUNCTIONS(X)                                               \
    X(cuInit, (unsigned flags))                                              \
    X(cuGetErrorName, (int result, const char **name_p))                     \
    X(cuPointerGetAttributes, (unsigned count, const int *attributes,        \
                               void **values, fake_pointer pointer))         \
    X(cuDeviceGet, (int *device_p, int ordinal))                             \
    X(cuDevicePrimaryCtxRetain, (struct context * *context_p, int device))   \
    X(cuCtxGetDevice, (int *device_p))                                       \
    X(cuCtxPushCurrent_v2, (struct context * context))                       \
    X(cuCtxPopCurrent_v2, (struct context * *context_p))                     \
    X(cuMemcpyHtoD_v2, (fake_pointer dst, const void *src, size_t len))      \
    X(cuMemcpyDtoH_v2, (void *dst, fake_pointer src, size_t len))            \
    X(cuMemcpyHtoDAsync_v2,                                                  \
      (fake_pointer dst, const void *src, size_t len, const void *stream))   \
    X(cuMemcpyDtoHAsync_v2,                                                  \
      (void *dst, fake_pointer src, size_t len, const void *stream))         \
    X(cuMemcpyAsync,                                                         \
      (fake_pointer dst, fake_pointer src, size_t len, const void *stream))  \
    X(cuMemcpyDtoD_v2, (fake_pointer dst, fake_pointer src, size_t len))     \
    X(cuCtxSynchronize, (void))                                              \
    X(cuMemAlloc_v2, (fake_pointer * pointer_p, size_t len))                 \
    X(cuMemAllocManaged,                                                     \
      (fake_pointer * pointer_p, size_t len, unsigned flags))                \
    X(cuMemHostAlloc, (void **data_p, size_t len, unsigned flags))           \
    X(cuMemFree_v2, (fake_pointer pointer))                                  \
    X(cuMemFreeHost, (void *data))                                           \
    X(cuMemsetD8_v2, (fake_pointer pointer, unsigned char value, size_t n))  \
    X(cuMemsetD8Async, (fake_pointer pointer, unsigned char value, size_t n, \
                        const void *stream))                                 \
    X(cuDeviceGetCount, (int *count_p))                                      \
    X(cuStreamCreate, (void **stream_p, unsigned flags))                     \
    X(cuStreamDestroy_v2, (void *stream))                                    \
    X(cuStreamSynchronize, (const void *stream))

#define FAKE_CUDA_DECLARE(name, args) int name args;
FAKE_CUDA_FUNCTIONS(FAKE_CUDA_DECLARE)
#undef FAKE_CUDA_DECLARE

#endif
