/* SPDX-License-Identifier: BSD-3-Clause */
/* capsule_user.c: an extension module that uses the capsule of ucp, for
 * tests/ext/test_capsule.py. */
#define PY_SSIZE_T_CLEAN
#include <ucp_api.h>

/* get(kind, object): the pointer as a number. */
static PyObject *
user_get(PyObject *module, PyObject *args)
{
    const char *kind;
    PyObject   *object;
    void       *pointer = NULL;

    (void)module;
    if (!PyArg_ParseTuple(args, "sO:get", &kind, &object)) {
        return NULL;
    }
    switch (kind[0]) {
    case 'x':
        pointer = ucp_api->context_get(object);
        break;
    case 'w':
        pointer = ucp_api->worker_get(object);
        break;
    case 'e':
        pointer = ucp_api->endpoint_get(object);
        break;
    case 'c':
        pointer = ucp_api->communicator_get(object);
        break;
    case 'm':
        pointer = ucp_api->memory_get(object);
        break;
    case 'r':
        pointer = ucp_api->remote_memory_get(object);
        break;
    }
    return (pointer == NULL) ? NULL : PyLong_FromVoidPtr(pointer);
}

/* The memory of a memoryview. */
static umx_buffer
part_of(PyObject *view, Py_ssize_t i, Py_ssize_t count)
{
    const Py_buffer *buffer = PyMemoryView_GET_BUFFER(view);
    Py_ssize_t       len    = buffer->len / count;

    return umx_host_buffer((char *)buffer->buf + i * len, (size_t)len);
}

/* send(endpoint, view, tag) */
static PyObject *
user_send(PyObject *module, PyObject *args)
{
    PyObject          *object, *view, *request;
    unsigned long long tag;
    umx_ep            *ep;
    umx_op_params      params;
    umx_request       *op = NULL;
    umx_buffer         buf;
    umx_status         status;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO!K:send", &object, &PyMemoryView_Type, &view,
                          &tag)) {
        return NULL;
    }
    ep      = ucp_api->endpoint_get(object);
    request = (ep == NULL) ? NULL : ucp_api->request_new(object, view, &params);
    if (request == NULL) {
        return NULL;
    }
    buf    = part_of(view, 0, 1);
    status = umx_tag_send(ep, tag, &buf, &params, &op);
    if (ucp_api->request_posted(request, status, op) < 0) {
        Py_CLEAR(request);
    }
    return request;
}

/* Make the request of an operation of a Worker. */
static PyObject *
begin(PyObject *object, PyObject *view, umx_worker **worker_p,
      umx_op_params *params)
{
    *worker_p = ucp_api->worker_get(object);
    return (*worker_p == NULL) ? NULL :
                                 ucp_api->request_new(object, view, params);
}

/* recv(worker, view, tag, count, result=None): `count` messages of equal
 * lengths, with tags from `tag` on; posted without the GIL. */
static PyObject *
user_recv(PyObject *module, PyObject *args)
{
    PyObject          *object, *view, *request, *result = Py_None;
    unsigned long long tag;
    Py_ssize_t         count;
    umx_worker        *worker;
    umx_op_params      params;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO!Kn|O:recv", &object, &PyMemoryView_Type,
                          &view, &tag, &count, &result)) {
        return NULL;
    }
    request = begin(object, view, &worker, &params);
    if (request == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    for (Py_ssize_t i = 0; i < count; i++) {
        umx_buffer    buf = part_of(view, i, count);
        umx_request  *op  = NULL;
        umx_recv_info info;
        umx_status    status = umx_tag_recv(worker, NULL, tag + (uint64_t)i,
                                            UINT64_MAX, &buf, &params, &op, &info);

        ucp_api->request_add(request, status, op);
    }
    Py_END_ALLOW_THREADS;
    if (ucp_api->request_set_result(request, result) < 0 ||
        ucp_api->request_posted(request, UMX_OK, NULL) < 0) {
        Py_CLEAR(request);
    }
    return request;
}

