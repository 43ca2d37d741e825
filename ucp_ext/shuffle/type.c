/* SPDX-License-Identifier: BSD-3-Clause */
/* type.c: the type of shufflers. */
#include "shuffle/type.h"

#include "base/args.h"
#include "shuffle/chunk.h"
#include "shuffle/create.h"
#include "shuffle/event.h"
#include "shuffle/operations.h"
#include "worker/worker.h"

/* ---- life ----------------------------------------------------------------
 */

static void
give_back(PyObject *op)
{
    ShufflerObject *self = (ShufflerObject *)op;
    umx_shuffler   *umx  = self->umx;

    self->umx = NULL;
    if (umx != NULL) {
        self->error = umx_shuffler_spill_error(umx);
    }
    if (umx != NULL && event_drop_shuffler(self->worker, umx)) {
        worker_schedule_drain(self->worker);
    }
}

static void
shuffler_dealloc(PyObject *op)
{
    owned_dealloc_with(op, give_back, ((ShufflerObject *)op)->spill_dir);
}

/* ---- methods ---------------------------------------------------------------
 */

static PyObject *
no_partition(uint32_t partition)
{
    return PyErr_Format(PyExc_ValueError, "there is no partition %u",
                        partition);
}

PyDoc_STRVAR(finished_doc,
             "insert_finished($self, partition=None, /)\n--\n\n"
             "Say that this rank inserts nothing more into `partition`, or\n"
             "into any. A second call for a partition raises UCXError. If an\n"
             "insert has failed, its error is raised, and the shuffle ends on\n"
             "every rank.");

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
    if (shuffle_parse_partition_or_all((nargs == 1) ? args[0] : NULL,
                                       &partition) < 0 ||
        shuffler_check(self) < 0) {
        return NULL;
    }
    status = umx_shuffler_insert_finished(self->umx, partition);
    worker_after_call(self->worker);
    worker_schedule_drain(self->worker);
    if (status == UMX_ERR_OUT_OF_RANGE) {
        return no_partition(partition);
    }
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
    if (status == UMX_ERR_NO_ELEM) {
        PyMem_Free(chunks);
        return PyErr_Format(PyExc_LookupError,
                            "extract: partition %u has been extracted",
                            partition);
    }
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
    return (rank < 0) ? no_partition(partition) : PyLong_FromLong(rank);
}

PyDoc_STRVAR(
    abort_doc,
    "abort($self, reason=None)\n--\n\n"
    "Give the shuffle up on every rank: operations raise UCXRankFailed,\n"
    "with `reason` in its text. Does nothing if the shuffle is closed, or\n"
    "has failed already.");

static PyObject *
shuffler_abort(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames)
{
    static const char *const keywords[] = {"reason"};
    ShufflerObject          *self       = (ShufflerObject *)op;
    PyObject                *values[1];
    PyObject                *reason;

    if (args_parse("abort", args, nargs, kwnames, keywords, 1, 1, 0, values) <
            0 ||
        args_reason(values[0], &reason) < 0) {
        return NULL;
    }
    self->is_closed = true;
    if (self->umx != NULL && self->worker->umx != NULL &&
        !worker_is_forked(self->worker) && worker_is_mine(self->worker)) {
        umx_shuffler_abort(self->umx, (reason != NULL) ?
                                          PyBytes_AS_STRING(reason) :
                                          "it was aborted");
    }
    Py_XDECREF(reason);
    give_back(op);
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
    {"worker", owned_get_worker, NULL, "The worker that moves its chunks.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(shuffler_doc,
             "Shuffler(comm, op_id, num_partitions, owners=None, budget=None,\n"
             "         peer_credit=None, spill_dir=None)\n--\n\n"
             "A shuffle of all ranks: see ucp.shuffle.Shuffler.");

static PyType_Slot shuffler_slots[] = {
    {Py_tp_doc, (void *)shuffler_doc}, {Py_tp_new, shuffler_new},
    {Py_tp_dealloc, shuffler_dealloc}, {Py_tp_traverse, owned_traverse},
    {Py_tp_methods, shuffler_methods}, {Py_tp_getset, shuffler_getset},
    {Py_tp_members, owned_members},    {0, NULL},
};

PyType_Spec shuffler_spec = {
    .name      = "ucp._ext.Shuffler",
    .basicsize = sizeof(ShufflerObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = shuffler_slots,
};
