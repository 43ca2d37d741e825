/* SPDX-License-Identifier: BSD-3-Clause */
/* collective_calls.c: what all ranks call: allocation, barriers; and quiet. */
#include "shmem/collective_calls.h"

#include "base/args.h"
#include "worker/worker.h"

static umx_status
malloc_post(RequestObject *req, const umx_op_params *params)
{
    shmem_call *call = shmem_call_of(req);

    return (shmem_of(req) == NULL) ?
               UMX_ERR_CLOSED :
               umx_shmem_allocate(shmem_of(req), &call->wish, &call->address,
                                  params, &req->op);
}

static void
malloc_clear(RequestObject *req)
{
    shmem_call *call = shmem_call_of(req);

    if (call != NULL) {
        Py_CLEAR(call->what);
    }
    shmem_request_clear(req);
}

/* The offset of what is allocated. */
static PyObject *
malloc_result(RequestObject *req)
{
    const char *address = shmem_call_of(req)->address;

    return PyLong_FromSsize_t(
        (address == NULL) ? 0 :
                            address - (char *)umx_shmem_base(shmem_of(req)));
}

static umx_status
free_post(RequestObject *req, const umx_op_params *params)
{
    return (shmem_of(req) == NULL) ?
               UMX_ERR_CLOSED :
               umx_shmem_free(shmem_of(req), shmem_call_of(req)->address,
                              params, &req->op);
}

#define DEFINE_POST(method)                                             \
    static umx_status method##_post(RequestObject       *req,           \
                                    const umx_op_params *params)        \
    {                                                                   \
        return (shmem_of(req) == NULL) ?                                \
                   UMX_ERR_CLOSED :                                     \
                   umx_shmem_##method(shmem_of(req), params, &req->op); \
    }

DEFINE_POST(quiet)
DEFINE_POST(barrier)
DEFINE_POST(sync)

static const op_type op_malloc = {
    .name     = "malloc",
    .flags    = 0,
    .post     = malloc_post,
    .result   = malloc_result,
    .error    = shmem_request_error,
    .late     = shmem_request_late,
    .clear    = malloc_clear,
    .traverse = shmem_request_traverse,
};

#define DEFINE_OP(method)                   \
    static const op_type op_##method = {    \
        .name     = #method,                \
        .flags    = OP_PLAIN,               \
        .post     = method##_post,          \
        .error    = shmem_request_error,    \
        .late     = shmem_request_late,     \
        .clear    = shmem_request_clear,    \
        .traverse = shmem_request_traverse, \
    }

DEFINE_OP(free);
DEFINE_OP(quiet);
DEFINE_OP(barrier);
DEFINE_OP(sync);

const char heap_malloc_doc[] =
    "_malloc($self, size, align, is_zeroed, what, is_refused=False, /)\n"
    "--\n\n"
    "Allocate bytes on all ranks; awaitable: their offset. `what` is the\n"
    "call, and the same on all, or says why this rank refuses.";

PyObject *
heap_malloc(PyObject *op, PyObject *args)
{
    RequestObject *req;
    shmem_call    *call;
    PyObject      *size, *align, *what;
    umx_shmem_wish wish       = {.size = 0};
    int            is_refused = 0, is_zeroed;

    if (!PyArg_ParseTuple(args, "OOpU|p", &size, &align, &is_zeroed, &what,
                          &is_refused) ||
        shmem_parse_bytes(size, &wish.size) < 0 ||
        shmem_parse_bytes(align, &wish.align) < 0) {
        return NULL;
    }
    wish.is_zeroed  = is_zeroed != 0;
    wish.is_refused = is_refused != 0;
    wish.what       = PyUnicode_AsUTF8(what);
    if (wish.what == NULL) {
        return NULL;
    }
    req = shmem_request((SymmetricHeapObject *)op, &op_malloc);
    if (req == NULL) {
        return NULL;
    }
    call       = shmem_call_of(req);
    call->wish = wish;
    call->what = Py_NewRef(what);
    return request_post(req);
}

const char heap_free_doc[] =
    "free($self, array, /)\n--\n\n"
    "Free an array on all ranks, which all free it; awaitable. None, and an\n"
    "array without bytes, is nothing.";

PyObject *
heap_free(PyObject *op, PyObject *array)
{
    SymmetricHeapObject   *self   = (SymmetricHeapObject *)op;
    SymmetricMemoryObject *memory = NULL;
    RequestObject         *req;

    if (array != Py_None &&
        shmem_parse_memory(self, array, "array", &memory) < 0) {
        return NULL;
    }
    req = shmem_request(self, &op_free);
    if (req == NULL) {
        return NULL;
    }
    if (memory != NULL && memory->nbytes != 0) { /* else it has no place */
        shmem_call_of(req)->address = memory->address;
    }
    return request_post(req);
}

static PyObject *
begin(PyObject *op, const op_type *type)
{
    RequestObject *req = shmem_request((SymmetricHeapObject *)op, type);

    return (req == NULL) ? NULL : request_post(req);
}

const char heap_quiet_doc[] =
    "quiet($self, /)\n--\n\n"
    "Wait until all operations of this rank can be seen at their PEs;\n"
    "awaitable.";

PyObject *
heap_quiet(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return begin(op, &op_quiet);
}

const char heap_barrier_all_doc[] =
    "barrier_all($self, /)\n--\n\n"
    "quiet(), then wait until every rank has come here; awaitable.";

PyObject *
heap_barrier_all(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return begin(op, &op_barrier);
}

const char heap_sync_all_doc[] =
    "sync_all($self, /)\n--\n\n"
    "Wait until every rank has come here; awaitable.";

PyObject *
heap_sync_all(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return begin(op, &op_sync);
}

const char heap_fence_doc[] =
    "fence($self, /)\n--\n\n"
    "Operations that are begun later reach each PE after those before.";

PyObject *
heap_fence(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    SymmetricHeapObject *self = (SymmetricHeapObject *)op;
    umx_status           status;

    if (joint_check(self) < 0) {
        return NULL;
    }
    status = umx_shmem_fence(self->umx);
    if (status != UMX_OK) {
        return errors_set(joint_error(self, status, "fence", NULL));
    }
    Py_RETURN_NONE;
}
