/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk.h: bytes that a shuffle has brought. */
#ifndef UCP_EXT_SHUFFLE_CHUNK_H
#define UCP_EXT_SHUFFLE_CHUNK_H

#include "object/owned.h"

#include <umx/umx.h>

typedef struct ChunkObject {
    OWNED_HEAD;
    umx_shuffle_chunk     *umx; /* NULL once it is released */
    umx_shuffle_chunk_info info;
    Py_ssize_t             exports;
} ChunkObject;

/* Make the object of `chunk`, which is taken over, also with an exception. */
PyObject *chunk_new(WorkerObject *worker, umx_shuffle_chunk *chunk);

extern PyType_Spec chunk_spec;

#endif
