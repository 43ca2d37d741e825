/* SPDX-License-Identifier: BSD-3-Clause */
/* interface.c: memory that an object describes by __cuda_array_interface__ or
 * __array_interface__: a dictionary, of which nothing is taken for granted. It
 * is copied before it is read: the program may change its own at any call. */
#include "buffer/buffer.h"
#include "buffer/layout.h"

#include <string.h>

/* What an interface dictionary says. */
typedef struct interface {
    mod_state     *st;
    const char    *name;
    PyObject      *dict; /* ours; what is borrowed from it stays */
    PyObject      *data; /* borrowed from dict */
    uint64_t       address;
    Py_ssize_t     nbytes;
    buffer_layout *layout;
} interface;

static int
bad_interface(const interface *face, const char *what)
{
    if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "%s: %s", face->name, what);
    }
    return -1;
}

static int
parse_shape(interface *face)
{
    PyObject *shape = PyDict_GetItemString(face->dict, "shape");

    if (shape == NULL || !PyTuple_Check(shape) ||
        PyTuple_GET_SIZE(shape) > PyBUF_MAX_NDIM) {
        return bad_interface(face, "'shape' must be a tuple of sizes");
    }
    face->layout->ndim   = (int)PyTuple_GET_SIZE(shape);
    face->layout->nitems = 1;
    for (int i = 0; i < face->layout->ndim; i++) {
        Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, i));

        if (size < 0) {
            return bad_interface(face, "'shape' must have sizes >= 0");
        }
        face->layout->shape[i] = size;
        if (__builtin_mul_overflow(face->layout->nitems, size,
                                   &face->layout->nitems)) {
            return bad_interface(face, "'shape' is too large");
        }
    }
    return 0;
}

/* '<f8': byte order, kind, bytes of an item. */
static int
parse_typestr(interface *face)
{
    PyObject   *typestr = PyDict_GetItemString(face->dict, "typestr");
    const char *text;
    char       *end;
    long        itemsize;

    if (typestr == NULL || !PyUnicode_Check(typestr)) {
        return bad_interface(face, "'typestr' must be a string");
    }
    text = PyUnicode_AsUTF8(typestr);
    if (text == NULL) {
        return -1;
    }
    if (strlen(text) < 3 || strchr("<>|=", text[0]) == NULL) {
        return bad_interface(face, "'typestr' is malformed");
    }
    if (text[1] == 'O') {
        return bad_interface(face, "Python objects cannot be sent");
    }
    if (strchr("biufcmMSUV?t", text[1]) == NULL) {
        return bad_interface(face, "'typestr' has an unknown kind");
    }
    itemsize = strtol(text + 2, &end, 10);
    if (!Py_ISDIGIT(text[2]) || (*end != '\0' && *end != '[') ||
        itemsize > INT_MAX || text[1] == 't') { /* NumPy's limit, too */
        return bad_interface(face, "'typestr' has no usable item size");
    }
    face->layout->itemsize = (text[1] == 'U') ? 4 * itemsize : itemsize;
    if (__builtin_mul_overflow(face->layout->nitems, face->layout->itemsize,
                               &face->nbytes)) {
        return bad_interface(face, "'shape' is too large");
    }
    return 0;
}

