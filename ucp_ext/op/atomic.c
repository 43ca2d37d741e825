/* SPDX-License-Identifier: BSD-3-Clause */
/* atomic.c: operations on numbers in memory of a peer's. */
#include "op/atomic.h"

#include "base/args.h"
#include "buffer/buffer.h"
#include "object/endpoint.h"
#include "object/rkey.h"
#include "op/rma.h"
#include "worker/worker.h"

/* ---- the request -----------------------------------------------------------
 */

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

static umx_status
put_signal(RequestObject *req, const umx_op_params *params)
{
    const rma_atomic *atomic = TAIL_OF(req, rma_tail)->atomic;
    umx_rma_item      item   = {.offset = atomic->offset, .buf = req->hold.buf};
    umx_rkey         *rkey = rma_rkey_of(req), *signal_rkey = rkey;

    if (atomic->signals != NULL) {
        signal_rkey = ((RemoteObject *)atomic->signals)->umx;
    }
    return umx_rma_put_signal_to(rkey, &item, signal_rkey, &atomic->atomic,
                                 params, &req->op);
}

static umx_status
put_signal_post(RequestObject *req, const umx_op_params *params)
{
    return rma_post_len(req, params, req->hold.buf.len, put_signal);
}

static umx_status
atomic_post(RequestObject *req, const umx_op_params *params)
{
    return umx_rma_atomic(rma_rkey_of(req),
                          &TAIL_OF(req, rma_tail)->atomic->atomic, NULL, params,
                          &req->op);
}

static umx_status
fetch_post(RequestObject *req, const umx_op_params *params)
{
    rma_atomic *atomic = TAIL_OF(req, rma_tail)->atomic;

    return umx_rma_atomic(rma_rkey_of(req), &atomic->atomic, &atomic->old,
                          params, &req->op);
}

static PyObject *
fetch_result(RequestObject *req)
{
    return PyLong_FromUnsignedLongLong(TAIL_OF(req, rma_tail)->atomic->old);
}

static PyObject *
make_error(RequestObject *req)
{
    const rma_tail *tail = TAIL_OF(req, rma_tail);

    return rma_error_of(req, rma_is_closed(tail->remote) ||
                                 (tail->atomic != NULL &&
                                  rma_is_closed(tail->atomic->signals)));
}

static const op_type op_put_signal = {
    .name     = "put_signal",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = put_signal_post,
    .error    = make_error,
    .clear    = atomic_clear,
    .traverse = atomic_traverse,
};

static const op_type op_atomic = {
    .name     = "atomic",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = atomic_post,
    .error    = make_error,
    .clear    = atomic_clear,
    .traverse = atomic_traverse,
};

static const op_type op_fetch = {
    .name     = "fetch",
    .flags    = 0,
    .post     = fetch_post,
    .error    = make_error,
    .result   = fetch_result,
    .clear    = atomic_clear,
    .traverse = atomic_traverse,
};

/* ---- methods ---------------------------------------------------
 */

int
atomic_parse_value(PyObject *value, unsigned size, uint64_t *value_p)
{
    PyObject *index = PyNumber_Index(value);
    int64_t   number;
    int       overflow;

    if (index == NULL) {
        return -1;
    }
    number   = PyLong_AsLongLongAndOverflow(index, &overflow);
    *value_p = (uint64_t)number;
    if (overflow > 0 && size == 8) {
        *value_p = PyLong_AsUnsignedLongLong(index);
        overflow = PyErr_Occurred() != NULL;
        PyErr_Clear();
    }
    if (overflow != 0 ||
        (size == 4 && (number < INT32_MIN || number > UINT32_MAX))) {
        PyErr_Format(PyExc_OverflowError, "%R does not fit in %d bits", value,
                     8 * (int)size);
    }
    Py_DECREF(index);
    return PyErr_Occurred() ? -1 : 0;
}

static int
check_atomic(RemoteObject *self, const umx_atomic *atomic)
{
    if (rma_check_writable(self) < 0 ||
        rma_check_range(self, atomic->offset, atomic->size) < 0) {
        return -1;
    }
    if (atomic->offset % atomic->size != 0) {
        PyErr_Format(PyExc_ValueError,
                     "the offset %llu of a number of %u bytes is not a "
                     "multiple of that",
                     atomic->offset, atomic->size);
        return -1;
    }
    return 0;
}

