/* SPDX-License-Identifier: BSD-3-Clause */
/* reader.c: who reads outputs of maps. */
#include "outputs/reader.h"

#include "outputs/event.h"
#include "outputs/fetch.h"
#include "worker/worker.h"

static void
give_back(PyObject *op)
{
    ReaderObject       *self = (ReaderObject *)op;
    umx_outputs_reader *umx  = self->umx;

    self->umx = NULL;
    if (umx != NULL && event_drop_map_reader(self->worker, umx)) {
        worker_schedule_drain(self->worker);
    }
}

static void
dealloc(PyObject *op)
{
    owned_dealloc_with(op, give_back,
                       (PyObject *)((ReaderObject *)op)->outputs);
}

static int
traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(((ReaderObject *)op)->outputs);
    return owned_traverse(op, visit, arg);
}

static PyObject *
reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char   *keywords[] = {"outputs", "flags", NULL};
    mod_state     *st         = state_of_type(type);
    unsigned       flags      = 0;
    PyObject      *object;
    OutputsObject *outputs;
    ReaderObject  *self;
    umx_status     status;

    if (st == NULL ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O!|I:MapReader", keywords,
                                     st->map_outputs_type, &object, &flags)) {
        return NULL;
    }
    outputs = (OutputsObject *)object;
    self    = (ReaderObject *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->worker  = (WorkerObject *)Py_NewRef(outputs->worker);
    self->outputs = (OutputsObject *)Py_NewRef(outputs);
    if (joint_check(outputs) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    status = umx_outputs_reader_create(outputs->umx, flags, &self->umx);
    if (status != UMX_OK) {
        (void)errors_set(outputs_error(outputs, status, "Reader", NULL, 0));
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

PyDoc_STRVAR(
    close_doc,
    "close($self, /)\n--\n\n"
    "End all fetches, and forget what was read: what is mapped for no\n"
    "block that is still held is given back.");

static PyObject *
reader_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    give_back(op);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(forget_doc,
             "forget($self, /)\n--\n\n"
             "Forget which outputs were read, so that their owners can have\n"
             "their memory back. They are opened again when they are read "
             "again.");

static PyObject *
reader_forget(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ReaderObject *self = (ReaderObject *)op;

    if (owned_check(self->worker, self->umx, "reader") < 0) {
        return NULL;
    }
    umx_outputs_reader_forget(self->umx);
    worker_after_call(self->worker);
    worker_schedule_drain(self->worker);
    Py_RETURN_NONE;
}

static PyObject *
get_statistics(PyObject *op, void *Py_UNUSED(closure))
{
    ReaderObject           *self = (ReaderObject *)op;
    umx_outputs_reader_info info;

    if (owned_check(self->worker, self->umx, "reader") < 0) {
        return NULL;
    }
    umx_outputs_reader_query(self->umx, &info);
    return Py_BuildValue(
        "{sK sK sK sK sK sK sK sK sd}", "num_blocks", info.num_blocks, "own",
        info.own, "mapped", info.mapped, "copied", info.copied, "num_opened",
        info.num_opened, "num_reads", info.num_reads, "num_windows",
        info.num_windows, "num_retries", info.num_retries, "seconds_waited",
        (double)info.waited_ns / 1e9);
}

static PyMethodDef methods[] = {
    {"_fetch", map_fetch_begin, METH_VARARGS, map_fetch_begin_doc},
    {"close", reader_close, METH_NOARGS, close_doc},
    {"forget", reader_forget, METH_NOARGS, forget_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"_statistics", get_statistics, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(map_reader_doc, "MapReader(outputs, flags=0)\n--\n\n"
                             "Who reads outputs: see ucp.shuffle.Reader.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)map_reader_doc},
    {Py_tp_new, reader_new},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_members, owned_members},
    {0, NULL},
};

PyType_Spec map_reader_spec = {
    .name      = "ucp._ext.MapReader",
    .basicsize = sizeof(ReaderObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
