/* SPDX-License-Identifier: BSD-3-Clause */
/* bytes_block.c: memory of malloc() that libumx has given, as a memoryview. */
#include "comm/bytes_block.h"

#include <stdlib.h>

typedef struct BytesBlockObject {
    PyObject_HEAD void *data;
    size_t              len;
} BytesBlockObject;

PyObject *
bytes_block_new(mod_state *st, void *data, size_t len)
{
    PyTypeObject     *type = st->bytes_block_type;
    BytesBlockObject *self = (BytesBlockObject *)type->tp_alloc(type, 0);
    PyObject         *view;

    if (self == NULL) {
        return NULL;
    }
    self->data = data;
    self->len  = len;
    view       = PyMemoryView_FromObject((PyObject *)self);
    if (view == NULL) {
        self->data = NULL;
    }
    Py_DECREF(self);
    return view;
}

void *
bytes_block_take_back(PyObject *view)
{
    PyObject         *owner = PyMemoryView_GET_BUFFER(view)->obj;
    BytesBlockObject *self  = (BytesBlockObject *)owner;
    void             *data  = self->data;

    self->data = NULL;
    return data;
}

static int
bytes_block_getbuffer(PyObject *op, Py_buffer *view, int flags)
{
    static char empty;

    BytesBlockObject *self = (BytesBlockObject *)op;
    void             *data = (self->data != NULL) ? self->data : &empty;

    return PyBuffer_FillInfo(view, op, data, (Py_ssize_t)self->len, 0, flags);
}

static void
bytes_block_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);

    free(((BytesBlockObject *)op)->data);
    type->tp_free(op);
    Py_DECREF(type);
}

static PyType_Slot bytes_block_slots[] = {
    {Py_tp_dealloc, bytes_block_dealloc},
    {Py_bf_getbuffer, bytes_block_getbuffer},
    {0, NULL},
};

PyType_Spec bytes_block_spec = {
    .name      = "ucp._ext._BytesBlock",
    .basicsize = sizeof(BytesBlockObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = bytes_block_slots,
};
