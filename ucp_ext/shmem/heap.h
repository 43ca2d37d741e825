/* SPDX-License-Identifier: BSD-3-Clause */
/* heap.h: a symmetric heap, as one rank has it, and memory in it. */
#ifndef UCP_EXT_SHMEM_HEAP_H
#define UCP_EXT_SHMEM_HEAP_H

#include "request/request.h"

#include "comm/joint.h"

#include <umx/shmem_direct.h>

typedef struct SymmetricHeapObject {
    JOINT_HEAD;
    uint64_t         size;
    umx_shmem_direct direct;  /* once it is made */
    const bool      *is_lost; /* has a rank failed? umx_shmem_lost() */
    int              num_pes;
} SymmetricHeapObject;

/* Bytes of a heap, at the same offset on every rank. */
typedef struct SymmetricMemoryObject {
    PyObject_HEAD SymmetricHeapObject *heap;
    PyObject                          *weakrefs;
    PyObject *local;   /* a ndarray, whose buffer this has; or NULL: bytes */
    char     *address; /* the symmetric one: in this rank's memory */
    uint64_t  nbytes;
    unsigned  itemsize;
    char      kind; /* of NumPy's dtype */
    int       pe;   /* whose bytes the buffer protocol gives */
} SymmetricMemoryObject;

/* What an operation of a heap has, in a block. */
typedef struct shmem_call {
    void                  *address; /* symmetric */
    uint64_t              *signal;
    size_t                 len;
    int                    pe;        /* -1: none */
    bool                   is_signed; /* the number that is fetched */
    uint64_t               old;
    SymmetricMemoryObject *memory; /* whose number it is; or NULL */
    union {
        umx_atomic       atomic;
        umx_shmem_stride stride;
        struct {                  /* of a wait */
            umx_condition *until; /* of PyMem */
            size_t         count;
            size_t         at_least;
            PyObject      *seen; /* bytes */
        };
        struct { /* of an allocation */
            umx_shmem_wish wish;
            PyObject      *what; /* a str: the text of `wish` */
        };
    };
} shmem_call;
_Static_assert(sizeof(shmem_call) <= BLOCK_SIZE, "shmem_call");

/* The tail of the operations of this room. */
typedef struct TAIL shmem_tail {
    SymmetricHeapObject *heap;
    shmem_call          *call; /* or NULL */
} shmem_tail;

/* Begin an operation with a call of zeros. NULL with an exception. */
RequestObject *shmem_request(SymmetricHeapObject *heap, const op_type *type);

static inline shmem_call *
shmem_call_of(const RequestObject *req)
{
    return TAIL_OF(req, shmem_tail)->call;
}

static inline umx_shmem *
shmem_of(const RequestObject *req)
{
    return TAIL_OF(req, shmem_tail)->heap->umx;
}

/* op_type.error(), op_type.late() of calls of all ranks, op_type.clear() and
 * op_type.traverse() of operations. */
PyObject *shmem_request_error(RequestObject *req);
PyObject *shmem_request_late(const RequestObject *req, char *text, size_t size);
void      shmem_request_clear(RequestObject *req);
int       shmem_request_traverse(const RequestObject *req, visitproc visit,
                                 void *arg);

/* ---- arguments; -1 with an exception ---- */

/* Memory of this heap; `what` is for errors. */
int shmem_parse_memory(const SymmetricHeapObject *heap, PyObject *op,
                       const char *what, SymmetricMemoryObject **memory_p);

/* Memory of this heap that is a number of 4 or 8 bytes, or begins with it. */
int shmem_parse_number(const SymmetricHeapObject *heap, PyObject *op,
                       const char *what, SymmetricMemoryObject **memory_p);

int shmem_parse_pe(const SymmetricHeapObject *heap, PyObject *number,
                   int *pe_p);

/* A number from 0 to 2**64 - 1. */
int shmem_parse_bytes(PyObject *number, uint64_t *bytes_p);

/* The buffer of the program's side of a transfer. */
int shmem_acquire(RequestObject *req, PyObject *buffer,
                  buffer_acquire_fn *acquire, bool is_writable);

/* ---- without a call ---- */

/* Can few bytes be moved to `pe` in line? */
static inline bool
shmem_is_direct(const SymmetricHeapObject *heap, int pe)
{
    return heap->direct.pes != NULL && heap->direct.pes[pe].base != NULL &&
           !heap->is_closed &&
           !__atomic_load_n(heap->is_lost, __ATOMIC_RELAXED);
}

/* A request that is done. NULL with an exception. */
PyObject *shmem_done(SymmetricHeapObject *heap, const op_type *type,
                     umx_status status);

/* ---- methods ---- */

#define SHMEM_METHOD(name)                                              \
    PyObject         *heap_##name(PyObject *op, PyObject *const *args,  \
                                  Py_ssize_t nargs, PyObject *kwnames); \
    extern const char heap_##name##_doc[]

SHMEM_METHOD(put);
SHMEM_METHOD(get);
SHMEM_METHOD(iput);
SHMEM_METHOD(iget);
SHMEM_METHOD(put_signal);
SHMEM_METHOD(atomic_add);
SHMEM_METHOD(atomic_and);
SHMEM_METHOD(atomic_or);
SHMEM_METHOD(atomic_xor);
SHMEM_METHOD(atomic_set);
SHMEM_METHOD(atomic_fetch);
SHMEM_METHOD(atomic_fetch_add);
SHMEM_METHOD(atomic_fetch_and);
SHMEM_METHOD(atomic_fetch_or);
SHMEM_METHOD(atomic_fetch_xor);
SHMEM_METHOD(atomic_swap);
SHMEM_METHOD(atomic_compare_swap);

/* Methods of SymmetricMemory. */
PyObject *memory_wait_until(PyObject *op, PyObject *const *args,
                            Py_ssize_t nargs);
PyObject *memory_test(PyObject *op, PyObject *const *args, Py_ssize_t nargs);
PyObject *memory_signal_fetch(PyObject *op, PyObject *ignored);
PyObject *memory_wait_many(PyObject *op, PyObject *args);
PyObject *memory_look_many(PyObject *op, PyObject *args);
extern const char memory_wait_until_doc[], memory_test_doc[],
    memory_signal_fetch_doc[], memory_wait_many_doc[], memory_look_many_doc[];

extern PyType_Spec symmetric_heap_spec, symmetric_memory_spec;

#endif
