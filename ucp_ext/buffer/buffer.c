/* SPDX-License-Identifier: BSD-3-Clause */
/* buffer.c: any object's memory as a umx_buffer, in this order: bytes, NumPy
 * array, buffer protocol, Array, __cuda_array_interface__, __array_interface__,
 * __dlpack__.
 *
 * NumPy is not needed at run time. Once it has been imported its arrays are
 * read through its C API, which costs nanoseconds and takes what the buffer
 * protocol refuses (datetime64). */
#include "buffer/buffer.h"

#include "buffer/array.h"
#include "buffer/layout.h"
#include "buffer/pool.h"

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

#include <string.h>

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

/* Name what to do about gaps: in device memory they cannot be sent. */
static int
refuse_strides(int ndim, const Py_ssize_t *strides, Py_ssize_t itemsize,
               bool is_on_host)
{
    PyObject *tuple = buffer_sizes(ndim, strides);

    if (tuple != NULL) {
        PyErr_Format(PyExc_ValueError,
                     "expected a contiguous buffer, got strides %R for "
                     "itemsize %zd: %s",
                     tuple, itemsize,
                     is_on_host ? "give a contiguous copy; Endpoint.send() and "
                                  "recv() take it with strided=True, "
                                  "SymmetricHeap.iput() takes a stride" :
                                  "in device memory only a contiguous copy "
                                  "helps");
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

/* A view of somebody else's memory, which may be registered. */
static NOINLINE void
find_base(mod_state *st, PyObject *base, buffer_hold *hold)
{
    while (base != NULL && PyArray_Check(base)) {
        base = PyArray_BASE((PyArrayObject *)base);
    }
    if (base != NULL) {
        registered_find(st, base, hold);
    }
}

static int
refuse_masked(PyObject *obj)
{
    PyErr_Format(PyExc_ValueError,
                 "masked arrays cannot be sent or received into (%.200s): "
                 "take .data, or .filled()",
                 Py_TYPE(obj)->tp_name);
    return -1;
}

/* A subclass's mask would be lost. -1 with an exception. */
static NOINLINE int
is_masked(PyObject *obj)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed */
    PyObject *ma      = PyDict_GetItemString(modules, "numpy.ma");
    PyObject *type;
    int       rc;

    if (ma == NULL) {
        return 0; /* nobody has imported it */
    }
    type = PyObject_GetAttrString(ma, "MaskedArray");
    if (type == NULL) {
        return -1;
    }
    rc = PyObject_IsInstance(obj, type);
    Py_DECREF(type);
    return rc;
}

static int
check_ndarray(PyObject *obj)
{
    int masked = PyArray_CheckExact(obj) ? 0 : is_masked(obj);

    if (UNLIKELY(masked != 0)) {
        return (masked > 0) ? refuse_masked(obj) : -1;
    }
    return UNLIKELY(PyDataType_REFCHK(PyArray_DESCR((PyArrayObject *)obj))) ?
               refuse_objects(obj) :
               0;
}

static void
copy_sizes(Py_ssize_t *to, const Py_ssize_t *from, int ndim)
{
    if (ndim != 0) {
        memcpy(to, from, (size_t)ndim * sizeof(*to));
    }
}

static int
describe_ndarray(PyObject *obj, buffer_layout *layout)
{
    PyArrayObject *array = (PyArrayObject *)obj;

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
    return 0;
}

static void
hold_ndarray(mod_state *st, PyObject *obj, buffer_hold *hold)
{
    PyArrayObject *array = (PyArrayObject *)obj;

    buffer_hold_object(hold, obj, PyArray_DATA(array),
                       (size_t)PyArray_NBYTES(array), UMX_MEMTYPE_HOST);
    if (PyArray_BASE(array) != NULL) {
        find_base(st, PyArray_BASE(array), hold);
    }
}

/* Fortran order; gaps are refused. */
static NOINLINE int
acquire_other_order(mod_state *st, PyObject *obj, bool is_writable,
                    buffer_hold *hold)
{
    PyArrayObject *array = (PyArrayObject *)obj;
    buffer_layout  layout;

    if (!PyArray_IS_F_CONTIGUOUS(array)) {
        return refuse_strides(PyArray_NDIM(array),
                              (const Py_ssize_t *)PyArray_STRIDES(array),
                              (Py_ssize_t)PyArray_ITEMSIZE(array), true);
    }
    if (is_writable && !PyArray_ISWRITEABLE(array)) {
        return buffer_refuse_readonly(obj);
    }
    if (describe_ndarray(obj, &layout) < 0) {
        return -1;
    }
    hold_ndarray(st, obj, hold);
    if (hold->buf.memtype <= UMX_MEMTYPE_HOST &&
        buffer_set_order(obj, is_writable, &layout, hold) < 0) {
        buffer_release(hold);
        return -1;
    }
    return 0;
}

static int
acquire_ndarray(mod_state *st, PyObject *obj, bool is_writable,
                buffer_hold *hold)
{
    int flags;

    if (UNLIKELY(check_ndarray(obj) < 0)) {
        return -1;
    }
    /* A subclass may have changed the array. */
    flags = PyArray_FLAGS((PyArrayObject *)obj);
    if (UNLIKELY(!(flags & NPY_ARRAY_C_CONTIGUOUS))) {
        return acquire_other_order(st, obj, is_writable, hold);
    }
    if (UNLIKELY(is_writable && !(flags & NPY_ARRAY_WRITEABLE))) {
        return buffer_refuse_readonly(obj);
    }
    hold_ndarray(st, obj, hold);
    return 0;
}

bool
buffer_is_bfloat16(mod_state *st, PyObject *obj)
{
    const PyArray_Descr *dtype;
    const char          *name, *dot;

    if (!is_ndarray(st, obj)) {
        return false;
    }
    dtype = PyArray_DESCR((PyArrayObject *)obj);
    if (LIKELY(!PyTypeNum_ISUSERDEF(dtype->type_num))) {
        return false;
    }
    name = dtype->typeobj->tp_name;
    dot  = strrchr(name, '.');
    return strcmp((dot != NULL) ? dot + 1 : name, "bfloat16") == 0 &&
           PyArray_ITEMSIZE((PyArrayObject *)obj) == sizeof(uint16_t) &&
           PyArray_ISNOTSWAPPED((PyArrayObject *)obj);
}

/* ---- buffer protocol -----------------------------------------------------
 */

/* Arrays of a device have the buffer protocol, too, and refuse by it, as CuPy's
 * do: they are taken by what they say of their memory. */
static inline bool
is_of_device(mod_state *st, PyObject *exporter)
{
    return UNLIKELY(!PyMemoryView_Check(exporter)) &&
           exporter_is_of_device(st, exporter);
}

/* Export `obj`; NULL with an exception. */
static inline buffer_view *
export_view(mod_state *st, PyObject *obj, int flags)
{
    buffer_view *view = block_get(st);

    if (UNLIKELY(view == NULL)) {
        return NULL;
    }
    if (UNLIKELY(PyObject_GetBuffer(obj, &view->py, flags) < 0)) {
        block_put(st, view);
        return NULL;
    }
    view->st = st;
    return view;
}

static int
take_view(buffer_view *view, PyObject *obj, buffer_hold *hold)
{
    hold->owner = obj;
    hold->view  = view;
    hold->buf   = umx_host_buffer(view->py.buf, (size_t)view->py.len);
    return 0;
}

static void copy_shape(const Py_buffer *view, buffer_layout *layout);

/* Give memory in Fortran order a layout. A PickleBuffer is the memory that it
 * shows, as its raw() is: who unpickles it knows the order. */
static int
set_order(PyObject *obj, bool is_writable, buffer_hold *hold)
{
    const Py_buffer *view = &hold->view->py;
    buffer_layout    layout;

    if (PyBuffer_IsContiguous(view, 'C') || PyPickleBuffer_Check(obj)) {
        return 0;
    }
    layout.itemsize = view->itemsize;
    copy_shape(view, &layout);
    return buffer_set_order(obj, is_writable, &layout, hold);
}

/* The simple request was refused: why, or is it contiguous all the same
 * (Fortran order)? */
static NOINLINE int
acquire_full(mod_state *st, PyObject *obj, bool is_writable, buffer_hold *hold)
{
    buffer_view     *exported;
    const Py_buffer *view;

    PyErr_Clear();
    exported = export_view(st, obj, PyBUF_FULL_RO);
    if (exported == NULL) {
        return -1;
    }
    (void)take_view(exported, obj, hold);
    view = &exported->py;
    if (view->format != NULL && strchr(view->format, 'O') != NULL) {
        (void)refuse_objects(obj);
    } else if (!PyBuffer_IsContiguous(view, 'A')) {
        (void)refuse_strides(view->ndim, view->strides, view->itemsize, true);
    } else if (is_writable && view->readonly) {
        (void)buffer_refuse_readonly(obj);
    } else if (set_order(obj, is_writable, hold) == 0) {
        return 0;
    }
    buffer_release(hold);
    return -1;
}

int
buffer_acquire_exporter(mod_state *st, PyObject *obj, bool is_writable,
                        buffer_hold *hold)
{
    int          flags = is_writable ? PyBUF_WRITABLE : PyBUF_SIMPLE;
    buffer_view *view  = export_view(st, obj, flags);

    return LIKELY(view != NULL) ? take_view(view, obj, hold) :
                                  acquire_full(st, obj, is_writable, hold);
}

/* ---- order -----------------------------------------------------------------
 */

void
buffer_fill_strides(buffer_layout *layout)
{
    Py_ssize_t stride = layout->itemsize;

    for (int i = layout->ndim - 1; i >= 0; i--) {
        layout->strides[i] = stride;
        stride *= (layout->nitems == 0) ? 1 : layout->shape[i];
    }
    buffer_check_order(layout);
}

void
buffer_check_order(buffer_layout *layout)
{
    Py_ssize_t expected = layout->itemsize;
    bool       is_c = true, is_f = true;

    for (int i = layout->ndim - 1; i >= 0 && layout->nitems != 0; i--) {
        is_c = is_c &&
               (layout->shape[i] == 1 || layout->strides[i] == expected);
        expected *= layout->shape[i];
    }
    expected = layout->itemsize;
    for (int i = 0; i < layout->ndim && layout->nitems != 0; i++) {
        is_f = is_f &&
               (layout->shape[i] == 1 || layout->strides[i] == expected);
        expected *= layout->shape[i];
    }
    layout->is_c_contiguous = is_c;
    layout->is_f_contiguous = is_f;
}

/* ---- objects that describe their memory ------------------------------------
 */

/* Name what to give instead: people give texts, and numbers of bytes. */
static int
refuse_object(PyObject *obj, bool is_writable)
{
    const char *advice = "";

    if (is_writable) {
        advice = ": receive into a writable buffer, such as bytearray(nbytes)";
    } else if (PyUnicode_Check(obj)) {
        advice = ": give its bytes, text.encode()";
    } else {
        advice = "; calls with _pickle in their names take any object";
    }
    PyErr_Format(PyExc_TypeError,
                 "expected an object with the buffer protocol, "
                 "__array_interface__, __cuda_array_interface__ or "
                 "__dlpack__, got %.200s%s",
                 Py_TYPE(obj)->tp_name, advice);
    return -1;
}

static NOINLINE int
acquire_described(mod_state *st, PyObject *obj, bool is_writable,
                  buffer_hold *hold, buffer_layout *layout)
{
    int rc;

    layout->obj         = obj;
    layout->is_readonly = false;
    layout->stream      = 0;
    rc                  = interface_acquire(st, obj, is_writable, hold, layout);
    if (rc == 0) {
        rc = dlpack_acquire(st, obj, is_writable, hold, layout);
    }
    if (rc == 0) {
        rc = refuse_object(obj, is_writable);
    }
    return (rc > 0) ? 0 : -1;
}

static int
acquire_whole(mod_state *st, PyObject *obj, bool is_writable, buffer_hold *hold)
{
    buffer_layout layout;
    bool          is_on_host;
    int           rc = acquire_described(st, obj, is_writable, hold, &layout);

    if (rc < 0) {
        return -1;
    }
    if (!layout.is_c_contiguous && !layout.is_f_contiguous) {
        is_on_host = hold->buf.memtype <= UMX_MEMTYPE_HOST;
        buffer_release(hold);
        return refuse_strides(layout.ndim, layout.strides, layout.itemsize,
                              is_on_host);
    }
    if (device_settle(st, obj, layout.stream, hold) < 0 ||
        (!layout.is_c_contiguous && hold->buf.memtype <= UMX_MEMTYPE_HOST &&
         buffer_set_order(obj, is_writable, &layout, hold) < 0)) {
        buffer_release(hold);
        return -1;
    }
    return 0;
}

static inline int
acquire_exporter(mod_state *st, PyObject *obj, bool is_writable,
                 buffer_hold *hold)
{
    if (Py_IS_TYPE(obj, st->pool_buffer_type)) {
        return pool_buffer_acquire(obj, hold);
    }
    if (UNLIKELY(is_of_device(st, obj))) {
        if (acquire_whole(st, obj, is_writable, hold) < 0) {
            return -1;
        }
    } else if (UNLIKELY(buffer_acquire_exporter(st, obj, is_writable, hold) <
                        0)) {
        return -1;
    }
    registered_find(st, obj, hold);
    return 0;
}

int
buffer_acquire(mod_state *st, PyObject *obj, bool is_writable,
               buffer_hold *hold)
{
    hold->view  = NULL;
    hold->owner = NULL;
    if (PyBytes_CheckExact(obj)) {
        if (UNLIKELY(is_writable)) {
            return buffer_refuse_readonly(obj);
        }
        buffer_hold_object(hold, obj, PyBytes_AS_STRING(obj),
                           (size_t)PyBytes_GET_SIZE(obj), UMX_MEMTYPE_HOST);
        return 0;
    }
    if (PyByteArray_CheckExact(obj)) {
        (void)buffer_find_plain(st, obj, &hold->buf);
        buffer_hold_plain(obj, hold);
        return 0;
    }
    if (is_ndarray(st, obj)) {
        return acquire_ndarray(st, obj, is_writable, hold);
    }
    if (LIKELY(PyObject_CheckBuffer(obj))) {
        return acquire_exporter(st, obj, is_writable, hold);
    }
    if (Py_IS_TYPE(obj, st->array_type)) {
        return array_acquire(st, obj, is_writable, hold);
    }
    return acquire_whole(st, obj, is_writable, hold);
}

bool
buffer_find_plain(const mod_state *st, PyObject *obj, umx_buffer *buf)
{
    PyArrayObject *array = (PyArrayObject *)obj;

    if (PyByteArray_CheckExact(obj)) {
        *buf = umx_host_buffer(PyByteArray_AS_STRING(obj),
                               (size_t)PyByteArray_GET_SIZE(obj));
        return true;
    }
    if (PyBytes_CheckExact(obj)) {
        *buf = umx_host_buffer(PyBytes_AS_STRING(obj),
                               (size_t)PyBytes_GET_SIZE(obj));
        return true;
    }
    if (!LIKELY(st->numpy) || !PyArray_CheckExact(obj) ||
        !PyArray_IS_C_CONTIGUOUS(array) || PyArray_BASE(array) != NULL ||
        PyDataType_REFCHK(PyArray_DESCR(array))) {
        return false;
    }
    *buf = umx_host_buffer(PyArray_DATA(array), (size_t)PyArray_NBYTES(array));
    return true;
}

void
buffer_hold_plain(PyObject *obj, buffer_hold *hold)
{
    hold->owner = obj;
    if (PyByteArray_CheckExact(obj)) {
        compat_bytearray_export(obj);
        hold->view = BYTEARRAY_VIEW;
    } else {
        Py_INCREF(obj);
        hold->view = NULL;
    }
}

int
buffer_check_room(const buffer_hold *hold, size_t len)
{
    if (hold->buf.len >= len) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError,
                 "the message has %zu bytes, the buffer has room for %zu", len,
                 hold->buf.len);
    return -1;
}

