/* buffer.c: any object's memory as a umx_buffer, in this order: bytes, NumPy
 * array, buffer protocol, Array, __cuda_array_interface__, __array_interface__.
 *
 * NumPy is not needed at run time. Once it has been imported its arrays are
 * read through its C API, which costs nanoseconds and takes what the buffer
 * protocol refuses (datetime64). */
#include "state.h"

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

#include <string.h>

static void
hold_object(buffer_hold *hold, PyObject *obj, void *data, size_t len,
            umx_memtype memtype)
{
    hold->owner    = Py_NewRef(obj);
    hold->view.obj = NULL;
    hold->buf      = (umx_buffer){data, len, memtype, NULL};
}

int
buffer_refuse_readonly(PyObject *obj)
{
    PyErr_Format(PyExc_ValueError,
                 "cannot receive into a read-only buffer (%.200s)",
                 Py_TYPE(obj)->tp_name);
    return -1;
}

PyObject *
buffer_sizes(int ndim, const Py_ssize_t *sizes)
{
    PyObject *tuple = PyTuple_New(ndim);

    for (int i = 0; tuple != NULL && i < ndim; i++) {
        PyObject *item = PyLong_FromSsize_t(sizes[i]);

        if (item == NULL) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, i, item);
        }
    }
    return tuple;
}

int
buffer_refuse_strides(int ndim, const Py_ssize_t *strides, Py_ssize_t itemsize)
{
    PyObject *tuple = buffer_sizes(ndim, strides);

    if (tuple != NULL) {
        PyErr_Format(PyExc_ValueError,
                     "expected a contiguous buffer, got strides %R for "
                     "itemsize %zd",
                     tuple, itemsize);
        Py_DECREF(tuple);
    }
    return -1;
}

static int
refuse_objects(PyObject *obj)
{
    PyErr_Format(PyExc_ValueError,
                 "expected a buffer of plain data, got Python objects "
                 "(dtype object of %.200s)",
                 Py_TYPE(obj)->tp_name);
    return -1;
}

/* ---- NumPy ---------------------------------------------------------------
 */

/* 1 if NumPy's C API is loaded; 0 if nobody has imported NumPy. */
static NOINLINE int
load_numpy(mod_state *st)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed */

    if (PyDict_GetItemString(modules, "numpy") == NULL) {
        return 0;
    }
    if (_import_array() < 0) {
        PyErr_Clear(); /* half imported, or too old: the protocols remain */
        return 0;
    }
    st->numpy = 1;
    return 1;
}

static inline bool
is_ndarray(mod_state *st, PyObject *obj)
{
    return (LIKELY(st->numpy) || load_numpy(st)) && PyArray_Check(obj);
}

static int
acquire_ndarray(PyObject *obj, bool is_writable, buffer_hold *hold)
{
    PyArrayObject *array = (PyArrayObject *)obj;
    int            flags = PyArray_FLAGS(array);

    if (UNLIKELY(PyDataType_REFCHK(PyArray_DESCR(array)))) {
        return refuse_objects(obj);
    }
    if (UNLIKELY(
            !(flags & (NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS)))) {
        return buffer_refuse_strides(PyArray_NDIM(array),
                                     (const Py_ssize_t *)PyArray_STRIDES(array),
                                     (Py_ssize_t)PyArray_ITEMSIZE(array));
    }
    if (UNLIKELY(is_writable && !(flags & NPY_ARRAY_WRITEABLE))) {
        return buffer_refuse_readonly(obj);
    }
    hold_object(hold, obj, PyArray_DATA(array), (size_t)PyArray_NBYTES(array),
                UMX_MEMTYPE_HOST);
    return 0;
}

/* ---- buffer protocol -----------------------------------------------------
 */

static int
take_view(buffer_hold *hold)
{
    hold->owner = NULL;
    hold->buf   = (umx_buffer){hold->view.buf, (size_t)hold->view.len,
                               UMX_MEMTYPE_HOST, NULL};
    return 0;
}

/* The simple request was refused: why, or is it contiguous all the same
 * (Fortran order)? */
