/* SPDX-License-Identifier: BSD-3-Clause */
/* rkey.c: a peer's memory. Where it is mapped an operation is done when
 * the call returns; the request is made all the same, so that both kinds are
 * awaited. */
#include "types/rkey.h"

#include "args.h"
#include "buffer/buffer.h"
#include "op/close.h"
#include "op/rma.h"
#include "types/endpoint.h"
#include "worker/worker.h"

/* ---- life ----------------------------------------------------------------
 */

PyObject *
remote_new(EndpointObject *endpoint, const void *key, size_t len)
{
    mod_state    *st = endpoint->worker->st;
    RemoteObject *self;
    umx_rkey     *rkey;
    umx_status    status;

    status = umx_rkey_open(endpoint->umx, key, len, &rkey);
    if (status != UMX_OK) {
        return errors_raise(st, status, "remote", NULL);
    }
    self = (RemoteObject *)st->remote_type->tp_alloc(st->remote_type, 0);
    if (self == NULL) {
        umx_rkey_destroy(rkey);
        return NULL;
    }
    self->endpoint = (EndpointObject *)Py_NewRef(endpoint);
    self->umx      = rkey;
    self->nbytes   = umx_rkey_length(rkey);
    st->num_remotes++;
    return (PyObject *)self;
}

static int
remote_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((RemoteObject *)op)->endpoint);
    return 0;
}

static void
remote_dealloc(PyObject *op)
{
    RemoteObject *self   = (RemoteObject *)op;
    PyTypeObject *type   = Py_TYPE(op);
    WorkerObject *worker = self->endpoint->worker;

    PyObject_GC_UnTrack(op);
    umx_rkey_retire(self->umx); /* any thread */
    worker->st->num_remotes--;
    Py_CLEAR(self->endpoint);
    type->tp_free(op);
    Py_DECREF(type);
}

/* ---- arguments -----------------------------------------------------------
 */

/* Parse an offset, in bytes from the start of the memory; NULL is 0. */
static int
parse_offset(PyObject *value, uint64_t *offset_p)
{
    PyObject *index;

    if (value == NULL) {
        *offset_p = 0;
        return 0;
    }
    index = PyNumber_Index(value);
    if (index == NULL) {
        return -1;
    }
    *offset_p = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (*offset_p == (uint64_t)-1 && PyErr_Occurred()) {
        PyErr_Format(PyExc_IndexError, "the offset %R is out of range", value);
        return -1;
    }
    return 0;
}

static int
check_range(const RemoteObject *self, uint64_t offset, uint64_t len)
{
    if (LIKELY(offset <= self->nbytes && len <= self->nbytes - offset)) {
        return 0;
    }
    PyErr_Format(PyExc_IndexError,
                 "%llu bytes at offset %llu are out of the memory's %llu", len,
                 offset, self->nbytes);
    return -1;
}

static int
check_writable(const RemoteObject *self)
{
    if (UNLIKELY(umx_rkey_is_readonly(self->umx))) {
        (void)errors_raise(self->endpoint->worker->st, UMX_ERR_READONLY,
                           "RemoteMemory", NULL);
        return -1;
    }
    return 0;
}

static RequestObject *
new_request(RemoteObject *self, const op_type *type)
{
    EndpointObject *endpoint = self->endpoint;
    RequestObject  *req      = request_new(endpoint->worker, endpoint, type);

    if (LIKELY(req != NULL)) {
        TAIL_OF(req, rma_tail)->remote = Py_NewRef(self);
    }
    return req;
}

/* ---- put and get ---------------------------------------------------------
 */

