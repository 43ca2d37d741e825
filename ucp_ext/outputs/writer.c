/* SPDX-License-Identifier: BSD-3-Clause */
/* writer.c: the output of a map while it is written. */
#include "outputs/writer.h"

#include "outputs/event.h"
#include "outputs/outputs.h"
#include "worker/worker.h"

typedef struct WriterObject {
    OWNED_HEAD;
    umx_outputs_writer *umx; /* NULL once it is given back */
    OutputsObject      *outputs;
    PyObject           *path; /* str; or NULL */
    uint64_t            len;  /* once it is given back, as ... */
    uint64_t            epoch;
} WriterObject;

static PyObject *
writer_error(const WriterObject *self, umx_status status, const char *op,
             int error)
{
    return outputs_error(self->outputs, status, op, self->path, error);
}

static int
check(const WriterObject *self)
{
    return owned_check(self->worker, self->umx, "writer");
}

/* ---- life ----------------------------------------------------------------
 */

static void
give_back(PyObject *op)
{
    WriterObject       *self = (WriterObject *)op;
    umx_outputs_writer *umx  = self->umx;

    self->umx = NULL;
    if (umx != NULL && !worker_is_forked(self->worker)) {
        umx_outputs_writer_query(umx, &self->len, &self->epoch);
    }
    if (umx != NULL && event_drop_map_writer(self->worker, umx)) {
        worker_schedule_drain(self->worker);
    }
}

static void
dealloc(PyObject *op)
{
    PyObject *outputs = (PyObject *)((WriterObject *)op)->outputs;
    PyObject *path    = ((WriterObject *)op)->path;

    owned_dealloc_with(op, give_back, outputs);
    Py_XDECREF(path);
}

static int
traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(((WriterObject *)op)->outputs);
    return owned_traverse(op, visit, arg);
}

static PyObject *
create(PyTypeObject *type, OutputsObject *outputs,
       umx_outputs_writer_params *params, PyObject *path)
{
    WriterObject *self = (WriterObject *)type->tp_alloc(type, 0);
    umx_status    status;
    int           error;

    if (self == NULL) {
        return NULL;
    }
    self->worker  = (WorkerObject *)Py_NewRef(outputs->worker);
    self->outputs = (OutputsObject *)Py_NewRef(outputs);
    if (path != NULL) {
        params->path = PyBytes_AS_STRING(path);
        params->field_mask |= UMX_OUTPUTS_WRITER_FIELD_PATH;
        self->path = PyUnicode_DecodeFSDefault(params->path);
    }
    if ((path != NULL && self->path == NULL) || joint_check(outputs) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    (void)umx_take_errno();
    status = umx_outputs_writer_create(outputs->umx, params, &self->umx);
    error  = umx_take_errno();
    if (status != UMX_OK) {
        (void)errors_set(writer_error(self, status, "Writer", error));
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyObject *
writer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"outputs", "map_id", "flags", "path", NULL};

    mod_state                *st     = state_of_type(type);
    umx_outputs_writer_params params = {
        .field_mask = UMX_OUTPUTS_WRITER_FIELD_FLAGS};
    PyObject *outputs, *number, *name = Py_None, *path = NULL;
    PyObject *self = NULL;

    if (st == NULL ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O!O|IO:MapWriter", keywords,
                                     st->map_outputs_type, &outputs, &number,
                                     &params.flags, &name) ||
        outputs_parse_number(number, "map",
                             ((OutputsObject *)outputs)->params.num_maps,
                             &params.map) < 0 ||
        (name != Py_None && !PyUnicode_FSConverter(name, &path))) {
        return NULL;
    }
    self = create(type, (OutputsObject *)outputs, &params, path);
    Py_XDECREF(path);
    return self;
}

/* ---- writing -------------------------------------------------------------
 */

PyDoc_STRVAR(write_doc,
             "write($self, partition, data, /)\n--\n\n"
             "Add bytes to a partition, behind those that it has. They are\n"
             "copied, or written to the file, before this returns.\n\n"
             "Args:\n"
             "    partition: its number; they may come in any order.\n"
             "    data: bytes, or any contiguous host memory.\n\n"
             "Raises:\n"
             "    UCXCloseError: the writer has been committed or aborted.\n"
             "    UCXError: the file cannot be written: ``errno`` says why.\n"
             "    ValueError: there is no such partition.");