/* recv_from(endpoint, view, tag): fails when the endpoint does. */
static PyObject *
user_recv_from(PyObject *module, PyObject *args)
{
    PyObject          *worker, *object, *view, *request;
    unsigned long long tag;
    umx_op_params      params;
    umx_request       *op = NULL;
    umx_recv_info      info;
    umx_buffer         buf;
    umx_status         status;

    (void)module;
    if (!PyArg_ParseTuple(args, "OOO!K:recv_from", &worker, &object,
                          &PyMemoryView_Type, &view, &tag)) {
        return NULL;
    }
    request = ucp_api->request_new(object, view, &params);
    if (request == NULL) {
        return NULL;
    }
    buf    = part_of(view, 0, 1);
    status = umx_tag_recv(ucp_api->worker_get(worker),
                          ucp_api->endpoint_get(object), tag, UINT64_MAX, &buf,
                          &params, &op, &info);
    (void)ucp_api->request_posted(request, status, op);
    return request;
}

/* send_rank(communicator, rank, view, tag) */
static PyObject *
user_send_rank(PyObject *module, PyObject *args)
{
    PyObject          *object, *view, *request;
    unsigned long long tag;
    int                rank;
    umx_comm          *comm;
    umx_op_params      params;
    umx_request       *op = NULL;
    umx_buffer         buf;
    umx_status         status;

    (void)module;
    if (!PyArg_ParseTuple(args, "OiO!K:send_rank", &object, &rank,
                          &PyMemoryView_Type, &view, &tag)) {
        return NULL;
    }
    comm    = ucp_api->communicator_get(object);
    request = (comm == NULL) ? NULL :
                               ucp_api->request_new(object, view, &params);
    if (request == NULL) {
        return NULL;
    }
    buf    = part_of(view, 0, 1);
    status = umx_comm_isend(comm, rank, tag, &buf, &params, &op);
    (void)ucp_api->request_posted(request, status, op);
    return request;
}

/* Post the receive of one message. */
static umx_status
post_recv(umx_worker *worker, PyObject *view, unsigned long long tag,
          const umx_op_params *params, umx_request **op_p)
{
    umx_buffer    buf = part_of(view, 0, 1);
    umx_recv_info info;

    return umx_tag_recv(worker, NULL, tag, UINT64_MAX, &buf, params, op_p,
                        &info);
}

/* half(worker, view, tag, is_returned): request_add(), but no request_posted().
 * The request, or ValueError after which it is dropped. */
static PyObject *
user_half(PyObject *module, PyObject *args)
{
    PyObject          *object, *view, *request;
    unsigned long long tag;
    int                is_returned;
    umx_worker        *worker;
    umx_op_params      params;
    umx_request       *op = NULL;
    umx_status         status;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO!Kp:half", &object, &PyMemoryView_Type,
                          &view, &tag, &is_returned)) {
        return NULL;
    }
    request = begin(object, view, &worker, &params);
    if (request == NULL) {
        return NULL;
    }
    status = post_recv(worker, view, tag, &params, &op);
    ucp_api->request_add(request, status, op);
    if (!is_returned) {
        Py_CLEAR(request);
        PyErr_SetString(PyExc_ValueError, "an error between two posts");
    }
    return request;
}

/* twice(worker, view, tag, is_added): post the receives of `tag` and `tag` + 1,
 * the second one after request_posted(), for which RuntimeError is raised;
 * returns (request, error). */
static PyObject *
user_twice(PyObject *module, PyObject *args)
{
    PyObject          *object, *view, *request, *type, *error, *traceback;
    unsigned long long tag;
    int                is_added;
    umx_worker        *worker;
    umx_op_params      params;
    umx_request       *first = NULL, *second = NULL;
    umx_status         status;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO!Kp:twice", &object, &PyMemoryView_Type,
                          &view, &tag, &is_added)) {
        return NULL;
    }
    request = begin(object, view, &worker, &params);
    if (request == NULL) {
        return NULL;
    }
    status = post_recv(worker, view, tag, &params, &first);
    (void)ucp_api->request_posted(request, status, first);
    status = post_recv(worker, view, tag + 1, &params, &second);
    if (is_added) {
        ucp_api->request_add(request, status, second);
        status = UMX_OK;
        second = NULL;
    }
    (void)ucp_api->request_posted(request, status, second);
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return Py_BuildValue("NN", request, error);
}

/* unnamed(worker, view, tag): note a receive without naming it. */
static PyObject *
user_unnamed(PyObject *module, PyObject *args)
{
    PyObject          *object, *view, *request;
    unsigned long long tag;
    umx_worker        *worker;
    umx_op_params      params;
    umx_request       *op = NULL;
    umx_status         status;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO!K:unnamed", &object, &PyMemoryView_Type,
                          &view, &tag)) {
        return NULL;
    }
    request = begin(object, view, &worker, &params);
    if (request == NULL) {
        return NULL;
    }
    status = post_recv(worker, view, tag, &params, &op);
    if (ucp_api->request_posted(request, status, NULL) < 0) {
        Py_CLEAR(request);
    }
    return request;
}

