/* SPDX-License-Identifier: BSD-3-Clause */
/* dlpack.c: memory that an object hands out by __dlpack__, as torch, JAX and
 * CuPy do. The capsule is renamed, so that nobody else takes its tensor: that
 * is ours until it goes to its deleter. Of what it says nothing is taken for
 * granted but the pointers.
 *
 * The producer of device memory makes its bytes ready for the default stream,
 * which is then waited for. */
#include "buffer/dlpack.h"

#include "buffer/buffer.h"
#include "buffer/layout.h"

#include <string.h>

static int
bad_tensor(const char *what)
{
    PyErr_Format(PyExc_ValueError, "__dlpack__: %s", what);
    return -1;
}

/* ---- the capsule ---------------------------------------------------------
 */

static int
set_max_version(PyObject *kwargs)
{
    PyObject *version = Py_BuildValue("(ii)", DLPACK_MAJOR, 0);
    int       rc;

    if (version == NULL) {
        return -1;
    }
    rc = PyDict_SetItemString(kwargs, "max_version", version);
    Py_DECREF(version);
    return rc;
}

/* obj.__dlpack__(max_version=(1, 0)), and stream=1 for device memory;
 * producers from before DLPack 1.0 do not know the version. */
static PyObject *
call_dlpack(mod_state *st, PyObject *obj, bool has_stream)
{
    PyObject *method  = PyObject_GetAttr(obj, NAME(st, __dlpack__));
    PyObject *capsule = NULL, *kwargs = NULL, *args = PyTuple_New(0);

    if (method != NULL && args != NULL) {
        kwargs = has_stream ?
                     Py_BuildValue("{s:i}", "stream", DEVICE_LEGACY_STREAM) :
                     PyDict_New();
    }
    if (kwargs != NULL && set_max_version(kwargs) == 0) {
        capsule = PyObject_Call(method, args, kwargs);
        if (capsule == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            if (PyDict_DelItemString(kwargs, "max_version") == 0) {
                capsule = PyObject_Call(method, args, kwargs);
            }
        }
    }
    Py_XDECREF(kwargs);
    Py_XDECREF(args);
    Py_XDECREF(method);
    return capsule;
}

/* The tensor in `capsule`; NULL with an exception. */
static const dlpack_tensor *
open_capsule(PyObject *capsule, uint64_t *flags_p)
{
    const dlpack_versioned *versioned;
    const dlpack_managed   *managed;

    *flags_p = 0;
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        managed = PyCapsule_GetPointer(capsule, "dltensor");
        return &managed->tensor;
    }
    if (!PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        (void)bad_tensor("returned no unused capsule of a tensor");
        return NULL;
    }
    versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (versioned->major != DLPACK_MAJOR) {
        PyErr_Format(PyExc_ValueError,
                     "__dlpack__: version %u.%u, expected %d.x",
                     (unsigned)versioned->major, (unsigned)versioned->minor,
                     DLPACK_MAJOR);
        return NULL;
    }
    *flags_p = versioned->flags;
    return &versioned->tensor;
}

/* What holds a tensor that was taken: a capsule of ours. */
static const char TAKEN[]           = "ucp.dltensor";
static const char TAKEN_VERSIONED[] = "ucp.dltensor_versioned";

