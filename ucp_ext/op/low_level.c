/* SPDX-License-Identifier: BSD-3-Clause */
/* low_level.c: the calls of ucp._libs that post an operation with a callback,
 * for programs of ucx-py's lower layer. */
#include "op/low_level.h"

#include "base/args.h"
#include "object/context.h"
#include "object/endpoint.h"
#include "op/am.h"
#include "op/stream.h"
#include "op/tag.h"
#include "request/callback.h"
#include "worker/worker.h"

/* Hold the first `nbytes` bytes of `obj`. */
static int
acquire_part(RequestObject *req, PyObject *obj, PyObject *nbytes,
             bool is_writable)
{
    size_t len = PyLong_AsSize_t(nbytes);

    if (len == (size_t)-1 && PyErr_Occurred()) {
        return -1;
    }
    if (buffer_acquire_raw(req->worker->st, obj, is_writable, &req->hold) < 0) {
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
low_tag_send(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
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
        callback_check(&values[4]) < 0) {
        return NULL;
    }
    req = request_new(endpoint->worker, endpoint, &op_tag_send);
    if (req == NULL) {
        return NULL;
    }
    if (args_raw_tag(values[3], "tag", &req->match.tag) < 0 ||
        acquire_part(req, values[1], values[2], false) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    if (request_post(req) == NULL) {
        return NULL;
    }
    return callback_attach(req, &values[4], NAME(req->worker->st, tag_send_nb),
                           false);
}

/* Has a message come? It is received even if its endpoint has ended since. */
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
low_tag_recv(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
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
        callback_check(&values[4]) < 0) {
        return NULL;
    }
    req = request_new(worker, endpoint, &op_tag_recv);
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
    if (request_post(req) == NULL) {
        return NULL;
    }
    return callback_attach(req, &values[4], NAME(req->worker->st, tag_recv_nb),
                           true);
}

/* ---- active messages and streams ------------------------------------------
 */

typedef struct transfer {
    const char    *name;
    int            name_index; /* of the same */
    const op_type *type;
    unsigned       feature;
    const char    *feature_name;
    bool           is_recv;
} transfer;

/* Post an operation of an endpoint with a buffer and no tag. */
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
        callback_check(&values[3]) < 0) {
        return NULL;
    }
    req = request_new(endpoint->worker, endpoint, what->type);
    if (req == NULL) {
        return NULL;
    }
    req->match.flags = (what->type == &op_stream_recv) ? UMX_STREAM_WAITALL : 0;
    if (acquire_part(req, values[1], values[2], what->is_recv) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    if (request_post(req) == NULL) {
        return NULL;
    }
    return callback_attach(req, &values[3],
                           req->worker->st->names[what->name_index],
                           what->is_recv);
}

PyDoc_STRVAR(
    am_send_doc,
    "am_send_nbx(ep, buffer, nbytes, cb_func, cb_args=None,\n"
    "            cb_kwargs=None, name=None)\n--\n\n"
    "Send `nbytes` of `buffer` as an active message. The other arguments are\n"
    "those of tag_send_nb().");

static PyObject *
low_am_send(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    static const transfer what = {
        "am_send_nbx", NAME_am_send_nbx, &op_am_send, FEATURE_AM, "AM", false};

    return run_transfer(&what, module, args, nargs, kwnames);
}

PyDoc_STRVAR(
    stream_send_doc,
    "stream_send_nb(ep, buffer, nbytes, cb_func, cb_args=None,\n"
    "               cb_kwargs=None, name=None)\n--\n\n"
    "Send `nbytes` of `buffer` on the byte stream. The other arguments\n"
    "are those of tag_send_nb().");

static PyObject *
low_stream_send(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                PyObject *kwnames)
{
    static const transfer what = {"stream_send_nb", NAME_stream_send_nb,
                                  &op_stream_send,  FEATURE_STREAM,
                                  "STREAM",         false};

    return run_transfer(&what, module, args, nargs, kwnames);
}

PyDoc_STRVAR(
    stream_recv_doc,
    "stream_recv_nb(ep, buffer, nbytes, cb_func, cb_args=None,\n"
    "               cb_kwargs=None, name=None)\n--\n\n"
    "Receive `nbytes` of the byte stream. The other arguments are those of\n"
    "tag_recv_nb(). UCXMsgTruncated: the stream has ended before.");

static PyObject *
low_stream_recv(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                PyObject *kwnames)
{
    static const transfer what = {"stream_recv_nb", NAME_stream_recv_nb,
                                  &op_stream_recv,  FEATURE_STREAM,
                                  "STREAM",         true};

    return run_transfer(&what, module, args, nargs, kwnames);
}

PyDoc_STRVAR(am_recv_doc,
             "am_recv_nb(ep, cb_func, cb_args=None, cb_kwargs=None,\n"
             "           name='am_recv_nb')\n--\n\n"
             "Receive the next active message in memory of the worker's\n"
             "allocator. progress() will call cb_func(message, exception or\n"
             "None, *cb_args, **cb_kwargs). Returns None.");

static PyObject *
low_am_recv(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
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
        callback_check(&values[1]) < 0) {
        return NULL;
    }
    req = request_new(endpoint->worker, endpoint, &op_am_recv);
    if (req == NULL) {
        return NULL;
    }
    if (request_post(req) == NULL) {
        return NULL;
    }
    result = callback_attach(req, &values[1], NAME(req->worker->st, am_recv_nb),
                             true);
    if (result == NULL) {
        return NULL;
    }
    Py_DECREF(result);
    Py_RETURN_NONE;
}

#define KEYWORDS (METH_FASTCALL | METH_KEYWORDS)
#define KEYWORDS_FUNC(f) ((PyCFunction)(void (*)(void))(f))

PyMethodDef low_level_methods[] = {
    {"tag_send_nb", KEYWORDS_FUNC(low_tag_send), KEYWORDS, tag_send_doc},
    {"tag_recv_nb", KEYWORDS_FUNC(low_tag_recv), KEYWORDS, tag_recv_doc},
    {"am_send_nbx", KEYWORDS_FUNC(low_am_send), KEYWORDS, am_send_doc},
    {"stream_send_nb", KEYWORDS_FUNC(low_stream_send), KEYWORDS,
     stream_send_doc},
    {"stream_recv_nb", KEYWORDS_FUNC(low_stream_recv), KEYWORDS,
     stream_recv_doc},
    {"am_recv_nb", KEYWORDS_FUNC(low_am_recv), KEYWORDS, am_recv_doc},
    {NULL, NULL, 0, NULL},
};
