/* SPDX-License-Identifier: BSD-3-Clause */
/* item.c: the items of which an object's memory consists. */
#include "buffer/item.h"

#include "buffer/layout.h"
#include "buffer/array.h"

#include <stdlib.h>
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
    const char *codes; /* of the struct module; of a pair the value's */
    umx_dtype   dtype;
} dtypes[] = {
    {"int8", "bhilq", UMX_INT8},       {"int16", "bhilq", UMX_INT16},
    {"int32", "bhilq", UMX_INT32},     {"int64", "bhilq", UMX_INT64},
    {"uint8", "BHILQ", UMX_UINT8},     {"uint16", "BHILQ", UMX_UINT16},
    {"uint32", "BHILQ", UMX_UINT32},   {"uint64", "BHILQ", UMX_UINT64},
    {"float32", "fd", UMX_FLOAT32},    {"float64", "fd", UMX_FLOAT64},
    {"complex64", "F", UMX_COMPLEX64}, {"complex128", "D", UMX_COMPLEX128},
    {"bool", "?", UMX_BOOL},           {"float16", "e", UMX_FLOAT16},
    {"bfloat16", "", UMX_BFLOAT16},
};

/* The types of the values of pairs, in the order of the types of pairs. */
static const umx_dtype values[] = {
    UMX_INT8,   UMX_INT16,  UMX_INT32,  UMX_INT64,   UMX_UINT8,
    UMX_UINT16, UMX_UINT32, UMX_UINT64, UMX_FLOAT32, UMX_FLOAT64,
};

/* Python 3.13's Py_ARRAY_LENGTH() is no constant expression. */
_Static_assert(UMX_INT8_INT64 ==
                   UMX_INT8_INT32 + sizeof(values) / sizeof(values[0]),
               "values");

/* The name of a type that is no pair. */
static const char *
single_name(umx_dtype dtype)
{
    for (size_t i = 0; i < Py_ARRAY_LENGTH(dtypes); i++) {
        if (dtypes[i].dtype == dtype) {
            return dtypes[i].name;
        }
    }
    return "?";
}