static PyObject *
writer_write(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    WriterObject *self = (WriterObject *)op;
    buffer_hold   hold = {.owner = NULL};
    uint32_t      partition;
    umx_status    status;
    int           error;

    if (nargs != 2) {
        return PyErr_Format(PyExc_TypeError,
                            "write() takes 2 arguments, not %zd", nargs);
    }
    if (outputs_parse_number(args[0], "partition",
                             self->outputs->params.num_partitions,
                             &partition) < 0 ||
        buffer_acquire_run(self->worker->st, args[1], false, &hold) < 0) {
        return NULL;
    }
    if (hold.buf.memtype == UMX_MEMTYPE_CUDA) {
        buffer_release(&hold);
        return PyErr_Format(PyExc_TypeError, "write() takes host memory, not "
                                             "memory of a device");
    }
    if (check(self) < 0) { /* after what the argument's code may do */
        buffer_release(&hold);
        return NULL;
    }
    (void)umx_take_errno();
    status = umx_outputs_write(self->umx, partition, hold.buf.data,
                               hold.buf.len);
    error  = umx_take_errno();
    buffer_release(&hold);
    if (status != UMX_OK) {
        return errors_set(writer_error(self, status, "write", error));
    }
    Py_RETURN_NONE;
}

static umx_status
commit_post(RequestObject *req, const umx_op_params *params)
{
    const WriterObject *self =
        (WriterObject *)TAIL_OF(req, outputs_tail)->object;
    umx_status status;

    if (self->umx == NULL || outputs_are_cut_off(self->outputs)) {
        return UMX_ERR_CLOSED;
    }
    (void)umx_take_errno();
    status        = umx_outputs_commit(self->umx, params, &req->op);
    req->info.tag = (uint64_t)umx_take_errno();
    return status;
}

static PyObject *
commit_error(RequestObject *req)
{
    return writer_error((WriterObject *)TAIL_OF(req, outputs_tail)->object,
                        req->status, req->type->name, (int)req->info.tag);
}

static const op_type op_commit = {
    .name     = "commit",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = commit_post,
    .error    = commit_error,
    .clear    = joint_request_clear,
    .traverse = joint_request_traverse,
};

PyDoc_STRVAR(commit_doc, "_commit($self, /)\n--\n\n"
                         "Publish what was written; awaitable.");

static PyObject *
writer_commit(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WriterObject  *self = (WriterObject *)op;
    RequestObject *req;

    if (check(self) < 0) {
        return NULL;
    }
    req = joint_request(self->outputs, op, &op_commit);
    return (req == NULL) ? NULL : request_post(req);
}

PyDoc_STRVAR(abort_doc, "abort($self, /)\n--\n\n"
                        "Drop what was written and not committed.");

static PyObject *
writer_abort(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    give_back(op);
    Py_RETURN_NONE;
}

static PyObject *
get_nbytes(PyObject *op, void *Py_UNUSED(closure))
{
    WriterObject *self = (WriterObject *)op;

    if (self->umx != NULL && !worker_is_forked(self->worker)) {
        umx_outputs_writer_query(self->umx, &self->len, &self->epoch);
    }
    return PyLong_FromUnsignedLongLong(self->len);
}

static PyObject *
get_epoch(PyObject *op, void *Py_UNUSED(closure))
{
    WriterObject *self = (WriterObject *)op;

    if (self->umx != NULL && !worker_is_forked(self->worker)) {
        umx_outputs_writer_query(self->umx, &self->len, &self->epoch);
    }
    return (self->epoch == 0) ? Py_NewRef(Py_None) :
                                PyLong_FromUnsignedLongLong(self->epoch);
}

#define FAST(function) (PyCFunction)(void (*)(void))(function)

static PyMethodDef methods[] = {
    {"write", FAST(writer_write), METH_FASTCALL, write_doc},
    {"_commit", writer_commit, METH_NOARGS, commit_doc},
    {"abort", writer_abort, METH_NOARGS, abort_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"nbytes", get_nbytes, NULL, "Bytes that were written.", NULL},
    {"epoch", get_epoch, NULL,
     "Which commit of the map it was; None until it is committed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(map_writer_doc,
             "MapWriter(outputs, map_id, flags=0, path=None)\n--\n\n"
             "The output of a map while it is written: see "
             "ucp.shuffle.Writer.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)map_writer_doc},
    {Py_tp_new, writer_new},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_members, owned_members},
    {0, NULL},
};

PyType_Spec map_writer_spec = {
    .name      = "ucp._ext.MapWriter",
    .basicsize = sizeof(WriterObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