/* Make a request with the operands in a block; NULL with an exception. */
static RequestObject *
new_atomic(RemoteObject *self, const umx_atomic *atomic, const op_type *type)
{
    RequestObject *req = rma_new_request(self, type);
    rma_atomic    *made;

    if (req == NULL) {
        return NULL;
    }
    made = block_get(req->worker->st);
    if (made == NULL) {
        Py_DECREF(req);
        return NULL;
    }
    made->atomic                   = *atomic;
    made->signals                  = NULL;
    TAIL_OF(req, rma_tail)->atomic = made;
    return req;
}

static PyObject *
post_atomic(RemoteObject *self, const umx_atomic *atomic, const op_type *type)
{
    RequestObject *req;

    if (check_atomic(self, atomic) < 0) {
        return NULL;
    }
    req = new_atomic(self, atomic, type);
    return (req != NULL) ? request_post(req) : NULL;
}

/* Carry out any atomic operation but cswap(): (offset, value, bits=64). */
static PyObject *
change(PyObject *op, const char *name, PyObject *const *args, Py_ssize_t nargs,
       PyObject *kwnames, umx_atomic_op which, const op_type *type)
{
    static const char *const keywords[] = {"offset", "value", "bits"};
    umx_atomic               atomic     = {.op = which};
    PyObject                *values[3];

    if (args_parse(name, args, nargs, kwnames, keywords, 3, 3, 2, values) < 0 ||
        args_bits(values[2], &atomic.size) < 0 ||
        rma_parse_offset(values[0], &atomic.offset) < 0 ||
        atomic_parse_value(values[1], atomic.size, &atomic.value) < 0) {
        return NULL;
    }
    return post_atomic((RemoteObject *)op, &atomic, type);
}