static void
give_back(PyObject *taken)
{
    PyObject         *exc = PyErr_GetRaisedException();
    dlpack_managed   *managed;
    dlpack_versioned *versioned;

    if (PyCapsule_IsValid(taken, TAKEN)) {
        managed = PyCapsule_GetPointer(taken, TAKEN);
        managed->deleter(managed);
    } else {
        versioned = PyCapsule_GetPointer(taken, TAKEN_VERSIONED);
        versioned->deleter(versioned);
    }
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

/* A capsule of ours for the tensor in `capsule`, which is renamed. One without
 * a deleter stays where it is. NULL with an exception. */
static PyObject *
take(PyObject *capsule, const char *name, const char *used, const char *taken)
{
    void     *managed  = PyCapsule_GetPointer(capsule, name);
    bool      is_owned = (taken == TAKEN) ?
                             ((dlpack_managed *)managed)->deleter != NULL :
                             ((dlpack_versioned *)managed)->deleter != NULL;
    PyObject *holder   = is_owned ? PyCapsule_New(managed, taken, NULL) :
                                    Py_NewRef(capsule);

    if (holder == NULL || PyCapsule_SetName(capsule, used) < 0) {
        Py_XDECREF(holder);
        return NULL;
    }
    if (is_owned) {
        (void)PyCapsule_SetDestructor(holder, give_back);
    }
    return holder;
}

/* Take the tensor of a capsule that was opened. */
static PyObject *
take_tensor(PyObject *capsule)
{
    return PyCapsule_IsValid(capsule, "dltensor") ?
               take(capsule, "dltensor", "used_dltensor", TAKEN) :
               take(capsule, "dltensor_versioned", "used_dltensor_versioned",
                    TAKEN_VERSIONED);
}

/* ---- the tensor ----------------------------------------------------------
 */

static int
parse_device(const dlpack_tensor *tensor, umx_memtype *memtype_p)
{
    switch (tensor->device_type) {
    case DLPACK_CPU:
    case DLPACK_CUDA_HOST:
        *memtype_p = UMX_MEMTYPE_HOST;
        return 0;
    case DLPACK_CUDA:
        *memtype_p = UMX_MEMTYPE_CUDA;
        return 0;
    case DLPACK_CUDA_MANAGED:
        *memtype_p = UMX_MEMTYPE_CUDA_MANAGED;
        return 0;
    default:
        PyErr_Format(PyExc_ValueError,
                     "__dlpack__: memory of device type %d cannot be sent",
                     (int)tensor->device_type);
        return -1;
    }
}

static int
parse_item(const dlpack_tensor *tensor, buffer_layout *layout)
{
    unsigned bits = (unsigned)tensor->bits * tensor->lanes;

    if (bits == 0 || bits % 8 != 0) {
        PyErr_Format(PyExc_ValueError,
                     "__dlpack__: items of %u bits are not whole bytes", bits);
        return -1;
    }
    layout->itemsize = (Py_ssize_t)(bits / 8);
    return 0;
}

static int
parse_shape(const dlpack_tensor *tensor, buffer_layout *layout)
{
    if (tensor->ndim < 0 || tensor->ndim > PyBUF_MAX_NDIM ||
        (tensor->ndim != 0 && tensor->shape == NULL)) {
        return bad_tensor("the shape is malformed");
    }
    layout->ndim   = tensor->ndim;
    layout->nitems = 1;
    for (int i = 0; i < layout->ndim; i++) {
        layout->shape[i] = (Py_ssize_t)tensor->shape[i];
        if (layout->shape[i] < 0 ||
            __builtin_mul_overflow(layout->nitems, layout->shape[i],
                                   &layout->nitems)) {
            return bad_tensor("the shape has no possible size");
        }
    }
    return 0;
}

static int
parse_strides(const dlpack_tensor *tensor, buffer_layout *layout)
{
    if (tensor->strides == NULL || layout->nitems == 0) {
        buffer_fill_strides(layout);
        return 0;
    }
    for (int i = 0; i < layout->ndim; i++) {
        if (__builtin_mul_overflow((Py_ssize_t)tensor->strides[i],
                                   layout->itemsize, &layout->strides[i])) {
            return bad_tensor("the strides are too large");
        }
    }
    buffer_check_order(layout);
    return 0;
}

static int
hold_tensor(PyObject *capsule, const dlpack_tensor *tensor,
            buffer_layout *layout, buffer_hold *hold)
{
    uintptr_t   address = (uintptr_t)tensor->data;
    umx_memtype memtype;
    Py_ssize_t  nbytes;
    PyObject   *taken;

    if (parse_device(tensor, &memtype) < 0 || parse_item(tensor, layout) < 0 ||
        parse_shape(tensor, layout) < 0 || parse_strides(tensor, layout) < 0) {
        return -1;
    }
    if (__builtin_mul_overflow(layout->nitems, layout->itemsize, &nbytes)) {
        return bad_tensor("the shape has no possible size");
    }
    if (address == 0 && nbytes != 0) {
        return bad_tensor("the data is a null pointer");
    }
    if (address != 0 &&
        (__builtin_add_overflow(address, tensor->byte_offset, &address) ||
         address > INTPTR_MAX)) {
        return bad_tensor("the offset is beyond all memory");
    }
    taken = take_tensor(capsule);
    if (taken == NULL) {
        return -1;
    }
    buffer_hold_object(hold, taken, (void *)address, (size_t)nbytes, memtype);
    Py_DECREF(taken);
    return 0;
}

static bool
is_on_device(const dlpack_tensor *tensor)
{
    return tensor->device_type == DLPACK_CUDA ||
           tensor->device_type == DLPACK_CUDA_MANAGED;
}

/* A capsule of `obj`, and the tensor in it; NULL with an exception. */
static PyObject *
take_capsule(mod_state *st, PyObject *obj, const dlpack_tensor **tensor_p,
             uint64_t *flags_p, uintptr_t *stream_p)
{
    bool has_stream = false;

    for (;;) {
        PyObject *capsule = call_dlpack(st, obj, has_stream);

        *tensor_p = (capsule != NULL) ? open_capsule(capsule, flags_p) : NULL;
        if (*tensor_p == NULL) {
            Py_XDECREF(capsule);
            return NULL;
        }
        if (has_stream || !is_on_device(*tensor_p)) {
            *stream_p = has_stream ? DEVICE_LEGACY_STREAM : 0;
            return capsule;
        }
        Py_DECREF(capsule); /* where it is, is not known before */
        has_stream = true;
    }
}

int
dlpack_acquire(mod_state *st, PyObject *obj, bool is_writable,
               buffer_hold *hold, buffer_layout *layout)
{
    const dlpack_tensor *tensor;
    PyObject            *attr, *capsule;
    uint64_t             flags;
    int                  rc;

    rc = PyObject_GetOptionalAttr(obj, NAME(st, __dlpack_device__), &attr);
    if (rc <= 0) {
        return rc;
    }
    Py_DECREF(attr);
    capsule = take_capsule(st, obj, &tensor, &flags, &layout->stream);
    if (capsule == NULL) {
        return -1;
    }
    layout->is_readonly = (flags & DLPACK_READ_ONLY) != 0;
    if (is_writable && (flags & DLPACK_IS_COPIED) != 0) {
        rc = bad_tensor("it hands out a copy, which cannot be received into");
    } else if (is_writable && layout->is_readonly) {
        rc = buffer_refuse_readonly(obj);
    } else {
        rc = hold_tensor(capsule, tensor, layout, hold) < 0 ? -1 : 1;
    }
    Py_DECREF(capsule);
    return rc;
}