static PyObject *
transfer(RemoteObject *self, PyObject *buffer, PyObject *offset,
         const op_type *type)
{
    RequestObject *req = new_request(self, type);
    rma_tail      *tail;

    if (UNLIKELY(req == NULL)) {
        return NULL;
    }
    tail = TAIL_OF(req, rma_tail);
    if (UNLIKELY(parse_offset(offset, &tail->offset) < 0 ||
                 buffer_acquire(req->worker->st, buffer, type == &op_get,
                                &req->hold) < 0 ||
                 check_range(self, tail->offset, req->hold.buf.len) < 0)) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

static int
parse_transfer(const char *name, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames, PyObject **values)
{
    static const char *const keywords[] = {"buffer", "offset"};

    if (LIKELY(kwnames == NULL && (nargs == 1 || nargs == 2))) {
        values[0] = args[0];
        values[1] = (nargs == 2) ? args[1] : NULL;
        return 0;
    }
    return args_parse(name, args, nargs, kwnames, keywords, 2, 2, 1, values);
}

PyDoc_STRVAR(put_doc,
             "put($self, buffer, offset=0)\n--\n\n"
             "Write all of buffer to the memory, at offset bytes; awaitable.\n"
             "The request is done when the memory has changed. IndexError:\n"
             "the bytes do not fit into the memory.");

static PyObject *
remote_put(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwnames)
{
    RemoteObject *self = (RemoteObject *)op;
    PyObject     *values[2];

    if (parse_transfer("put", args, nargs, kwnames, values) < 0 ||
        check_writable(self) < 0) {
        return NULL;
    }
    return transfer(self, values[0], values[1], &op_put);
}

PyDoc_STRVAR(get_doc,
             "get($self, buffer, offset=0)\n--\n\n"
             "Fill buffer from the memory, from offset bytes on; awaitable.");

static PyObject *
remote_get(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwnames)
{
    PyObject *values[2];

    if (parse_transfer("get", args, nargs, kwnames, values) < 0) {
        return NULL;
    }
    return transfer((RemoteObject *)op, values[0], values[1], &op_get);
}

/* ---- lists ---------------------------------------------------------------
 */

/* Hold the buffer of one pair (buffer, offset). */
static int
hold_item(RemoteObject *self, PyObject *pair, bool is_writable,
          buffer_hold *hold, umx_rma_item *item)
{
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        PyErr_Format(PyExc_TypeError,
                     "expected a tuple (buffer, offset), not %.200s",
                     Py_TYPE(pair)->tp_name);
        return -1;
    }
    if (parse_offset(PyTuple_GET_ITEM(pair, 1), &item->offset) < 0 ||
        buffer_acquire(self->endpoint->worker->st, PyTuple_GET_ITEM(pair, 0),
                       is_writable, hold) < 0) {
        return -1;
    }
    item->buf = hold->buf;
    return 0;
}

/* Hold the buffers of all pairs; -1 with an exception: `list` has those that
 * are held by then. */
