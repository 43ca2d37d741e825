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

/* The function `name` of a module, which is kept in `*place`; borrowed, or NULL
 * with an exception. */
static PyObject *
get_function(PyObject **place, const char *module_name, const char *name)
{
    PyObject *module, *function;

    if (LIKELY(*place != NULL)) {
        return *place;
    }
    module = PyImport_ImportModule(module_name);
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

/* Keep the bytes of a buffer in a list, if they are at least `min_apart`.
 * Returns what a buffer_callback does. */
static PyObject *
keep(PyObject *list, PyObject *buffer, Py_ssize_t min_apart)
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
    is_short = PyMemoryView_GET_BUFFER(raw)->len < min_apart;
    if (!is_short && PyList_Append(list, raw) < 0) {
        Py_DECREF(raw);
        return NULL;
    }
    Py_DECREF(raw);
    return PyBool_FromLong(is_short);
}

/* Buffer_callbacks, of which `op` is the list. */
static PyObject *
keep_buffer(PyObject *op, PyObject *buffer)
{
    return keep(op, buffer, MIN_APART);
}

static PyObject *
keep_frame(PyObject *op, PyObject *buffer)
{
    return keep(op, buffer, 0);
}

static PyMethodDef keep_buffer_def = {"keep_buffer", keep_buffer, METH_O, NULL};
static PyMethodDef keep_frame_def  = {"keep_frame", keep_frame, METH_O, NULL};

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
    PyObject *dumps = get_function(&st->pickle_dumps, "pickle", "dumps");
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

/* The names of the modules whose arrays _core/arrays.py keeps apart: a tuple,
 * borrowed. */
static PyObject *
get_array_modules(mod_state *st)
{
    static const char *const names[] = {"cupy", "torch", "numba.cuda"};
    PyObject                *tuple;

    if (LIKELY(st->array_modules != NULL)) {
        return st->array_modules;
    }
    tuple = PyTuple_New(3);
    for (Py_ssize_t i = 0; tuple != NULL && i < 3; i++) {
        PyObject *name = PyUnicode_InternFromString(names[i]);

        if (name == NULL) {
            Py_CLEAR(tuple);
        } else {
            PyTuple_SET_ITEM(tuple, i, name);
        }
    }
    st->array_modules = tuple;
    return tuple;
}

static NOINLINE int
look_for_arrays(mod_state *st, PyObject *modules)
{
    PyObject *names = get_array_modules(st);
    int       found = 0;

    if (names == NULL) {
        return -1;
    }
    for (Py_ssize_t i = 0; found == 0 && i < PyTuple_GET_SIZE(names); i++) {
        found = PyDict_Contains(modules, PyTuple_GET_ITEM(names, i));
    }
    if (found == 0) {
        st->num_modules = PyDict_GET_SIZE(modules);
    }
    return found;
}

/* Can an object have arrays in memory of a device? -1 with an exception. The
 * modules are looked at again when their number has changed. */