static NOINLINE int
acquire_full(PyObject *obj, bool is_writable, buffer_hold *hold)
{
    Py_buffer *view = &hold->view;
    int        rc;

    PyErr_Clear();
    if (PyObject_GetBuffer(obj, view, PyBUF_FULL_RO) < 0) {
        return -1;
    }
    if (view->format != NULL && strchr(view->format, 'O') != NULL) {
        rc = refuse_objects(obj);
    } else if (!PyBuffer_IsContiguous(view, 'A')) {
        rc = buffer_refuse_strides(view->ndim, view->strides, view->itemsize);
    } else if (is_writable && view->readonly) {
        rc = buffer_refuse_readonly(obj);
    } else {
        return take_view(hold);
    }
    PyBuffer_Release(view);
    return rc;
}

static int
acquire_exporter(PyObject *obj, bool is_writable, buffer_hold *hold)
{
    int flags = is_writable ? PyBUF_WRITABLE : PyBUF_SIMPLE;

    if (LIKELY(PyObject_GetBuffer(obj, &hold->view, flags) == 0)) {
        return take_view(hold);
    }
    return acquire_full(obj, is_writable, hold);
}

/* ---- array interfaces ----------------------------------------------------
 */

/* What an interface dictionary says. */
typedef struct interface {
    const char *name;
    PyObject   *dict;
    PyObject   *data; /* borrowed from dict */
    uint64_t    address;
    bool        is_readonly;
    Py_ssize_t  itemsize;
    Py_ssize_t  nbytes;
    Py_ssize_t  nitems;
    bool        is_c_contiguous;
    bool        is_f_contiguous;
    int         ndim;
    Py_ssize_t  shape[PyBUF_MAX_NDIM];
    Py_ssize_t  strides[PyBUF_MAX_NDIM];
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
    face->ndim   = (int)PyTuple_GET_SIZE(shape);
    face->nitems = 1;
    for (int i = 0; i < face->ndim; i++) {
        Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, i));

        if (size < 0) {
            return bad_interface(face, "'shape' must have sizes >= 0");
        }
        face->shape[i] = size;
        if (__builtin_mul_overflow(face->nitems, size, &face->nitems)) {
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
    face->itemsize = (text[1] == 'U') ? 4 * itemsize : itemsize;
    if (__builtin_mul_overflow(face->nitems, face->itemsize, &face->nbytes)) {
        return bad_interface(face, "'shape' is too large");
    }
    return 0;
}

/* The strides of C order; where there is no item they mean nothing. */
static void
fill_strides(interface *face)
{
    Py_ssize_t stride = face->itemsize;

    for (int i = face->ndim - 1; i >= 0; i--) {
        face->strides[i] = stride;
        stride *= (face->nitems == 0) ? 1 : face->shape[i];
    }
}

static void
check_order(interface *face)
{
    Py_ssize_t expected = face->itemsize;
    bool       is_c = true, is_f = true;

    if (face->nitems == 0) {
        face->is_c_contiguous = face->is_f_contiguous = true;
        return;
    }
    for (int i = face->ndim - 1; i >= 0; i--) {
        is_c = is_c && (face->shape[i] == 1 || face->strides[i] == expected);
        expected *= face->shape[i];
    }
    expected = face->itemsize;
    for (int i = 0; i < face->ndim; i++) {
        is_f = is_f && (face->shape[i] == 1 || face->strides[i] == expected);
        expected *= face->shape[i];
    }
    face->is_c_contiguous = is_c;
    face->is_f_contiguous = is_f;
}

