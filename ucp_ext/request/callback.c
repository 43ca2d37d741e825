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

#include "args.h"
#include "buffer/buffer.h"
#include "request/request.h"
#include "types/context.h"
#include "types/endpoint.h"
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
        PyTuple_GET_ITEM(req->low_level, LOW_NAME));

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

/* What a callback gets first: the request; for a receive of unknown length
 * what was received. */
static bool
gives_value(const RequestObject *req)
{
    return req->kind == REQUEST_AM_RECV;
}

/* The end of a stream came before the bytes that were wanted. */
static bool
is_cut(const RequestObject *req)
{
    return req->kind == REQUEST_STREAM_RECV &&
           req->info.length != req->hold.buf.len;
}

void
callback_run(RequestObject *req)
{
    WorkerObject *worker   = req->worker;
    PyObject     *low      = req->low_level, *exc, *value, *result;
    bool          is_value = gives_value(req);

    value = request_take(req, &exc); /* before the name is gone */
    if (exc == NULL && is_cut(req)) {
        exc = errors_new(req->st, UMX_ERR_LENGTH_MISMATCH, callback_name(req),
                         "the stream has ended");
    }
    req->low_level = NULL;
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

/* cb_func, cb_args=None, cb_kwargs=None, name=None */
enum {
    CB_FUNC,
    CB_ARGS,
    CB_KWARGS,
    CB_NAME,
    NUM_CB
};

static int
check_callback(PyObject *const *values)
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

/* The record of what to call. */
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

/* Give a posted request its callback. Takes over `req`. */
static PyObject *
attach(RequestObject *req, PyObject *const *values, PyObject *default_name,
       bool is_recv)
{
    PyObject *value, *exc;

    if (req->is_deferred) {
        req->is_refused = true;
        (void)worker_check(req->worker);
        Py_DECREF(req);
        return NULL;
    }
    if (req->low_level != NULL) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the request has a callback already");
        Py_DECREF(req);
        return NULL;
    }
    if (req->is_settled && req->status == UMX_OK && !is_recv) {
        Py_DECREF(req);
        Py_RETURN_NONE;
    }
    req->low_level = make_low(values, default_name);
    if (req->low_level == NULL) {
        Py_DECREF(req);
        return NULL;
    }
    request_track(req);
    if (!req->is_settled) {
        request_hold(req);
        return (PyObject *)req;
    }
    if (req->status == UMX_OK) {
        request_hold(req);
        request_link_wake(req);
        return (PyObject *)req;
    }
    value = request_take(req, &exc);
    Py_XDECREF(value);
    if (exc != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(exc), exc);
        Py_DECREF(exc);
    }
    Py_CLEAR(req->low_level);
    Py_DECREF(req);
    return NULL;
}

/* `nbytes` of `obj`. */
static int
acquire_part(RequestObject *req, PyObject *obj, PyObject *nbytes,
             bool is_writable)
{
    size_t len = PyLong_AsSize_t(nbytes);

    if (len == (size_t)-1 && PyErr_Occurred()) {
        return -1;
    }
    if (buffer_acquire(req->st, obj, is_writable, &req->hold) < 0) {
        return -1;
    }
    if (len > req->hold.buf.len) {
        PyErr_Format(PyExc_ValueError,
                     "nbytes is %zu, but the buffer has %zu bytes", len,
                     req->hold.buf.len);
        return -1;
    }
    req->hold.buf.len = len;
    return 0;
}

static int
check_feature(const WorkerObject *worker, unsigned feature, const char *name)
{
    if (LIKELY(worker->context->features & feature)) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError,
                 "UCXContext must be created with `Feature.%s`", name);
    return -1;
}

static EndpointObject *
as_endpoint(mod_state *st, PyObject *obj)
{
    if (LIKELY(PyObject_TypeCheck(obj, st->endpoint_type))) {
        return (EndpointObject *)obj;
    }
    PyErr_Format(PyExc_TypeError, "ep must be a UCXEndpoint, not %.200s",
                 Py_TYPE(obj)->tp_name);
    return NULL;
}

/* ---- tags ----------------------------------------------------------------
 */

PyDoc_STRVAR(
    tag_send_doc,
    "tag_send_nb(ep, buffer, nbytes, tag, cb_func, cb_args=None,\n"
    "            cb_kwargs=None, name=None)\n--\n\n"
    "Send `nbytes` of `buffer` with a 64-bit tag to the worker of the\n"
    "peer. None if done; else a request, and progress() will call\n"
    "cb_func(request, exception or None, *cb_args, **cb_kwargs).");

