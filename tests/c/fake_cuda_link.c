/* SPDX-License-Identifier: BSD-3-Clause */
/* fake_cuda_link.c: the driver of fake_cuda.h in a test, found by dlopen(). */
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#include "fake_cuda.h"

void *__real_dlopen(const char *path, int flags);
void *__real_dlsym(void *handle, const char *symbol);
void *__wrap_dlopen(const char *path, int flags);
void *__wrap_dlsym(void *handle, const char *symbol);

void *
__wrap_dlopen(const char *path, int flags)
{
    if (path == NULL || strcmp(path, "libcuda.so.1") != 0) {
        return __real_dlopen(path, flags);
    }
    return fake_cuda.is_missing ? NULL : &fake_cuda;
}

void *
__wrap_dlsym(void *handle, const char *symbol)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } table[] = {
#define ROW(name, args) {#name, (void (*)(void))name},
        FAKE_CUDA_FUNCTIONS(ROW)
#undef ROW
    };

    if (handle != &fake_cuda) {
        return __real_dlsym(handle, symbol);
    }
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        if (strcmp(symbol, table[i].name) == 0 &&
            (fake_cuda.no_symbol == NULL ||
             strcmp(symbol, fake_cuda.no_symbol) != 0)) {
            return *(void **)(uintptr_t)&table[i].function;
        }
    }
    return NULL;
}
