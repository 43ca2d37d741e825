/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.c: buffers of one size, in memory that is registered once.
 *
 * A buffer is free or lent (type/loan.c). One that comes back goes to the
 * first who waits, if any: nobody overtakes. Loans end in any thread that drops
 * the last reference, with the GIL; a waiter is a future of the loop that
 * waits, and `_deliver`, Python's, takes the buffer there. One that has gone by
 * the time drops the buffer, which comes back and goes to the next. */
#include "type/pool.h"

#include "buffer/memory_kind.h"
#include "buffer/pool.h"
#include "object/context.h"
#include "type/type.h"

enum {
    ALIGNMENT = 64 /* bytes; the CPU's cache lines */
};

/* ---- life ----------------------------------------------------------------
 */

static int
allocate(PoolObject *self, ContextObject *context, Py_ssize_t count,
         Py_ssize_t nbytes, const memory_kind *kind, PyObject *device)
{
    if (count < 1 || nbytes < 1) {
        PyErr_Format(PyExc_ValueError,
                     "expected at least one buffer of one byte, got %zd of %zd",
                     count, nbytes);
        return -1;
    }
    self->waiters = PyList_New(0);
    if (self->waiters == NULL) {
        return -1;
    }
    self->nbytes = (size_t)nbytes;
    self->stride = (self->nbytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (count <= UINT32_MAX &&
        self->stride <= (size_t)PY_SSIZE_T_MAX / (size_t)count) {
        self->count = (uint32_t)count;
        self->free  = PyMem_Malloc(self->count * sizeof(*self->free));
    }
    if (self->free == NULL) {
        (void)errors_raise(self->st, UMX_ERR_NO_MEMORY, "BufferPool", NULL);
        return -1;
    }
    if (memory_kind_alloc(self->st, context->umx, kind, device,
                          self->count * self->stride, MEMORY_PRIVATE,
                          &self->memh) < 0) {
        return -1;
    }
    while (self->num_free < self->count) {
        self->free[self->num_free] = self->count - 1 - self->num_free;
        self->num_free++;
    }
    return 0;
}

static PyObject *
pool_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"context", "count",  "nbytes",
                               "kind",    "device", NULL};

    mod_state         *st = state_of_type(type);
    Py_ssize_t         count, nbytes;
    PyObject          *context, *device = Py_None;
    const char        *kind_name = "host";
    const memory_kind *kind;
    PoolObject        *self;

    if (st == NULL ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O!nn|sO:BufferPool",
                                     keywords, st->context_type, &context,
                                     &count, &nbytes, &kind_name, &device)) {
        return NULL;
    }
    kind = memory_kind_find(kind_name);
    if (kind == NULL) {
        return NULL;
    }
    self = (PoolObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->st = st;
    if (allocate(self, (ContextObject *)context, count, nbytes, kind, device) <
        0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int
pool_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((PoolObject *)op)->waiters);
    return 0;
}

static int
pool_clear(PyObject *op)
{
    PoolObject *self = (PoolObject *)op;

    self->is_closed = true;
    Py_CLEAR(self->waiters);
    return 0;
}

/* All buffers are back: a loan holds the pool. */
static void
pool_dealloc(PyObject *op)
{
    PoolObject   *self = (PoolObject *)op;
    PyTypeObject *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    if (self->memh != NULL) {
        umx_memh_release(self->memh);
    }
    Py_CLEAR(self->waiters);
    PyMem_Free(self->free);
    type->tp_free(op);
    Py_DECREF(type);
}

/* ---- lending -------------------------------------------------------------
 */

/* Lend a free buffer. NULL with an exception: the buffer is still free. */
static PyObject *
lend(PoolObject *self)
{
    uint32_t    number = self->free[--self->num_free];
    LoanObject *loan   = loan_new(self, number); /* may collect garbage */

    if (loan == NULL) {
        self->free[self->num_free++] = number;
        return NULL;
    }
    return pool_buffer_new(self->st, loan);
}

