/* SPDX-License-Identifier: BSD-3-Clause */
/* wait_calls.c: waiting for numbers in this PE's memory. */
#include "base/args.h"
#include "op/atomic.h"
#include "op/wait.h"
#include "shmem/heap.h"
#include "worker/worker.h"

/* ---- one number ----------------------------------------------------------
 */

static umx_status
wait_post_one(RequestObject *req, const umx_op_params *params)
{
    const shmem_call *call = shmem_call_of(req);

    return (shmem_of(req) == NULL) ?
               UMX_ERR_CLOSED :
               umx_shmem_wait_until(shmem_of(req), call->until, params,
                                    &req->op);
}

static void
wait_clear_call(RequestObject *req)
{
    shmem_call *call = shmem_call_of(req);

    if (call != NULL) {
        PyMem_Free(call->until);
        Py_CLEAR(call->seen);
    }
    shmem_request_clear(req);
}

static int
wait_traverse_call(const RequestObject *req, visitproc visit, void *arg)
{
    const shmem_call *call = shmem_call_of(req);

    if (call != NULL) {
        Py_VISIT(call->seen);
    }
    return shmem_request_traverse(req, visit, arg);
}

static const op_type op_wait_until = {
    .name     = "wait_until",
    .flags    = OP_PLAIN,
    .post     = wait_post_one,
    .error    = shmem_request_error,
    .clear    = wait_clear_call,
    .traverse = wait_traverse_call,
};

/* Are ordered comparisons what the numbers mean? */
static int
check_order(const SymmetricMemoryObject *self, umx_cmp cmp)
{
    if (LIKELY(self->kind == 'u' || cmp == UMX_CMP_EQ || cmp == UMX_CMP_NE)) {
        return 0;
    }
    PyErr_SetString(PyExc_TypeError,
                    "numbers with a sign are compared by '==' and '!=' only: "
                    "use an unsigned dtype");
    return -1;
}

static int
parse_condition(SymmetricMemoryObject *self, PyObject *const *args,
                Py_ssize_t nargs, const char *name, umx_condition *until)
{
    SymmetricMemoryObject *same;

    if (nargs != 2) {
        PyErr_Format(PyExc_TypeError, "%s() takes 2 arguments (%zd given)",
                     name, nargs);
        return -1;
    }
    if (shmem_parse_number(self->heap, (PyObject *)self, name, &same) < 0 ||
        wait_parse_cmp(args[0], &until->cmp) < 0 ||
        atomic_parse_value(args[1], self->itemsize, &until->value) < 0) {
        return -1;
    }
    until->size   = self->itemsize;
    until->offset = (uint64_t)(self->address - self->heap->direct.base);
    return check_order(self, until->cmp);
}

const char memory_wait_until_doc[] =
    "_wait_until($self, cmp, value, /)\n--\n\n"
    "Wait until the first number compares so to value; awaitable. cmp is\n"
    "'==', '!=', '>', '>=', '<' or '<='. What was put before the number can\n"
    "be read then.";

PyObject *
memory_wait_until(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    SymmetricMemoryObject *self  = (SymmetricMemoryObject *)op;
    umx_condition          until = {.offset = 0};
    RequestObject         *req;
    shmem_call            *call;

    if (parse_condition(self, args, nargs, "wait_until", &until) < 0) {
        return NULL;
    }
    if (!self->heap->is_closed && worker_is_mine(self->heap->worker) &&
        umx_shmem_test(self->heap->umx, &until) == UMX_OK) {
        return shmem_done(self->heap, &op_wait_until, UMX_OK);
    }
    req = shmem_request(self->heap, &op_wait_until);
    if (req == NULL) {
        return NULL;
    }
    call         = shmem_call_of(req);
    call->memory = (SymmetricMemoryObject *)Py_NewRef(self);
    call->until  = PyMem_Malloc(sizeof(until));
    if (call->until == NULL) {
        Py_DECREF(req);
        return PyErr_NoMemory();
    }
    *call->until = until;
    return request_post(req);
}

