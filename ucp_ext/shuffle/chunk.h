/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk.h: bytes that a shuffle has brought. */
#ifndef UCP_EXT_SHUFFLE_CHUNK_H
#define UCP_EXT_SHUFFLE_CHUNK_H

#include "base/state.h"

#include <umx/umx.h>

struct ChunkObject {
    PyObject_HEAD WorkerObject *worker;
    umx_shuffle_chunk          *umx; /* NULL once it is released */
    umx_shuffle_chunk_info      info;
    Py_ssize_t                  exports;
};

/* Make the object of `chunk`, which is taken over, also with an exception. */
PyObject *chunk_new(WorkerObject *worker, umx_shuffle_chunk *chunk);

extern PyType_Spec chunk_spec;

#endif
