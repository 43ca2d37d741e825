/* fake_cuda.h: NVIDIA's driver without one: memory of its devices is the
 * host's.
 *
 * dlopen("libcuda.so.1") gives it; a test says `wrap=dlopen wrap=dlsym`. What a
 * call needs is checked: a copy in the context of the memory's device, a
 * context that was pushed and is popped. Thread: one. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>

enum {
    FAKE_CUDA_DEVICES = 4
};

typedef struct fake_cuda_state {
    bool        is_missing;    /* no library */
    bool        is_deviceless; /* cuInit() fails */
    const char *no_symbol;     /* one that the library lacks */
    const char *failing;       /* the function that fails, ... */
    int         result;        /* ... how */
    int         depth;         /* contexts pushed */
    int         current;       /* device of the newest; -1 */
    unsigned    retained[FAKE_CUDA_DEVICES];
    unsigned    copies;
    unsigned    waits;
    const void *waited; /* the newest stream */
} fake_cuda_state;

extern fake_cuda_state fake_cuda;

/* As at the start: no memory of a device. */
void fake_cuda_reset(void);

/* Say that `len` bytes at `data` are of `device`; -1: pinned, of none. */
void fake_cuda_add(void *data, size_t len, int device, bool is_managed);

#endif
