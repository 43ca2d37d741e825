/* SPDX-License-Identifier: BSD-3-Clause */
/* atomic_calls.c: atomic operations on numbers of other PEs. */
#include "base/args.h"
#include "op/atomic.h"
#include "shmem/heap.h"

static umx_status
change_post(RequestObject *req, const umx_op_params *params)
{
    const shmem_call *call = shmem_call_of(req);

    return (shmem_of(req) == NULL) ?
               UMX_ERR_CLOSED :
               umx_shmem_atomic(shmem_of(req), call->address, &call->atomic,
                                NULL, call->pe, params, &req->op);
}

static umx_status
fetch_post(RequestObject *req, const umx_op_params *params)
{
    shmem_call *call = shmem_call_of(req);

    return (shmem_of(req) == NULL) ?
               UMX_ERR_CLOSED :
               umx_shmem_atomic(shmem_of(req), call->address, &call->atomic,
                                &call->old, call->pe, params, &req->op);
}

static PyObject *
fetch_result(RequestObject *req)
{
    const shmem_call *call = shmem_call_of(req);

    if (!call->is_signed) {
        return PyLong_FromUnsignedLongLong(call->old);
    }
    return PyLong_FromLongLong((call->atomic.size == 4) ?
                                   (int64_t)(int32_t)(uint32_t)call->old :
                                   (int64_t)call->old);
}

static const op_type op_change = {
    .name     = "atomic",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = change_post,
    .error    = shmem_request_error,
    .clear    = shmem_request_clear,
    .traverse = shmem_request_traverse,
};

static const op_type op_fetch = {
    .name     = "atomic",
    .flags    = 0,
    .post     = fetch_post,
    .result   = fetch_result,
    .error    = shmem_request_error,
    .clear    = shmem_request_clear,
    .traverse = shmem_request_traverse,
};

/* Carry an operation out: `value` and `compare` may be NULL. */
static PyObject *
post_atomic(PyObject *op, PyObject *target, PyObject *value, PyObject *compare,
            PyObject *pe, umx_atomic_op which, const op_type *type)
{
    SymmetricHeapObject   *self = (SymmetricHeapObject *)op;
    SymmetricMemoryObject *memory;
    umx_atomic             atomic = {.op = which};
    RequestObject         *req;
    shmem_call            *call;
    int                    number;

    if (shmem_parse_number(self, target, "target", &memory) < 0 ||
        shmem_parse_pe(self, pe, &number) < 0) {
        return NULL;
    }
    atomic.size = memory->itemsize;
    if ((value != NULL &&
         atomic_parse_value(value, atomic.size, &atomic.value) < 0) ||
        (compare != NULL &&
         atomic_parse_value(compare, atomic.size, &atomic.compare) < 0)) {
        return NULL;
    }
    req = shmem_request(self, type);
    if (req == NULL) {
        return NULL;
    }
    call            = shmem_call_of(req);
    call->address   = memory->address;
    call->pe        = number;
    call->memory    = (SymmetricMemoryObject *)Py_NewRef(memory);
    call->is_signed = memory->kind == 'i';
    call->atomic    = atomic;
    return request_post(req);
}

#define METHOD(name, which, type)                                          \
    PyObject *heap_##name(PyObject *op, PyObject *const *args,             \
                          Py_ssize_t nargs, PyObject *kwnames)             \
    {                                                                      \
        static const char *const keywords[] = {"target", "value", "pe"};   \
        PyObject                *values[3];                                \
                                                                           \
        return (args_parse(#name, args, nargs, kwnames, keywords, 3, 3, 3, \
                           values) < 0) ?                                  \
                   NULL :                                                  \
                   post_atomic(op, values[0], values[1], NULL, values[2],  \
                               which, type);                               \
    }                                                                      \
                                                                           \
    const char heap_##name##_doc[]

#define DOC(name, text) #name "($self, target, value, pe)\n--\n\n" text
#define SETS(name, what)                                            \
    DOC(name, "Set the number target on PE pe to " what ", in one " \
              "step; awaitable.")
#define FETCH_DOC(name, same)                            \
    DOC(name, "Do the same as " same "; awaitable. The " \
              "result is the previous number.")

METHOD(atomic_add, UMX_ATOMIC_ADD,
       &op_change) = DOC(atomic_add, "Add value to the number target on PE pe, "
                                     "in one step; awaitable.");
METHOD(atomic_and, UMX_ATOMIC_AND,
       &op_change) = SETS(atomic_and, "its bitwise AND with value");
METHOD(atomic_or, UMX_ATOMIC_OR,
       &op_change) = SETS(atomic_or, "its bitwise OR with value");
METHOD(atomic_xor, UMX_ATOMIC_XOR,
       &op_change) = SETS(atomic_xor, "its bitwise XOR with value");
METHOD(atomic_set, UMX_ATOMIC_SWAP, &op_change) = SETS(atomic_set, "value");
METHOD(atomic_fetch_add, UMX_ATOMIC_ADD,
       &op_fetch) = FETCH_DOC(atomic_fetch_add, "atomic_add()");
METHOD(atomic_fetch_and, UMX_ATOMIC_AND,
       &op_fetch) = FETCH_DOC(atomic_fetch_and, "atomic_and()");
METHOD(atomic_fetch_or, UMX_ATOMIC_OR, &op_fetch) = FETCH_DOC(atomic_fetch_or,
                                                              "atomic_or()");
METHOD(atomic_fetch_xor, UMX_ATOMIC_XOR,
       &op_fetch) = FETCH_DOC(atomic_fetch_xor, "atomic_xor()");
METHOD(atomic_swap, UMX_ATOMIC_SWAP, &op_fetch) = FETCH_DOC(atomic_swap,
                                                            "atomic_set()");

const char heap_atomic_fetch_doc[] =
    "atomic_fetch($self, source, pe)\n--\n\n"
    "Read the number source on PE pe in one step; awaitable.";

PyObject *
heap_atomic_fetch(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                  PyObject *kwnames)
{
    static const char *const keywords[] = {"source", "pe"};
    PyObject                *values[2];

    return (args_parse("atomic_fetch", args, nargs, kwnames, keywords, 2, 2, 2,
                       values) < 0) ?
               NULL :
               post_atomic(op, values[0], NULL, NULL, values[1], UMX_ATOMIC_ADD,
                           &op_fetch);
}

const char heap_atomic_compare_swap_doc[] =
    "atomic_compare_swap($self, target, compare, value, pe)\n--\n\n"
    "Set the number target on PE pe to value if it equals compare, in\n"
    "one step; awaitable. The result is the previous number.";

PyObject *
heap_atomic_compare_swap(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames)
{
    static const char *const keywords[] = {"target", "compare", "value", "pe"};
    PyObject                *values[4];

    return (args_parse("atomic_compare_swap", args, nargs, kwnames, keywords, 4,
                       4, 4, values) < 0) ?
               NULL :
               post_atomic(op, values[0], values[2], values[1], values[3],
                           UMX_ATOMIC_CSWAP, &op_fetch);
}
