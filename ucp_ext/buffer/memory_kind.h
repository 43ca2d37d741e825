/* SPDX-License-Identifier: BSD-3-Clause */
/* memory_kind.h: the kinds of memory that Memory and BufferPool have. */
#ifndef UCP_EXT_BUFFER_MEMORY_KIND_H
#define UCP_EXT_BUFFER_MEMORY_KIND_H

#include "base/state.h"

#include <umx/umx.h>

typedef struct memory_kind memory_kind;

/* NULL with an exception: there is none of that name. */
const memory_kind *memory_kind_find(const char *name);

/* Who else may reach it. */
typedef enum memory_access {
    MEMORY_SHARED,
    MEMORY_READONLY, /* peers may read it; of the kind "host" */
    MEMORY_PRIVATE   /* no peer is to have its key */
} memory_access;

/* `device` None: the current one. -1 with an exception. */
int memory_kind_alloc(mod_state *st, umx_context *context,
                      const memory_kind *kind, PyObject *device, size_t len,
                      memory_access access, umx_memh **memh_p);

/* The interfaces of a piece of memory; AttributeError if that has none. */
PyObject *memory_array_interface(umx_memtype memtype, const void *data,
                                 size_t len, bool is_readonly);
PyObject *memory_cuda_interface(umx_memtype memtype, const void *data,
                                size_t len, bool is_readonly);

/* BufferError if the CPU cannot reach it. */
int memory_check_host(umx_memtype memtype);

#endif
