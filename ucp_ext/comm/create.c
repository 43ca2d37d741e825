/* SPDX-License-Identifier: BSD-3-Clause */
/* create.c: how a communicator is made. */
#include "comm/create.h"

#include "base/sockaddr.h"
#include "worker/worker.h"

/* What umx_comm_create() is given. */
typedef struct comm_call {
    umx_comm_params         params;
    struct sockaddr_storage addr;
    char                    name[UMX_COMM_NAME_MAX + 1];
    buffer_hold             root;  /* the address of a worker; or nothing */
    errors_place            place; /* `addr` as a tuple, held; or NULL */
} comm_call;

static umx_status
create_post(RequestObject *req, const umx_op_params *params)
{
    comm_tail *tail = TAIL_OF(req, comm_tail);
    comm_call *call = tail->create;
    umx_status status;

    if (tail->comm->umx != NULL) {
        return UMX_ERR_BUSY;
    }
    (void)umx_take_errno();
    status = umx_comm_create(req->worker->umx, &call->params, params,
                             &tail->comm->umx, &req->op);
    if (status < 0) {
        call->place.error = umx_take_errno();
    }
    return status;
}

/* One that could not even begin names the address. */
static PyObject *
create_error(RequestObject *req)
{
    const comm_tail *tail = TAIL_OF(req, comm_tail);
    const comm_call *call = tail->create;

    if (tail->comm->umx != NULL || call->place.address == NULL) {
        return comm_request_error(req);
    }
    return errors_new_at(req->worker->st, req->status,
                         (call->params.rank == 0) ? "listen" : "connect",
                         &call->place, NULL);
}

static void
create_clear(RequestObject *req)
{
    comm_call *call = TAIL_OF(req, comm_tail)->create;

    TAIL_OF(req, comm_tail)->create = NULL;
    if (call != NULL) {
        buffer_release(&call->root);
        Py_XDECREF(call->place.address);
        PyMem_Free(call);
    }
    comm_request_clear(req);
}

static const op_type op_create = {
    .name     = "connect",
    .flags    = OP_CONNECT | OP_PLAIN,
    .post     = create_post,
    .error    = create_error,
    .clear    = create_clear,
    .traverse = comm_request_traverse,
};

static int
parse_name(comm_call *call, PyObject *name)
{
    Py_ssize_t  len;
    const char *text;

    if (!PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "name must be a str, not %.200s",
                     Py_TYPE(name)->tp_name);
        return -1;
    }
    text = PyUnicode_AsUTF8AndSize(name, &len);
    if (text == NULL) {
        return -1;
    }
    if (len > UMX_COMM_NAME_MAX || strlen(text) != (size_t)len) {
        PyErr_Format(PyExc_ValueError,
                     "a name has at most %d bytes, and no zeros: %R",
                     UMX_COMM_NAME_MAX, name);
        return -1;
    }
    memcpy(call->name, text, (size_t)len + 1);
    call->params.name = call->name;
    return 0;
}

/* Where the root is: a socket address, a worker's address, or None. */
static int
parse_where(mod_state *st, comm_call *call, PyObject *where)
{
    if (where == Py_None) {
        return 0;
    }
    if (PyTuple_Check(where)) {
        call->params.addr       = (struct sockaddr *)&call->addr;
        call->place.address     = Py_NewRef(where);
        call->place.preposition = (call->params.rank == 0) ? "on" : "to";
        return sockaddr_parse(where, &call->addr, &call->params.addr_len);
    }
    if (buffer_acquire_run(st, where, false, &call->root) < 0) {
        return -1;
    }
    call->params.root     = call->root.buf.data;
    call->params.root_len = call->root.buf.len;
    return 0;
}

static int
parse_create(mod_state *st, comm_call *call, PyObject *const *values)
{
    Py_ssize_t rank, size;

    rank = PyNumber_AsSsize_t(values[0], PyExc_OverflowError);
    if (rank == -1 && PyErr_Occurred()) {
        return -1;
    }
    size = PyNumber_AsSsize_t(values[1], PyExc_OverflowError);
    if (size == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (size < 1 || size > UMX_COMM_SIZE_MAX) {
        PyErr_Format(PyExc_ValueError, "size is %zd, not 1 to %d", size,
                     UMX_COMM_SIZE_MAX);
        return -1;
    }
    if (rank < UMX_RANK_ANY || rank >= size) {
        PyErr_Format(PyExc_ValueError, "rank is %zd, but size is %zd", rank,
                     size);
        return -1;
    }
    call->params.rank       = (int)rank;
    call->params.size       = (int)size;
    call->params.field_mask = UMX_COMM_FIELD_TIMEOUT | UMX_COMM_FIELD_NAME |
                              UMX_COMM_FIELD_HEARTBEAT;
    if (parse_where(st, call, values[2]) < 0 ||
        args_timeout(values[3], UMX_TIMEOUT_INFINITE,
                     &call->params.timeout_ns) < 0 ||
        parse_name(call, values[4]) < 0) {
        return -1;
    }
    return args_timeout(values[5], 0, &call->params.heartbeat_ns);
}

const char comm_create_doc[] =
    "_create($self, rank, size, where, timeout, name, heartbeat)\n--\n\n"
    "Meet the other ranks; awaitable.";

PyObject *
comm_create(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    static const char *const keywords[] = {"rank",    "size", "where",
                                           "timeout", "name", "heartbeat"};
    CommObject              *self       = (CommObject *)op;
    PyObject                *values[6];
    RequestObject           *req;
    comm_call               *call;

    if (args_parse("_create", args, nargs, kwnames, keywords, 6, 6, 6, values) <
        0) {
        return NULL;
    }
    req = comm_request_new(self, &op_create);
    if (req == NULL) {
        return NULL;
    }
    call = PyMem_Calloc(1, sizeof(*call));
    if (call == NULL) {
        Py_DECREF(req);
        return PyErr_NoMemory();
    }
    TAIL_OF(req, comm_tail)->create = call;
    if (parse_create(self->worker->st, call, values) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}