static inline int
may_have_arrays(mod_state *st)
{
    PyObject *modules = PyImport_GetModuleDict(); /* borrowed */

    return LIKELY(st->num_modules == PyDict_GET_SIZE(modules)) ?
               0 :
               look_for_arrays(st, modules);
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

/* The message of an object whose pickle is given, and the buffers that are not
 * in it. */
static PyObject *
make_packed(PyObject *begin, PyObject *pickle, PyObject *buffers,
            Py_ssize_t room, Py_ssize_t size)
{
    if (PyList_GET_SIZE(buffers) == 0 &&
        PyBytes_GET_SIZE(pickle) <= room - HEAD_SIZE) {
        return make_head(begin, pickle, size);
    }
    return PyTuple_Pack(2, pickle, buffers);
}

/* Pickle an object that may have arrays of devices. Returns a tuple, and what
 * is in it, borrowed; or NULL with an exception. */
static NOINLINE PyObject *
dump_with_arrays(mod_state *st, PyObject *obj, int min_apart,
                 PyObject **pickle_p, PyObject **buffers_p)
{
    PyObject *dumps = get_function(&st->array_dumps, "ucp._core.arrays",
                                   "dumps");
    PyObject *pair  = NULL;

    if (dumps != NULL) {
        pair = PyObject_CallFunction(dumps, "Oi", obj, min_apart);
    }
    if (pair != NULL &&
        !PyArg_ParseTuple(pair, "SO!", pickle_p, &PyList_Type, buffers_p)) {
        Py_CLEAR(pair);
    }
    return pair;
}

static PyObject *
pack_with_arrays(mod_state *st, PyObject *const *args, Py_ssize_t room,
                 Py_ssize_t size)
{
    PyObject *pickle, *buffers, *result = NULL;
    PyObject *pair = dump_with_arrays(st, args[1], MIN_APART, &pickle,
                                      &buffers);

    if (pair != NULL) {
        result = make_packed(args[0], pickle, buffers, room, size);
        Py_DECREF(pair);
    }
    return result;
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
    PyObject  *callback, *pickle, *result;
    Py_ssize_t room, size;
    int        has_arrays;

    if (nargs != 4 || !is_begin(args[0])) {
        return PyErr_Format(PyExc_TypeError,
                            "pack_object(begin, obj, room, size)");
    }
    room = PyLong_AsSsize_t(args[2]);
    size = PyLong_AsSsize_t(args[3]);
    if ((room == -1 || size == -1) && PyErr_Occurred()) {
        return NULL;
    }
    has_arrays = may_have_arrays(st);
    if (UNLIKELY(has_arrays != 0)) {
        return (has_arrays > 0) ? pack_with_arrays(st, args, room, size) : NULL;
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
    result = make_packed(args[0], pickle, PyCFunction_GET_SELF(callback), room,
                         size);
    Py_DECREF(pickle);
    put_callback(st, callback);
    return result;
}

PyDoc_STRVAR(frames_doc,
             "pickle_frames(obj, /)\n--\n\n"
             "Pickle an object: a list of the pickle and all buffers, none of\n"
             "which is in it.");

static PyObject *
frames_with_arrays(mod_state *st, PyObject *obj)
{
    PyObject *pickle, *buffers;
    PyObject *pair = dump_with_arrays(st, obj, 0, &pickle, &buffers);
    bool      is_done;

    if (pair == NULL) {
        return NULL;
    }
    is_done = PyList_Insert(buffers, 0, pickle) == 0;
    Py_INCREF(buffers);
    Py_DECREF(pair);
    if (!is_done) {
        Py_CLEAR(buffers);
    }
    return buffers;
}

static PyObject *
pickle_frames(PyObject *module, PyObject *obj)
{
    mod_state *st         = PyModule_GetState(module);
    int        has_arrays = may_have_arrays(st);
    PyObject  *frames, *callback = NULL, *pickle = NULL;

    if (UNLIKELY(has_arrays != 0)) {
        return (has_arrays > 0) ? frames_with_arrays(st, obj) : NULL;
    }
    frames = PyList_New(0);
    if (frames == NULL || PyList_Append(frames, Py_None) < 0) {
        Py_XDECREF(frames);
        return NULL;
    }
    callback = PyCFunction_New(&keep_frame_def, frames);
    if (callback != NULL) {
        pickle = dump(st, obj, callback);
        Py_DECREF(callback);
    }
    if (pickle == NULL || PyList_SetItem(frames, 0, pickle) < 0) {
        Py_CLEAR(frames);
    }
    return frames;
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
    loads  = get_function(&st->pickle_loads, "pickle", "loads");
    result = (loads != NULL) ? PyObject_CallOneArg(loads, pickle) : NULL;
    Py_DECREF(pickle);
    return result;
}

PyMethodDef pickled_methods[] = {
    {"pack_object", (PyCFunction)(void (*)(void))pack_object, METH_FASTCALL,
     pack_doc},
    {"pickle_frames", pickle_frames, METH_O, frames_doc},
    {"has_objects", (PyCFunction)(void (*)(void))has_objects, METH_FASTCALL,
     has_doc},
    {"load_object", (PyCFunction)(void (*)(void))load_object, METH_FASTCALL,
     load_doc},
    {NULL, NULL, 0, NULL},
};