#define CHANGE(name, text, which, type)                              \
    const char remote_##name##_doc[] = text;                         \
                                                                     \
    PyObject *remote_##name(PyObject *op, PyObject *const *args,     \
                            Py_ssize_t nargs, PyObject *kwnames)     \
    {                                                                \
        return change(op, #name, args, nargs, kwnames, which, type); \
    }

#define CHANGE_DOC(name, text)                           \
#name "($self, offset, value, bits=64)\n--\n\n" text \
          " the number of `bits` bits at `offset`, atomically; awaitable."
#define FETCH_DOC(name, text) \
    CHANGE_DOC(name, text) "\nThe result is the previous number, unsigned."

CHANGE(add, CHANGE_DOC(add, "Add to"), UMX_ATOMIC_ADD, &op_atomic)
CHANGE(and_, CHANGE_DOC(and_, "And with"), UMX_ATOMIC_AND, &op_atomic)
CHANGE(or_, CHANGE_DOC(or_, "Or with"), UMX_ATOMIC_OR, &op_atomic)
CHANGE(xor, CHANGE_DOC(xor, "Xor with"), UMX_ATOMIC_XOR, &op_atomic)
CHANGE(fetch_add, FETCH_DOC(fetch_add, "Add to"), UMX_ATOMIC_ADD, &op_fetch)
CHANGE(fetch_and, FETCH_DOC(fetch_and, "And with"), UMX_ATOMIC_AND, &op_fetch)
CHANGE(fetch_or, FETCH_DOC(fetch_or, "Or with"), UMX_ATOMIC_OR, &op_fetch)
CHANGE(fetch_xor, FETCH_DOC(fetch_xor, "Xor with"), UMX_ATOMIC_XOR, &op_fetch)
CHANGE(swap, FETCH_DOC(swap, "Replace"), UMX_ATOMIC_SWAP, &op_fetch)

const char remote_cswap_doc[] =
    "cswap($self, offset, compare, value, bits=64)\n--\n\n"
    "Replace the number of `bits` bits (32 or 64) at `offset` bytes\n"
    "by value if it equals compare, atomically; awaitable. The\n"
    "result is the previous number, unsigned.";

PyObject *
remote_cswap(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
             PyObject *kwnames)
{
    static const char *const keywords[] = {"offset", "compare", "value",
                                           "bits"};
    umx_atomic               atomic     = {.op = UMX_ATOMIC_CSWAP};
    PyObject                *values[4];

    if (args_parse("cswap", args, nargs, kwnames, keywords, 4, 4, 3, values) <
            0 ||
        args_bits(values[3], &atomic.size) < 0 ||
        rma_parse_offset(values[0], &atomic.offset) < 0 ||
        atomic_parse_value(values[1], atomic.size, &atomic.compare) < 0 ||
        atomic_parse_value(values[2], atomic.size, &atomic.value) < 0) {
        return NULL;
    }
    return post_atomic((RemoteObject *)op, &atomic, &op_fetch);
}

int
atomic_parse_signal(PyObject *op, umx_atomic_op *op_p)
{
    if (op == NULL || (PyUnicode_Check(op) &&
                       PyUnicode_CompareWithASCIIString(op, "set") == 0)) {
        *op_p = UMX_ATOMIC_SWAP;
        return 0;
    }
    if (PyUnicode_Check(op) &&
        PyUnicode_CompareWithASCIIString(op, "add") == 0) {
        *op_p = UMX_ATOMIC_ADD;
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "op is 'set' or 'add', not %R", op);
    return -1;
}

/* Find the memory of a signal: None, or what is opened on the endpoint of
 * `self`. -1 with an exception. */
static int
parse_signal_memory(const RemoteObject *self, PyObject *memory,
                    RemoteObject **signals_p)
{
    const mod_state *st = self->endpoint->worker->st;

    if (memory == NULL || memory == Py_None) {
        return 0;
    }
    if (!Py_IS_TYPE(memory, st->remote_type)) {
        PyErr_Format(PyExc_TypeError,
                     "signal_memory is a RemoteMemory, not %.200s",
                     Py_TYPE(memory)->tp_name);
        return -1;
    }
    *signals_p = (RemoteObject *)memory;
    if ((*signals_p)->endpoint != self->endpoint) {
        PyErr_SetString(PyExc_ValueError,
                        "signal_memory is of another endpoint");
        return -1;
    }
    return 0;
}

const char remote_put_signal_doc[] =
    "put_signal($self, buffer, offset, signal, value, op='set',\n"
    "           signal_memory=None)\n--\n\n"
    "Write as put(), then set the 64-bit number at the offset\n"
    "`signal` to value, or with op='add' add value to it;\n"
    "awaitable. A program that sees the new number also sees the\n"
    "bytes. With signal_memory, another RemoteMemory of the\n"
    "endpoint, the number is there.";

PyObject *
remote_put_signal(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                  PyObject *kwnames)
{
    static const char *const keywords[] = {"buffer", "offset", "signal",
                                           "value",  "op",     "signal_memory"};
    RemoteObject            *self = (RemoteObject *)op, *signals = self;
    umx_atomic               atomic = {.size = 8};
    PyObject                *values[6];
    RequestObject           *req;
    rma_atomic              *made;

    if (args_parse("put_signal", args, nargs, kwnames, keywords, 6, 6, 4,
                   values) < 0 ||
        parse_signal_memory(self, values[5], &signals) < 0 ||
        rma_check_writable(self) < 0 ||
        rma_parse_offset(values[2], &atomic.offset) < 0 ||
        atomic_parse_value(values[3], atomic.size, &atomic.value) < 0 ||
        atomic_parse_signal(values[4], &atomic.op) < 0 ||
        check_atomic(signals, &atomic) < 0) {
        return NULL;
    }
    req = new_atomic(self, &atomic, &op_put_signal);
    if (req == NULL) {
        return NULL;
    }
    made = TAIL_OF(req, rma_tail)->atomic;
    if (signals != self) {
        made->signals = Py_NewRef(signals);
    }
    if (rma_parse_offset(values[1], &made->offset) < 0 ||
        buffer_acquire(req->worker->st, values[0], false, &req->hold) < 0 ||
        rma_check_range(self, made->offset, req->hold.buf.len) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}