/* ---- layouts -------------------------------------------------------------
 */

/* Exporters of arrays in C order may leave out strides (ctypes does), and
 * shapes. */
static void
copy_shape(const Py_buffer *view, buffer_layout *layout)
{
    layout->ndim = view->ndim;
    if (view->shape != NULL) {
        copy_sizes(layout->shape, view->shape, view->ndim);
    } else if (view->ndim != 0) {
        layout->ndim     = 1;
        layout->shape[0] = view->len / layout->itemsize;
    }
    if (view->strides != NULL) {
        copy_sizes(layout->strides, view->strides, view->ndim);
    } else {
        layout->nitems = view->len / layout->itemsize;
        buffer_fill_strides(layout);
    }
}

static int
describe_exporter(mod_state *st, PyObject *obj, buffer_hold *hold,
                  buffer_layout *layout)
{
    buffer_view     *exported = export_view(st, obj, PyBUF_FULL_RO);
    const Py_buffer *view;

    if (exported == NULL) {
        return -1;
    }
    (void)take_view(exported, obj, hold);
    view = &exported->py;
    if (view->format != NULL && strchr(view->format, 'O') != NULL) {
        buffer_release(hold);
        return refuse_objects(obj);
    }
    layout->obj = PyMemoryView_Check(obj) ? PyMemoryView_GET_BUFFER(obj)->obj :
                                            view->obj;
    layout->itemsize    = (view->itemsize > 0) ? view->itemsize : 1;
    layout->is_readonly = view->readonly;
    copy_shape(view, layout);
    layout->is_c_contiguous = PyBuffer_IsContiguous(view, 'C');
    layout->is_f_contiguous = PyBuffer_IsContiguous(view, 'F');
    return 0;
}

static int
describe_other(mod_state *st, PyObject *obj, buffer_hold *hold,
               buffer_layout *layout)
{
    if (acquire_described(st, obj, false, hold, layout) < 0) {
        return -1;
    }
    layout->is_readonly = layout->is_readonly ||
                          (hold->view != NULL && hold->view->py.readonly);
    return 0;
}

int
buffer_describe(mod_state *st, PyObject *obj, buffer_hold *hold,
                buffer_layout *layout)
{
    hold->view  = NULL;
    hold->owner = NULL;
    if (is_ndarray(st, obj)) {
        if (check_ndarray(obj) < 0 || describe_ndarray(obj, layout) < 0) {
            return -1;
        }
        buffer_hold_object(hold, obj, PyArray_DATA((PyArrayObject *)obj),
                           (size_t)PyArray_NBYTES((PyArrayObject *)obj),
                           UMX_MEMTYPE_HOST);
        return 0;
    }
    if (PyObject_CheckBuffer(obj) && !is_of_device(st, obj)) {
        return describe_exporter(st, obj, hold, layout);
    }
    return describe_other(st, obj, hold, layout);
}