/* `value` is a buffer or an exception. */
static int
deliver(PoolObject *self, PyObject *future, PyObject *value)
{
    PyObject *result = PyObject_CallMethodObjArgs(
        (PyObject *)self, NAME(self->st, _deliver), future, value, NULL);

    Py_XDECREF(result);
    return (result == NULL) ? -1 : 0;
}

/* The first who waits; new reference. */
static PyObject *
pop_waiter(PoolObject *self)
{
    PyObject *future = Py_NewRef(PyList_GET_ITEM(self->waiters, 0));

    if (PyList_SetSlice(self->waiters, 0, 1, NULL) < 0) {
        Py_CLEAR(future);
    }
    return future;
}

static int
serve_first(PoolObject *self)
{
    PyObject *buffer = lend(self), *future;
    int       rc     = -1;

    if (buffer == NULL) {
        return -1;
    }
    /* Making the buffer may have run code that took the waiters away. */
    if (PyList_GET_SIZE(self->waiters) == 0) {
        Py_DECREF(buffer);
        return 0;
    }
    future = pop_waiter(self);
    if (future != NULL) {
        rc = deliver(self, future, buffer);
        if (rc < 0) {
            PyErr_WriteUnraisable((PyObject *)self);
            rc = PyList_Insert(self->waiters, 0, future) < 0 ? -1 : 1;
        }
        Py_DECREF(future);
    }
    Py_DECREF(buffer);
    return rc;
}

/* Buffers to those who wait. What is called here may give back buffers and add
 * waiters: the loop sees to these too. */
static void
serve(PoolObject *self)
{
    PyObject *exc;
    int       rc = 0;

    if (self->is_serving) {
        return;
    }
    exc              = PyErr_GetRaisedException();
    self->is_serving = true;
    while (rc == 0 && !self->is_closed && self->num_free != 0 &&
           PyList_GET_SIZE(self->waiters) != 0) {
        rc = serve_first(self);
    }
    self->is_serving = false;
    if (rc < 0) {
        PyErr_WriteUnraisable((PyObject *)self);
    }
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

/* Closed, and nobody uses it. */
static void
free_if_back(PoolObject *self)
{
    umx_memh *memh = self->memh;

    if (self->is_closed && self->num_free == self->count && memh != NULL) {
        self->memh = NULL;
        umx_memh_release(memh);
    }
}

void
pool_give_back(PoolObject *self, uint32_t number)
{
    self->free[self->num_free++] = number;
    if (UNLIKELY(self->is_closed)) {
        free_if_back(self);
    } else if (PyList_GET_SIZE(self->waiters) != 0) {
        serve(self);
    }
}

/* ---- methods -------------------------------------------------------------
 */

static PyObject *
new_closed(const PoolObject *self)
{
    return PyObject_CallFunction(self->st->exceptions[EXC_UCXCloseError], "s",
                                 "the pool is closed");
}

static int
check(const PoolObject *self)
{
    if (UNLIKELY(self->is_closed)) {
        PyErr_SetString(self->st->exceptions[EXC_UCXCloseError],
                        "the pool is closed");
        return -1;
    }
    return 0;
}

static bool
has_one(const PoolObject *self)
{
    return self->num_free != 0 && PyList_GET_SIZE(self->waiters) == 0;
}

PyDoc_STRVAR(
    acquire_nowait_doc,
    "acquire_nowait($self, /)\n--\n\n"
    "A buffer that is free now. UCXBusy: there is none, or others wait\n"
    "for it; UCXCloseError: the pool is closed.");

static PyObject *
pool_acquire_nowait(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    PoolObject *self = (PoolObject *)op;

    if (check(self) < 0) {
        return NULL;
    }
    if (!has_one(self)) {
        return PyErr_Format(self->st->exceptions[EXC_UCXBusy],
                            "all %u buffers of the pool are in use",
                            self->count);
    }
    return lend(self);
}

/* Lend a free buffer; None if there is none. */
static PyObject *
pool_take(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    PoolObject *self = (PoolObject *)op;

    if (check(self) < 0) {
        return NULL;
    }
    if (!has_one(self)) {
        Py_RETURN_NONE;
    }
    return lend(self);
}

/* `future` gets a buffer in its turn, by _deliver: at once if one has come back
 * meanwhile. */
static PyObject *
pool_wait(PyObject *op, PyObject *future)
{
    PoolObject *self = (PoolObject *)op;

    if (check(self) < 0 || PyList_Append(self->waiters, future) < 0) {
        return NULL;
    }
    serve(self);
    Py_RETURN_NONE;
}

/* `future` does not wait any more. */
static PyObject *
pool_leave(PyObject *op, PyObject *future)
{
    PoolObject *self = (PoolObject *)op;

    if (self->waiters == NULL) {
        Py_RETURN_NONE;
    }
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(self->waiters); i++) {
        if (PyList_GET_ITEM(self->waiters, i) == future) {
            if (PyList_SetSlice(self->waiters, i, i + 1, NULL) < 0) {
                return NULL;
            }
            break;
        }
    }
    Py_RETURN_NONE;
}