static int
parse_strides(interface *face)
{
    PyObject *strides = PyDict_GetItemString(face->dict, "strides");

    if (strides == NULL || strides == Py_None || face->nitems == 0) {
        fill_strides(face);
        check_order(face);
        return 0;
    }
    if (!PyTuple_Check(strides) || PyTuple_GET_SIZE(strides) != face->ndim) {
        return bad_interface(face, "'strides' must be as long as 'shape'");
    }
    for (int i = 0; i < face->ndim; i++) {
        face->strides[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(strides, i));
        if (face->strides[i] == -1 && PyErr_Occurred()) {
            return -1;
        }
    }
    check_order(face);
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
        face->is_readonly = true;
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
    if (!PyDict_Check(face->dict)) {
        return bad_interface(face, "must be a dictionary");
    }
    if (parse_shape(face) < 0 || parse_typestr(face) < 0 ||
        parse_strides(face) < 0) {
        return -1;
    }
    face->data = PyDict_GetItemString(face->dict, "data");
    return 0;
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
    if (parse_data(face) < 0) {
        return -1;
    }
    if (is_writable && face->is_readonly) {
        return buffer_refuse_readonly(obj);
    }
    hold_object(hold, obj, (void *)(uintptr_t)face->address,
                (size_t)face->nbytes, UMX_MEMTYPE_CUDA);
    return 0;
}