static PyObject *
callback_tag_send(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                  PyObject *kwnames)
{
    static const char *const keywords[] = {"ep",        "buffer",  "nbytes",
                                           "tag",       "cb_func", "cb_args",
                                           "cb_kwargs", "name"};
    mod_state               *st         = PyModule_GetState(module);
    PyObject                *values[8];
    EndpointObject          *endpoint;
    RequestObject           *req;

    if (args_parse("tag_send_nb", args, nargs, kwnames, keywords, 8, 8, 5,
                   values) < 0) {
        return NULL;
    }
    endpoint = as_endpoint(st, values[0]);
    if (endpoint == NULL ||
        check_feature(endpoint->worker, FEATURE_TAG, "TAG") < 0 ||
        check_callback(&values[4]) < 0) {
        return NULL;
    }
    req = request_new(endpoint->worker, endpoint, REQUEST_TAG_SEND);
    if (req == NULL) {
        return NULL;
    }
    if (args_raw_tag(values[3], "tag", &req->match.tag) < 0 ||
        acquire_part(req, values[1], values[2], false) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    (void)request_post(req);
    return attach(req, &values[4], NAME(req->st, tag_send_nb), false);
}

/* What has come is received even if its endpoint has ended since. */
static bool
is_there(WorkerObject *worker, const umx_match *match)
{
    umx_recv_info info;

    return worker->umx != NULL &&
           umx_tag_probe(worker->umx, match->tag, match->mask, &info) == UMX_OK;
}

PyDoc_STRVAR(tag_recv_doc,
             "tag_recv_nb(worker, buffer, nbytes, tag, cb_func, cb_args=None,\n"
             "            cb_kwargs=None, name=None, ep=None)\n--\n\n"
             "Receive a message of `nbytes` with a 64-bit tag from any peer;\n"
             "with `ep` the receive fails when that endpoint ends. progress()\n"
             "will call cb_func as for tag_send_nb().");

static PyObject *
callback_tag_recv(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                  PyObject *kwnames)
{
    static const char *const keywords[] = {"worker",    "buffer",  "nbytes",
                                           "tag",       "cb_func", "cb_args",
                                           "cb_kwargs", "name",    "ep"};
    mod_state               *st         = PyModule_GetState(module);
    EndpointObject          *endpoint   = NULL;
    WorkerObject            *worker;
    PyObject                *values[9];
    RequestObject           *req;

    if (args_parse("tag_recv_nb", args, nargs, kwnames, keywords, 9, 9, 5,
                   values) < 0) {
        return NULL;
    }
    if (!PyObject_TypeCheck(values[0], st->worker_type)) {
        return PyErr_Format(PyExc_TypeError,
                            "worker must be a UCXWorker, not %.200s",
                            Py_TYPE(values[0])->tp_name);
    }
    worker = (WorkerObject *)values[0];
    if (values[8] != NULL && values[8] != Py_None) {
        endpoint = as_endpoint(st, values[8]);
        if (endpoint == NULL) {
            return NULL;
        }
    }
    if (check_feature(worker, FEATURE_TAG, "TAG") < 0 ||
        check_callback(&values[4]) < 0) {
        return NULL;
    }
    req = request_new(worker, endpoint, REQUEST_TAG_RECV);
    if (req == NULL) {
        return NULL;
    }
    req->match.mask = UINT64_MAX;
    if (args_raw_tag(values[3], "tag", &req->match.tag) < 0 ||
        acquire_part(req, values[1], values[2], true) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    if (endpoint != NULL && endpoint_is_closed(endpoint) &&
        is_there(worker, &req->match)) {
        Py_CLEAR(req->endpoint);
    }
    (void)request_post(req);
    return attach(req, &values[4], NAME(req->st, tag_recv_nb), true);
}

/* ---- active messages and streams ------------------------------------------
 */

typedef struct transfer {
    const char  *name;
    int          name_index; /* of the same */
    request_kind kind;
    unsigned     feature;
    const char  *feature_name;
    bool         is_recv;
} transfer;

/* An operation of an endpoint with a buffer and no tag. */
static PyObject *
run_transfer(const transfer *what, PyObject *module, PyObject *const *args,
             Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const keywords[] = {
        "ep", "buffer", "nbytes", "cb_func", "cb_args", "cb_kwargs", "name"};
    PyObject       *values[7];
    EndpointObject *endpoint;
    RequestObject  *req;

    if (args_parse(what->name, args, nargs, kwnames, keywords, 7, 7, 4,
                   values) < 0) {
        return NULL;
    }
    endpoint = as_endpoint(PyModule_GetState(module), values[0]);
    if (endpoint == NULL ||
        check_feature(endpoint->worker, what->feature, what->feature_name) <
            0 ||
        check_callback(&values[3]) < 0) {
        return NULL;
    }
    req = request_new(endpoint->worker, endpoint, what->kind);
    if (req == NULL) {
        return NULL;
    }
    req->match.flags = (what->kind == REQUEST_STREAM_RECV) ?
                           UMX_STREAM_WAITALL :
                           0;
    if (acquire_part(req, values[1], values[2], what->is_recv) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    (void)request_post(req);
    return attach(req, &values[3], req->st->names[what->name_index],
                  what->is_recv);
}

PyDoc_STRVAR(
    am_send_doc,
    "am_send_nbx(ep, buffer, nbytes, cb_func, cb_args=None,\n"
    "            cb_kwargs=None, name=None)\n--\n\n"
    "Send `nbytes` of `buffer` as an active message; as tag_send_nb().");

static PyObject *
callback_am_send(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                 PyObject *kwnames)
{
    static const transfer what = {
        "am_send_nbx", NAME_am_send_nbx, REQUEST_AM_SEND, FEATURE_AM, "AM",
        false};

    return run_transfer(&what, module, args, nargs, kwnames);
}

PyDoc_STRVAR(stream_send_doc,
             "stream_send_nb(ep, buffer, nbytes, cb_func, cb_args=None,\n"
             "               cb_kwargs=None, name=None)\n--\n\n"
             "Send `nbytes` of `buffer` on the byte stream; as tag_send_nb().");

static PyObject *
callback_stream_send(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                     PyObject *kwnames)
{
    static const transfer what = {"stream_send_nb",
                                  NAME_stream_send_nb,
                                  REQUEST_STREAM_SEND,
                                  FEATURE_STREAM,
                                  "STREAM",
                                  false};

    return run_transfer(&what, module, args, nargs, kwnames);
}

PyDoc_STRVAR(
    stream_recv_doc,
    "stream_recv_nb(ep, buffer, nbytes, cb_func, cb_args=None,\n"
    "               cb_kwargs=None, name=None)\n--\n\n"
    "Receive `nbytes` of the byte stream; as tag_recv_nb(). Where the\n"
    "stream ends before: UCXMsgTruncated.");

static PyObject *
callback_stream_recv(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                     PyObject *kwnames)
{
    static const transfer what = {"stream_recv_nb",
                                  NAME_stream_recv_nb,
                                  REQUEST_STREAM_RECV,
                                  FEATURE_STREAM,
                                  "STREAM",
                                  true};

    return run_transfer(&what, module, args, nargs, kwnames);
}

PyDoc_STRVAR(am_recv_doc,
             "am_recv_nb(ep, cb_func, cb_args=None, cb_kwargs=None,\n"
             "           name='am_recv_nb')\n--\n\n"
             "Receive the next active message in memory of the worker's\n"
             "allocator. progress() will call cb_func(message, exception or\n"
             "None, *cb_args, **cb_kwargs). Returns None.");

static PyObject *
callback_am_recv(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                 PyObject *kwnames)
{
    static const char *const keywords[] = {"ep", "cb_func", "cb_args",
                                           "cb_kwargs", "name"};
    PyObject                *values[5], *result;
    EndpointObject          *endpoint;
    RequestObject           *req;

    if (args_parse("am_recv_nb", args, nargs, kwnames, keywords, 5, 5, 2,
                   values) < 0) {
        return NULL;
    }
    endpoint = as_endpoint(PyModule_GetState(module), values[0]);
    if (endpoint == NULL ||
        check_feature(endpoint->worker, FEATURE_AM, "AM") < 0 ||
        check_callback(&values[1]) < 0) {
        return NULL;
    }
    req = request_new(endpoint->worker, endpoint, REQUEST_AM_RECV);
    if (req == NULL) {
        return NULL;
    }
    (void)request_post(req);
    result = attach(req, &values[1], NAME(req->st, am_recv_nb), true);
    if (result == NULL) {
        return NULL;
    }
    Py_DECREF(result);
    Py_RETURN_NONE;
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
        check_callback(&values[1]) < 0) {
        return NULL;
    }
    if (!Py_IS_TYPE(values[0], st->request_type)) {
        return PyErr_Format(PyExc_TypeError, "expected a Request, not %.200s",
                            Py_TYPE(values[0])->tp_name);
    }
    req = (RequestObject *)Py_NewRef(values[0]);
    return attach(req, &values[1], NAME(st, request), gives_value(req));
}

#define KEYWORDS (METH_FASTCALL | METH_KEYWORDS)
#define KEYWORDS_FUNC(f) ((PyCFunction)(void (*)(void))(f))

PyMethodDef callback_methods[] = {
    {"tag_send_nb", KEYWORDS_FUNC(callback_tag_send), KEYWORDS, tag_send_doc},
    {"tag_recv_nb", KEYWORDS_FUNC(callback_tag_recv), KEYWORDS, tag_recv_doc},
    {"am_send_nbx", KEYWORDS_FUNC(callback_am_send), KEYWORDS, am_send_doc},
    {"stream_send_nb", KEYWORDS_FUNC(callback_stream_send), KEYWORDS,
     stream_send_doc},
    {"stream_recv_nb", KEYWORDS_FUNC(callback_stream_recv), KEYWORDS,
     stream_recv_doc},
    {"am_recv_nb", KEYWORDS_FUNC(callback_am_recv), KEYWORDS, am_recv_doc},
    {"call_when_done", KEYWORDS_FUNC(callback_when_done), KEYWORDS,
     call_when_done_doc},
    {NULL, NULL, 0, NULL},
};
