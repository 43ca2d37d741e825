/* SPDX-License-Identifier: BSD-3-Clause */
/* callback.c: operations that call a function when they are done, for
 * ucp._libs.
 *
 * The request is that of the awaitables, with a record of what to call in
 * `low_level`: (function, args, kwargs or None, name). Callbacks run inside
 * progress() after libumx has returned, so they may do anything. An operation
 * that is done when it is posted returns None and calls nothing, except that a
 * receive always calls: its callback is what the program goes on in. */
#include "request/callback.h"

#include "base/args.h"
#include "base/errors.h"
#include "request/internal.h"
#include "worker/worker.h"

enum {
    LOW_FUNC,
    LOW_ARGS,
    LOW_KWARGS,
    LOW_NAME,
    NUM_LOW
};

/* On the C stack; callbacks with more arguments take memory. */
enum {
    FEW_ARGS = 8
};

const char *
callback_name(const RequestObject *req)
{
    const char *name = PyUnicode_AsUTF8(
        PyTuple_GET_ITEM(request_low_level(req), LOW_NAME));

    if (name == NULL) {
        PyErr_Clear();
        return "?";
    }
    return name;
}

/* ---- calling -------------------------------------------------------------
 */

static PyObject *
call_with(PyObject *low, PyObject *first, PyObject *second)
{
    PyObject  *args   = PyTuple_GET_ITEM(low, LOW_ARGS);
    PyObject  *kwargs = PyTuple_GET_ITEM(low, LOW_KWARGS);
    Py_ssize_t n      = PyTuple_GET_SIZE(args);
    PyObject  *few[2 + FEW_ARGS], **vector = few, *result;

    if (n > FEW_ARGS) {
        vector = PyMem_Malloc((size_t)(2 + n) * sizeof(*vector));
        if (vector == NULL) {
            return PyErr_NoMemory();
        }
    }
    vector[0] = first;
    vector[1] = second;
    for (Py_ssize_t i = 0; i < n; i++) {
        vector[2 + i] = PyTuple_GET_ITEM(args, i); /* borrowed */
    }
    result = PyObject_VectorcallDict(PyTuple_GET_ITEM(low, LOW_FUNC), vector,
                                     (size_t)(2 + n),
                                     kwargs == Py_None ? NULL : kwargs);
    if (vector != few) {
        PyMem_Free(vector);
    }
    return result;
}

/* Did the end of the endpoint end the operation? */
static bool
has_lost_peer(umx_status status)
{
    return status == UMX_ERR_PEER_CLOSED ||
           status == UMX_ERR_CONNECTION_RESET ||
           status == UMX_ERR_ENDPOINT_TIMEOUT;
}

/* Does a callback get the result first, and not the request? So it is for a
 * receive of unknown length. */
static bool
gives_value(const RequestObject *req)
{
    return (req->type->flags & OP_GIVES) != 0;
}

/* Did the stream end before all bytes that were wanted? */
static bool
is_cut(const RequestObject *req)
{
    return (req->type->flags & OP_WHOLE) != 0 &&
           req->info.length != req->hold.buf.len;
}

void
callback_run(RequestObject *req)
{
    WorkerObject *worker   = req->worker;
    PyObject     *low      = request_low_level(req), *exc, *value, *result;
    bool          is_value = gives_value(req);

    value = request_take(req, &exc); /* before the name is gone */
    if (exc == NULL && is_cut(req)) {
        exc = errors_new(worker->st, UMX_ERR_LENGTH_MISMATCH,
                         callback_name(req), "the stream has ended");
    }
    req->rare->low_level = NULL;
    if (value == NULL && exc == NULL) {
        Py_DECREF(low);
        worker_report_exception(worker, "out of memory for an exception");
        return;
    }
    worker->num_ended += has_lost_peer(req->status);
    result = call_with(
        low, is_value ? (value != NULL ? value : Py_None) : (PyObject *)req,
        exc != NULL ? exc : Py_None);
    Py_DECREF(low);
    Py_XDECREF(value);
    Py_XDECREF(exc);
    if (result == NULL) {
        worker_report_exception(worker, "a callback of ucp failed");
    }
    Py_XDECREF(result);
}

/* ---- posting -------------------------------------------------------------
 */

int
callback_check(PyObject *const *values)
{
    if (values[CB_FUNC] != Py_None && !PyCallable_Check(values[CB_FUNC])) {
        PyErr_Format(PyExc_TypeError,
                     "cb_func must be callable or None, not %.200s",
                     Py_TYPE(values[CB_FUNC])->tp_name);
        return -1;
    }
    if (values[CB_ARGS] != NULL && values[CB_ARGS] != Py_None &&
        !PyTuple_Check(values[CB_ARGS])) {
        PyErr_Format(PyExc_TypeError, "cb_args must be a tuple, not %.200s",
                     Py_TYPE(values[CB_ARGS])->tp_name);
        return -1;
    }
    if (values[CB_KWARGS] != NULL && values[CB_KWARGS] != Py_None &&
        !PyDict_Check(values[CB_KWARGS])) {
        PyErr_Format(PyExc_TypeError, "cb_kwargs must be a dict, not %.200s",
                     Py_TYPE(values[CB_KWARGS])->tp_name);
        return -1;
    }
    return 0;
}

