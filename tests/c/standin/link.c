/* SPDX-License-Identifier: BSD-3-Clause */
/* link.c: the stand-in in a test in C, found by dlopen(). */
#include <dlfcn.h>
#include <string.h>

#include "standin/standin.h"
#include "standin/symbols.h"

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
    return standin.is_missing ? NULL : &standin;
}

void *
__wrap_dlsym(void *handle, const char *symbol)
{
    if (handle != &standin) {
        return __real_dlsym(handle, symbol);
    }
    if (standin.no_symbol != NULL && strcmp(symbol, standin.no_symbol) == 0) {
        return NULL;
    }
    return standin_symbol(symbol);
}