const char memory_test_doc[] =
    "test($self, cmp, value, /)\n--\n\n"
    "Tell whether the first number compares so to value now.";

PyObject *
memory_test(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    SymmetricMemoryObject *self  = (SymmetricMemoryObject *)op;
    umx_condition          until = {.offset = 0};
    umx_status             status;

    if (parse_condition(self, args, nargs, "test", &until) < 0 ||
        joint_check(self->heap) < 0) {
        return NULL;
    }
    worker_catch_up(self->heap->worker);
    status = umx_shmem_test(self->heap->umx, &until);
    if (status != UMX_OK && status != UMX_INPROGRESS) {
        return errors_raise(self->heap->worker->st, status, "test", NULL);
    }
    return PyBool_FromLong(status == UMX_OK);
}

const char memory_signal_fetch_doc[] =
    "signal_fetch($self, /)\n--\n\n"
    "Read the first number, a signal of this PE: what was put before it can\n"
    "be read then.";

PyObject *
memory_signal_fetch(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    SymmetricMemoryObject *self = (SymmetricMemoryObject *)op, *same;
    uint32_t               number;

    if (shmem_parse_number(self->heap, op, "signal", &same) < 0) {
        return NULL;
    }
    if (self->itemsize == 8) {
        uint64_t wide = umx_shmem_signal_fetch(
            (const uint64_t *)(const void *)self->address);

        return (self->kind == 'i') ? PyLong_FromLongLong((int64_t)wide) :
                                     PyLong_FromUnsignedLongLong(wide);
    }
    number = __atomic_load_n((const uint32_t *)(const void *)self->address,
                             __ATOMIC_ACQUIRE);
    return (self->kind == 'i') ? PyLong_FromLong((int32_t)number) :
                                 PyLong_FromUnsignedLong(number);
}

/* ---- several -------------------------------------------------------------
 */

static umx_status
wait_many_post(RequestObject *req, const umx_op_params *params)
{
    const shmem_call *call       = shmem_call_of(req);
    umx_conditions    conditions = {
           .until    = call->until,
           .count    = call->count,
           .at_least = call->at_least,
           .seen     = (uint8_t *)PyBytes_AS_STRING(call->seen)};

    return (shmem_of(req) == NULL) ?
               UMX_ERR_CLOSED :
               umx_shmem_wait_until_many(shmem_of(req), &conditions, params,
                                         &req->op);
}

static PyObject *
wait_many_result(RequestObject *req)
{
    return Py_NewRef(shmem_call_of(req)->seen);
}

static const op_type op_wait_many = {
    .name     = "wait_until",
    .flags    = 0,
    .post     = wait_many_post,
    .result   = wait_many_result,
    .error    = shmem_request_error,
    .clear    = wait_clear_call,
    .traverse = wait_traverse_call,
};

/* Make the conditions: `values` is a number for all, or a tuple of them. */
static umx_condition *
new_conditions(SymmetricMemoryObject *self, umx_cmp cmp, PyObject *values,
               size_t count)
{
    umx_condition *until   = PyMem_Calloc(count + 1, sizeof(*until));
    bool           is_many = PyTuple_Check(values);

    if (until == NULL) {
        return (umx_condition *)PyErr_NoMemory();
    }
    if (is_many && (size_t)PyTuple_GET_SIZE(values) != count) {
        PyErr_Format(PyExc_ValueError, "%zd values for %zu numbers",
                     PyTuple_GET_SIZE(values), count);
        PyMem_Free(until);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        PyObject *value = is_many ? PyTuple_GET_ITEM(values, i) : values;

        until[i].cmp    = cmp;
        until[i].size   = self->itemsize;
        until[i].offset = (uint64_t)(self->address - self->heap->direct.base) +
                          i * self->itemsize;
        if (is_many || i == 0) {
            if (atomic_parse_value(value, self->itemsize, &until[i].value) <
                0) {
                PyMem_Free(until);
                return NULL;
            }
        } else {
            until[i].value = until[0].value;
        }
    }
    return until;
}

