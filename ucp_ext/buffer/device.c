/* SPDX-License-Identifier: BSD-3-Clause */
/* device.c: arrays in the memory of NVIDIA's devices: is it there, and are its
 * bytes? UCX knows nothing of CUDA's streams. What was queued before a send
 * must have written what is sent, and before a receive have read what it
 * overwrites. libumx begins messages later where that is not done yet; others
 * wait for it, without the GIL, before they are posted. */
#include "buffer/buffer.h"
#include "buffer/layout.h"

/* ---- pointers ------------------------------------------------------------
 */

static int
refuse_memory(PyObject *obj, const umx_buffer *buf)
{
    if (!umx_cuda_is_present()) {
        PyErr_Format(PyExc_ValueError,
                     "%.200s is in device memory, and there is no CUDA driver "
                     "or no device",
                     Py_TYPE(obj)->tp_name);
    } else {
        PyErr_Format(PyExc_ValueError,
                     "%.200s gives %zu bytes at %p, where CUDA has no memory "
                     "or less",
                     Py_TYPE(obj)->tp_name, buf->len, buf->data);
    }
    return -1;
}

static int
refuse_wait(uintptr_t stream, umx_status status)
{
    if (status == UMX_ERR_BUSY) {
        PyErr_Format(PyExc_ValueError,
                     "stream %zu captures a graph: what is queued there now "
                     "is not run, and nobody can wait for it",
                     (size_t)stream);
    } else if (status == UMX_ERR_UNSUPPORTED) {
        PyErr_SetString(PyExc_ValueError,
                        "stream: there is no CUDA driver or no device");
    } else {
        PyErr_Format(PyExc_ValueError, "CUDA cannot wait for stream %zu: %s",
                     (size_t)stream, umx_status_string(status));
    }
    return -1;
}

static int
wait_for(int device, uintptr_t stream)
{
    umx_status status = umx_cuda_query(device, stream);

    if (status == UMX_INPROGRESS) {
        PyThreadState *thread = PyEval_SaveThread();

        status = umx_cuda_wait(device, stream);
        PyEval_RestoreThread(thread);
    }
    return (status == UMX_OK) ? 0 : refuse_wait(stream, status);
}

/* Have the operation wait for a stream, unless its work is done. Another stream
 * that it is to wait for is waited for here. */
static int
wait_later(int device, uintptr_t stream, buffer_stream *after)
{
    umx_status status = umx_cuda_query(device, stream);

    if (status != UMX_INPROGRESS) {
        return (status == UMX_OK) ? 0 : refuse_wait(stream, status);
    }
    if (device == UMX_DEVICE_NONE ||
        (after->handle != 0 && after->handle != stream)) {
        return wait_for(device, stream);
    }
    *after = (buffer_stream){stream, device};
    return 0;
}

int
device_settle(mod_state *st, PyObject *obj, uintptr_t stream, buffer_hold *hold)
{
    umx_memory_info info;

    if (hold->buf.memtype <= UMX_MEMTYPE_HOST || hold->buf.len == 0) {
        return 0;
    }
    if (umx_memory_query(hold->buf.data, hold->buf.len, &info) != UMX_OK ||
        !info.is_cuda) {
        return refuse_memory(obj, &hold->buf);
    }
    hold->buf.memtype = info.memtype;
    if (stream == 0) {
        return 0;
    }
    return (st->late == hold) ? wait_later(info.device, stream, st->after) :
                                wait_for(info.device, stream);
}

/* ---- streams -------------------------------------------------------------
 */

static int
refuse_stream(PyObject *obj)
{
    if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Format(PyExc_ValueError,
                     "stream must be a CUDA stream or its number, 1 for the "
                     "default one, 2 for the thread's, not %R",
                     obj);
    }
    return -1;
}

/* obj.__cuda_stream__() -> (version, handle) */
static PyObject *
call_cuda_stream(PyObject *method)
{
    PyObject *pair = PyObject_CallNoArgs(method), *handle = NULL;

    if (pair != NULL) {
        handle = PySequence_GetItem(pair, 1);
        Py_DECREF(pair);
    }
    return handle;
}

/* The handle of a stream object, new; NULL: it is none, or failed. */
static PyObject *
handle_of(mod_state *st, PyObject *obj)
{
    static const int attributes[] = {NAME_cuda_stream, NAME_ptr};
    PyObject        *method, *handle = NULL;
    int              rc;

    rc = PyObject_GetOptionalAttr(obj, NAME(st, __cuda_stream__), &method);
    if (rc > 0) {
        handle = call_cuda_stream(method);
        Py_DECREF(method);
        return handle;
    }
    for (int i = 0; rc == 0 && i < 2; i++) {
        rc = PyObject_GetOptionalAttr(obj, st->names[attributes[i]], &handle);
    }
    return handle;
}

int
device_parse_stream(mod_state *st, PyObject *obj, uintptr_t *stream_p)
{
    bool      is_number = PyLong_Check(obj) && !PyBool_Check(obj);
    PyObject *handle    = is_number ? Py_NewRef(obj) : handle_of(st, obj);
    size_t    stream;

    if (handle == NULL) {
        return refuse_stream(obj);
    }
    if (!PyLong_Check(handle)) {
        Py_DECREF(handle);
        return refuse_stream(obj);
    }
    stream = PyLong_AsSize_t(handle);
    Py_DECREF(handle);
    if (stream == (size_t)-1 && PyErr_Occurred()) {
        return refuse_stream(obj);
    }
    /* A number 0 may be either default stream, an object's is the driver's. */
    if (stream == 0 && !is_number) {
        stream = DEVICE_LEGACY_STREAM;
    }
    if (stream == 0) {
        return refuse_stream(obj);
    }
    *stream_p = stream;
    return 0;
}

int
device_wait(mod_state *st, PyObject *stream, const buffer_hold *hold,
            buffer_stream *after)
{
    umx_memory_info info = {.device = UMX_DEVICE_NONE};
    uintptr_t       handle;

    if (stream == NULL || stream == Py_None) {
        return 0;
    }
    if (device_parse_stream(st, stream, &handle) < 0) {
        return -1;
    }
    if (hold->buf.memtype > UMX_MEMTYPE_HOST && hold->buf.len != 0 &&
        umx_memory_query(hold->buf.data, hold->buf.len, &info) != UMX_OK) {
        return refuse_memory(stream, &hold->buf);
    }
    return (after != NULL) ? wait_later(info.device, handle, after) :
                             wait_for(info.device, handle);
}