static int
parse_strides(interface *face)
{
    PyObject *strides = PyDict_GetItemString(face->dict, "strides");

    if (strides == NULL || strides == Py_None || face->layout->nitems == 0) {
        buffer_fill_strides(face->layout);
        return 0;
    }
    if (!PyTuple_Check(strides) ||
        PyTuple_GET_SIZE(strides) != face->layout->ndim) {
        return bad_interface(face, "'strides' must be as long as 'shape'");
    }
    for (int i = 0; i < face->layout->ndim; i++) {
        face->layout->strides[i] = PyLong_AsSsize_t(
            PyTuple_GET_ITEM(strides, i));
        if (face->layout->strides[i] == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    buffer_check_order(face->layout);
    return 0;
}

/* (address, readonly) */
static int
parse_data(interface *face)
{
    if (!PyTuple_Check(face->data) || PyTuple_GET_SIZE(face->data) != 2 ||
        !PyLong_Check(PyTuple_GET_ITEM(face->data, 0))) {
        return bad_interface(face, "'data' must be (address, readonly)");
    }
    face->address = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(face->data, 0));
    if (face->address == (uint64_t)-1 && PyErr_Occurred()) {
        return -1;
    }
    switch (PyObject_IsTrue(PyTuple_GET_ITEM(face->data, 1))) {
    case 0:
        break;
    case 1:
        face->layout->is_readonly = true;
        break;
    default:
        return -1;
    }
    if (face->address == 0 && face->nbytes != 0) {
        return bad_interface(face, "'data' is a null pointer");
    }
    return 0;
}

static int
parse_interface(interface *face)
{
    if (parse_shape(face) < 0 || parse_typestr(face) < 0 ||
        parse_strides(face) < 0) {
        return -1;
    }
    face->data = PyDict_GetItemString(face->dict, "data");
    return 0;
}

/* Which work comes first. Before version 3 an object cannot say: what uses the
 * default stream is waited for. */
static int
parse_stream(interface *face)
{
    PyObject *stream  = PyDict_GetItemString(face->dict, "stream");
    PyObject *version = PyDict_GetItemString(face->dict, "version");
    long      number  = 3;

    if (version != NULL) {
        number = PyLong_AsLong(version);
        if (number == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    if (number < 3) {
        face->layout->stream = DEVICE_LEGACY_STREAM;
        return 0;
    }
    if (stream == NULL || stream == Py_None) {
        return 0;
    }
    return device_parse_stream(face->st, stream, &face->layout->stream);
}

static int
acquire_cuda(interface *face, PyObject *obj, bool is_writable,
             buffer_hold *hold)
{
    PyObject *mask;

    if (parse_interface(face) < 0) {
        return -1;
    }
    mask = PyDict_GetItemString(face->dict, "mask");
    if (mask != NULL && mask != Py_None) {
        PyErr_SetString(PyExc_NotImplementedError,
                        "__cuda_array_interface__: masked arrays cannot be "
                        "sent");
        return -1;
    }
    if (face->data == NULL) {
        return bad_interface(face, "'data' is missing");
    }
    if (parse_data(face) < 0 || parse_stream(face) < 0) {
        return -1;
    }
    if (is_writable && face->layout->is_readonly) {
        return buffer_refuse_readonly(obj);
    }
    buffer_hold_object(hold, obj, (void *)(uintptr_t)face->address,
                       (size_t)face->nbytes, UMX_MEMTYPE_CUDA);
    return 0;
}

/* Are all items in a buffer of `len` bytes, if the first is at `at`? */
static bool
is_within(const buffer_layout *layout, Py_ssize_t at, Py_ssize_t len)
{
    Py_ssize_t low = at, high = at;

    if (at < 0 || at > len) {
        return false;
    }
    if (layout->nitems == 0) {
        return true;
    }
    for (int i = 0; i < layout->ndim; i++) {
        Py_ssize_t *end = (layout->strides[i] < 0) ? &low : &high;
        Py_ssize_t  span;

        if (__builtin_mul_overflow(layout->strides[i], layout->shape[i] - 1,
                                   &span) ||
            __builtin_add_overflow(*end, span, end)) {
            return false;
        }
    }
    return low >= 0 && high <= len && layout->itemsize <= len - high;
}

/* Data in a buffer of its own, at an offset. */
static int
acquire_interface_buffer(interface *face, bool is_writable, buffer_hold *hold)
{
    PyObject  *offset = PyDict_GetItemString(face->dict, "offset");
    Py_ssize_t at     = (offset == NULL) ? 0 : PyLong_AsSsize_t(offset);

    if (at == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (buffer_acquire_exporter(face->st, face->data, is_writable, hold) < 0) {
        return -1;
    }
    if (!is_within(face->layout, at, hold->view->py.len)) {
        buffer_release(hold);
        return bad_interface(face, "'shape' is larger than 'data'");
    }
    hold->buf.data = (char *)hold->buf.data + at;
    hold->buf.len  = (size_t)face->nbytes;
    return 0;
}

static int
acquire_interface(interface *face, PyObject *obj, bool is_writable,
                  buffer_hold *hold)
{
    if (parse_interface(face) < 0) {
        return -1;
    }
    if (face->data == NULL || face->data == Py_None) {
        face->data = obj;
    }
    if (!PyTuple_Check(face->data)) {
        return acquire_interface_buffer(face, is_writable, hold);
    }
    if (parse_data(face) < 0) {
        return -1;
    }
    if (is_writable && face->layout->is_readonly) {
        return buffer_refuse_readonly(obj);
    }
    buffer_hold_object(hold, obj, (void *)(uintptr_t)face->address,
                       (size_t)face->nbytes, UMX_MEMTYPE_HOST);
    return 0;
}

/* Read one of the two interfaces. */
typedef int (*acquire_fn)(interface *face, PyObject *obj, bool is_writable,
                          buffer_hold *hold);

static int
copy_dict(interface *face, PyObject *given)
{
    if (!PyDict_Check(given)) {
        return bad_interface(face, "must be a dictionary");
    }
    face->dict = PyDict_Copy(given);
    return (face->dict != NULL) ? 0 : -1;
}

static int
acquire_by(mod_state *st, const char *name, PyObject *attr, acquire_fn acquire,
           PyObject *obj, bool is_writable, buffer_hold *hold,
           buffer_layout *layout)
{
    interface face = {.st = st, .name = name, .layout = layout};
    PyObject *given;
    int       rc = PyObject_GetOptionalAttr(obj, attr, &given);

    if (rc <= 0) {
        return rc;
    }
    rc = copy_dict(&face, given);
    Py_DECREF(given);
    if (rc == 0) {
        rc = (acquire(&face, obj, is_writable, hold) < 0) ? -1 : 1;
        Py_DECREF(face.dict);
    }
    return rc;
}

int
interface_acquire(mod_state *st, PyObject *obj, bool is_writable,
                  buffer_hold *hold, buffer_layout *layout)
{
    int rc = acquire_by(st, "__cuda_array_interface__",
                        NAME(st, __cuda_array_interface__), acquire_cuda, obj,
                        is_writable, hold, layout);

    if (rc == 0) {
        rc = acquire_by(st, "__array_interface__",
                        NAME(st, __array_interface__), acquire_interface, obj,
                        is_writable, hold, layout);
    }
    return rc;
}
