/* SPDX-License-Identifier: BSD-3-Clause */
/* array.c: an object's memory and its layout, held. */
#include "buffer/array.h"

/* The operation holds the Array, which holds the memory. */
int
array_acquire(mod_state *st, PyObject *op, bool is_writable, buffer_hold *hold)
{
    ArrayObject *self = (ArrayObject *)op;

    if (!self->is_c_contiguous && !self->is_f_contiguous) {
        PyErr_Format(PyExc_ValueError,
                     "Array must be C or F contiguous, got strides %R for "
                     "itemsize %zd",
                     self->strides, self->itemsize);
        return -1;
    }
    if (is_writable && self->is_readonly) {
        return buffer_refuse_readonly(op);
    }
    hold->buf   = self->hold.buf;
    hold->owner = Py_NewRef(op);
    if (device_settle(st, op, self->stream, hold) < 0) {
        buffer_release(hold);
        return -1;
    }
    return 0;
}

void
array_describe(PyObject *op, buffer_hold *hold, buffer_layout *layout)
{
    ArrayObject *self = (ArrayObject *)op;

    layout->obj             = op;
    layout->itemsize        = self->itemsize;
    layout->ndim            = (int)PyTuple_GET_SIZE(self->shape);
    layout->is_readonly     = self->is_readonly != 0;
    layout->is_c_contiguous = self->is_c_contiguous != 0;
    layout->is_f_contiguous = self->is_f_contiguous != 0;
    layout->stream          = self->stream;
    for (int i = 0; i < layout->ndim; i++) {
        layout->shape[i]   = PyLong_AsSsize_t(PyTuple_GET_ITEM(self->shape, i));
        layout->strides[i] = PyLong_AsSsize_t(
            PyTuple_GET_ITEM(self->strides, i));
    }
    hold->buf   = self->hold.buf;
    hold->owner = Py_NewRef(op);
    hold->view  = NULL;
}
