/* SPDX-License-Identifier: BSD-3-Clause */
/* pickled.c: Python objects that go between ranks in one piece.
 *
 * A short object is a message, or a part of a collective operation: 12 bytes
 * that _communicator/parcels.py chooses and calls `begin`, the length of the
 * pickle in 8 bytes, 8 bytes of zero, and the pickle. parcels.py also has what
 * longer objects are made of. */
#include "comm/pickled.h"

#include "base/state.h"
#include "request/request.h"

#include <string.h>

enum {
    BEGIN_SIZE = 12,
    HEAD_SIZE  = BEGIN_SIZE + 8 + 8,
    /* A buffer of at least so many bytes stays out of the pickle: to copy a
     * shorter one costs less than to send it by itself. */
    MIN_APART = 16 * 1024
};

/* The function `name` of the module pickle, which is kept in `*place`;
 * borrowed, or NULL with an exception. */
static PyObject *
get_function(PyObject **place, const char *name)
{
    PyObject *module, *function;

    if (LIKELY(*place != NULL)) {
        return *place;
    }
    module = PyImport_ImportModule("pickle");
    if (module == NULL) {
        return NULL;
    }
    function = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    if (function != NULL) {
        Py_XSETREF(*place, function);
    }
    return function;
}

static bool
is_begin(PyObject *begin)
{
    return PyBytes_Check(begin) && PyBytes_GET_SIZE(begin) == BEGIN_SIZE;
}

/* ---- pickling ------------------------------------------------------------
 */

/* The buffer_callback: keep the bytes of a long buffer in the list `op`. */
static PyObject *
keep_buffer(PyObject *op, PyObject *buffer)
{
    PyObject *raw = PyObject_CallMethod(buffer, "raw", NULL);
    bool      is_short;

    if (raw == NULL) {
        return NULL;
    }
    if (!PyMemoryView_Check(raw)) {
        Py_DECREF(raw);
        return PyErr_Format(PyExc_TypeError, "a PickleBuffer is expected");
    }
    is_short = PyMemoryView_GET_BUFFER(raw)->len < MIN_APART;
    if (!is_short && PyList_Append(op, raw) < 0) {
        Py_DECREF(raw);
        return NULL;
    }
    Py_DECREF(raw);
    return PyBool_FromLong(is_short);
}

static PyMethodDef keep_buffer_def = {"keep_buffer", keep_buffer, METH_O, NULL};

/* A buffer_callback whose list is empty: the last one, unless a call has it. */
static PyObject *
get_callback(mod_state *st)
{
    PyObject *callback = st->keep_buffer;
    PyObject *buffers;

    st->keep_buffer = NULL;
    if (callback != NULL) {
        return callback;
    }
    buffers = PyList_New(0);
    if (buffers != NULL) {
        callback = PyCFunction_New(&keep_buffer_def, buffers);
        Py_DECREF(buffers);
    }
    return callback;
}

/* Keep a callback for the next call, if it has no buffers, and nobody else has
 * it or its list. */
static void
put_callback(mod_state *st, PyObject *callback)
{
    PyObject *buffers = PyCFunction_GET_SELF(callback);

    if (Py_REFCNT(callback) == 1 && Py_REFCNT(buffers) == 1 &&
        PyList_GET_SIZE(buffers) == 0) {
        Py_XSETREF(st->keep_buffer, callback);
    } else {
        Py_DECREF(callback);
    }
}

/* Pickle an object by protocol 5. Returns bytes; the list of the callback gets
 * the buffers that are not in them. */
