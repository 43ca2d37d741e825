/* SPDX-License-Identifier: BSD-3-Clause */
/* heap.h: small memories that share segments of the system. */
#ifndef UCP_EXT_TYPE_HEAP_H
#define UCP_EXT_TYPE_HEAP_H

#include "base/state.h"

#include <umx/umx.h>

struct HeapObject {
    PyObject_HEAD mod_state *st;
    ContextObject           *context;
    umx_heap                *umx; /* NULL once closed */
    PyObject                *weakrefs;
};

/* `len` bytes of it. -1 with an exception. */
int heap_alloc(HeapObject *heap, size_t len, umx_memh **memh_p);

#endif