/* Data in a buffer of its own, at an offset. */
static int
acquire_interface_buffer(interface *face, bool is_writable, buffer_hold *hold)
{
    PyObject  *offset = PyDict_GetItemString(face->dict, "offset");
    Py_ssize_t at     = (offset == NULL) ? 0 : PyLong_AsSsize_t(offset);
    int        rc;

    if (at == -1 && PyErr_Occurred()) {
        return -1;
    }
    Py_INCREF(face->data); /* a __buffer__ in Python might empty the dict */
    rc = acquire_exporter(face->data, is_writable, hold);
    Py_DECREF(face->data);
    if (rc < 0) {
        return -1;
    }
    if (at < 0 || at > hold->view.len || face->nbytes > hold->view.len - at) {
        PyBuffer_Release(&hold->view);
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
    if (is_writable && face->is_readonly) {
        return buffer_refuse_readonly(obj);
    }
    hold_object(hold, obj, (void *)(uintptr_t)face->address,
                (size_t)face->nbytes, UMX_MEMTYPE_HOST);
    return 0;
}

/* `*face` says what was found; its dict is owned. */
static NOINLINE int
acquire_by_interface(mod_state *st, PyObject *obj, bool is_writable,
                     buffer_hold *hold, interface *face)
{
    int rc;

    face->name = "__cuda_array_interface__";
    rc = PyObject_GetOptionalAttr(obj, NAME(st, __cuda_array_interface__),
                                  &face->dict);
    if (rc < 0) {
        return -1;
    }
    if (rc > 0) {
        return acquire_cuda(face, obj, is_writable, hold);
    }
    face->name = "__array_interface__";
    rc         = PyObject_GetOptionalAttr(obj, NAME(st, __array_interface__),
                                          &face->dict);
    if (rc < 0) {
        return -1;
    }
    if (rc > 0) {
        return acquire_interface(face, obj, is_writable, hold);
    }
    PyErr_Format(PyExc_TypeError,
                 "expected an object with the buffer protocol, "
                 "__array_interface__ or __cuda_array_interface__, got %.200s",
                 Py_TYPE(obj)->tp_name);
    return -1;
}

static int
acquire_whole(mod_state *st, PyObject *obj, bool is_writable, buffer_hold *hold)
{
    interface face = {0};
    int       rc   = acquire_by_interface(st, obj, is_writable, hold, &face);

    Py_XDECREF(face.dict);
    if (rc == 0 && !face.is_c_contiguous && !face.is_f_contiguous) {
        buffer_release(hold);
        return buffer_refuse_strides(face.ndim, face.strides, face.itemsize);
    }
    return rc;
}

int
buffer_acquire(mod_state *st, PyObject *obj, bool is_writable,
               buffer_hold *hold)
{
    hold->view.obj = NULL;
    hold->owner    = NULL;
    if (PyBytes_CheckExact(obj)) {
        if (UNLIKELY(is_writable)) {
            return buffer_refuse_readonly(obj);
        }
        hold_object(hold, obj, PyBytes_AS_STRING(obj),
                    (size_t)PyBytes_GET_SIZE(obj), UMX_MEMTYPE_HOST);
        return 0;
    }
    if (!PyByteArray_CheckExact(obj) && is_ndarray(st, obj)) {
        return acquire_ndarray(obj, is_writable, hold);
    }
    if (LIKELY(PyObject_CheckBuffer(obj))) {
        return acquire_exporter(obj, is_writable, hold);
    }
    if (Py_IS_TYPE(obj, st->array_type)) {
        return array_acquire(obj, is_writable, hold);
    }
    return acquire_whole(st, obj, is_writable, hold);
}

/* ---- layouts -------------------------------------------------------------
 */

static void
copy_sizes(Py_ssize_t *to, const Py_ssize_t *from, int ndim)
{
    memcpy(to, from, (size_t)ndim * sizeof(*to));
}

static int
describe_ndarray(PyObject *obj, buffer_hold *hold, buffer_layout *layout)
{
    PyArrayObject *array = (PyArrayObject *)obj;

    if (PyDataType_REFCHK(PyArray_DESCR(array))) {
        return refuse_objects(obj);
    }
    if (PyArray_NDIM(array) > PyBUF_MAX_NDIM) {
        PyErr_SetString(PyExc_ValueError, "too many dimensions");
        return -1;
    }
    layout->obj             = obj;
    layout->itemsize        = (Py_ssize_t)PyArray_ITEMSIZE(array);
    layout->ndim            = PyArray_NDIM(array);
    layout->is_readonly     = !PyArray_ISWRITEABLE(array);
    layout->is_c_contiguous = PyArray_IS_C_CONTIGUOUS(array);
    layout->is_f_contiguous = PyArray_IS_F_CONTIGUOUS(array);
    copy_sizes(layout->shape, (const Py_ssize_t *)PyArray_DIMS(array),
               layout->ndim);
    copy_sizes(layout->strides, (const Py_ssize_t *)PyArray_STRIDES(array),
               layout->ndim);
    hold_object(hold, obj, PyArray_DATA(array), (size_t)PyArray_NBYTES(array),
                UMX_MEMTYPE_HOST);
    return 0;
}

static int
describe_exporter(PyObject *obj, buffer_hold *hold, buffer_layout *layout)
{
    Py_buffer *view = &hold->view;

    if (PyObject_GetBuffer(obj, view, PyBUF_FULL_RO) < 0) {
        return -1;
    }
    if (view->format != NULL && strchr(view->format, 'O') != NULL) {
        PyBuffer_Release(view);
        return refuse_objects(obj);
    }
    layout->obj = PyMemoryView_Check(obj) ? PyMemoryView_GET_BUFFER(obj)->obj :
                                            view->obj;
    layout->itemsize        = view->itemsize;
    layout->ndim            = view->ndim;
    layout->is_readonly     = view->readonly;
    layout->is_c_contiguous = PyBuffer_IsContiguous(view, 'C');
    layout->is_f_contiguous = PyBuffer_IsContiguous(view, 'F');
    copy_sizes(layout->shape, view->shape, view->ndim);
    copy_sizes(layout->strides, view->strides, view->ndim);
    return take_view(hold);
}

static int
describe_interface(mod_state *st, PyObject *obj, buffer_hold *hold,
                   buffer_layout *layout)
{
    interface face = {0};
    int       rc   = acquire_by_interface(st, obj, false, hold, &face);

    Py_XDECREF(face.dict);
    if (rc < 0) {
        return -1;
    }
    layout->obj             = obj;
    layout->itemsize        = face.itemsize;
    layout->ndim            = face.ndim;
    layout->is_readonly     = face.is_readonly || hold->view.readonly;
    layout->is_c_contiguous = face.is_c_contiguous;
    layout->is_f_contiguous = face.is_f_contiguous;
    copy_sizes(layout->shape, face.shape, face.ndim);
    copy_sizes(layout->strides, face.strides, face.ndim);
    return 0;
}

int
buffer_describe(mod_state *st, PyObject *obj, buffer_hold *hold,
                buffer_layout *layout)
{
    hold->view.obj      = NULL;
    hold->view.readonly = 0;
    hold->owner         = NULL;
    if (is_ndarray(st, obj)) {
        return describe_ndarray(obj, hold, layout);
    }
    if (PyObject_CheckBuffer(obj)) {
        return describe_exporter(obj, hold, layout);
    }
    return describe_interface(st, obj, hold, layout);
}
