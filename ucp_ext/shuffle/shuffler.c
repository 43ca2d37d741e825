/* SPDX-License-Identifier: BSD-3-Clause */
/* shuffler.c: a shuffle in which this process takes part. */
#include "shuffle/shuffler.h"

#include "base/args.h"
#include "base/errors.h"
#include "base/event.h"
#include "shuffle/operations.h"
#include "shuffle/chunk.h"
#include "comm/communicator.h"
#include "worker/worker.h"

/* ---- errors --------------------------------------------------------------
 */

int
shuffler_check(const ShufflerObject *self)
{
    if (worker_is_forked(self->worker)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the shuffler belongs to the parent process");
        return -1;
    }
    if (self->umx == NULL || self->worker->umx == NULL) {
        PyErr_SetString(self->worker->st->exceptions[EXC_UCXCloseError],
                        "the shuffler is closed");
        return -1;
    }
    return worker_check(self->worker);
}

PyObject *
shuffler_error(const ShufflerObject *self, umx_status status, const char *op)
{
    mod_state  *st   = self->worker->st;
    const char *text = NULL;

    switch (status) {
    case UMX_ERR_RANK_FAILED:
        if (self->umx != NULL) {
            return comm_failure_error(st, umx_shuffler_comm(self->umx), op);
        }
        break;
    case UMX_ERR_CLOSED:
        text = "the shuffler is closed";
        break;
    case UMX_ERR_EXCEEDS_LIMIT:
        text = "the budget holds no more until partitions are extracted; a "
               "larger one, or a spill_dir, would";
        break;
    case UMX_ERR_IO_ERROR:
        text = "the spill file cannot grow";
        break;
    case UMX_ERR_NO_ELEM:
        text = "the partition has been extracted";
        break;
    case UMX_ERR_INVALID_PARAM:
        text = "insert_finished() has been called for the partition";
        break;
    default:
        break;
    }
    return errors_new(st, status, op, text);
}

/* ---- life ----------------------------------------------------------------
 */

/* What is parsed for umx_shuffler_create(). */
typedef struct shuffler_call {
    umx_shuffler_params params;
    int                *owners; /* of PyMem; or NULL */
    PyObject           *dir;    /* bytes; or NULL */
} shuffler_call;

static int
owner_of(uint32_t partition, void *arg)
{
    return ((const int *)arg)[partition];
}

static int
parse_owners(shuffler_call *call, PyObject *owners, int size)
{
    PyObject *items;
    int       rc = -1;

    if (owners == Py_None) {
        return 0;
    }
    items = args_items(owners, "owners must be an iterable of ranks");
    if (items == NULL) {
        return -1;
    }
    if (PyTuple_GET_SIZE(items) != (Py_ssize_t)call->params.num_partitions) {
        PyErr_Format(PyExc_ValueError, "owners has %zd ranks for %u partitions",
                     PyTuple_GET_SIZE(items), call->params.num_partitions);
        goto out;
    }
    call->owners = PyMem_New(int, call->params.num_partitions);
    if (call->owners == NULL) {
        PyErr_NoMemory();
        goto out;
    }
    for (uint32_t i = 0; i < call->params.num_partitions; i++) {
        Py_ssize_t rank = PyNumber_AsSsize_t(PyTuple_GET_ITEM(items, i),
                                             PyExc_OverflowError);

        if (rank == -1 && PyErr_Occurred()) {
            goto out;
        }
        if (rank < 0 || rank >= size) {
            PyErr_Format(PyExc_ValueError,
                         "owners: %zd is no rank of %d, of partition %u", rank,
                         size, i);
            goto out;
        }
        call->owners[i] = (int)rank;
    }
    call->params.field_mask |= UMX_SHUFFLER_FIELD_OWNER;
    call->params.owner     = owner_of;
    call->params.owner_arg = call->owners;
    rc                     = 0;
out:
    Py_DECREF(items);
    return rc;
}