PyObject *
item_dtype_name(umx_dtype dtype)
{
    const char *index = (dtype < UMX_INT8_INT64) ? "int32" : "int64";

    if (dtype < UMX_INT8_INT32) {
        return PyUnicode_FromString(single_name(dtype));
    }
    dtype = values[(size_t)(dtype - UMX_INT8_INT32) % Py_ARRAY_LENGTH(values)];
    return PyUnicode_FromFormat("pairs of %s and %s", single_name(dtype),
                                index);
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

/* The type of a format of one item. */
static bool
find_single(char code, size_t size, umx_dtype *dtype_p)
{
    for (size_t i = 0; code != '\0' && i < Py_ARRAY_LENGTH(dtypes); i++) {
        if (strchr(dtypes[i].codes, code) != NULL &&
            umx_dtype_size(dtypes[i].dtype) == size) {
            *dtype_p = dtypes[i].dtype;
            return true;
        }
    }
    return false;
}

/* ---- pairs ---------------------------------------------------------------
 */

/* Where a reader of a structure's format is. */
typedef struct struct_reader {
    const char *text;
    size_t      at;        /* bytes of the structure so far */
    bool        is_native; /* sizes and alignment are the machine's */
} struct_reader;

/* Bytes of an integer or a float; 0: it is another. */
static size_t
size_of_code(char code, bool is_native)
{
    switch (code) {
    case 'b':
    case 'B':
        return 1;
    case 'h':
    case 'H':
        return 2;
    case 'i':
    case 'I':
    case 'f':
        return 4;
    case 'l':
    case 'L':
        return is_native ? sizeof(long) : 4;
    case 'q':
    case 'Q':
    case 'd':
        return 8;
    default:
        return 0;
    }
}

/* Skip bytes that belong to no field, such as "xxx" and "3x", and what says the
 * order of bytes. False: it is another order. */
static bool
skip_padding(struct_reader *reader)
{
    const char other = PY_LITTLE_ENDIAN ? '>' : '<';

    for (;; reader->text++) {
        char  c     = *reader->text;
        char *end   = NULL;
        long  count = (c >= '0' && c <= '9') ? strtol(reader->text, &end, 10) :
                                               1;

        if (c == other || c == '!') {
            return false;
        }
        if (c != '\0' && strchr("@=<>^", c) != NULL) {
            reader->is_native = c == '@';
        } else if (end != NULL && *end == 'x') {
            reader->at += (size_t)count;
            reader->text = end;
        } else if (c == 'x') {
            reader->at++;
        } else {
            return true;
        }
    }
}

/* Read a field and its name, such as "d:value:". */
static bool
read_field(struct_reader *reader, umx_dtype *dtype_p, size_t *at_p)
{
    size_t      size;
    const char *end;

    if (!skip_padding(reader)) {
        return false;
    }
    size = size_of_code(*reader->text, reader->is_native);
    if (size == 0 || reader->text[1] != ':' ||
        !find_single(*reader->text, size, dtype_p)) {
        return false;
    }
    if (reader->is_native) {
        reader->at = (reader->at + size - 1) / size * size;
    }
    *at_p = reader->at;
    reader->at += size;
    end          = strchr(reader->text + 2, ':');
    reader->text = (end != NULL) ? end + 1 : "";
    return end != NULL;
}

/* The type of a format such as "T{d:value:i:index:}": two fields, as C lays
 * them out. */
static bool
find_pair(const char *format, size_t itemsize, umx_dtype *dtype_p)
{
    struct_reader reader = {.text = format + 2, .is_native = true};
    umx_dtype     value, index;
    size_t        value_at, index_at;

    if (format[0] != 'T' || format[1] != '{' ||
        !read_field(&reader, &value, &value_at) ||
        !read_field(&reader, &index, &index_at) || !skip_padding(&reader) ||
        strcmp(reader.text, "}") != 0 || value_at != 0 ||
        index_at != itemsize / 2 ||
        (index != UMX_INT32 && index != UMX_INT64)) {
        return false;
    }
    for (size_t i = 0; i < Py_ARRAY_LENGTH(values); i++) {
        size_t first = (index == UMX_INT32) ? UMX_INT8_INT32 : UMX_INT8_INT64;

        if (values[i] == value) {
            *dtype_p = (umx_dtype)(first + i);
            return umx_dtype_size(*dtype_p) == itemsize;
        }
    }
    return false;
}

static bool
find_dtype(const Py_buffer *view, umx_dtype *dtype_p)
{
    size_t size = (size_t)view->itemsize;

    return find_single(code_of(view->format), size, dtype_p) ||
           (view->format != NULL && find_pair(view->format, size, dtype_p));
}

static int
refuse_items(const char *format, Py_ssize_t itemsize)
{
    PyErr_Format(
        PyExc_ValueError,
        "items of the format '%s' (%zd bytes) cannot be reduced: "
        "ints of 8 to 64 bits, floats of 16 to 64 bits, bfloat16, complex "
        "numbers of 32 or 64 bits a part, bools, and pairs of an int or a "
        "float of 32 or 64 bits and an index of int32 or int64 can, in "
        "this machine's order of bytes, and pairs aligned",
        format, itemsize);
    return -1;
}

/* ---- arrays of a device --------------------------------------------------
 */

/* The letter of a format for items that an interface calls '<f4'; 0: none. */
static char
code_of_typestr(const char *typestr, long size)
{
    if (typestr[0] == (PY_LITTLE_ENDIAN ? '>' : '<') && size > 1) {
        return 0;
    }
    switch (typestr[1]) {
    case 'i':
        return 'q';
    case 'u':
        return 'Q';
    case 'f':
        return (size == 2) ? 'e' : 'd';
    case 'c':
        return (size == 8) ? 'F' : 'D';
    case 'b':
        return '?';
    default:
        return 0;
    }
}

static int
find_typestr(const char *typestr, umx_dtype *dtype_p)
{
    long size = (typestr[0] != '\0' && typestr[1] != '\0') ?
                    strtol(typestr + 2, NULL, 10) :
                    0;

    return (size > 0 && find_single(code_of_typestr(typestr, size),
                                    (size_t)size, dtype_p)) ?
               0 :
               refuse_items(typestr, size);
}

/* What an interface says of its items. */
static int
typestr_dtype(PyObject *typestr, umx_dtype *dtype_p)
{
    const char *text;

    if (typestr == NULL || !PyUnicode_Check(typestr)) {
        PyErr_SetString(PyExc_TypeError,
                        "__cuda_array_interface__ has no typestr");
        return -1;
    }
    text = PyUnicode_AsUTF8(typestr);
    return (text != NULL) ? find_typestr(text, dtype_p) : -1;
}

/* The type of the items of an array without the buffer protocol: of a device.
 */
static int
device_dtype(mod_state *st, PyObject *obj, umx_dtype *dtype_p)
{
    PyObject *dict, *typestr;
    int rc = PyObject_GetOptionalAttr(obj, NAME(st, __cuda_array_interface__),
                                      &dict);

    if (rc == 0) {
        PyErr_Format(PyExc_TypeError,
                     "expected an array of numbers, with the buffer protocol "
                     "or __cuda_array_interface__, got %.200s",
                     Py_TYPE(obj)->tp_name);
    }
    if (rc <= 0) {
        return -1;
    }
    typestr = PyDict_Check(dict) ? PyDict_GetItemString(dict, "typestr") : NULL;
    Py_XINCREF(typestr); /* the program may change its dictionary */
    rc = typestr_dtype(typestr, dtype_p);
    Py_XDECREF(typestr);
    Py_DECREF(dict);
    return rc;
}

int
item_dtype(mod_state *st, PyObject *obj, umx_dtype *dtype_p)
{
    Py_buffer view;
    int       rc = 0;

    if (buffer_is_bfloat16(st, obj)) { /* it has no buffer protocol */
        *dtype_p = UMX_BFLOAT16;
        return 0;
    }
    if (exporter_is_of_device(st, obj) || !PyObject_CheckBuffer(obj)) {
        return device_dtype(st, obj, dtype_p);
    }
    if (PyObject_GetBuffer(obj, &view, PyBUF_FULL_RO) < 0) {
        return -1;
    }
    if (!find_dtype(&view, dtype_p)) {
        rc = refuse_items((view.format != NULL) ? view.format : "B",
                          view.itemsize);
    }
    PyBuffer_Release(&view);
    return rc;
}
