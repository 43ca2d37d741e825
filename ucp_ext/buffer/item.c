/* SPDX-License-Identifier: BSD-3-Clause */
/* item.c: the items of which an object's memory consists. */
#include "buffer/item.h"

#include "buffer/layout.h"
#include "buffer/array.h"

#include <string.h>

size_t
item_size(mod_state *st, PyObject *obj)
{
    buffer_hold   hold = {0};
    buffer_layout layout;

    if (PyBytes_CheckExact(obj) || PyByteArray_CheckExact(obj) ||
        Py_IS_TYPE(obj, st->pool_buffer_type)) {
        return 1;
    }
    if (Py_IS_TYPE(obj, st->array_type)) {
        array_describe(obj, &hold, &layout);
    } else if (buffer_describe(st, obj, &hold, &layout) < 0) {
        return 0;
    }
    buffer_release(&hold);
    return (layout.itemsize > 0) ? (size_t)layout.itemsize : 1;
}

static const struct {
    const char *name;
    const char *codes; /* of the struct module */
    umx_dtype   dtype;
} dtypes[] = {
    {"int8", "bhilq", UMX_INT8},       {"int16", "bhilq", UMX_INT16},
    {"int32", "bhilq", UMX_INT32},     {"int64", "bhilq", UMX_INT64},
    {"uint8", "BHILQ", UMX_UINT8},     {"uint16", "BHILQ", UMX_UINT16},
    {"uint32", "BHILQ", UMX_UINT32},   {"uint64", "BHILQ", UMX_UINT64},
    {"float32", "fd", UMX_FLOAT32},    {"float64", "fd", UMX_FLOAT64},
    {"complex64", "F", UMX_COMPLEX64}, {"complex128", "D", UMX_COMPLEX128},
    {"bool", "?", UMX_BOOL},
};

const char *
item_dtype_name(umx_dtype dtype)
{
    for (size_t i = 0; i < Py_ARRAY_LENGTH(dtypes); i++) {
        if (dtypes[i].dtype == dtype) {
            return dtypes[i].name;
        }
    }
    return "?";
}

/* The letter of a format of one item in this machine's order of bytes; complex
 * numbers are F and D. 0: it is another. */
static char
code_of(const char *format)
{
    const char other = PY_LITTLE_ENDIAN ? '>' : '<';
    char       code;

    if (format == NULL) {
        return 'B';
    }
    if (*format != '\0' && strchr("@=<>!", *format) != NULL) {
        if (*format == other || *format == '!') {
            return 0;
        }
        format++;
    }
    code = *format;
    if (code == 'Z') {
        code = (format[1] == 'f') ? 'F' : (format[1] == 'd') ? 'D' : '\0';
        format++;
    }
    return (code == '\0' || format[1] != '\0') ? '\0' : code;
}

static bool
find_dtype(const Py_buffer *view, umx_dtype *dtype_p)
{
    char code = code_of(view->format);

    for (size_t i = 0; code != '\0' && i < Py_ARRAY_LENGTH(dtypes); i++) {
        if (strchr(dtypes[i].codes, code) != NULL &&
            umx_dtype_size(dtypes[i].dtype) == (size_t)view->itemsize) {
            *dtype_p = dtypes[i].dtype;
            return true;
        }
    }
    return false;
}

int
item_dtype(PyObject *obj, umx_dtype *dtype_p)
{
    Py_buffer view;
    int       rc = 0;

    if (!PyObject_CheckBuffer(obj)) {
        PyErr_Format(PyExc_TypeError,
                     "expected an array of numbers in host memory, with the "
                     "buffer protocol, got %.200s",
                     Py_TYPE(obj)->tp_name);
        return -1;
    }
    if (PyObject_GetBuffer(obj, &view, PyBUF_FULL_RO) < 0) {
        return -1;
    }
    if (!find_dtype(&view, dtype_p)) {
        PyErr_Format(
            PyExc_ValueError,
            "items of the format '%s' (%zd bytes) cannot be reduced: "
            "ints of 8 to 64 bits, floats and complex numbers of 32 "
            "or 64 bits a part, and bools can, in this machine's order "
            "of bytes",
            (view.format != NULL) ? view.format : "B", view.itemsize);
        rc = -1;
    }
    PyBuffer_Release(&view);
    return rc;
}
