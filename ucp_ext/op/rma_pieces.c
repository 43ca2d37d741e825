/* SPDX-License-Identifier: BSD-3-Clause */
#include "op/rma_pieces.h"

#include "object/endpoint.h"
#include "worker/worker.h"

#include <string.h>

/* An argument: an array of numbers, or one for all pieces. */
typedef struct numbers {
    const char *name;
    Py_buffer   view; /* obj NULL: it is no array */
    bool        is_signed;
    uint64_t    same;
} numbers;

/* ---- arguments; -1 with an exception ---------------------------------------
 */

static int
refuse_array(const char *name, PyObject *obj)
{
    PyErr_Format(PyExc_TypeError,
                 "%s must be an array of uint64 or int64 with one dimension, "
                 "not %R",
                 name, Py_TYPE(obj));
    return -1;
}

/* -1 without an exception: an item is no number of that kind. */
static int
parse_format(const Py_buffer *view, bool *is_signed_p)
{
    const char *format = (view->format != NULL) ? view->format : "B";

    if (*format == (PY_LITTLE_ENDIAN ? '<' : '>') || *format == '@' ||
        *format == '=') {
        format++;
    }
    if (view->itemsize != 8 || view->ndim != 1 || *format == '\0' ||
        format[1] != '\0' || strchr("QLql", *format) == NULL) {
        return -1;
    }
    *is_signed_p = (*format == 'q' || *format == 'l');
    return 0;
}

static int
parse_array(numbers *array, PyObject *obj)
{
    if (PyObject_GetBuffer(obj, &array->view, PyBUF_FORMAT | PyBUF_ND) < 0) {
        array->view.obj = NULL;
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            return refuse_array(array->name, obj);
        }
        return -1; /* it has gaps */
    }
    return (parse_format(&array->view, &array->is_signed) < 0) ?
               refuse_array(array->name, obj) :
               0;
}

static int
parse_lengths(numbers *lengths, PyObject *obj)
{
    if (!PyLong_CheckExact(obj)) {
        return parse_array(lengths, obj);
    }
    lengths->same = PyLong_AsUnsignedLongLong(obj);
    if (lengths->same == (uint64_t)-1 && PyErr_Occurred()) {
        PyErr_Format(PyExc_IndexError, "lengths is %R, which is out of range",
                     obj);
        return -1;
    }
    return 0;
}

static void
release_array(numbers *array)
{
    if (array->view.obj != NULL) {
        PyBuffer_Release(&array->view);
    }
}

static inline Py_ssize_t
count_of(const numbers *array)
{
    return array->view.len / 8;
}

static inline uint64_t
number_of(const numbers *array, Py_ssize_t i)
{
    return (array->view.obj == NULL) ? array->same :
                                       ((const uint64_t *)array->view.buf)[i];
}

static int
check_count(const numbers *array, const numbers *offsets)
{
    if (array->view.obj == NULL || count_of(array) == count_of(offsets)) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "offsets has %zd numbers, %s has %zd",
                 count_of(offsets), array->name, count_of(array));
    return -1;
}

/* A negative number would be a large one. */
static int
check_sign(const numbers *array)
{
    const int64_t *number = array->view.buf;

    for (Py_ssize_t i = 0; array->is_signed && i < count_of(array); i++) {
        if (number[i] < 0) {
            PyErr_Format(PyExc_IndexError, "%s[%zd] is %lld", array->name, i,
                         (long long)number[i]);
            return -1;
        }
    }
    return 0;
}

static int
check_array(const numbers *array, const numbers *offsets)
{
    return (check_count(array, offsets) < 0) ? -1 : check_sign(array);
}

/* What the arguments say. */
typedef struct pieces {
    numbers offsets, lengths, at;
    bool    is_dense; /* one behind the other: there is no `at` */
} pieces;

static int
parse(pieces *all, PyObject *const *values)
{
    *all = (pieces){.offsets  = {.name = "offsets"},
                    .lengths  = {.name = "lengths"},
                    .at       = {.name = "at"},
                    .is_dense = values[3] == NULL || values[3] == Py_None};
    if (parse_array(&all->offsets, values[1]) < 0 ||
        parse_lengths(&all->lengths, values[2]) < 0 ||
        (!all->is_dense && parse_array(&all->at, values[3]) < 0)) {
        return -1;
    }
    return (check_array(&all->offsets, &all->offsets) < 0 ||
            check_array(&all->lengths, &all->offsets) < 0 ||
            check_array(&all->at, &all->offsets) < 0) ?
               -1 :
               0;
}

static void
release(pieces *all)
{
    release_array(&all->offsets);
    release_array(&all->lengths);
    release_array(&all->at);
}

/* ---- the pieces ----------------------------------------------------------
 */

static int
fill(RemoteObject *self, const pieces *all, rma_list *list)
{
    const umx_buffer *buf  = &list->holds[0].buf;
    uint64_t          next = 0;

    for (Py_ssize_t i = 0; i < count_of(&all->offsets); i++) {
        umx_rma_item *item   = &list->items[i];
        uint64_t      offset = number_of(&all->offsets, i);
        uint64_t      len    = number_of(&all->lengths, i);
        uint64_t      at     = all->is_dense ? next : number_of(&all->at, i);

        if (rma_check_range(self, offset, len) < 0) {
            return -1;
        }
        if (at > buf->len || len > buf->len - at) {
            PyErr_Format(PyExc_IndexError,
                         "piece %zd, %llu bytes at %llu, is out of the "
                         "buffer's %zu",
                         i, len, at, buf->len);
            return -1;
        }
        item->offset   = offset;
        item->buf      = *buf;
        item->buf.data = (char *)buf->data + at;
        item->buf.len  = len;
        next           = at + len;
        list->len += len;
        list->count++;
    }
    return 0;
}

/* Hold the buffer, and fill the list; -1 with an exception. */
static int
hold(RemoteObject *self, PyObject *buffer, const pieces *all, bool is_writable,
     rma_list *list)
{
    if (buffer_acquire_run(self->endpoint->worker->st, buffer, is_writable,
                           &list->holds[0]) < 0) {
        return -1;
    }
    list->num_holds = 1;
    return fill(self, all, list);
}

rma_list *
rma_pieces_new(RemoteObject *self, PyObject *const *values, bool is_writable)
{
    rma_list *list = NULL;
    pieces    all;

    if (parse(&all, values) == 0) {
        list = rma_list_new(count_of(&all.offsets), 1);
    }
    if (list != NULL && hold(self, values[0], &all, is_writable, list) < 0) {
        if (list->num_holds != 0) {
            buffer_release(&list->holds[0]);
        }
        PyMem_Free(list);
        list = NULL;
    }
    release(&all);
    return list;
}