static PyObject *
dump(mod_state *st, PyObject *obj, PyObject *callback)
{
    PyObject *dumps = get_function(&st->pickle_dumps, "dumps");
    PyObject *args[3], *pickle = NULL;

    if (dumps == NULL) {
        return NULL;
    }
    args[0] = obj;
    args[1] = PyLong_FromLong(5);
    args[2] = callback;
    if (args[1] != NULL) {
        pickle = PyObject_Vectorcall(dumps, args, 2, st->dumps_kwname);
        Py_DECREF(args[1]);
    }
    if (pickle != NULL && !PyBytes_Check(pickle)) {
        Py_DECREF(pickle);
        return PyErr_Format(PyExc_TypeError, "pickle.dumps() gave no bytes");
    }
    return pickle;
}

/* The head of a short object, with zeros behind it up to `size` bytes. */
static PyObject *
make_head(PyObject *begin, PyObject *pickle, Py_ssize_t size)
{
    Py_ssize_t len    = PyBytes_GET_SIZE(pickle);
    uint64_t   length = (uint64_t)len;
    PyObject  *head   = PyBytes_FromStringAndSize(
           NULL, (size > HEAD_SIZE + len) ? size : HEAD_SIZE + len);
    char *data;

    if (head == NULL) {
        return NULL;
    }
    data = PyBytes_AS_STRING(head);
    memcpy(data, PyBytes_AS_STRING(begin), BEGIN_SIZE);
    memcpy(data + BEGIN_SIZE, &length, 8);
    memset(data + BEGIN_SIZE + 8, 0, 8);
    memcpy(data + HEAD_SIZE, PyBytes_AS_STRING(pickle), (size_t)len);
    if (size > HEAD_SIZE + len) {
        memset(data + HEAD_SIZE + len, 0, (size_t)(size - HEAD_SIZE - len));
    }
    return head;
}

PyDoc_STRVAR(pack_doc,
             "pack_object(begin, obj, room, size, /)\n--\n\n"
             "Pickle an object. If the result and its head fit into `room`\n"
             "bytes: both, as bytes, with zeros up to `size`. Otherwise the\n"
             "pickle and the buffers that are not in it.");

static PyObject *
pack_object(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    mod_state *st = PyModule_GetState(module);
    PyObject  *callback, *buffers, *pickle, *result;
    Py_ssize_t room, size;

    if (nargs != 4 || !is_begin(args[0])) {
        return PyErr_Format(PyExc_TypeError,
                            "pack_object(begin, obj, room, size)");
    }
    room = PyLong_AsSsize_t(args[2]);
    size = PyLong_AsSsize_t(args[3]);
    if ((room == -1 || size == -1) && PyErr_Occurred()) {
        return NULL;
    }
    callback = get_callback(st);
    if (callback == NULL) {
        return NULL;
    }
    pickle = dump(st, args[1], callback);
    if (pickle == NULL) {
        Py_DECREF(callback);
        return NULL;
    }
    buffers = PyCFunction_GET_SELF(callback);
    if (PyList_GET_SIZE(buffers) == 0 &&
        PyBytes_GET_SIZE(pickle) <= room - HEAD_SIZE) {
        result = make_head(args[0], pickle, size);
    } else {
        result = PyTuple_Pack(2, pickle, buffers);
    }
    Py_DECREF(pickle);
    put_callback(st, callback);
    return result;
}

/* ---- unpickling ----------------------------------------------------------
 */

/* Is a short object in `len` bytes? */
static bool
is_object(PyObject *begin, const char *data, size_t len, uint64_t *length_p)
{
    if (len < HEAD_SIZE ||
        memcmp(data, PyBytes_AS_STRING(begin), BEGIN_SIZE) != 0) {
        return false;
    }
    memcpy(length_p, data + BEGIN_SIZE, 8);
    return *length_p <= len - HEAD_SIZE;
}

PyDoc_STRVAR(has_doc,
             "has_objects(begin, data, size, skip, /)\n--\n\n"
             "Is a short object at each `size` bytes of `data`? That number\n"
             "`skip` is not looked at.");

