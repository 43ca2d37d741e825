/* SPDX-License-Identifier: BSD-3-Clause */
/* memh.c: memory that is registered. */
#include "buffer/memh.h"

#include "buffer/event.h"
#include "buffer/memory_kind.h"

void
memory_release_freed(void)
{
    memory_loan *loan = event_take_freed();

    while (loan != NULL) {
        memory_loan *next = loan->next;

        buffer_release(&loan->hold); /* the program may run in this */
        PyMem_Free(loan);
        loan = next;
    }
}

/* End of access; the memory stays while it is looked at or moved. */
void
memory_shut(MemoryObject *self)
{
    umx_memh *memh = self->umx;

    self->is_closed = true;
    if (memh == NULL) {
        return;
    }
    if (self->exports != 0) {
        umx_memh_close(memh);
        return;
    }
    self->umx  = NULL;
    self->loan = NULL;
    umx_memh_release(memh);
    memory_release_freed();
}

int
memory_traverse(PyObject *op, visitproc visit, void *arg)
{
    MemoryObject *self = (MemoryObject *)op;

    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->context);
    return (self->loan != NULL) ? buffer_visit(&self->loan->hold, visit, arg) :
                                  0;
}

int
memory_clear(PyObject *op)
{
    memory_shut((MemoryObject *)op);
    return 0;
}

void
memory_dealloc(PyObject *op)
{
    MemoryObject *self = (MemoryObject *)op;
    PyTypeObject *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    memory_shut(self);
    Py_CLEAR(self->context);
    self->st->num_memories--;
    type->tp_free(op);
    Py_DECREF(type);
}

void
memory_begin_export(PyObject *op)
{
    ((MemoryObject *)op)->exports++;
}

void
memory_end_export(PyObject *op)
{
    MemoryObject *self = (MemoryObject *)op;

    if (--self->exports == 0 && self->is_closed) {
        memory_shut(self);
    }
}

int
memory_getbuffer(PyObject *op, Py_buffer *view, int flags)
{
    MemoryObject     *self = (MemoryObject *)op;
    const umx_buffer *buf;

    view->obj = NULL;
    if (self->is_closed) {
        PyErr_SetString(PyExc_BufferError, "the memory is closed");
        return -1;
    }
    buf = umx_memh_buffer(self->umx);
    if (memory_check_host(buf->memtype) < 0 ||
        PyBuffer_FillInfo(view, op, buf->data, (Py_ssize_t)buf->len,
                          self->is_readonly, flags) < 0) {
        return -1;
    }
    memory_begin_export(op);
    return 0;
}

bool
memory_check(PyObject *exporter)
{
    const PyBufferProcs *procs = Py_TYPE(exporter)->tp_as_buffer;

    /* A subclass inherits that; the question is asked of every buffer. */
    return procs != NULL && procs->bf_getbuffer == memory_getbuffer;
}

void
memory_releasebuffer(PyObject *op, Py_buffer *Py_UNUSED(view))
{
    memory_end_export(op);
}

int
memory_check_open(PyObject *op)
{
    MemoryObject *self = (MemoryObject *)op;

    if (self->is_closed) {
        (void)errors_raise(self->st, UMX_ERR_STALE_KEY, "Memory", NULL);
        return -1;
    }
    return 0;
}
