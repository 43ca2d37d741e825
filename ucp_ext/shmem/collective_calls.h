/* SPDX-License-Identifier: BSD-3-Clause */
/* collective_calls.h: what all ranks call: allocation, barriers; and quiet. */
#ifndef UCP_EXT_SHMEM_COLLECTIVE_CALLS_H
#define UCP_EXT_SHMEM_COLLECTIVE_CALLS_H

#include "shmem/heap.h"

/* Methods of SymmetricHeap. */
PyObject *heap_malloc(PyObject *op, PyObject *args);
PyObject *heap_free(PyObject *op, PyObject *array);
PyObject *heap_quiet(PyObject *op, PyObject *ignored);
PyObject *heap_barrier_all(PyObject *op, PyObject *ignored);
PyObject *heap_sync_all(PyObject *op, PyObject *ignored);
PyObject *heap_fence(PyObject *op, PyObject *ignored);

extern const char heap_malloc_doc[], heap_free_doc[], heap_quiet_doc[],
    heap_barrier_all_doc[], heap_sync_all_doc[], heap_fence_doc[];

#endif