static int
parse_bytes_limit(PyObject *value, const char *name, uint64_t flag,
                  shuffler_call *call, size_t *out)
{
    Py_ssize_t limit;

    if (value == Py_None) {
        return 0;
    }
    limit = PyNumber_AsSsize_t(value, PyExc_OverflowError);
    if (limit == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (limit < 0) {
        PyErr_Format(PyExc_ValueError, "%s is %zd bytes", name, limit);
        return -1;
    }
    *out = (size_t)limit;
    call->params.field_mask |= flag;
    return 0;
}

static int
parse(shuffler_call *call, PyObject *args, PyObject *kwargs, mod_state *st,
      CommObject **comm_p)
{
    static char *keywords[] = {"comm",      "op_id",  "num_partitions",
                               "owners",    "budget", "peer_credit",
                               "spill_dir", NULL};

    PyObject  *comm, *op_id, *count, *owners = Py_None, *budget = Py_None;
    PyObject  *credit = Py_None, *dir = Py_None;
    Py_ssize_t value;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|OOOO:Shuffler",
                                     keywords, st->comm_type, &comm, &op_id,
                                     &count, &owners, &budget, &credit, &dir) ||
        args_raw_tag(op_id, "op_id", &call->params.op_id) < 0) {
        return -1;
    }
    value = PyNumber_AsSsize_t(count, PyExc_OverflowError);
    if (value == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (value < 1 || value > UMX_PARTITIONS_MAX) {
        PyErr_Format(PyExc_ValueError, "num_partitions is %zd, not 1 to %d",
                     value, UMX_PARTITIONS_MAX);
        return -1;
    }
    call->params.num_partitions = (uint32_t)value;
    *comm_p                     = (CommObject *)comm;
    if (parse_bytes_limit(budget, "budget", UMX_SHUFFLER_FIELD_BUDGET, call,
                          &call->params.budget) < 0 ||
        parse_bytes_limit(credit, "peer_credit", UMX_SHUFFLER_FIELD_PEER_CREDIT,
                          call, &call->params.peer_credit) < 0) {
        return -1;
    }
    if (dir != Py_None) {
        if (!PyUnicode_FSConverter(dir, &call->dir)) {
            return -1;
        }
        call->params.spill_dir = PyBytes_AS_STRING(call->dir);
        call->params.field_mask |= UMX_SHUFFLER_FIELD_SPILL_DIR;
    }
    if (comm_check(*comm_p) < 0) { /* after what the arguments' code may do */
        return -1;
    }
    return parse_owners(call, owners, umx_comm_size((*comm_p)->umx));
}

/* The directory cannot be written to. */
static PyObject *
raise_os_error(const shuffler_call *call, int error)
{
    PyObject *path = PyUnicode_DecodeFSDefault(call->params.spill_dir);

    if (path != NULL) {
        errno = error;
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
        Py_DECREF(path);
    }
    return NULL;
}

static PyObject *
create(PyTypeObject *type, CommObject *comm, shuffler_call *call)
{
    WorkerObject   *worker = comm->worker;
    ShufflerObject *self   = (ShufflerObject *)type->tp_alloc(type, 0);
    umx_status      status;

    if (self == NULL) {
        return NULL;
    }
    self->worker = (WorkerObject *)Py_NewRef(worker);
    if (comm_check(comm) < 0) { /* collecting may have closed it */
        Py_DECREF(self);
        return NULL;
    }
    status = umx_shuffler_create(comm->umx, &call->params, &self->umx);
    if (status == UMX_ERR_IO_ERROR) {
        Py_DECREF(self);
        return raise_os_error(call, umx_take_errno());
    }
    if (status != UMX_OK) {
        Py_DECREF(self);
        return errors_set(comm_error(comm, status, "Shuffler", -1));
    }
    worker_after_call(worker);
    worker_schedule_drain(worker);
    return (PyObject *)self;
}

static PyObject *
shuffler_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    mod_state    *st   = state_of_type(type);
    shuffler_call call = {.owners = NULL};
    CommObject   *comm;
    PyObject     *self = NULL;

    if (st != NULL && parse(&call, args, kwargs, st, &comm) == 0) {
        self = create(type, comm, &call);
    }
    PyMem_Free(call.owners);
    Py_XDECREF(call.dir);
    return self;
}

/* Give it back, in whichever thread. */
static void
drop(ShufflerObject *self)
{
    WorkerObject *worker = self->worker;
    umx_shuffler *umx    = self->umx;

    self->umx = NULL;
    if (umx == NULL || worker_is_forked(worker)) {
        return; /* a child's copy is the parent's */
    }
    if (worker->umx != NULL && !worker_is_mine(worker)) {
        (void)event_drop_shuffler(worker, umx);
        return;
    }
    umx_shuffler_destroy(umx);
    if (worker->umx != NULL) {
        worker_schedule_drain(worker);
    }
}

