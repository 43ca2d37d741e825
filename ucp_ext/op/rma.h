/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.h: operations on memory of a peer's. */
#ifndef UCP_EXT_OP_RMA_H
#define UCP_EXT_OP_RMA_H

#include "request/request.h"
#include "object/rkey.h"

/* What a *_MANY operation on a peer's memory moves. */
typedef struct rma_list {
    Py_ssize_t    count;     /* items */
    Py_ssize_t    num_holds; /* buffers */
    size_t        len;       /* bytes of all */
    umx_rma_item *items;     /* behind `holds` */
    buffer_hold   holds[];
} rma_list;

/* A list with room for that many; NULL with an exception. */
rma_list *rma_list_new(Py_ssize_t count, Py_ssize_t num_holds);

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
        rma_list   *list;   /* of put_many() and get_many(); or NULL */
        rma_atomic *atomic; /* of atomic.c; or NULL */
    };
} rma_tail;

/* op_type.clear() and op_type.traverse() of such a tail. */
void rma_clear(RequestObject *req);
int  rma_traverse(const RequestObject *req, visitproc visit, void *arg);

static inline umx_rkey *
rma_rkey_of(const RequestObject *req)
{
    return ((RemoteObject *)TAIL_OF(req, rma_tail)->remote)->umx;
}

/* Has the program closed this RemoteObject? NULL, as after a clear(): no. */
bool rma_is_closed(const PyObject *remote);

/* The exception of a failure; `is_closed`: the program has closed a memory that
 * the operation needs. */
PyObject *rma_error_of(RequestObject *req, bool is_closed);

/* ---- posting ---- */

typedef umx_status (*rma_post_fn)(RequestObject *, const umx_op_params *);

enum {
    /* Moving this many bytes takes longer than giving the GIL away. */
    RMA_MIN_UNLOCKED = 65536
};

/* Post without the GIL. */
umx_status rma_post_unlocked(RequestObject *req, const umx_op_params *params,
                             rma_post_fn post);

/* Post an operation that moves `len` bytes. */
static inline umx_status
rma_post_len(RequestObject *req, const umx_op_params *params, size_t len,
             rma_post_fn post)
{
    return UNLIKELY(len >= RMA_MIN_UNLOCKED) ?
               rma_post_unlocked(req, params, post) :
               post(req, params);
}

/* ---- arguments; -1 or NULL with an exception ---- */

/* Parse an offset, in bytes from the start of the memory; NULL is 0. */
int rma_parse_offset(PyObject *value, uint64_t *offset_p);

int rma_check_range(const RemoteObject *self, uint64_t offset, uint64_t len);
int rma_check_writable(const RemoteObject *self);

RequestObject *rma_new_request(RemoteObject *self, const op_type *type);

/* ---- methods of RemoteMemory ---- */

PyObject *remote_put(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                     PyObject *kwnames);
PyObject *remote_get(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                     PyObject *kwnames);
PyObject *remote_put_many(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames);
PyObject *remote_get_many(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames);

extern const char remote_put_doc[], remote_get_doc[], remote_put_many_doc[],
    remote_get_many_doc[];

#endif
