/* SPDX-License-Identifier: BSD-3-Clause */
/* array.c: the type of an object's memory and its layout, held. */
#include "type/type.h"

#include "buffer/array.h"
#include "buffer/layout.h"

static int
array_fill(ArrayObject *self, PyObject *obj)
{
    buffer_layout layout;

    layout.stream = 0;
    if (buffer_describe(self->st, obj, &self->hold, &layout) < 0) {
        return -1;
    }
    self->obj             = Py_XNewRef(layout.obj);
    self->shape           = buffer_sizes(layout.ndim, layout.shape);
    self->strides         = buffer_sizes(layout.ndim, layout.strides);
    self->itemsize        = layout.itemsize;
    self->is_readonly     = layout.is_readonly;
    self->is_c_contiguous = layout.is_c_contiguous;
    self->is_f_contiguous = layout.is_f_contiguous;
    self->stream          = layout.stream;
    return (self->shape == NULL || self->strides == NULL) ? -1 : 0;
}

static PyObject *
array_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"obj", NULL};

    mod_state   *st = state_of_type(type);
    ArrayObject *self;
    PyObject    *obj;

    if (st == NULL ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O:Array", keywords, &obj)) {
        return NULL;
    }
    self = (ArrayObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->st = st;
    if (array_fill(self, obj) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int
array_traverse(PyObject *op, visitproc visit, void *arg)
{
    ArrayObject *self = (ArrayObject *)op;

    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->obj);
    return buffer_visit(&self->hold, visit, arg);
}

static int
array_clear(PyObject *op)
{
    ArrayObject *self = (ArrayObject *)op;

    buffer_release(&self->hold);
    self->hold.buf = (umx_buffer){0};
    Py_CLEAR(self->obj);
    return 0;
}

static void
array_dealloc(PyObject *op)
{
    ArrayObject  *self = (ArrayObject *)op;
    PyTypeObject *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    (void)array_clear(op);
    Py_CLEAR(self->shape);
    Py_CLEAR(self->strides);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyObject *
get_ptr(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromVoidPtr(((ArrayObject *)op)->hold.buf.data);
}

static PyObject *
get_nbytes(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(((ArrayObject *)op)->hold.buf.len);
}

static PyObject *
get_ndim(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(PyTuple_GET_SIZE(((ArrayObject *)op)->shape));
}

static PyObject *
get_contiguous(PyObject *op, void *Py_UNUSED(closure))
{
    ArrayObject *self = (ArrayObject *)op;

    return PyBool_FromLong(self->is_c_contiguous || self->is_f_contiguous);
}

static PyObject *
get_cuda(PyObject *op, void *Py_UNUSED(closure))
{
    umx_memtype memtype = ((ArrayObject *)op)->hold.buf.memtype;

    return PyBool_FromLong(memtype == UMX_MEMTYPE_CUDA ||
                           memtype == UMX_MEMTYPE_CUDA_MANAGED);
}

static PyGetSetDef array_getset[] = {
    {"ptr", get_ptr, NULL, "Address of the memory.", NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of all items.", NULL},
    {"ndim", get_ndim, NULL, "Number of dimensions.", NULL},
    {"contiguous", get_contiguous, NULL, "True if without gaps.", NULL},
    {"cuda", get_cuda, NULL, "True if the memory is a CUDA device's.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef array_members[] = {
    {"obj", T_OBJECT, offsetof(ArrayObject, obj), READONLY,
     "The object whose memory it is."},
    {"shape", T_OBJECT, offsetof(ArrayObject, shape), READONLY,
     "Items in each dimension."},
    {"strides", T_OBJECT, offsetof(ArrayObject, strides), READONLY,
     "Bytes from item to item in each dimension."},
    {"itemsize", T_PYSSIZET, offsetof(ArrayObject, itemsize), READONLY,
     "Bytes of an item."},
    {"readonly", T_BOOL, offsetof(ArrayObject, is_readonly), READONLY,
     "True if it may not be written."},
    {"c_contiguous", T_BOOL, offsetof(ArrayObject, is_c_contiguous), READONLY,
     "True if without gaps, last index fastest."},
    {"f_contiguous", T_BOOL, offsetof(ArrayObject, is_f_contiguous), READONLY,
     "True if without gaps, first index fastest."},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef array_methods[] = {
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(
    array_doc,
    "Array(obj)\n--\n\n"
    "The memory of `obj`, which has the buffer protocol,\n"
    "__cuda_array_interface__, __array_interface__ or __dlpack__; of any\n"
    "strides. What has gaps cannot be sent or received into.");

static PyType_Slot array_slots[] = {
    {Py_tp_doc, (void *)array_doc},
    {Py_tp_new, array_new},
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_traverse, array_traverse},
    {Py_tp_clear, array_clear},
    {Py_tp_getset, array_getset},
    {Py_tp_members, array_members},
    {Py_tp_methods, array_methods},
    {0, NULL},
};

PyType_Spec array_spec = {
    .name      = "ucp._ext.Array",
    .basicsize = sizeof(ArrayObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = array_slots,
};
