/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.c: operations on memory of a peer's. */
#include "op/rma.h"

#include "base/args.h"
#include "base/errors.h"
#include "buffer/buffer.h"
#include "object/endpoint.h"
#include "op/rma_pieces.h"
#include "worker/worker.h"

/* ---- memory --------------------------------------------------------------
 */

rma_list *
rma_list_new(Py_ssize_t count, Py_ssize_t num_holds)
{
    size_t    size = sizeof(rma_list) + (size_t)num_holds * sizeof(buffer_hold);
    rma_list *list = PyMem_Malloc(size + (size_t)count * sizeof(umx_rma_item));

    if (list == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    list->count     = 0;
    list->num_holds = 0;
    list->len       = 0;
    list->items     = (umx_rma_item *)(void *)((char *)list + size);
    return list;
}

static void
list_release(RequestObject *req)
{
    rma_list *list = TAIL_OF(req, rma_tail)->list;

    if (list == NULL) {
        return;
    }
    TAIL_OF(req, rma_tail)->list = NULL;
    for (Py_ssize_t i = 0; i < list->num_holds; i++) {
        buffer_release(&list->holds[i]);
    }
    PyMem_Free(list);
}

static int
list_traverse(const RequestObject *req, visitproc visit, void *arg)
{
    const rma_list *list = TAIL_OF(req, rma_tail)->list;
    int             rc   = 0;

    Py_VISIT(TAIL_OF(req, rma_tail)->remote);
    for (Py_ssize_t i = 0; rc == 0 && list != NULL && i < list->num_holds;
         i++) {
        rc = request_visit_lent(req, &list->holds[i], visit, arg);
    }
    return rc;
}

void
rma_clear(RequestObject *req)
{
    Py_CLEAR(TAIL_OF(req, rma_tail)->remote);
}

int
rma_traverse(const RequestObject *req, visitproc visit, void *arg)
{
    Py_VISIT(TAIL_OF(req, rma_tail)->remote);
    return 0;
}

bool
rma_is_closed(const PyObject *remote)
{
    return remote != NULL && ((const RemoteObject *)remote)->is_closed;
}

PyObject *
rma_error_of(RequestObject *req, bool is_closed)
{
    if (req->status == UMX_ERR_CLOSED && is_closed) {
        return errors_new_text(req->worker->st, req->status, req->type->name,
                               "RemoteMemory closed by close() in this "
                               "process");
    }
    return request_status_error(req, req->status, &req->info, 0);
}

static PyObject *
make_error(RequestObject *req)
{
    return rma_error_of(req, rma_is_closed(TAIL_OF(req, rma_tail)->remote));
}

/* ---- posting -------------------------------------------------------------
 */

NOINLINE umx_status
rma_post_unlocked(RequestObject *req, const umx_op_params *params,
                  rma_post_fn post)
{
    WorkerObject  *worker = req->worker;
    PyThreadState *thread;
    umx_status     status;

    worker->num_unlocked++;
    thread = PyEval_SaveThread();
    status = post(req, params);
    PyEval_RestoreThread(thread);
    worker->num_unlocked--;
    return status;
}

static inline umx_rma_item
item_of(const RequestObject *req)
{
    return (umx_rma_item){.offset = TAIL_OF(req, rma_tail)->offset,
                          .buf    = req->hold.buf};
}

static umx_status
put(RequestObject *req, const umx_op_params *params)
{
    umx_rma_item item = item_of(req);

    return umx_rma_put(rma_rkey_of(req), &item, params, &req->op);
}

static umx_status
get(RequestObject *req, const umx_op_params *params)
{
    umx_rma_item item = item_of(req);

    return umx_rma_get(rma_rkey_of(req), &item, params, &req->op);
}

static umx_status
put_many(RequestObject *req, const umx_op_params *params)
{
    const rma_list *list = TAIL_OF(req, rma_tail)->list;

    return umx_rma_put_many(rma_rkey_of(req), list->items, (size_t)list->count,
                            params, &req->op);
}

static umx_status
get_many(RequestObject *req, const umx_op_params *params)
{
    const rma_list *list = TAIL_OF(req, rma_tail)->list;

    return umx_rma_get_many(rma_rkey_of(req), list->items, (size_t)list->count,
                            params, &req->op);
}

#define DEFINE_POST(name, len)                                 \
    static umx_status name##_post(RequestObject       *req,    \
                                  const umx_op_params *params) \
    {                                                          \
        return rma_post_len(req, params, len, name);           \
    }

DEFINE_POST(put, req->hold.buf.len)
DEFINE_POST(get, req->hold.buf.len)
DEFINE_POST(put_many, TAIL_OF(req, rma_tail)->list->len)
DEFINE_POST(get_many, TAIL_OF(req, rma_tail)->list->len)

