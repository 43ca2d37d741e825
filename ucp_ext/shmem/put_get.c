/* SPDX-License-Identifier: BSD-3-Clause */
/* put_get.c: put and get. Few bytes for a PE that is mapped are moved in line;
 * the request is made all the same, so that both kinds are awaited. */
#include "base/args.h"
#include "op/atomic.h"
#include "op/rma.h"
#include "shmem/heap.h"
#include "worker/worker.h"

/* ---- posting -------------------------------------------------------------
 */

static umx_status
put(RequestObject *req, const umx_op_params *params)
{
    const shmem_call *call = shmem_call_of(req);

    return umx_shmem_put(shmem_of(req), call->address, req->hold.buf.data,
                         req->hold.buf.len, call->pe, params, &req->op);
}

static umx_status
get(RequestObject *req, const umx_op_params *params)
{
    const shmem_call *call = shmem_call_of(req);

    return umx_shmem_get_buffer(shmem_of(req), &req->hold.buf, call->address,
                                call->pe, params, &req->op);
}

static umx_status
iput(RequestObject *req, const umx_op_params *params)
{
    const shmem_call *call = shmem_call_of(req);

    return umx_shmem_iput(shmem_of(req), call->address, req->hold.buf.data,
                          &call->stride, call->pe, params, &req->op);
}

static umx_status
iget(RequestObject *req, const umx_op_params *params)
{
    const shmem_call *call = shmem_call_of(req);

    return umx_shmem_iget(shmem_of(req), req->hold.buf.data, call->address,
                          &call->stride, call->pe, params, &req->op);
}

static umx_status
put_signal(RequestObject *req, const umx_op_params *params)
{
    const shmem_call *call = shmem_call_of(req);

    return umx_shmem_put_signal(shmem_of(req), call->address,
                                req->hold.buf.data, req->hold.buf.len,
                                call->signal, call->atomic.value,
                                call->atomic.op, call->pe, params, &req->op);
}

#define DEFINE_OP(method)                                                \
    static umx_status method##_post(RequestObject       *req,            \
                                    const umx_op_params *params)         \
    {                                                                    \
        return (shmem_of(req) == NULL) ?                                 \
                   UMX_ERR_CLOSED :                                      \
                   rma_post_len(req, params, req->hold.buf.len, method); \
    }                                                                    \
                                                                         \
    static const op_type op_##method = {                                 \
        .name     = #method,                                             \
        .flags    = OP_SEND | OP_PLAIN,                                  \
        .post     = method##_post,                                       \
        .error    = shmem_request_error,                                 \
        .clear    = shmem_request_clear,                                 \
        .traverse = shmem_request_traverse,                              \
    }

DEFINE_OP(put);
DEFINE_OP(get);
DEFINE_OP(iput);
DEFINE_OP(iget);
DEFINE_OP(put_signal);

/* ---- put and get ---------------------------------------------------------
 */

static int
check_room(const char *what, const SymmetricMemoryObject *memory, size_t len)
{
    if (LIKELY(len <= memory->nbytes)) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "%s has %llu bytes, and the buffer %zu",
                 what, (unsigned long long)memory->nbytes, len);
    return -1;
}

/* Tell who waits at `pe`; the status of the operation. */
static inline umx_status
ring(const SymmetricHeapObject *heap, int pe, bool is_fenced)
{
    return umx_shmem_direct_ring(&heap->direct, pe, is_fenced);
}

/* May this call be made in line? Memory of few bytes, in this thread. */
static inline bool
is_in_line(const SymmetricHeapObject *heap, int pe, size_t len)
{
    return len < RMA_MIN_UNLOCKED && shmem_is_direct(heap, pe) &&
           worker_is_mine(heap->worker) && heap->worker->umx != NULL;
}

/* Hold a buffer, and check it; -1 with an exception, and nothing is held. */
static int
hold_source(const SymmetricHeapObject *heap, PyObject *source,
            const SymmetricMemoryObject *dest, buffer_hold *hold)
{
    hold->owner = NULL;
    if (buffer_acquire_run(heap->worker->st, source, false, hold) < 0) {
        return -1;
    }
    if (check_room("dest", dest, hold->buf.len) < 0) {
        buffer_release(hold);
        return -1;
    }
    return 0;
}

static PyObject *
finish_in_line(SymmetricHeapObject *heap, const op_type *type,
               umx_status status)
{
    PyObject *req = shmem_done(heap, type, status);

    worker_drain_if_due(heap->worker);
    return req;
}

/* Begin a put or a get. A get may write to memory that has a layout; a put
 * reads one run of bytes. */