/* What libumx tells of the operations of losing(). */
enum {
    MAX_LOST = 8
};
static umx_op_params lost_params;
static umx_request  *lost_ops[MAX_LOST];

/* losing(worker, view, tag, count): receives with tags from `tag` on. */
static PyObject *
user_losing(PyObject *module, PyObject *args)
{
    PyObject          *object, *view, *request;
    unsigned long long tag;
    Py_ssize_t         count;
    umx_worker        *worker;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO!Kn:losing", &object, &PyMemoryView_Type,
                          &view, &tag, &count)) {
        return NULL;
    }
    worker  = ucp_api->worker_get(object);
    request = (worker == NULL || count > MAX_LOST) ?
                  NULL :
                  ucp_api->request_new(object, view, &lost_params);
    if (request == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        umx_status status;

        lost_ops[i] = NULL;
        status      = post_recv(worker, view, tag + (uint64_t)i, &lost_params,
                                &lost_ops[i]);
        ucp_api->request_add(request, status, lost_ops[i]);
    }
    if (ucp_api->request_posted(request, UMX_OK, NULL) < 0) {
        Py_CLEAR(request);
    }
    return request;
}

/* lose(i): tell what libumx tells of an operation whose peer has died. */
static PyObject *
user_lose(PyObject *module, PyObject *number)
{
    size_t i = PyLong_AsSize_t(number);

    (void)module;
    if (i >= MAX_LOST) {
        return NULL;
    }
    lost_params.on_lost(lost_ops[i], UMX_ERR_CONNECTION_RESET, lost_params.arg);
    Py_RETURN_NONE;
}

/* new(owner, keep): a request for which nothing is posted. */
static PyObject *
user_new(PyObject *module, PyObject *args)
{
    PyObject     *owner, *keep = NULL;
    umx_op_params params;

    (void)module;
    return PyArg_ParseTuple(args, "O|O:new", &owner, &keep) ?
               ucp_api->request_new(owner, keep, &params) :
               NULL;
}

/* posted(request, status) */
static PyObject *
user_posted(PyObject *module, PyObject *args)
{
    PyObject *request;
    int       status;

    (void)module;
    if (!PyArg_ParseTuple(args, "Oi:posted", &request, &status) ||
        ucp_api->request_posted(request, (umx_status)status, NULL) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* set_result(request, result) */
static PyObject *
user_set_result(PyObject *module, PyObject *args)
{
    PyObject *request, *result;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO:set_result", &request, &result) ||
        ucp_api->request_set_result(request, result) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* fail(status, what) */
static PyObject *
user_fail(PyObject *module, PyObject *args)
{
    const char *what;
    int         status;

    (void)module;
    return PyArg_ParseTuple(args, "iz:fail", &status, &what) ?
               ucp_api->status_raise((umx_status)status, what) :
               NULL;
}

static PyMethodDef methods[] = {
    {"get", user_get, METH_VARARGS, NULL},
    {"send", user_send, METH_VARARGS, NULL},
    {"recv", user_recv, METH_VARARGS, NULL},
    {"recv_from", user_recv_from, METH_VARARGS, NULL},
    {"send_rank", user_send_rank, METH_VARARGS, NULL},
    {"half", user_half, METH_VARARGS, NULL},
    {"unnamed", user_unnamed, METH_VARARGS, NULL},
    {"twice", user_twice, METH_VARARGS, NULL},
    {"losing", user_losing, METH_VARARGS, NULL},
    {"lose", user_lose, METH_O, NULL},
    {"new", user_new, METH_VARARGS, NULL},
    {"posted", user_posted, METH_VARARGS, NULL},
    {"set_result", user_set_result, METH_VARARGS, NULL},
    {"fail", user_fail, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int
user_exec(PyObject *module)
{
    (void)module;
    return ucp_import_api();
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)user_exec},
    {0, NULL},
};

static PyModuleDef definition = {
    .m_base    = PyModuleDef_HEAD_INIT,
    .m_name    = "capsule_user",
    .m_methods = methods,
    .m_slots   = slots,
};

PyMODINIT_FUNC
PyInit_capsule_user(void)
{
    return PyModuleDef_Init(&definition);
}
