/* SPDX-License-Identifier: BSD-3-Clause */
/* fetch.c: blocks of partitions, on their way. */
#include "outputs/fetch.h"

#include "base/args.h"
#include "outputs/block.h"
#include "outputs/event.h"
#include "worker/worker.h"

typedef struct FetchObject {
    OWNED_HEAD;
    umx_outputs_fetch *umx; /* NULL once it is given back */
    ReaderObject      *reader;
} FetchObject;

/* ---- errors --------------------------------------------------------------
 */

static void
describe(const umx_outputs_failed *failed, char *text, size_t size)
{
    static const char *const what[] = {
        [UMX_OUTPUTS_LOST]    = "cannot be read any more",
        [UMX_OUTPUTS_DAMAGED] = "is damaged: its offsets make no sense, or are "
                                "not those that were committed",
        [UMX_OUTPUTS_CHANGED] = "is a file that is not the one that was "
                                "committed",
        [UMX_OUTPUTS_CHECKSUM] = "is damaged: the checksum is not that of the "
                                 "bytes",
    };
    char where[64] = "";

    if (failed->trouble == UMX_OUTPUTS_CHECKSUM) {
        snprintf(where, sizeof(where), " for partition %u", failed->partition);
    }
    snprintf(text, size,
             "fetch: the output of map %u%s (epoch %llu of rank %d) "
             "%s (%s%s%s)",
             failed->map, where, (unsigned long long)failed->epoch,
             failed->rank, what[failed->trouble],
             umx_status_string(failed->status),
             (failed->error != 0) ? ": " : "",
             (failed->error != 0) ? strerror(failed->error) : "");
}

/* The exception of a fetch that has failed, with map_id and rank. */
static PyObject *
failure(FetchObject *self, umx_status status)
{
    mod_state         *st = self->worker->st;
    umx_outputs_failed failed;
    char               text[400];
    PyObject          *exc;

    if (status == UMX_ERR_NO_MEMORY ||
        !umx_outputs_failure(self->umx, &failed)) {
        return outputs_error(self->reader->outputs, status, "fetch", NULL, 0);
    }
    describe(&failed, text, sizeof(text));
    exc = errors_new_text(st, status, "fetch", text);
    exc = outputs_with_owner(exc, failed.map, failed.rank);
    return errors_with_errno(exc, failed.error);
}

/* ---- life ----------------------------------------------------------------
 */

static void
give_back(PyObject *op)
{
    FetchObject       *self = (FetchObject *)op;
    umx_outputs_fetch *umx  = self->umx;

    self->umx = NULL;
    if (umx != NULL && event_drop_map_fetch(self->worker, umx)) {
        worker_schedule_drain(self->worker);
    }
}

static void
dealloc(PyObject *op)
{
    owned_dealloc_with(op, give_back, (PyObject *)((FetchObject *)op)->reader);
}

static int
traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(((FetchObject *)op)->reader);
    return owned_traverse(op, visit, arg);
}

/* The numbers of maps, in memory of PyMem. -1 with an exception. */
static int
parse_maps(PyObject *sequence, uint32_t num_maps,
           umx_outputs_fetch_params *params)
{
    PyObject *items;
    uint32_t *maps;
    int       rc = 0;

    if (sequence == Py_None) {
        return 0;
    }
    if (PyBytes_Check(sequence) || PyByteArray_Check(sequence)) {
        PyErr_Format(PyExc_TypeError,
                     "maps must be an iterable of numbers, not "
                     "%.200s",
                     Py_TYPE(sequence)->tp_name);
        return -1;
    }
    items = args_items(sequence, "maps must be an iterable of numbers");
    if (items == NULL) {
        return -1;
    }
    maps = PyMem_New(uint32_t, PyTuple_GET_SIZE(items) + 1);
    if (maps == NULL) {
        Py_DECREF(items);
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; rc == 0 && i < PyTuple_GET_SIZE(items); i++) {
        rc = outputs_parse_number(PyTuple_GET_ITEM(items, i), "map", num_maps,
                                  &maps[i]);
    }
    params->field_mask |= UMX_OUTPUTS_FETCH_FIELD_MAPS;
    params->num_maps = (size_t)PyTuple_GET_SIZE(items);
    params->maps     = maps;
    Py_DECREF(items);
    return rc;
}