static int
shuffler_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((ShufflerObject *)op)->worker);
    return 0;
}

static void
shuffler_dealloc(PyObject *op)
{
    ShufflerObject *self = (ShufflerObject *)op;
    PyTypeObject   *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    if (self->weakrefs != NULL) {
        PyObject_ClearWeakRefs(op);
    }
    drop(self);
    Py_CLEAR(self->worker);
    type->tp_free(op);
    Py_DECREF(type);
}

/* ---- methods ---------------------------------------------------------------
 */

PyDoc_STRVAR(finished_doc,
             "insert_finished($self, partition=None, /)\n--\n\n"
             "Say that this rank inserts nothing more into `partition`, or\n"
             "into any. A second call for a partition raises UCXError.");

static PyObject *
insert_finished(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    ShufflerObject *self = (ShufflerObject *)op;
    uint32_t        partition;
    umx_status      status;

    if (nargs > 1) {
        return PyErr_Format(
            PyExc_TypeError,
            "insert_finished() takes at most 1 argument, not %zd", nargs);
    }
    if (shuffle_parse_partition((nargs == 1) ? args[0] : NULL, &partition) <
            0 ||
        shuffler_check(self) < 0) {
        return NULL;
    }
    status = umx_shuffler_insert_finished(self->umx, partition);
    worker_after_call(self->worker);
    worker_schedule_drain(self->worker);
    if (status != UMX_OK) {
        return errors_set(shuffler_error(self, status, "insert_finished"));
    }
    Py_RETURN_NONE;
}

static PyObject *
list_chunks(ShufflerObject *self, umx_shuffle_chunk **chunks, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; i < count; i++) {
        PyObject *chunk = NULL;

        if (list == NULL) {
            umx_shuffle_chunk_release(chunks[i]);
            continue;
        }
        chunk = chunk_new(self->worker, chunks[i]);
        if (chunk == NULL) {
            Py_CLEAR(list);
            continue;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, chunk);
    }
    return list;
}

PyDoc_STRVAR(extract_doc, "_extract($self, partition, /)\n--\n\n"
                          "Take the chunks of a complete partition: a list.");

static PyObject *
extract(PyObject *op, PyObject *number)
{
    ShufflerObject     *self = (ShufflerObject *)op;
    uint32_t            partition;
    umx_shuffle_chunk **chunks = NULL;
    size_t              count  = 0;
    umx_status          status;
    PyObject           *list;

    if (shuffle_parse_partition(number, &partition) < 0 ||
        shuffler_check(self) < 0) {
        return NULL;
    }
    status = umx_shuffler_extract(self->umx, partition, NULL, &count);
    if (status == UMX_ERR_BUFFER_TOO_SMALL) {
        chunks = PyMem_New(umx_shuffle_chunk *, count);
        if (chunks == NULL) {
            return PyErr_NoMemory();
        }
        status = umx_shuffler_extract(self->umx, partition, chunks, &count);
    }
    worker_after_call(self->worker);
    if (status != UMX_OK) {
        PyMem_Free(chunks);
        return errors_set(shuffler_error(self, status, "extract"));
    }
    worker_schedule_drain(self->worker);
    list = list_chunks(self, chunks, count);
    PyMem_Free(chunks);
    return list;
}

PyDoc_STRVAR(owner_doc, "owner($self, partition, /)\n--\n\n"
                        "The rank that owns a partition.");

static PyObject *
owner(PyObject *op, PyObject *number)
{
    ShufflerObject *self = (ShufflerObject *)op;
    uint32_t        partition;
    int             rank;

    if (shuffle_parse_partition(number, &partition) < 0 ||
        shuffler_check(self) < 0) {
        return NULL;
    }
    rank = umx_shuffler_owner(self->umx, partition);
    return (rank < 0) ? PyErr_Format(PyExc_ValueError,
                                     "there is no partition %u", partition) :
                        PyLong_FromLong(rank);
}

PyDoc_STRVAR(
    abort_doc,
    "abort($self, reason=None)\n--\n\n"
    "Give it up: unless it was closed before, it ends on every rank,\n"
    "where operations raise UCXRankFailed, with `reason` in its text.");