static int
dismiss_first(PoolObject *self)
{
    PyObject *future = pop_waiter(self);
    PyObject *exc    = (future != NULL) ? new_closed(self) : NULL;
    int       rc     = (exc != NULL) ? deliver(self, future, exc) : -1;

    Py_XDECREF(exc);
    Py_XDECREF(future);
    return rc;
}

PyDoc_STRVAR(close_doc,
             "close($self, /)\n--\n\n"
             "End the pool: tasks that wait for a buffer get UCXCloseError.\n"
             "Buffers that are in use stay valid until they are released.");

static PyObject *
pool_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    PoolObject *self = (PoolObject *)op;

    self->is_closed = true;
    while (self->waiters != NULL && PyList_GET_SIZE(self->waiters) != 0) {
        if (dismiss_first(self) < 0) {
            return NULL;
        }
    }
    free_if_back(self);
    Py_RETURN_NONE;
}

static PyObject *
get_count(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(((PoolObject *)op)->count);
}

static PyObject *
get_nbytes(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(((PoolObject *)op)->nbytes);
}

static PyObject *
get_free(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(((PoolObject *)op)->num_free);
}

PyDoc_STRVAR(closed_doc, "closed($self, /)\n--\n\nTrue after close().");

static PyObject *
pool_closed(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(((PoolObject *)op)->is_closed);
}

static PyMethodDef pool_methods[] = {
    {"acquire_nowait", pool_acquire_nowait, METH_NOARGS, acquire_nowait_doc},
    {"close", pool_close, METH_NOARGS, close_doc},
    {"closed", pool_closed, METH_NOARGS, closed_doc},
    {"_take", pool_take, METH_NOARGS, NULL},
    {"_wait", pool_wait, METH_O, NULL},
    {"_leave", pool_leave, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef pool_getset[] = {
    {"count", get_count, NULL, "Number of buffers.", NULL},
    {"nbytes", get_nbytes, NULL, "Length of each buffer in bytes.", NULL},
    {"free", get_free, NULL, "Number of buffers that are not in use.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef pool_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(PoolObject, weakrefs), READONLY,
     NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(
    pool_doc,
    "BufferPool(context, count, nbytes, kind='host', device=None)\n--\n\n"
    "`count` buffers of `nbytes` bytes of host memory, "
    "registered.");

static PyType_Slot pool_slots[] = {
    {Py_tp_doc, (void *)pool_doc},
    {Py_tp_new, pool_new},
    {Py_tp_dealloc, pool_dealloc},
    {Py_tp_traverse, pool_traverse},
    {Py_tp_clear, pool_clear},
    {Py_tp_methods, pool_methods},
    {Py_tp_getset, pool_getset},
    {Py_tp_members, pool_members},
    {0, NULL},
};

PyType_Spec pool_spec = {
    .name      = "ucp._ext.BufferPool",
    .basicsize = sizeof(PoolObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = pool_slots,
};
