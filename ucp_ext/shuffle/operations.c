/* SPDX-License-Identifier: BSD-3-Clause */
/* operations.c: the operations of a shuffler. */
#include "shuffle/operations.h"

#include "shuffle/event.h"
#include "worker/worker.h"

/* An insert or wait that is under way does not keep the shuffler: dropping it
 * ends the shuffle. A close does. */
typedef struct TAIL shuffle_tail {
    PyObject *shuffler; /* or a weak reference to it */
    uint32_t  partition;
} shuffle_tail;

/* A new reference; or NULL: the program has dropped it. */
static ShufflerObject *
shuffler_of(const RequestObject *req)
{
    PyObject *shuffler = TAIL_OF(req, shuffle_tail)->shuffler;

    if (shuffler != NULL && PyWeakref_Check(shuffler)) {
        shuffler = compat_weakref_get(shuffler);
    } else {
        Py_XINCREF(shuffler);
    }
    return (ShufflerObject *)shuffler;
}

static void
clear(RequestObject *req)
{
    Py_CLEAR(TAIL_OF(req, shuffle_tail)->shuffler);
}

static int
traverse(const RequestObject *req, visitproc visit, void *arg)
{
    Py_VISIT(TAIL_OF(req, shuffle_tail)->shuffler);
    return 0;
}

static PyObject *
error(RequestObject *req)
{
    ShufflerObject *shuffler = shuffler_of(req);
    PyObject       *exc;

    if (shuffler == NULL) {
        return errors_new_text(req->worker->st, UMX_ERR_CLOSED, req->type->name,
                               "the shuffler was dropped before its end: keep "
                               "it until its close()");
    }
    exc = shuffler_error(shuffler, req->status, req->type->name);
    Py_DECREF(shuffler);
    return exc;
}

/* What libumx has of the shuffler; NULL: it was given back. It lives as long as
 * its object, which who calls this has if this is not NULL. */
static umx_shuffler *
umx_of(const RequestObject *req)
{
    ShufflerObject *shuffler = shuffler_of(req);
    umx_shuffler   *umx      = (shuffler != NULL) ? shuffler->umx : NULL;

    Py_XDECREF(shuffler);
    return umx;
}