static const op_type op_put = {
    .name     = "put",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = put_post,
    .error    = make_error,
    .clear    = rma_clear,
    .traverse = rma_traverse,
};

static const op_type op_get = {
    .name     = "get",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = get_post,
    .error    = make_error,
    .clear    = rma_clear,
    .traverse = rma_traverse,
};

static const op_type op_put_many = {
    .name     = "put_many",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = put_many_post,
    .error    = make_error,
    .release  = list_release,
    .traverse = list_traverse,
    .clear    = rma_clear,
};

static const op_type op_get_many = {
    .name     = "get_many",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = get_many_post,
    .error    = make_error,
    .release  = list_release,
    .traverse = list_traverse,
    .clear    = rma_clear,
};

/* ---- arguments -----------------------------------------------------------
 */

int
rma_parse_offset(PyObject *value, uint64_t *offset_p)
{
    PyObject *index;

    if (value == NULL) {
        *offset_p = 0;
        return 0;
    }
    index = PyNumber_Index(value);
    if (index == NULL) {
        return -1;
    }
    *offset_p = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (*offset_p == (uint64_t)-1 && PyErr_Occurred()) {
        PyErr_Format(PyExc_IndexError, "the offset %R is out of range", value);
        return -1;
    }
    return 0;
}

int
rma_check_range(const RemoteObject *self, uint64_t offset, uint64_t len)
{
    if (LIKELY(offset <= self->nbytes && len <= self->nbytes - offset)) {
        return 0;
    }
    PyErr_Format(PyExc_IndexError,
                 "%llu bytes at offset %llu are out of the memory's %llu", len,
                 offset, self->nbytes);
    return -1;
}

int
rma_check_writable(const RemoteObject *self)
{
    if (UNLIKELY(umx_rkey_is_readonly(self->umx))) {
        (void)errors_raise(self->endpoint->worker->st, UMX_ERR_READONLY,
                           "RemoteMemory", NULL);
        return -1;
    }
    return 0;
}

RequestObject *
rma_new_request(RemoteObject *self, const op_type *type)
{
    EndpointObject *endpoint = self->endpoint;
    RequestObject  *req      = request_new(endpoint->worker, endpoint, type);

    if (LIKELY(req != NULL)) {
        TAIL_OF(req, rma_tail)->remote = Py_NewRef(self);
    }
    return req;
}

/* ---- put and get ---------------------------------------------------------
 */

static PyObject *
transfer(RemoteObject *self, PyObject *buffer, PyObject *offset,
         const op_type *type)
{
    RequestObject *req = rma_new_request(self, type);
    rma_tail      *tail;

    if (UNLIKELY(req == NULL)) {
        return NULL;
    }
    tail = TAIL_OF(req, rma_tail);
    if (UNLIKELY(rma_parse_offset(offset, &tail->offset) < 0 ||
                 buffer_acquire(req->worker->st, buffer, type == &op_get,
                                &req->hold) < 0 ||
                 rma_check_range(self, tail->offset, req->hold.buf.len) < 0)) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

static int
parse_transfer(const char *name, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames, PyObject **values)
{
    static const char *const keywords[] = {"buffer", "offset"};

    if (LIKELY(kwnames == NULL && (nargs == 1 || nargs == 2))) {
        values[0] = args[0];
        values[1] = (nargs == 2) ? args[1] : NULL;
        return 0;
    }
    return args_parse(name, args, nargs, kwnames, keywords, 2, 2, 1, values);
}

const char remote_put_doc[] =
    "put($self, buffer, offset=0)\n--\n\n"
    "Write all of buffer to the memory, at offset bytes; awaitable.\n"
    "The request is done when the memory has changed. IndexError:\n"
    "the bytes do not fit into the memory.";

PyObject *
remote_put(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwnames)
{
    RemoteObject *self = (RemoteObject *)op;
    PyObject     *values[2];

    if (parse_transfer("put", args, nargs, kwnames, values) < 0 ||
        rma_check_writable(self) < 0) {
        return NULL;
    }
    return transfer(self, values[0], values[1], &op_put);
}

const char remote_get_doc[] =
    "get($self, buffer, offset=0)\n--\n\n"
    "Fill buffer from the memory, from offset bytes on; awaitable.";

PyObject *
remote_get(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwnames)
{
    PyObject *values[2];

    if (parse_transfer("get", args, nargs, kwnames, values) < 0) {
        return NULL;
    }
    return transfer((RemoteObject *)op, values[0], values[1], &op_get);
}

/* ---- lists ---------------------------------------------------------------
 */

/* Hold the buffer of one pair (buffer, offset). */
static int
hold_item(RemoteObject *self, PyObject *pair, bool is_writable,
          buffer_hold *hold, umx_rma_item *item)
{
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        PyErr_Format(PyExc_TypeError,
                     "expected a tuple (buffer, offset), not %.200s",
                     Py_TYPE(pair)->tp_name);
        return -1;
    }
    if (rma_parse_offset(PyTuple_GET_ITEM(pair, 1), &item->offset) < 0 ||
        buffer_acquire(self->endpoint->worker->st, PyTuple_GET_ITEM(pair, 0),
                       is_writable, hold) < 0) {
        return -1;
    }
    item->buf = hold->buf;
    return 0;
}

