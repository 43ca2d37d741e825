/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.c: operations on memory of a peer's. */
#include "op/rma.h"

#include "types/rkey.h"
#include "worker/worker.h"

/* Moving this many bytes takes longer than giving the GIL away. */
enum {
    MIN_UNLOCKED = 65536
};

typedef umx_status (*post_fn)(RequestObject *, const umx_op_params *);

/* ---- memory --------------------------------------------------------------
 */

rma_list *
rma_list_new(Py_ssize_t count)
{
    size_t    size = sizeof(rma_list) + (size_t)count * sizeof(buffer_hold);
    rma_list *list = PyMem_Malloc(size + (size_t)count * sizeof(umx_rma_item));

    if (list == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    list->count = 0;
    list->len   = 0;
    list->items = (umx_rma_item *)(void *)((char *)list + size);
    return list;
}

static void
list_release(RequestObject *req)
{
    rma_list *list = TAIL_OF(req, rma_tail)->list;

    if (list == NULL) {
        return;
    }
    TAIL_OF(req, rma_tail)->list = NULL;
    for (Py_ssize_t i = 0; i < list->count; i++) {
        buffer_release(&list->holds[i]);
    }
    PyMem_Free(list);
}

static int
list_traverse(const RequestObject *req, visitproc visit, void *arg)
{
    const rma_list *list = TAIL_OF(req, rma_tail)->list;
    int             rc   = 0;

    Py_VISIT(TAIL_OF(req, rma_tail)->remote);
    for (Py_ssize_t i = 0; rc == 0 && list != NULL && i < list->count; i++) {
        rc = request_visit_lent(req, &list->holds[i], visit, arg);
    }
    return rc;
}

static void
rma_clear(RequestObject *req)
{
    Py_CLEAR(TAIL_OF(req, rma_tail)->remote);
}

static int
rma_traverse(const RequestObject *req, visitproc visit, void *arg)
{
    Py_VISIT(TAIL_OF(req, rma_tail)->remote);
    return 0;
}

static void
atomic_clear(RequestObject *req)
{
    rma_atomic *atomic = TAIL_OF(req, rma_tail)->atomic;

    TAIL_OF(req, rma_tail)->atomic = NULL;
    if (atomic != NULL) {
        Py_CLEAR(atomic->signals);
        block_put(req->worker->st, atomic);
    }
    rma_clear(req);
}

static int
atomic_traverse(const RequestObject *req, visitproc visit, void *arg)
{
    const rma_atomic *atomic = TAIL_OF(req, rma_tail)->atomic;

    if (atomic != NULL) {
        Py_VISIT(atomic->signals);
    }
    return rma_traverse(req, visit, arg);
}

/* ---- posting -------------------------------------------------------------
 */

static NOINLINE umx_status
post_unlocked(RequestObject *req, const umx_op_params *params, post_fn post)
{
    PyThreadState *thread = PyEval_SaveThread();
    umx_status     status = post(req, params);

    PyEval_RestoreThread(thread);
    return status;
}

static inline umx_status
post_len(RequestObject *req, const umx_op_params *params, size_t len,
         post_fn post)
{
    return UNLIKELY(len >= MIN_UNLOCKED) ? post_unlocked(req, params, post) :
                                           post(req, params);
}

static inline umx_rkey *
rkey_of(const RequestObject *req)
{
    return ((RemoteObject *)TAIL_OF(req, rma_tail)->remote)->umx;
}

static inline umx_rma_item
item_of(const RequestObject *req)
{
    return (umx_rma_item){.offset = TAIL_OF(req, rma_tail)->offset,
                          .buf    = req->hold.buf};
}

static umx_status
put(RequestObject *req, const umx_op_params *params)
{
    umx_rma_item item = item_of(req);

    return umx_rma_put(rkey_of(req), &item, params, &req->op);
}

static umx_status
get(RequestObject *req, const umx_op_params *params)
{
    umx_rma_item item = item_of(req);

    return umx_rma_get(rkey_of(req), &item, params, &req->op);
}

static umx_status
put_signal(RequestObject *req, const umx_op_params *params)
{
    const rma_atomic *atomic = TAIL_OF(req, rma_tail)->atomic;
    umx_rma_item      item   = {.offset = atomic->offset, .buf = req->hold.buf};
    umx_rkey         *rkey = rkey_of(req), *signal_rkey = rkey;

    if (atomic->signals != NULL) {
        signal_rkey = ((RemoteObject *)atomic->signals)->umx;
    }
    return umx_rma_put_signal_to(rkey, &item, signal_rkey, &atomic->atomic,
                                 params, &req->op);
}

static umx_status
put_many(RequestObject *req, const umx_op_params *params)
{
    const rma_list *list = TAIL_OF(req, rma_tail)->list;

    return umx_rma_put_many(rkey_of(req), list->items, (size_t)list->count,
                            params, &req->op);
}

static umx_status
get_many(RequestObject *req, const umx_op_params *params)
{
    const rma_list *list = TAIL_OF(req, rma_tail)->list;

    return umx_rma_get_many(rkey_of(req), list->items, (size_t)list->count,
                            params, &req->op);
}

#define DEFINE_POST(name, len)                                 \
    static umx_status name##_post(RequestObject       *req,    \
                                  const umx_op_params *params) \
    {                                                          \
        return post_len(req, params, len, name);               \
    }

DEFINE_POST(put, req->hold.buf.len)
DEFINE_POST(get, req->hold.buf.len)
DEFINE_POST(put_signal, req->hold.buf.len)
DEFINE_POST(put_many, TAIL_OF(req, rma_tail)->list->len)
DEFINE_POST(get_many, TAIL_OF(req, rma_tail)->list->len)

static umx_status
atomic_post(RequestObject *req, const umx_op_params *params)
{
    return umx_rma_atomic(rkey_of(req), &TAIL_OF(req, rma_tail)->atomic->atomic,
                          NULL, params, &req->op);
}

static umx_status
fetch_post(RequestObject *req, const umx_op_params *params)
{
    rma_atomic *atomic = TAIL_OF(req, rma_tail)->atomic;

    return umx_rma_atomic(rkey_of(req), &atomic->atomic, &atomic->old, params,
                          &req->op);
}

static PyObject *
fetch_result(RequestObject *req)
{
    return PyLong_FromUnsignedLongLong(TAIL_OF(req, rma_tail)->atomic->old);
}

const op_type op_put = {
    .name     = "put",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = put_post,
    .clear    = rma_clear,
    .traverse = rma_traverse,
};

const op_type op_get = {
    .name     = "get",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = get_post,
    .clear    = rma_clear,
    .traverse = rma_traverse,
};

const op_type op_put_signal = {
    .name     = "put_signal",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = put_signal_post,
    .clear    = atomic_clear,
    .traverse = atomic_traverse,
};

const op_type op_put_many = {
    .name     = "put_many",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = put_many_post,
    .release  = list_release,
    .traverse = list_traverse,
    .clear    = rma_clear,
};

const op_type op_get_many = {
    .name     = "get_many",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = get_many_post,
    .release  = list_release,
    .traverse = list_traverse,
    .clear    = rma_clear,
};

const op_type op_atomic = {
    .name     = "atomic",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = atomic_post,
    .clear    = atomic_clear,
    .traverse = atomic_traverse,
};

const op_type op_fetch = {
    .name     = "fetch",
    .flags    = 0,
    .post     = fetch_post,
    .result   = fetch_result,
    .clear    = atomic_clear,
    .traverse = atomic_traverse,
};
