/* SPDX-License-Identifier: BSD-3-Clause */
/* symmetric_memory.c: the type of bytes of a symmetric heap. */
#include "base/args.h"
#include "shmem/heap.h"

static SymmetricMemoryObject *
self_of(PyObject *op)
{
    return (SymmetricMemoryObject *)op;
}

static PyObject *
memory_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char           *keywords[] = {"heap", "offset", "nbytes", "itemsize",
                                         "kind", "pe",     NULL};
    mod_state             *st         = state_of_type(type);
    SymmetricHeapObject   *heap;
    SymmetricMemoryObject *self;
    PyObject              *number, *count;
    uint64_t               offset, nbytes;
    unsigned               itemsize = 1;
    int                    kind = 'u', pe = -1;

    if (st == NULL ||
        args_check_made(
            args, st->symmetric_heap_type,
            "a SymmetricArray is made by await SymmetricHeap.empty(shape)") <
            0 ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|ICi:SymmetricMemory",
                                     keywords, st->symmetric_heap_type, &heap,
                                     &number, &count, &itemsize, &kind, &pe) ||
        shmem_parse_bytes(number, &offset) < 0 ||
        shmem_parse_bytes(count, &nbytes) < 0) {
        return NULL;
    }
    if (heap->direct.shmem == NULL) {
        PyErr_SetString(st->exceptions[EXC_UCXCloseError],
                        "the heap has not been made");
        return NULL;
    }
    if (offset > heap->size || nbytes > heap->size - offset || itemsize == 0 ||
        pe >= heap->num_pes) {
        return PyErr_Format(PyExc_ValueError,
                            "%llu bytes at offset %llu of PE %d are not in the "
                            "heap",
                            (unsigned long long)nbytes,
                            (unsigned long long)offset, pe);
    }
    self = (SymmetricMemoryObject *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->heap     = (SymmetricHeapObject *)Py_NewRef(heap);
        self->address  = heap->direct.base + offset;
        self->nbytes   = nbytes;
        self->itemsize = itemsize;
        self->kind     = (char)kind;
        self->pe       = pe;
    }
    return (PyObject *)self;
}

static void
dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    if (self_of(op)->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    Py_CLEAR(self_of(op)->local);
    Py_CLEAR(self_of(op)->heap);
    type->tp_free(op);
    Py_DECREF(type);
}

static int
traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self_of(op)->local);
    Py_VISIT(self_of(op)->heap);
    return 0;
}

/* Export the items of the array. Not every dtype of NumPy has a format of the
 * buffer protocol: who asks for none gets the bytes of such items, and NumPy
 * goes on with __array__(). 1; 0: get bytes instead; -1 with an exception. */
static int
export_items(PyObject *array, Py_buffer *view, int flags)
{
    PyObject *dtype;

    if (PyObject_GetBuffer(array, view, flags) == 0) {
        return 1;
    }
    PyErr_Clear();
    if ((flags & PyBUF_FORMAT) == 0) {
        return 0;
    }
    dtype = PyObject_GetAttrString(array, "dtype");
    if (dtype != NULL) {
        PyErr_Format(PyExc_BufferError,
                     "the dtype %S has no format in the buffer protocol: give "
                     "array.local, a NumPy array",
                     dtype);
        Py_DECREF(dtype);
    }
    return -1;
}

static int
get_buffer(PyObject *op, Py_buffer *view, int flags)
{
    SymmetricMemoryObject *self = self_of(op);
    void                  *data = self->address;
    int                    rc;

    view->obj = NULL;
    rc = (self->local == NULL) ? 0 : export_items(self->local, view, flags);
    if (rc != 0) {
        return (rc > 0) ? 0 : -1;
    }
    if (self->pe >= 0) {
        data = umx_shmem_pointer(self->heap->umx, self->address, self->pe);
    }
    if (data == NULL) {
        PyErr_Format(PyExc_BufferError,
                     "the memory of PE %d is not mapped here: it is on another "
                     "host",
                     self->pe);
        return -1;
    }
    return PyBuffer_FillInfo(view, op, data, (Py_ssize_t)self->nbytes, false,
                             flags);
}

static PyObject *
get_offset(PyObject *op, void *Py_UNUSED(closure))
{
    const SymmetricMemoryObject *self = self_of(op);

    return PyLong_FromSsize_t(self->address - self->heap->direct.base);
}

static PyObject *
get_nbytes(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(self_of(op)->nbytes);
}

static PyObject *
get_heap(PyObject *op, void *Py_UNUSED(closure))
{
    return Py_NewRef(self_of(op)->heap);
}

static PyMethodDef methods[] = {
    {"_wait_until", (PyCFunction)(void (*)(void))memory_wait_until,
     METH_FASTCALL, memory_wait_until_doc},
    {"test", (PyCFunction)(void (*)(void))memory_test, METH_FASTCALL,
     memory_test_doc},
    {"signal_fetch", memory_signal_fetch, METH_NOARGS, memory_signal_fetch_doc},
    {"_wait_many", memory_wait_many, METH_VARARGS, memory_wait_many_doc},
    {"_look_many", memory_look_many, METH_VARARGS, memory_look_many_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"heap", get_heap, NULL, "The heap.", NULL},
    {"offset", get_offset, NULL, "Bytes from the heap's start.", NULL},
    {"nbytes", get_nbytes, NULL, "How many bytes it has.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
    {"local", T_OBJECT_EX, offsetof(SymmetricMemoryObject, local), 0,
     "The array of this rank: the buffer protocol gives its items."},
    {"__weaklistoffset__", T_PYSSIZET,
     offsetof(SymmetricMemoryObject, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(memory_doc,
             "SymmetricMemory(heap, offset, nbytes, itemsize=1, kind='u',\n"
             "                pe=-1)\n--\n\n"
             "Bytes of a symmetric heap: see ucp.shmem.SymmetricArray.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)memory_doc},
    {Py_tp_new, memory_new},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_members, members},
    {Py_bf_getbuffer, get_buffer},
    {0, NULL},
};

PyType_Spec symmetric_memory_spec = {
    .name      = "ucp._ext.SymmetricMemory",
    .basicsize = sizeof(SymmetricMemoryObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