/* Hold the buffers of all pairs; -1 with an exception: `list` has those that
 * are held by then. */
static int
hold_items(RemoteObject *self, PyObject *pairs, bool is_writable,
           rma_list *list)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); i++) {
        umx_rma_item *item = &list->items[i];

        if (hold_item(self, PyTuple_GET_ITEM(pairs, i), is_writable,
                      &list->holds[i], item) < 0) {
            return -1;
        }
        list->num_holds++;
        list->count++;
        list->len += item->buf.len;
        if (rma_check_range(self, item->offset, item->buf.len) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *
transfer_list(RemoteObject *self, PyObject *sequence, const op_type *type)
{
    PyObject      *pairs = args_items(sequence, "expected a sequence of "
                                                     "(buffer, offset)");
    RequestObject *req;
    rma_list      *list = NULL;

    if (pairs == NULL) {
        return NULL;
    }
    req = rma_new_request(self, type);
    if (req != NULL) {
        list = rma_list_new(PyTuple_GET_SIZE(pairs), PyTuple_GET_SIZE(pairs));

        TAIL_OF(req, rma_tail)->list = list;
        request_track(req);
    }
    if (list == NULL ||
        hold_items(self, pairs, type == &op_get_many, list) < 0) {
        Py_XDECREF(req);
        Py_DECREF(pairs);
        return NULL;
    }
    Py_DECREF(pairs);
    return request_post(req);
}

/* Pieces of one buffer, where arrays say. */
static PyObject *
transfer_pieces(RemoteObject *self, PyObject *const *values,
                const op_type *type)
{
    RequestObject *req = rma_new_request(self, type);
    rma_list      *list;

    if (req == NULL) {
        return NULL;
    }
    list = rma_pieces_new(self, values, type == &op_get_many);
    TAIL_OF(req, rma_tail)->list = list;
    request_track(req);
    if (list == NULL) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

static PyObject *
transfer_many(RemoteObject *self, PyObject *const *args, Py_ssize_t nargs,
              PyObject *kwnames, const op_type *type)
{
    static const char *const keywords[] = {"buffer", "offsets", "lengths",
                                           "at"};
    PyObject                *values[4];

    if (nargs == 1 && kwnames == NULL) {
        return transfer_list(self, args[0], type);
    }
    if (args_parse(type->name, args, nargs, kwnames, keywords, 4, 4, 3,
                   values) < 0) {
        return NULL;
    }
    return transfer_pieces(self, values, type);
}

const char remote_put_many_doc[] =
    "put_many(items, /)\n"
    "put_many(buffer, offsets, lengths, at=None)\n\n"
    "Call put() for several pieces, with one await for all.\n\n"
    "The pieces are pairs (buffer, offset), or of one buffer: see\n"
    "get_many().";

PyObject *
remote_put_many(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                PyObject *kwnames)
{
    RemoteObject *self = (RemoteObject *)op;

    return (rma_check_writable(self) < 0) ?
               NULL :
               transfer_many(self, args, nargs, kwnames, &op_put_many);
}

const char remote_get_many_doc[] =
    "get_many(items, /)\n"
    "get_many(buffer, offsets, lengths, at=None)\n\n"
    "Call get() for several pieces, with one await for all.\n\n"
    "    await remote.get_many([(one, 0), (another, 4096)])\n"
    "    await remote.get_many(array, offsets, lengths)\n\n"
    "The pieces are pairs (buffer, offset); or they are of one buffer, and\n"
    "arrays say where each is, in bytes. The arrays have one dimension, and\n"
    "are read during the call.\n\n"
    "Args:\n"
    "    items: sequence of pairs.\n"
    "    buffer: contiguous memory for all pieces.\n"
    "    offsets: array of uint64 or int64: where each is in the memory.\n"
    "    lengths: the same of their lengths; or an int for all.\n"
    "    at: the same of where each is in the buffer; None: one behind the\n"
    "        other.\n\n"
    "Raises:\n"
    "    IndexError: a piece is not in the memory, or not in the buffer.\n"
    "    TypeError: an array of something else.\n"
    "    ValueError: arrays of different lengths, or a buffer with gaps.";

PyObject *
remote_get_many(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                PyObject *kwnames)
{
    return transfer_many((RemoteObject *)op, args, nargs, kwnames,
                         &op_get_many);
}