static PyObject *
shuffler_abort(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames)
{
    static const char *const keywords[] = {"reason"};
    ShufflerObject          *self       = (ShufflerObject *)op;
    PyObject                *values[1];
    const char              *reason = "it was aborted";

    if (args_parse("abort", args, nargs, kwnames, keywords, 1, 1, 0, values) <
        0) {
        return NULL;
    }
    if (values[0] != NULL && values[0] != Py_None) {
        if (!PyUnicode_Check(values[0])) {
            return PyErr_Format(PyExc_TypeError,
                                "reason must be a str, not %.200s",
                                Py_TYPE(values[0])->tp_name);
        }
        reason = PyUnicode_AsUTF8(values[0]);
        if (reason == NULL) {
            return NULL;
        }
    }
    self->is_closed = true;
    if (self->umx != NULL && self->worker->umx != NULL &&
        !worker_is_forked(self->worker) && worker_is_mine(self->worker)) {
        umx_shuffler_abort(self->umx, reason);
    }
    drop(self);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(closed_doc, "closed($self, /)\n--\n\n"
                         "True after close() or abort(), and when the worker\n"
                         "has ended.");

static PyObject *
closed(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ShufflerObject *self = (ShufflerObject *)op;

    return PyBool_FromLong(self->is_closed || self->umx == NULL ||
                           self->worker->umx == NULL);
}

static PyObject *
get_statistics(PyObject *op, void *Py_UNUSED(closure))
{
    ShufflerObject   *self = (ShufflerObject *)op;
    umx_shuffler_info info;

    if (shuffler_check(self) < 0) {
        return NULL;
    }
    umx_shuffler_query(self->umx, &info);
    return Py_BuildValue(
        "{sK sK sK sK sK sK sK sK sK sK sK sI sI}", "num_inserted",
        info.num_inserted, "inserted", info.inserted, "num_received",
        info.num_received, "received", info.received, "own", info.own, "mapped",
        info.mapped, "copied", info.copied, "spilled_in", info.spilled_in,
        "spilled_out", info.spilled_out, "held", info.held, "most_held",
        info.most_held, "num_owned", info.num_owned, "num_complete",
        info.num_complete);
}

static PyObject *
get_worker(PyObject *op, void *Py_UNUSED(closure))
{
    return Py_NewRef(((ShufflerObject *)op)->worker);
}

#define FAST(function) (PyCFunction)(void (*)(void))(function)

static PyMethodDef shuffler_methods[] = {
    {"_insert", FAST(shuffler_insert), METH_FASTCALL, shuffler_insert_doc},
    {"_wait", FAST(shuffler_wait), METH_FASTCALL, shuffler_wait_doc},
    {"_close", shuffler_close, METH_NOARGS, shuffler_close_doc},
    {"_extract", extract, METH_O, extract_doc},
    {"insert_finished", FAST(insert_finished), METH_FASTCALL, finished_doc},
    {"owner", owner, METH_O, owner_doc},
    {"abort", FAST(shuffler_abort), METH_FASTCALL | METH_KEYWORDS, abort_doc},
    {"closed", closed, METH_NOARGS, closed_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef shuffler_getset[] = {
    {"_statistics", get_statistics, NULL, NULL, NULL},
    {"worker", get_worker, NULL, "The worker that moves its chunks.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef shuffler_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(ShufflerObject, weakrefs),
     READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(shuffler_doc,
             "Shuffler(comm, op_id, num_partitions, owners=None, budget=None,\n"
             "         peer_credit=None, spill_dir=None)\n--\n\n"
             "A shuffle of all ranks: see ucp.shuffle.Shuffler.");

static PyType_Slot shuffler_slots[] = {
    {Py_tp_doc, (void *)shuffler_doc}, {Py_tp_new, shuffler_new},
    {Py_tp_dealloc, shuffler_dealloc}, {Py_tp_traverse, shuffler_traverse},
    {Py_tp_methods, shuffler_methods}, {Py_tp_getset, shuffler_getset},
    {Py_tp_members, shuffler_members}, {0, NULL},
};

PyType_Spec shuffler_spec = {
    .name      = "ucp._ext.Shuffler",
    .basicsize = sizeof(ShufflerObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = shuffler_slots,
};