static PyObject *
transfer(SymmetricHeapObject *heap, SymmetricMemoryObject *memory,
         PyObject *buffer, int pe, const op_type *type)
{
    bool           is_get = type == &op_get;
    RequestObject *req    = shmem_request(heap, type);
    shmem_call    *call;

    if (req == NULL) {
        return NULL;
    }
    call          = shmem_call_of(req);
    call->address = memory->address;
    call->pe      = pe;
    call->memory  = (SymmetricMemoryObject *)Py_NewRef(memory);
    if (shmem_acquire(req, buffer, is_get ? buffer_acquire : buffer_acquire_run,
                      is_get) < 0 ||
        check_room(is_get ? "source" : "dest", memory, req->hold.buf.len) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

const char heap_put_doc[] =
    "put($self, dest, source, pe)\n--\n\n"
    "Write the bytes of source, a buffer, to dest of that PE; awaitable.";

PyObject *
heap_put(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
         PyObject *kwnames)
{
    static const char *const keywords[] = {"dest", "source", "pe"};
    SymmetricHeapObject     *self       = (SymmetricHeapObject *)op;
    SymmetricMemoryObject   *dest;
    PyObject                *values[3];
    buffer_hold              hold;
    int                      pe;
    umx_status               status;

    if (args_parse("put", args, nargs, kwnames, keywords, 3, 3, 3, values) <
            0 ||
        shmem_parse_memory(self, values[0], "dest", &dest) < 0 ||
        shmem_parse_pe(self, values[2], &pe) < 0) {
        return NULL;
    }
    if (!is_in_line(self, pe, 0)) {
        return transfer(self, dest, values[1], pe, &op_put);
    }
    if (hold_source(self, values[1], dest, &hold) < 0) {
        return NULL;
    }
    if (!is_in_line(self, pe, hold.buf.len) ||
        hold.buf.memtype != UMX_MEMTYPE_HOST) {
        buffer_release(&hold);
        return transfer(self, dest, values[1], pe, &op_put);
    }
    memmove(umx_shmem_direct_at(&self->direct, dest->address, pe),
            hold.buf.data, hold.buf.len);
    status = ring(self, pe, false);
    buffer_release(&hold);
    return finish_in_line(self, &op_put, status);
}

const char heap_get_doc[] = "get($self, buffer, source, pe)\n--\n\n"
                            "Fill buffer from source of that PE; awaitable.";

PyObject *
heap_get(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
         PyObject *kwnames)
{
    static const char *const keywords[] = {"buffer", "source", "pe"};
    SymmetricHeapObject     *self       = (SymmetricHeapObject *)op;
    SymmetricMemoryObject   *source;
    PyObject                *values[3];
    int                      pe;

    if (args_parse("get", args, nargs, kwnames, keywords, 3, 3, 3, values) <
            0 ||
        shmem_parse_memory(self, values[1], "source", &source) < 0 ||
        shmem_parse_pe(self, values[2], &pe) < 0) {
        return NULL;
    }
    return transfer(self, source, values[0], pe, &op_get);
}

/* ---- signals -------------------------------------------------------------
 */

/* The arguments of put_signal(). */
typedef struct signal_args {
    SymmetricMemoryObject *dest;
    SymmetricMemoryObject *signal;
    PyObject              *source;
    int                    pe;
    umx_atomic_op          how;
    uint64_t               value;
} signal_args;

static int
parse_signal(const SymmetricHeapObject *self, PyObject *const *args,
             Py_ssize_t nargs, PyObject *kwnames, signal_args *it)
{
    static const char *const keywords[] = {"dest",   "source", "pe",
                                           "signal", "value",  "op"};
    PyObject                *values[6];

    if (args_parse("put_signal", args, nargs, kwnames, keywords, 6, 6, 5,
                   values) < 0 ||
        shmem_parse_memory(self, values[0], "dest", &it->dest) < 0 ||
        shmem_parse_pe(self, values[2], &it->pe) < 0 ||
        shmem_parse_number(self, values[3], "signal", &it->signal) < 0 ||
        atomic_parse_value(values[4], 8, &it->value) < 0 ||
        atomic_parse_signal(values[5], &it->how) < 0) {
        return -1;
    }
    if (it->signal->itemsize != 8) {
        PyErr_SetString(PyExc_TypeError, "signal must have items of 8 bytes");
        return -1;
    }
    it->source = values[1];
    return 0;
}

static PyObject *
post_signal(SymmetricHeapObject *self, const signal_args *it)
{
    RequestObject *req = shmem_request(self, &op_put_signal);
    shmem_call    *call;

    if (req == NULL) {
        return NULL;
    }
    call          = shmem_call_of(req);
    call->address = it->dest->address;
    call->signal  = (uint64_t *)(void *)it->signal->address;
    call->pe      = it->pe;
    call->memory  = (SymmetricMemoryObject *)Py_NewRef(it->dest);
    call->atomic  = (umx_atomic){.op = it->how, .value = it->value};
    if (shmem_acquire(req, it->source, buffer_acquire_run, false) < 0 ||
        check_room("dest", it->dest, req->hold.buf.len) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

const char heap_put_signal_doc[] =
    "put_signal($self, dest, source, pe, signal, value, op='set')\n--\n\n"
    "Write as put(), then set the number `signal` of that PE to value, or\n"
    "with op='add' add value to it; awaitable. Who sees the new number sees\n"
    "the bytes.";

PyObject *
heap_put_signal(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                PyObject *kwnames)
{
    SymmetricHeapObject *self = (SymmetricHeapObject *)op;
    signal_args          it;
    buffer_hold          hold;
    umx_status           status;

    if (parse_signal(self, args, nargs, kwnames, &it) < 0) {
        return NULL;
    }
    if (!is_in_line(self, it.pe, 0)) {
        return post_signal(self, &it);
    }
    if (hold_source(self, it.source, it.dest, &hold) < 0) {
        return NULL;
    }
    if (!is_in_line(self, it.pe, hold.buf.len) ||
        hold.buf.memtype != UMX_MEMTYPE_HOST) {
        buffer_release(&hold);
        return post_signal(self, &it);
    }
    status = umx_shmem_direct_put_signal(
        &self->direct, it.dest->address, hold.buf.data, hold.buf.len,
        (uint64_t *)(void *)it.signal->address, it.value, it.how, it.pe);
    buffer_release(&hold);
    return finish_in_line(self, &op_put_signal, status);
}

/* ---- items at distances --------------------------------------------------
 */

/* Bytes that `count` items at distances of `step` items span. */
static int
span(const umx_shmem_stride *stride, int64_t step, const char *what,
     uint64_t have)
{
    uint64_t last;

    if (step < 1) {
        PyErr_Format(PyExc_ValueError, "a stride is %lld, and not 1 or more",
                     (long long)step);
        return -1;
    }
    if (stride->count == 0) {
        return 0;
    }
    if (__builtin_mul_overflow((uint64_t)step, stride->count - 1, &last) ||
        last >= have / stride->size) {
        PyErr_Format(PyExc_ValueError,
                     "%s has %llu bytes, too few for %zu items of %zu bytes at "
                     "distances of %lld",
                     what, (unsigned long long)have, stride->count,
                     stride->size, (long long)step);
        return -1;
    }
    return 0;
}

static PyObject *
strided(SymmetricHeapObject *self, PyObject *const *values, bool is_put)
{
    SymmetricMemoryObject *memory;
    const char            *what = is_put ? "dest" : "source";
    RequestObject         *req;
    shmem_call            *call;
    umx_shmem_stride       stride;
    Py_ssize_t             count;
    int                    pe;

    if (shmem_parse_memory(self, values[is_put ? 0 : 1], what, &memory) < 0 ||
        shmem_parse_pe(self, values[5], &pe) < 0) {
        return NULL;
    }
    stride.size   = memory->itemsize;
    stride.dest   = PyNumber_AsSsize_t(values[2], PyExc_OverflowError);
    stride.source = PyErr_Occurred() ?
                        -1 :
                        PyNumber_AsSsize_t(values[3], PyExc_OverflowError);
    count         = PyErr_Occurred() ?
                        -1 :
                        PyNumber_AsSsize_t(values[4], PyExc_OverflowError);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (count < 0) {
        return PyErr_Format(PyExc_ValueError, "count is %zd", count);
    }
    stride.count = (size_t)count;
    req          = shmem_request(self, is_put ? &op_iput : &op_iget);
    if (req == NULL) {
        return NULL;
    }
    call          = shmem_call_of(req);
    call->address = memory->address;
    call->pe      = pe;
    call->memory  = (SymmetricMemoryObject *)Py_NewRef(memory);
    call->stride  = stride;
    if (shmem_acquire(req, values[is_put ? 1 : 0], buffer_acquire_run,
                      !is_put) < 0 ||
        span(&stride, is_put ? stride.dest : stride.source, what,
             memory->nbytes) < 0 ||
        span(&stride, is_put ? stride.source : stride.dest,
             is_put ? "source" : "buffer", req->hold.buf.len) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

const char heap_iput_doc[] =
    "iput($self, dest, source, dest_stride, source_stride, count, pe)\n--\n\n"
    "Write count items of source, a buffer, to dest of that PE; awaitable.\n"
    "Strides are in items of dest.";

PyObject *
heap_iput(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
          PyObject *kwnames)
{
    static const char *const keywords[] = {
        "dest", "source", "dest_stride", "source_stride", "count", "pe"};
    PyObject *values[6];

    return (args_parse("iput", args, nargs, kwnames, keywords, 6, 6, 6,
                       values) < 0) ?
               NULL :
               strided((SymmetricHeapObject *)op, values, true);
}

const char heap_iget_doc[] =
    "iget($self, buffer, source, buffer_stride, source_stride, count, pe)\n"
    "--\n\n"
    "Read count items of source of that PE to buffer; awaitable. Strides are\n"
    "in items of source.";

PyObject *
heap_iget(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
          PyObject *kwnames)
{
    static const char *const keywords[] = {
        "buffer", "source", "buffer_stride", "source_stride", "count", "pe"};
    PyObject *values[6];

    return (args_parse("iget", args, nargs, kwnames, keywords, 6, 6, 6,
                       values) < 0) ?
               NULL :
               strided((SymmetricHeapObject *)op, values, false);
}