static PyObject *
do_nothing(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwnames)
{
    (void)module;
    (void)args;
    (void)nargs;
    (void)kwnames;
    Py_RETURN_NONE;
}

static PyMethodDef nothing_def = {"no_callback",
                                  (PyCFunction)(void (*)(void))do_nothing,
                                  METH_FASTCALL | METH_KEYWORDS, NULL};

/* Make the record of what to call. */
static PyObject *
make_low(PyObject *const *values, PyObject *default_name)
{
    PyObject *args = values[CB_ARGS], *kwargs = values[CB_KWARGS];
    PyObject *low = PyTuple_New(NUM_LOW);
    PyObject *func, *name;

    if (low == NULL) {
        return NULL;
    }
    func = (values[CB_FUNC] == Py_None) ? PyCFunction_New(&nothing_def, NULL) :
                                          Py_NewRef(values[CB_FUNC]);
    args = (args == NULL || args == Py_None) ? PyTuple_New(0) : Py_NewRef(args);
    kwargs = (kwargs == NULL) ? Py_None : kwargs;
    name   = (values[CB_NAME] == NULL || !PyUnicode_Check(values[CB_NAME])) ?
                 Py_NewRef(default_name) :
                 Py_NewRef(values[CB_NAME]);
    PyTuple_SET_ITEM(low, LOW_FUNC, func);
    PyTuple_SET_ITEM(low, LOW_ARGS, args);
    PyTuple_SET_ITEM(low, LOW_KWARGS, Py_NewRef(kwargs));
    PyTuple_SET_ITEM(low, LOW_NAME, name);
    if (func == NULL || args == NULL || name == NULL) {
        Py_CLEAR(low);
    }
    return low;
}

PyObject *
callback_attach(RequestObject *req, PyObject *const *values,
                PyObject *default_name, bool is_recv)
{
    request_rare *rare;
    PyObject     *value, *low;

    if (req->state == REQUEST_DEFERRED) {
        req->is_refused = true;
        (void)worker_check(req->worker);
        Py_DECREF(req);
        return NULL;
    }
    if (request_low_level(req) != NULL) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the request has a callback already");
        Py_DECREF(req);
        return NULL;
    }
    if (request_is_settled(req) && req->status == UMX_OK && !is_recv) {
        Py_DECREF(req);
        Py_RETURN_NONE;
    }
    rare = request_get_rare(req);
    low  = (rare != NULL) ? make_low(values, default_name) : NULL;
    if (low == NULL) {
        Py_DECREF(req);
        return NULL;
    }
    rare->low_level = low;
    request_track(req);
    if (!request_is_settled(req)) {
        request_hold(req);
        return (PyObject *)req;
    }
    if (req->status == UMX_OK) {
        request_hold(req);
        request_link_wake(req);
        return (PyObject *)req;
    }
    value = request_take_or_raise(req);
    Py_XDECREF(value);
    Py_CLEAR(rare->low_level);
    Py_DECREF(req);
    return NULL;
}

/* ---- anything ------------------------------------------------------------
 */

PyDoc_STRVAR(call_when_done_doc,
             "call_when_done(request, cb_func, cb_args=None, cb_kwargs=None,\n"
             "               name=None)\n--\n\n"
             "Have progress() call cb_func(request, exception or None,\n"
             "*cb_args, **cb_kwargs) instead of awaiting `request`. Returns\n"
             "None if it is done, raises if it has failed.");

static PyObject *
callback_when_done(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames)
{
    static const char *const keywords[] = {"request", "cb_func", "cb_args",
                                           "cb_kwargs", "name"};
    mod_state               *st         = PyModule_GetState(module);
    PyObject                *values[5];
    RequestObject           *req;

    if (args_parse("call_when_done", args, nargs, kwnames, keywords, 5, 5, 2,
                   values) < 0 ||
        callback_check(&values[1]) < 0) {
        return NULL;
    }
    if (!request_check(st, values[0])) {
        return PyErr_Format(PyExc_TypeError, "expected a Request, not %.200s",
                            Py_TYPE(values[0])->tp_name);
    }
    if (request_check_posted((RequestObject *)values[0]) < 0) {
        return NULL;
    }
    req = (RequestObject *)Py_NewRef(values[0]);
    return callback_attach(req, &values[1], NAME(st, request),
                           gives_value(req));
}

PyMethodDef callback_methods[] = {
    {"call_when_done", (PyCFunction)(void (*)(void))callback_when_done,
     METH_FASTCALL | METH_KEYWORDS, call_when_done_doc},
    {NULL, NULL, 0, NULL},
};