/* The arguments (cmp, values, seen): `seen` becomes a copy of bytes, whose
 * items are 1 where a number is not asked for. NULL with an exception. */
static umx_condition *
parse_many(SymmetricMemoryObject *self, PyObject *args, size_t *count_p,
           Py_ssize_t *at_least_p, PyObject **seen_p)
{
    SymmetricMemoryObject *same;
    PyObject              *cmp, *values, *seen;
    umx_condition         *until;
    umx_cmp                which;

    if (!PyArg_ParseTuple(args, "OOSn", &cmp, &values, &seen, at_least_p) ||
        shmem_parse_number(self->heap, (PyObject *)self, "wait_until", &same) <
            0 ||
        wait_parse_cmp(cmp, &which) < 0 || check_order(self, which) < 0) {
        return NULL;
    }
    *count_p = self->nbytes / self->itemsize;
    if ((size_t)PyBytes_GET_SIZE(seen) != *count_p) {
        PyErr_Format(PyExc_ValueError, "a mask of %zd for %zu numbers",
                     PyBytes_GET_SIZE(seen), *count_p);
        return NULL;
    }
    until = new_conditions(self, which, values, *count_p);
    if (until == NULL) {
        return NULL;
    }
    *seen_p = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)*count_p);
    if (*seen_p == NULL) {
        PyMem_Free(until);
        return NULL;
    }
    memcpy(PyBytes_AS_STRING(*seen_p), PyBytes_AS_STRING(seen), *count_p);
    return until;
}

const char memory_wait_many_doc[] =
    "_wait_many($self, cmp, values, seen, at_least, /)\n--\n\n"
    "Wait until so many numbers compare so; awaitable: bytes with 1 for each\n"
    "that has, and for each that is 1 in seen, which is not waited for.";

PyObject *
memory_wait_many(PyObject *op, PyObject *args)
{
    SymmetricMemoryObject *self = (SymmetricMemoryObject *)op;
    PyObject              *seen;
    umx_condition         *until;
    RequestObject         *req;
    shmem_call            *call;
    size_t                 count;
    Py_ssize_t             at_least;

    until = parse_many(self, args, &count, &at_least, &seen);
    if (until == NULL) {
        return NULL;
    }
    req = shmem_request(self->heap, &op_wait_many);
    if (req == NULL) {
        PyMem_Free(until);
        Py_DECREF(seen);
        return NULL;
    }
    call           = shmem_call_of(req);
    call->memory   = (SymmetricMemoryObject *)Py_NewRef(self);
    call->until    = until;
    call->count    = count;
    call->at_least = (size_t)at_least;
    call->seen     = seen;
    return request_post(req);
}

const char memory_look_many_doc[] =
    "_look_many($self, cmp, values, seen, at_least, /)\n--\n\n"
    "Look at them once: the same bytes.";

PyObject *
memory_look_many(PyObject *op, PyObject *args)
{
    SymmetricMemoryObject *self   = (SymmetricMemoryObject *)op;
    umx_status             status = UMX_OK;
    PyObject              *seen;
    umx_condition         *until;
    size_t                 count;
    Py_ssize_t             at_least;

    until = parse_many(self, args, &count, &at_least, &seen);
    if (until == NULL) {
        return NULL;
    }
    if (joint_check(self->heap) < 0) {
        PyMem_Free(until);
        Py_DECREF(seen);
        return NULL;
    }
    worker_catch_up(self->heap->worker);
    for (size_t i = 0; i < count && status >= 0; i++) {
        char *one = PyBytes_AS_STRING(seen) + i;

        if (*one == 0) {
            status = umx_shmem_test(self->heap->umx, &until[i]);
            *one   = status == UMX_OK;
        }
    }
    PyMem_Free(until);
    if (status < 0) {
        Py_DECREF(seen);
        return errors_raise(self->heap->worker->st, status, "test", NULL);
    }
    return seen;
}