static int
hold_items(RemoteObject *self, PyObject *pairs, bool is_writable,
           rma_list *list)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); i++) {
        umx_rma_item *item = &list->items[i];

        if (hold_item(self, PyTuple_GET_ITEM(pairs, i), is_writable,
                      &list->holds[i], item) < 0) {
            return -1;
        }
        list->count++;
        list->len += item->buf.len;
        if (check_range(self, item->offset, item->buf.len) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *
transfer_many(RemoteObject *self, PyObject *sequence, const op_type *type)
{
    PyObject      *pairs = args_items(sequence, "expected a sequence of "
                                                     "(buffer, offset)");
    RequestObject *req;
    rma_list      *list = NULL;

    if (pairs == NULL) {
        return NULL;
    }
    req = new_request(self, type);
    if (req != NULL) {
        list = rma_list_new(PyTuple_GET_SIZE(pairs));

        TAIL_OF(req, rma_tail)->list = list;
        request_track(req);
    }
    if (list == NULL ||
        hold_items(self, pairs, type == &op_get_many, list) < 0) {
        Py_XDECREF(req);
        Py_DECREF(pairs);
        return NULL;
    }
    Py_DECREF(pairs);
    return request_post(req);
}

PyDoc_STRVAR(put_many_doc,
             "put_many($self, items, /)\n--\n\n"
             "Call put() for each pair (buffer, offset) of items, with one\n"
             "await for all.");

static PyObject *
remote_put_many(PyObject *op, PyObject *items)
{
    RemoteObject *self = (RemoteObject *)op;

    return (check_writable(self) < 0) ?
               NULL :
               transfer_many(self, items, &op_put_many);
}

PyDoc_STRVAR(get_many_doc,
             "get_many($self, items, /)\n--\n\n"
             "Call get() for each pair (buffer, offset) of items, with one\n"
             "await for all.");

static PyObject *
remote_get_many(PyObject *op, PyObject *items)
{
    return transfer_many((RemoteObject *)op, items, &op_get_many);
}

/* ---- atomic operations ---------------------------------------------------
 */

/* Parse an int of `size` bytes, signed or not. */
static int
parse_value(PyObject *value, unsigned size, uint64_t *value_p)
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
    if (check_writable(self) < 0 ||
        check_range(self, atomic->offset, atomic->size) < 0) {
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
    RequestObject *req = new_request(self, type);
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
        parse_offset(values[0], &atomic.offset) < 0 ||
        parse_value(values[1], atomic.size, &atomic.value) < 0) {
        return NULL;
    }
    return post_atomic((RemoteObject *)op, &atomic, type);
}

#define CHANGE(name, text, which, type)                                 \
    PyDoc_STRVAR(name##_doc, text);                                     \
                                                                        \
    static PyObject *remote_##name(PyObject *op, PyObject *const *args, \
                                   Py_ssize_t nargs, PyObject *kwnames) \
    {                                                                   \
        return change(op, #name, args, nargs, kwnames, which, type);    \
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

PyDoc_STRVAR(cswap_doc,
             "cswap($self, offset, compare, value, bits=64)\n--\n\n"
             "Replace the number of `bits` bits (32 or 64) at `offset` bytes\n"
             "by value if it equals compare, atomically; awaitable. The\n"
             "result is the previous number, unsigned.");

static PyObject *
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
        parse_offset(values[0], &atomic.offset) < 0 ||
        parse_value(values[1], atomic.size, &atomic.compare) < 0 ||
        parse_value(values[2], atomic.size, &atomic.value) < 0) {
        return NULL;
    }
    return post_atomic((RemoteObject *)op, &atomic, &op_fetch);
}

/* 'set' or 'add'. */
static int
parse_signal_op(PyObject *op, umx_atomic_op *op_p)
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

PyDoc_STRVAR(put_signal_doc,
             "put_signal($self, buffer, offset, signal, value, op='set',\n"
             "           signal_memory=None)\n--\n\n"
             "Write as put(), then set the 64-bit number at the offset\n"
             "`signal` to value, or with op='add' add value to it;\n"
             "awaitable. A program that sees the new number also sees the\n"
             "bytes. With signal_memory, another RemoteMemory of the\n"
             "endpoint, the number is there.");

static PyObject *
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
        check_writable(self) < 0 ||
        parse_offset(values[2], &atomic.offset) < 0 ||
        parse_value(values[3], atomic.size, &atomic.value) < 0 ||
        parse_signal_op(values[4], &atomic.op) < 0 ||
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
    if (parse_offset(values[1], &made->offset) < 0 ||
        buffer_acquire(req->worker->st, values[0], false, &req->hold) < 0 ||
        check_range(self, made->offset, req->hold.buf.len) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

/* ---- the mapping ---------------------------------------------------------
 */

static int
remote_getbuffer(PyObject *op, Py_buffer *view, int flags)
{
    RemoteObject *self    = (RemoteObject *)op;
    void         *pointer = umx_rkey_pointer(self->umx);

    view->obj = NULL;
    if (pointer == NULL) {
        PyErr_SetString(PyExc_BufferError,
                        "the memory is not mapped: it is on another host, or "
                        "was not allocated by Memory.allocate()");
        return -1;
    }
    return PyBuffer_FillInfo(view, op, pointer, (Py_ssize_t)self->nbytes,
                             umx_rkey_is_readonly(self->umx), flags);
}

PyDoc_STRVAR(view_doc,
             "view($self, offset=0, nbytes=None)\n--\n\n"
             "Return the memory, or a part of it, as a memoryview, if it is\n"
             "`mapped`. The view stays valid when the connection ends.");

static PyObject *
remote_view(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    static const char *const keywords[] = {"offset", "nbytes"};
    RemoteObject            *self       = (RemoteObject *)op;
    PyObject                *values[2], *whole, *part;
    uint64_t                 offset, len;

    if (args_parse("view", args, nargs, kwnames, keywords, 2, 2, 0, values) <
            0 ||
        parse_offset(values[0], &offset) < 0) {
        return NULL;
    }
    len = (offset < self->nbytes) ? self->nbytes - offset : 0;
    if ((values[1] != NULL && values[1] != Py_None &&
         parse_offset(values[1], &len) < 0) ||
        check_range(self, offset, len) < 0) {
        return NULL;
    }
    whole = PyMemoryView_FromObject(op);
    if (whole == NULL) {
        return NULL;
    }
    part = PySequence_GetSlice(whole, (Py_ssize_t)offset,
                               (Py_ssize_t)(offset + len));
    Py_DECREF(whole);
    return part;
}

PyDoc_STRVAR(notify_doc,
             "notify($self, /)\n--\n\n"
             "Wake who waits for the memory at its owner, after stores by\n"
             "view().");

static PyObject *
remote_notify(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RemoteObject *self   = (RemoteObject *)op;
    WorkerObject *worker = self->endpoint->worker;
    umx_status    status = umx_rkey_notify(self->umx);

    if (status != UMX_OK) {
        return errors_raise(worker->st, status, "notify", NULL);
    }
    worker_drain_if_due(worker);
    Py_RETURN_NONE;
}

/* ---- the rest ------------------------------------------------------------
 */

PyDoc_STRVAR(flush_doc,
             "flush($self, /)\n--\n\n"
             "Wait until all operations of the endpoint have reached the\n"
             "peer; awaitable.");

static PyObject *
remote_flush(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    EndpointObject *endpoint = ((RemoteObject *)op)->endpoint;

    return request_begin(endpoint->worker, endpoint, &op_flush);
}

PyDoc_STRVAR(close_doc,
             "close($self, /)\n--\n\n"
             "End the access: further operations raise UCXCloseError. Views\n"
             "stay valid.");

static PyObject *
remote_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RemoteObject *self = (RemoteObject *)op;

    umx_rkey_close(self->umx);
    self->is_closed = true;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(closed_doc, "closed($self, /)\n--\n\nTrue after close().");

static PyObject *
remote_closed(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(((RemoteObject *)op)->is_closed);
}

static PyObject *
get_nbytes(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((RemoteObject *)op)->nbytes);
}

static PyObject *
get_readonly(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(umx_rkey_is_readonly(((RemoteObject *)op)->umx));
}

static PyObject *
get_mapped(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(umx_rkey_pointer(((RemoteObject *)op)->umx) != NULL);
}

static PyObject *
get_endpoint(PyObject *op, void *Py_UNUSED(closure))
{
    return Py_NewRef(((RemoteObject *)op)->endpoint);
}

static PyObject *
remote_repr(PyObject *op)
{
    RemoteObject *self = (RemoteObject *)op;

    return PyUnicode_FromFormat(
        "<ucp.RemoteMemory of %llu bytes%s, %s>", self->nbytes,
        umx_rkey_is_readonly(self->umx) ? ", read-only" : "",
        self->is_closed                     ? "closed" :
        umx_rkey_pointer(self->umx) != NULL ? "mapped" :
                                              "not mapped");
}

#define KEYWORDS (METH_FASTCALL | METH_KEYWORDS)
#define KEYWORDS_FUNC(f) ((PyCFunction)(void (*)(void))(f))
#define METHOD(name)                                              \
    {                                                             \
#name, KEYWORDS_FUNC(remote_##name), KEYWORDS, name##_doc \
    }

static PyMethodDef remote_methods[] = {
    METHOD(put),
    METHOD(get),
    {"put_many", remote_put_many, METH_O, put_many_doc},
    {"get_many", remote_get_many, METH_O, get_many_doc},
    METHOD(put_signal),
    METHOD(add),
    METHOD(and_),
    METHOD(or_),
    METHOD(xor),
    METHOD(fetch_add),
    METHOD(fetch_and),
    METHOD(fetch_or),
    METHOD(fetch_xor),
    METHOD(swap),
    METHOD(cswap),
    METHOD(view),
    {"notify", remote_notify, METH_NOARGS, notify_doc},
    {"flush", remote_flush, METH_NOARGS, flush_doc},
    {"close", remote_close, METH_NOARGS, close_doc},
    {"closed", remote_closed, METH_NOARGS, closed_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef remote_getset[] = {
    {"nbytes", get_nbytes, NULL, "Length in bytes.", NULL},
    {"readonly", get_readonly, NULL, "True if the memory cannot be written.",
     NULL},
    {"mapped", get_mapped, NULL,
     "True if the memory is in the address space of this process, see view().",
     NULL},
    {"endpoint", get_endpoint, NULL, "The endpoint of the memory.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(remote_doc, "Memory of a peer; made by Endpoint.remote().");

static PyType_Slot remote_slots[] = {
    {Py_tp_doc, (void *)remote_doc},     {Py_tp_dealloc, remote_dealloc},
    {Py_tp_traverse, remote_traverse},   {Py_tp_repr, remote_repr},
    {Py_tp_methods, remote_methods},     {Py_tp_getset, remote_getset},
    {Py_bf_getbuffer, remote_getbuffer}, {0, NULL},
};

PyType_Spec remote_spec = {
    .name      = "ucp._ext.RemoteMemory",
    .basicsize = sizeof(RemoteObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = remote_slots,
};
