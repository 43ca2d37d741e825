/* SPDX-License-Identifier: BSD-3-Clause */
/* kernel.c: modules and kernels. There is one, src/mem/cuda_kernel.cu, of which
 * a module has the text; here it is a function in C. */
#include <stdlib.h>
#include <string.h>

#include "standin/internal.h"

enum {
    MOVES   = 128, /* as in cuda_kernel.cu */
    THREADS = 256
};

struct standin_module {
    cu_context *context;
};

/* Its address is the name of the kernel in that context. */
struct standin_function {
    cu_context *context;
};

int
cuModuleLoadData(cu_module **module_p, const void *image)
{
    cu_module *module;

    ENTER(CONTEXT);
    if (strstr(image, ".entry umx_move(") == NULL) {
        LEAVE(INVALID_PTX);
    }
    module = malloc(sizeof(*module)); /* it lives as long as the process */
    if (module == NULL) {
        LEAVE(OUT_OF_MEMORY);
    }
    module->context = standin_context();
    *module_p       = module;
    LEAVE(OK);
}

int
cuModuleGetFunction(cu_function **function_p, cu_module *module,
                    const char *name)
{
    ENTER(CONTEXT);
    if (strcmp(name, "umx_move") != 0) {
        LEAVE(NOT_FOUND);
    }
    *function_p = (cu_function *)module;
    LEAVE(OK);
}

int
cuFuncGetAttribute(int *value_p, int attribute, cu_function *function)
{
    (void)attribute;
    (void)function;
    ENTER(CONTEXT);
    *value_p = 20;
    LEAVE(OK);
}

/* What a kernel can reach: memory of devices, of its context or of none, and
 * what is pinned. */
static char *
find(cu_pointer pointer, size_t len)
{
    const range *r = standin_find(pointer);

    if (r == NULL || (r->context != NULL && r->context != standin_context()) ||
        len > r->len - (size_t)(pointer - (uintptr_t)r->at)) {
        return NULL;
    }
    return r->real + (pointer - (uintptr_t)r->at);
}

/* The moves as blocks make them: those of a row have `step` bytes each. */
static int
queue_moves(const standin_move *given, unsigned count, size_t reach,
            cu_stream *stream)
{
    standin_move *moves = malloc(count * sizeof(*moves));
    op            o = {.what = OP_MOVES, .staged = (char *)moves, .len = count};
    int           result;

    if (moves == NULL) {
        return OUT_OF_MEMORY;
    }
    for (unsigned i = 0; i < count; i++) {
        char *dst = find(given[i].dst, given[i].len);
        char *src = find(given[i].src, given[i].len);

        if (dst == NULL || src == NULL) { /* the kernel fails, later */
            o.flags = 1;
        }
        moves[i] = (standin_move){(uintptr_t)dst, (uintptr_t)src,
                                  (given[i].len < reach) ? given[i].len :
                                                           reach};
    }
    result = standin_queue(stream, o);
    if (result != OK) {
        free(moves);
    }
    return result;
}

int
cuLaunchKernel(cu_function *function, unsigned grid_x, unsigned grid_y,
               unsigned grid_z, unsigned block_x, unsigned block_y,
               unsigned block_z, unsigned shared, cu_stream *stream,
               void **params, void **extra)
{
    cu_stream *it;
    size_t     step;
    int        result;

    ENTER(CONTEXT);
    result = standin_stream_of(stream, &it);
    if (result != OK) {
        LEAVE(result);
    }
    memcpy(&step, params[1], sizeof(step));
    if (grid_x == 0 || grid_y == 0 || grid_y > MOVES || grid_z != 1 ||
        block_x != THREADS || block_y != 1 || block_z != 1 || shared != 0 ||
        extra != NULL || step == 0 || step % 16 != 0) {
        LEAVE(INVALID_VALUE);
    }
    if (((struct standin_function *)function)->context != it->context) {
        LEAVE(INVALID_HANDLE);
    }
    standin.launches++;
    LEAVE(queue_moves(params[0], grid_y, grid_x * step, stream));
}
