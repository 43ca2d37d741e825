/* SPDX-License-Identifier: BSD-3-Clause */
/* pool_buffer.c: a buffer of a pool, in the user's hands. */
#include "type/type.h"

#include "buffer/memory_kind.h"
#include "type/pool.h"

PyObject *
pool_buffer_new(mod_state *st, LoanObject *loan)
{
    PoolBufferObject *self = PyObject_GC_New(PoolBufferObject,
                                             st->pool_buffer_type);

    if (self == NULL) {
        Py_DECREF(loan);
        return NULL;
    }
    self->loan             = loan;
    self->exports          = 0;
    self->is_released      = false;
    self->is_address_known = false;
    self->weakrefs         = NULL;
    PyObject_GC_Track((PyObject *)self);
    return (PyObject *)self;
}

static int
pool_buffer_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((PoolBufferObject *)op)->loan);
    return 0;
}

/* Views that go with it still have to be cleared. */
static int
pool_buffer_clear(PyObject *op)
{
    PoolBufferObject *self = (PoolBufferObject *)op;

    if (self->exports == 0) {
        self->is_released = true;
        Py_CLEAR(self->loan);
    }
    return 0;
}

static void
pool_buffer_dealloc(PyObject *op)
{
    PoolBufferObject *self = (PoolBufferObject *)op;
    PyTypeObject     *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    Py_CLEAR(self->loan);
    PyObject_GC_Del(op);
    Py_DECREF(type);
}

/* ---- its memory ----------------------------------------------------------
 */

static int
pool_buffer_getbuffer(PyObject *op, Py_buffer *view, int flags)
{
    PoolBufferObject *self = (PoolBufferObject *)op;

    view->obj = NULL;
    if (pool_buffer_check(self) < 0 ||
        memory_check_host(pool_buffer_memtype(self->loan)) < 0 ||
        PyBuffer_FillInfo(view, op, loan_data(self->loan),
                          (Py_ssize_t)self->loan->pool->nbytes, 0, flags) < 0) {
        return -1;
    }
    self->exports++;
    return 0;
}

static void
pool_buffer_releasebuffer(PyObject *op, Py_buffer *Py_UNUSED(view))
{
    ((PoolBufferObject *)op)->exports--;
}

/* Give the address away: a reader of it keeps the PoolBuffer at best, so from
 * now on the memory stays until the PoolBuffer goes. */
static PyObject *
get_array_interface(PyObject *op, void *Py_UNUSED(closure))
{
    PoolBufferObject *self = (PoolBufferObject *)op;

    if (pool_buffer_check(self) < 0) {
        return NULL;
    }
    self->is_address_known = true;
    return memory_array_interface(pool_buffer_memtype(self->loan),
                                  loan_data(self->loan),
                                  self->loan->pool->nbytes, false);
}

static PyObject *
get_cuda_interface(PyObject *op, void *Py_UNUSED(closure))
{
    PoolBufferObject *self = (PoolBufferObject *)op;

    if (pool_buffer_check(self) < 0) {
        return NULL;
    }
    self->is_address_known = true;
    return memory_cuda_interface(pool_buffer_memtype(self->loan),
                                 loan_data(self->loan),
                                 self->loan->pool->nbytes, false);
}

static PyObject *
get_nbytes(PyObject *op, void *Py_UNUSED(closure))
{
    PoolBufferObject *self = (PoolBufferObject *)op;

    return PyLong_FromSize_t(self->is_released ? 0 : self->loan->pool->nbytes);
}

static PyObject *
get_released(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((PoolBufferObject *)op)->is_released);
}

static PyObject *
pool_buffer_repr(PyObject *op)
{
    PoolBufferObject *self = (PoolBufferObject *)op;

    return self->is_released ?
               PyUnicode_FromString("<ucp.PoolBuffer, released>") :
               PyUnicode_FromFormat("<ucp.PoolBuffer of %zu bytes>",
                                    self->loan->pool->nbytes);
}

/* ---- the end -------------------------------------------------------------
 */

static void
end(PoolBufferObject *self)
{
    self->is_released = true;
    if (!self->is_address_known) {
        Py_CLEAR(self->loan);
    }
}

PyDoc_STRVAR(
    release_doc,
    "release($self, /)\n--\n\n"
    "Give the buffer back to its pool, as dropping the last reference\n"
    "does. Operations under way keep the memory until they are done.\n"
    "BufferError while there are views of it.");

static PyObject *
pool_buffer_release(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    PoolBufferObject *self = (PoolBufferObject *)op;

    if (self->exports != 0) {
        PyErr_Format(PyExc_BufferError,
                     "the buffer cannot be released: it has %zd view%s",
                     self->exports, self->exports == 1 ? "" : "s");
        return NULL;
    }
    end(self);
    Py_RETURN_NONE;
}

static PyObject *
pool_buffer_enter(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return (pool_buffer_check((PoolBufferObject *)op) < 0) ? NULL :
                                                             Py_NewRef(op);
}

/* An exception that leaves the block is worth more than one about views, which
 * its traceback may hold: then the last reference gives the buffer back. */
static PyObject *
pool_buffer_exit(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    PoolBufferObject *self = (PoolBufferObject *)op;

    if (nargs != 3) {
        PyErr_Format(PyExc_TypeError,
                     "__exit__() takes 3 positional arguments, %zd were given",
                     nargs);
        return NULL;
    }
    if (self->exports != 0 && args[0] != Py_None) {
        Py_RETURN_NONE;
    }
    return pool_buffer_release(op, NULL);
}

static PyMethodDef pool_buffer_methods[] = {
    {"release", pool_buffer_release, METH_NOARGS, release_doc},
    {"__enter__", pool_buffer_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))pool_buffer_exit, METH_FASTCALL,
     NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef pool_buffer_getset[] = {
    {"nbytes", get_nbytes, NULL, "Length in bytes; 0 once released.", NULL},
    {"released", get_released, NULL, "True after release().", NULL},
    {"__array_interface__", get_array_interface, NULL,
     "For NumPy: address, length and type.", NULL},
    {"__cuda_array_interface__", get_cuda_interface, NULL,
     "For CuPy: address, length and type.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef pool_buffer_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(PoolBufferObject, weakrefs),
     READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(pool_buffer_doc, "A buffer of a BufferPool: registered, "
                              "writable.");

static PyType_Slot pool_buffer_slots[] = {
    {Py_tp_doc, (void *)pool_buffer_doc},
    {Py_tp_dealloc, pool_buffer_dealloc},
    {Py_tp_traverse, pool_buffer_traverse},
    {Py_tp_clear, pool_buffer_clear},
    {Py_tp_repr, pool_buffer_repr},
    {Py_tp_methods, pool_buffer_methods},
    {Py_tp_getset, pool_buffer_getset},
    {Py_tp_members, pool_buffer_members},
    {Py_bf_getbuffer, pool_buffer_getbuffer},
    {Py_bf_releasebuffer, pool_buffer_releasebuffer},
    {0, NULL},
};

PyType_Spec pool_buffer_spec = {
    .name      = "ucp._ext.PoolBuffer",
    .basicsize = sizeof(PoolBufferObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = pool_buffer_slots,
};
