/* SPDX-License-Identifier: BSD-3-Clause */
/* strided.c: memory whose items do not lie one after the other in C order. */
#include "buffer/array.h"
#include "buffer/buffer.h"
#include "buffer/layout.h"

#include <assert.h>

/* ---- layouts -------------------------------------------------------------
 */

static int
set_layout(PyObject *obj, bool is_writable, const buffer_layout *layout,
           buffer_hold *hold)
{
    umx_layout *made = PyMem_Malloc(sizeof(*made));
    umx_dim     dims[PyBUF_MAX_NDIM];

    if (made == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    hold->buf.layout = made;
    for (int i = 0; i < layout->ndim; i++) {
        dims[i] = (umx_dim){(size_t)layout->shape[i], layout->strides[i]};
    }
    if (umx_layout_init(made, (size_t)layout->itemsize, (unsigned)layout->ndim,
                        dims, &hold->buf.len) != UMX_OK) {
        PyErr_Format(PyExc_ValueError, "the shape of %.200s is too large",
                     Py_TYPE(obj)->tp_name);
        return -1;
    }
    if (is_writable && !umx_layout_is_writable(made)) {
        PyErr_Format(PyExc_ValueError,
                     "cannot receive into items that share memory: %.200s has "
                     "a stride of 0",
                     Py_TYPE(obj)->tp_name);
        return -1;
    }
    return 0;
}

/* Replace a source by a copy of its items in C order. */
static int
copy_in_order(buffer_hold *hold)
{
    PyObject *copy = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)hold->buf.len);
    umx_status status;

    if (copy == NULL) {
        return -1;
    }
    status = umx_buffer_read(&hold->buf, PyBytes_AS_STRING(copy),
                             hold->buf.len);
    assert(status == UMX_OK); /* the memory is the host's */
    (void)status;
    buffer_release(hold);
    buffer_hold_object(hold, copy, PyBytes_AS_STRING(copy),
                       (size_t)PyBytes_GET_SIZE(copy), UMX_MEMTYPE_HOST);
    Py_DECREF(copy);
    return 0;
}

int
buffer_set_order(PyObject *obj, bool is_writable, const buffer_layout *layout,
                 buffer_hold *hold)
{
    if (set_layout(obj, is_writable, layout, hold) < 0) {
        return -1;
    }
    return is_writable ? 0 : copy_in_order(hold);
}

static bool
has_suboffsets(const Py_buffer *view)
{
    for (int i = 0; view->suboffsets != NULL && i < view->ndim; i++) {
        if (view->suboffsets[i] >= 0) {
            return true;
        }
    }
    return false;
}

/* `layout` describes what `hold` has. */
static int
take_strided(PyObject *obj, bool is_writable, const buffer_layout *layout,
             buffer_hold *hold)
{
    if (is_writable && layout->is_readonly) {
        return buffer_refuse_readonly(obj);
    }
    if (layout->is_c_contiguous || hold->buf.len == 0) {
        return 0;
    }
    if (hold->buf.memtype > UMX_MEMTYPE_HOST) {
        PyErr_Format(PyExc_ValueError,
                     "memory with gaps is taken in host memory only, %.200s "
                     "is in device memory: give a contiguous copy",
                     Py_TYPE(obj)->tp_name);
        return -1;
    }
    if (hold->view != NULL && has_suboffsets(&hold->view->py)) {
        PyErr_Format(PyExc_ValueError,
                     "the items of %.200s are behind pointers (suboffsets)",
                     Py_TYPE(obj)->tp_name);
        return -1;
    }
    return set_layout(obj, is_writable, layout, hold);
}

int
buffer_acquire_strided(mod_state *st, PyObject *obj, bool is_writable,
                       buffer_hold *hold)
{
    buffer_layout layout;

    layout.stream = 0;
    if (Py_IS_TYPE(obj, st->array_type)) {
        array_describe(obj, hold, &layout);
    } else if (Py_IS_TYPE(obj, st->pool_buffer_type)) {
        return buffer_acquire(st, obj, is_writable, hold);
    } else if (buffer_describe(st, obj, hold, &layout) < 0) {
        return -1;
    }
    if (take_strided(obj, is_writable, &layout, hold) < 0 ||
        device_settle(st, obj, layout.stream, hold) < 0) {
        buffer_release(hold);
        return -1;
    }
    return 0;
}

int
buffer_acquire_any(mod_state *st, PyObject *obj, bool is_writable,
                   buffer_hold *hold)
{
    if (LIKELY(buffer_acquire(st, obj, is_writable, hold) == 0)) {
        return 0;
    }
    if (!PyErr_ExceptionMatches(PyExc_ValueError)) {
        return -1;
    }
    PyErr_Clear(); /* gaps, or what is refused again */
    return buffer_acquire_strided(st, obj, is_writable, hold);
}

int
buffer_set_one_run(buffer_hold *hold)
{
    umx_layout *made = PyMem_Malloc(sizeof(*made));
    umx_dim     dim  = {.count = hold->buf.len, .stride = 1};
    size_t      len;

    if (made == NULL || umx_layout_init(made, 1, 1, &dim, &len) != UMX_OK) {
        PyMem_Free(made);
        PyErr_NoMemory();
        return -1;
    }
    hold->buf.layout = made;
    return 0;
}

/* ---- memory in one run -----------------------------------------------------
 */

int
buffer_acquire_run(mod_state *st, PyObject *obj, bool is_writable,
                   buffer_hold *hold)
{
    if (buffer_acquire(st, obj, is_writable, hold) < 0) {
        return -1;
    }
    if (LIKELY(hold->buf.layout == NULL)) {
        return 0;
    }
    buffer_release(hold);
    PyErr_Format(PyExc_ValueError,
                 "expected a buffer in C order, got Fortran order (%.200s): "
                 "receive into an array in C order, and assign it",
                 Py_TYPE(obj)->tp_name);
    return -1;
}

/* Hold memory in Fortran order as it lies. 1; 0: it is in C order, or refused;
 * -1 with an exception. */
static int
acquire_fortran(mod_state *st, PyObject *obj, bool is_writable,
                buffer_hold *hold)
{
    buffer_layout layout;

    layout.stream = 0;
    if (buffer_describe(st, obj, hold, &layout) < 0) {
        return -1;
    }
    if (layout.is_c_contiguous || !layout.is_f_contiguous ||
        (is_writable && layout.is_readonly) ||
        hold->buf.memtype > UMX_MEMTYPE_HOST) {
        buffer_release(hold);
        return 0;
    }
    return 1;
}

int
buffer_acquire_raw(mod_state *st, PyObject *obj, bool is_writable,
                   buffer_hold *hold)
{
    int rc;

    if (PyBytes_CheckExact(obj) || PyByteArray_CheckExact(obj) ||
        Py_IS_TYPE(obj, st->array_type) ||
        Py_IS_TYPE(obj, st->pool_buffer_type)) {
        return buffer_acquire(st, obj, is_writable, hold);
    }
    rc = acquire_fortran(st, obj, is_writable, hold);
    if (rc < 0) {
        PyErr_Clear(); /* it is refused again, or needs no description */
    }
    return (rc > 0) ? 0 : buffer_acquire(st, obj, is_writable, hold);
}
