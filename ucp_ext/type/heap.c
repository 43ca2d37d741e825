/* SPDX-License-Identifier: BSD-3-Clause */
/* heap.c: what small memories are allocated from. A Memory does not need its
 * heap any more, so it does not keep it. */
#include "type/heap.h"

#include "object/context.h"
#include "type/type.h"

/* ---- life ----------------------------------------------------------------
 */

static PyObject *
heap_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"context", NULL};

    mod_state  *st = state_of_type(type);
    PyObject   *context;
    HeapObject *self;
    umx_status  status;

    if (st == NULL ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O!:Heap", keywords,
                                     st->context_type, &context)) {
        return NULL;
    }
    self = (HeapObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->st      = st;
    self->context = (ContextObject *)Py_NewRef(context);
    status        = umx_heap_create(self->context->umx, NULL, &self->umx);
    if (status != UMX_OK) {
        Py_DECREF(self);
        return errors_raise(st, status, "Heap", NULL);
    }
    return (PyObject *)self;
}

static void
shut(HeapObject *self)
{
    umx_heap *heap = self->umx;

    self->umx = NULL;
    if (heap != NULL) {
        umx_heap_destroy(heap);
    }
}

static int
heap_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((HeapObject *)op)->context);
    return 0;
}

static int
heap_clear(PyObject *op)
{
    shut((HeapObject *)op);
    return 0;
}

static void
heap_dealloc(PyObject *op)
{
    HeapObject   *self = (HeapObject *)op;
    PyTypeObject *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    shut(self);
    Py_CLEAR(self->context);
    type->tp_free(op);
    Py_DECREF(type);
}

/* ---- use -----------------------------------------------------------------
 */

int
heap_alloc(HeapObject *heap, size_t len, umx_memh **memh_p)
{
    umx_status status;

    if (heap->umx == NULL) {
        PyErr_SetString(heap->st->exceptions[EXC_UCXCloseError],
                        "the heap is closed");
        return -1;
    }
    status = umx_heap_alloc(heap->umx, len, memh_p);
    if (status != UMX_OK) {
        (void)errors_raise(heap->st, status, "Memory", NULL);
        return -1;
    }
    return 0;
}

static umx_heap_info
info_of(PyObject *op)
{
    umx_heap     *heap = ((HeapObject *)op)->umx;
    umx_heap_info info = {0};

    if (heap != NULL) {
        umx_heap_query(heap, &info);
    }
    return info;
}

static PyObject *
get_segments(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(info_of(op).num_slabs);
}

static PyObject *
get_memories(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(info_of(op).num_memories);
}

static PyObject *
get_context(PyObject *op, void *Py_UNUSED(closure))
{
    return Py_NewRef(((HeapObject *)op)->context);
}

PyDoc_STRVAR(close_doc,
             "close($self, /)\n--\n\n"
             "Allocate no more. Its memories stay until they are closed.");

static PyObject *
heap_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    shut((HeapObject *)op);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(closed_doc, "closed($self, /)\n--\n\nTrue after close().");

static PyObject *
heap_closed(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(((HeapObject *)op)->umx == NULL);
}

static PyMethodDef heap_methods[] = {
    {"close", heap_close, METH_NOARGS, close_doc},
    {"closed", heap_closed, METH_NOARGS, closed_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef heap_getset[] = {
    {"segments", get_segments, NULL,
     "Segments of the system that its memories share; 0 once closed.", NULL},
    {"memories", get_memories, NULL,
     "Memories in these that are in use; 0 once closed.", NULL},
    {"_context", get_context, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef heap_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(HeapObject, weakrefs), READONLY,
     NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(heap_doc, "Heap(context)\n--\n\n"
                       "What small memories are allocated from, which share\n"
                       "segments of the system.");

static PyType_Slot heap_slots[] = {
    {Py_tp_doc, (void *)heap_doc},
    {Py_tp_new, heap_new},
    {Py_tp_dealloc, heap_dealloc},
    {Py_tp_traverse, heap_traverse},
    {Py_tp_clear, heap_clear},
    {Py_tp_methods, heap_methods},
    {Py_tp_getset, heap_getset},
    {Py_tp_members, heap_members},
    {0, NULL},
};

PyType_Spec heap_spec = {
    .name      = "ucp._ext.Heap",
    .basicsize = sizeof(HeapObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = heap_slots,
};
