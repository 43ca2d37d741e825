/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.h: operations on memory of a peer's. */
#ifndef UCP_EXT_OP_RMA_H
#define UCP_EXT_OP_RMA_H

#include "request/request.h"

/* What a *_MANY operation on a peer's memory moves. */
typedef struct rma_list {
    Py_ssize_t    count;
    size_t        len;   /* bytes of all */
    umx_rma_item *items; /* behind `holds` */
    buffer_hold   holds[];
} rma_list;

/* What an operation on a number in a peer's memory has, in a block. */
typedef struct rma_atomic {
    umx_atomic atomic;
    uint64_t   offset;  /* of the bytes of put_signal() */
    uint64_t   old;     /* the number that was there */
    PyObject  *signals; /* the RemoteObject with the number of put_signal(),
                           if that is another one; or NULL */
} rma_atomic;
_Static_assert(sizeof(rma_atomic) <= BLOCK_SIZE, "rma_atomic");

/* The tail of operations on a peer's memory. */
typedef struct TAIL rma_tail {
    PyObject *remote; /* the RemoteObject */
    union {
        uint64_t    offset; /* of put() and get() */
        rma_list   *list;   /* of op_put_many, op_get_many; or NULL */
        rma_atomic *atomic; /* of op_atomic, op_fetch, op_put_signal; or NULL */
    };
} rma_tail;

/* Make a list for the tail, with room for `count`; NULL with an exception. */
rma_list *rma_list_new(Py_ssize_t count);

extern const op_type op_put, op_get, op_put_many, op_get_many, op_put_signal,
    op_atomic, op_fetch;

#endif