int
shuffle_parse_partition(PyObject *number, uint32_t *partition_p)
{
    Py_ssize_t value = PyNumber_AsSsize_t(number, PyExc_OverflowError);

    if (value == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (value < 0 || value >= UMX_PARTITIONS_MAX) {
        PyErr_Format(PyExc_ValueError, "there is no partition %zd", value);
        return -1;
    }
    *partition_p = (uint32_t)value;
    return 0;
}

int
shuffle_parse_partition_or_all(PyObject *number, uint32_t *partition_p)
{
    if (number == NULL || number == Py_None) {
        *partition_p = UMX_PARTITION_ALL;
        return 0;
    }
    return shuffle_parse_partition(number, partition_p);
}

static const op_type op_close_shuffler;

/* Begin an operation of `self`; NULL with an exception. */
static RequestObject *
begin(PyObject *op, const op_type *type, uint32_t partition)
{
    ShufflerObject *self = (ShufflerObject *)op;
    RequestObject  *req;

    if (self->umx == NULL) {
        PyErr_SetString(self->worker->st->exceptions[EXC_UCXCloseError],
                        "the shuffler is closed");
        return NULL;
    }
    req = request_new(self->worker, NULL, type);
    if (req == NULL) {
        return NULL;
    }
    TAIL_OF(req, shuffle_tail)->partition = partition;
    TAIL_OF(req, shuffle_tail)->shuffler  = (type == &op_close_shuffler) ?
                                                Py_NewRef(op) :
                                                PyWeakref_NewRef(op, NULL);
    if (TAIL_OF(req, shuffle_tail)->shuffler == NULL) {
        Py_CLEAR(req);
    }
    return req;
}

/* ---- insert ----------------------------------------------------------------
 */

static umx_status
insert_post(RequestObject *req, const umx_op_params *params)
{
    const shuffle_tail *tail   = TAIL_OF(req, shuffle_tail);
    const umx_buffer   *buf    = &req->hold.buf;
    const umx_buffer   *whole  = umx_memh_buffer(buf->memh);
    umx_shuffler       *umx    = umx_of(req);
    size_t              offset = (size_t)((const char *)buf->data -
                             (const char *)whole->data);

    if (umx == NULL) {
        return UMX_ERR_CLOSED;
    }
    return umx_shuffler_insert(umx, tail->partition, buf->memh, offset,
                               buf->len, params, &req->op);
}

static const op_type op_insert = {
    .name     = "insert",
    .flags    = OP_SEND | OP_PLAIN | OP_PART,
    .post     = insert_post,
    .error    = error,
    .clear    = clear,
    .traverse = traverse,
};

const char shuffler_insert_doc[] =
    "_insert($self, partition, memory, /)\n--\n\n"
    "Insert a chunk of registered memory; awaitable, done when the owner of\n"
    "the partition has released it. None: the memory is not registered.";

PyObject *
shuffler_insert(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    RequestObject *req;
    uint32_t       partition;

    if (nargs != 2) {
        return PyErr_Format(PyExc_TypeError,
                            "_insert() takes 2 arguments, not %zd", nargs);
    }
    if (shuffle_parse_partition(args[0], &partition) < 0) {
        return NULL;
    }
    req = begin(op, &op_insert, partition);
    if (req == NULL) {
        return NULL;
    }
    if (buffer_acquire_run(req->worker->st, args[1], false, &req->hold) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    if (req->hold.buf.memtype != UMX_MEMTYPE_HOST) {
        Py_DECREF(req);
        return PyErr_Format(PyExc_TypeError, "insert() takes host memory, not "
                                             "memory of a device");
    }
    if (req->hold.buf.memh == NULL) {
        Py_DECREF(req);
        Py_RETURN_NONE;
    }
    return request_post(req);
}

/* ---- wait ------------------------------------------------------------------
 */

static umx_status
wait_post(RequestObject *req, const umx_op_params *params)
{
    const shuffle_tail *tail      = TAIL_OF(req, shuffle_tail);
    umx_shuffler       *umx       = umx_of(req);
    uint32_t            partition = 0;
    umx_status          status;

    if (umx == NULL) {
        return UMX_ERR_CLOSED;
    }
    status        = umx_shuffler_wait(umx, tail->partition, params, &req->op,
                                      &partition);
    req->info.tag = partition;
    return status;
}

static PyObject *
wait_result(RequestObject *req)
{
    return (req->info.tag == UMX_PARTITION_ALL) ?
               Py_NewRef(Py_None) :
               PyLong_FromUnsignedLongLong(req->info.tag);
}

static const op_type op_wait_partition = {
    .name     = "wait",
    .flags    = 0,
    .post     = wait_post,
    .note     = event_note_partition,
    .result   = wait_result,
    .error    = error,
    .clear    = clear,
    .traverse = traverse,
};

const char shuffler_wait_doc[] =
    "_wait($self, partition=None, /)\n--\n\n"
    "Wait until a partition that this rank owns can be extracted, or the next\n"
    "one; awaits its number, or None if every one has been given.";

PyObject *
shuffler_wait(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    RequestObject *req;
    uint32_t       partition;

    if (nargs > 1) {
        return PyErr_Format(PyExc_TypeError,
                            "_wait() takes at most 1 argument, not %zd", nargs);
    }
    if (shuffle_parse_partition_or_all((nargs == 1) ? args[0] : NULL,
                                       &partition) < 0) {
        return NULL;
    }
    req = begin(op, &op_wait_partition, partition);
    return (req == NULL) ? NULL : request_post(req);
}

/* ---- close -----------------------------------------------------------------
 */

static umx_status
close_post(RequestObject *req, const umx_op_params *params)
{
    umx_shuffler *umx = umx_of(req);

    return (umx == NULL) ? UMX_OK : umx_shuffler_close(umx, params, &req->op);
}

static const op_type op_close_shuffler = {
    .name     = "close",
    .flags    = OP_PLAIN,
    .post     = close_post,
    .error    = error,
    .clear    = clear,
    .traverse = traverse,
};

const char shuffler_close_doc[] =
    "_close($self, /)\n--\n\n"
    "Finish every partition, and leave when all chunks have reached their\n"
    "owners and this rank's partitions are complete; awaitable.";

PyObject *
shuffler_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RequestObject *req = begin(op, &op_close_shuffler, 0);

    return (req == NULL) ? NULL : request_post(req);
}
