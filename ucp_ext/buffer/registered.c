/* SPDX-License-Identifier: BSD-3-Clause */
/* registered.c: whether memory that is lent to an operation lies in a
 * registration of ours. Whoever only looks at it through views of Python's or
 * NumPy's has it too: the exporter is behind them. */
#include "buffer/buffer.h"

#include "buffer/layout.h"
#include "buffer/memh.h"
#include "buffer/pool.h"

/* Whose memory `obj` shows; borrowed, or NULL: a memoryview that has been
 * released, with an array on top that has not noticed. */
static PyObject *
exporter_of(PyObject *obj)
{
    return PyMemoryView_Check(obj) ?
               ((PyMemoryViewObject *)obj)->mbuf->master.obj :
               obj;
}

static umx_memh *
memh_of(mod_state *st, PyObject *exporter)
{
    if (Py_IS_TYPE(exporter, st->pool_buffer_type)) {
        LoanObject *loan = ((PoolBufferObject *)exporter)->loan;

        return (loan != NULL) ? loan->pool->memh : NULL;
    }
    if (memory_check(exporter)) {
        return ((MemoryObject *)exporter)->umx;
    }
    return NULL;
}

static bool
is_inside(const umx_buffer *buf, const umx_buffer *whole)
{
    size_t at = (uintptr_t)buf->data - (uintptr_t)whole->data;

    return at <= whole->len && buf->len <= whole->len - at &&
           buf->memtype == whole->memtype;
}

bool
exporter_is_of_device(mod_state *st, PyObject *exporter)
{
    const umx_memh *memh;

    if (!Py_IS_TYPE(exporter, st->pool_buffer_type) &&
        !memory_check(exporter)) {
        return _PyType_Lookup(Py_TYPE(exporter),
                              NAME(st, __cuda_array_interface__)) != NULL;
    }
    memh = memh_of(st, exporter);
    return memh != NULL && umx_memh_buffer(memh)->memtype == UMX_MEMTYPE_CUDA;
}

void
registered_find(mod_state *st, PyObject *base, buffer_hold *hold)
{
    PyObject *exporter = exporter_of(base); /* borrowed */
    umx_memh *memh     = (exporter != NULL) ? memh_of(st, exporter) : NULL;

    if (memh != NULL && is_inside(&hold->buf, umx_memh_buffer(memh))) {
        hold->buf.memh    = memh;
        hold->buf.memtype = umx_memh_buffer(memh)->memtype;
    }
}