static PyObject *
has_objects(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t size, skip;
    Py_buffer  view;
    uint64_t   length;
    bool       has_all = true;

    (void)module;
    if (nargs != 4 || !is_begin(args[0])) {
        return PyErr_Format(PyExc_TypeError,
                            "has_objects(begin, data, size, skip)");
    }
    size = PyLong_AsSsize_t(args[2]);
    skip = PyLong_AsSsize_t(args[3]);
    if (((size == -1 || skip == -1) && PyErr_Occurred()) ||
        PyObject_GetBuffer(args[1], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    for (Py_ssize_t i = 0; size > 0 && i < view.len / size && has_all; i++) {
        has_all = i == skip || is_object(args[0], (char *)view.buf + i * size,
                                         (size_t)size, &length);
    }
    PyBuffer_Release(&view);
    return PyBool_FromLong(has_all);
}

/* Take the message of a receive that is done. -1 with an exception. */
static int
take(RequestObject *req)
{
    PyObject *value = request_take_or_raise(req);

    Py_XDECREF(value);
    return (value != NULL) ? 0 : -1;
}

/* How many bytes of a buffer have come: all, or those of a receive. -1: the
 * receive has failed. */
static Py_ssize_t
came_of(const Py_buffer *view, const RequestObject *req)
{
    if (req == NULL) {
        return view->len;
    }
    return (request_is_settled(req) && req->status == UMX_OK &&
            req->info.length <= (size_t)view->len) ?
               (Py_ssize_t)req->info.length :
               -1;
}

PyDoc_STRVAR(load_doc,
             "load_object(begin, data, offset, end, default, request, /)\n"
             "--\n\n"
             "Unpickle the short object that begins at `offset` of `data` and\n"
             "ends before `end`; `default`, if that has something else. The\n"
             "bytes are those that `request` has received, or all if it is\n"
             "None; then the message counts as received.");

static PyObject *
load_object(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    mod_state     *st  = PyModule_GetState(module);
    RequestObject *req = NULL;
    PyObject      *loads, *pickle, *result;
    Py_ssize_t     offset, end, came;
    Py_buffer      view;
    uint64_t       length;

    if (nargs != 6 || !is_begin(args[0]) ||
        (args[5] != Py_None && !request_check(st, args[5]))) {
        return PyErr_Format(
            PyExc_TypeError,
            "load_object(begin, data, offset, end, default, request)");
    }
    offset = PyLong_AsSsize_t(args[2]);
    end    = PyLong_AsSsize_t(args[3]);
    if (((offset == -1 || end == -1) && PyErr_Occurred()) ||
        PyObject_GetBuffer(args[1], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (args[5] != Py_None) {
        req = (RequestObject *)args[5];
    }
    came = came_of(&view, req);
    end  = (came < end) ? came : end;
    if (offset < 0 || offset > end ||
        !is_object(args[0], (char *)view.buf + offset, (size_t)(end - offset),
                   &length)) {
        PyBuffer_Release(&view);
        return Py_NewRef(args[4]);
    }
    pickle = PyBytes_FromStringAndSize((char *)view.buf + offset + HEAD_SIZE,
                                       (Py_ssize_t)length);
    PyBuffer_Release(&view);
    if (pickle == NULL) {
        return NULL;
    }
    if (req != NULL && take(req) < 0) {
        Py_DECREF(pickle);
        return NULL;
    }
    loads  = get_function(&st->pickle_loads, "loads");
    result = (loads != NULL) ? PyObject_CallOneArg(loads, pickle) : NULL;
    Py_DECREF(pickle);
    return result;
}

PyMethodDef pickled_methods[] = {
    {"pack_object", (PyCFunction)(void (*)(void))pack_object, METH_FASTCALL,
     pack_doc},
    {"has_objects", (PyCFunction)(void (*)(void))has_objects, METH_FASTCALL,
     has_doc},
    {"load_object", (PyCFunction)(void (*)(void))load_object, METH_FASTCALL,
     load_doc},
    {NULL, NULL, 0, NULL},
};