static PyObject *
begin(ReaderObject *reader, const umx_outputs_fetch_params *params)
{
    WorkerObject *worker = reader->worker;
    FetchObject  *self;
    umx_status    status;

    self = (FetchObject *)owned_new(worker->st->map_fetch_type, worker);
    if (self == NULL) {
        return NULL;
    }
    self->reader = (ReaderObject *)Py_NewRef(reader);
    if (owned_check(worker, reader->umx, "reader") < 0) {
        Py_DECREF(self);
        return NULL;
    }
    status = umx_outputs_fetch_create(reader->umx, params, &self->umx);
    worker_after_call(worker);
    worker_schedule_drain(worker);
    if (status != UMX_OK) {
        (void)errors_set(
            outputs_error(reader->outputs, status, "fetch", NULL, 0));
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

const char map_fetch_begin_doc[] =
    "_fetch($self, first, count, maps, max_bytes, timeout, flags, /)\n--\n\n"
    "Begin to read partitions of maps, or of all (None).";

PyObject *
map_fetch_begin(PyObject *op, PyObject *args)
{
    ReaderObject            *reader = (ReaderObject *)op;
    umx_outputs_fetch_params params = {
        .field_mask = UMX_OUTPUTS_FETCH_FIELD_BYTES |
                      UMX_OUTPUTS_FETCH_FIELD_TIMEOUT |
                      UMX_OUTPUTS_FETCH_FIELD_FLAGS};
    PyObject  *maps, *timeout, *self = NULL;
    Py_ssize_t max_bytes;

    if (!PyArg_ParseTuple(args, "IIOnOI:_fetch", &params.first, &params.count,
                          &maps, &max_bytes, &timeout, &params.flags) ||
        args_timeout(timeout, UMX_TIMEOUT_INFINITE, &params.timeout_ns) < 0) {
        return NULL;
    }
    params.max_bytes = (size_t)max_bytes;
    if (parse_maps(maps, reader->outputs->params.num_maps, &params) == 0) {
        self = begin(reader, &params);
    }
    PyMem_Free((void *)(uintptr_t)params.maps);
    return self;
}

/* ---- blocks --------------------------------------------------------------
 */

PyDoc_STRVAR(take_doc, "take($self, /)\n--\n\n"
                       "The next block; None: there are no more; False: there\n"
                       "is none yet, for which wait() waits.");

static PyObject *
fetch_take(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    FetchObject       *self  = (FetchObject *)op;
    umx_outputs_block *block = NULL;
    umx_status         status;

    if (owned_check(self->worker, self->umx, "fetch") < 0) {
        return NULL;
    }
    status = umx_outputs_take(self->umx, &block);
    if (status == UMX_INPROGRESS) {
        Py_RETURN_FALSE;
    }
    if (status != UMX_OK) {
        return errors_set(failure(self, status));
    }
    if (block == NULL) {
        Py_RETURN_NONE;
    }
    return map_block_new(self->reader->outputs, block);
}

static umx_status
wait_post(RequestObject *req, const umx_op_params *params)
{
    const FetchObject *self = (FetchObject *)TAIL_OF(req, outputs_tail)->object;

    return (self->umx == NULL) ? UMX_ERR_CLOSED :
                                 umx_outputs_wait(self->umx, params, &req->op);
}

static PyObject *
wait_error(RequestObject *req)
{
    FetchObject *self = (FetchObject *)TAIL_OF(req, outputs_tail)->object;

    if (req->status != UMX_ERR_TIMED_OUT) {
        return outputs_request_error(req);
    }
    return errors_new(self->worker->st, req->status, "fetch",
                      "nothing has come in the time that was given");
}

static const op_type op_fetch_wait = {
    .name     = "fetch",
    .flags    = OP_PLAIN,
    .post     = wait_post,
    .error    = wait_error,
    .clear    = joint_request_clear,
    .traverse = joint_request_traverse,
};

PyDoc_STRVAR(wait_doc, "wait($self, /)\n--\n\n"
                       "Wait until take() has something; awaitable.");

static PyObject *
fetch_wait(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    FetchObject   *self = (FetchObject *)op;
    RequestObject *req  = joint_request(self->reader->outputs, op,
                                        &op_fetch_wait);

    return (req == NULL) ? NULL : request_post(req);
}

PyDoc_STRVAR(missing_doc, "missing($self, /)\n--\n\n"
                          "The maps that have not been committed.");

static PyObject *
fetch_missing(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    FetchObject *self = (FetchObject *)op;
    uint32_t    *maps;
    size_t       count;
    PyObject    *list;

    if (owned_check(self->worker, self->umx, "fetch") < 0) {
        return NULL;
    }
    count = umx_outputs_missing(self->umx, NULL, 0);
    maps  = PyMem_New(uint32_t, count + 1);
    if (maps == NULL) {
        return PyErr_NoMemory();
    }
    (void)umx_outputs_missing(self->umx, maps, count);
    list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *number = PyLong_FromUnsignedLong(maps[i]);

        if (number == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, number);
    }
    PyMem_Free(maps);
    return list;
}

PyDoc_STRVAR(close_doc, "close($self, /)\n--\n\n"
                        "End it. Blocks that were taken stay.");

static PyObject *
fetch_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    give_back(op);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"take", fetch_take, METH_NOARGS, take_doc},
    {"wait", fetch_wait, METH_NOARGS, wait_doc},
    {"missing", fetch_missing, METH_NOARGS, missing_doc},
    {"close", fetch_close, METH_NOARGS, close_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(map_fetch_doc, "Blocks of partitions, on their way.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)map_fetch_doc}, {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},         {Py_tp_methods, methods},
    {Py_tp_members, owned_members},     {0, NULL},
};

PyType_Spec map_fetch_spec = {
    .name      = "ucp._ext.MapFetch",
    .basicsize = sizeof(FetchObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
