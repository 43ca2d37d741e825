/* SPDX-License-Identifier: BSD-3-Clause */
/* outputs.c: the outputs of maps, as one rank has them. */
#include "outputs/outputs.h"

#include "base/args.h"
#include "outputs/event.h"
#include "worker/worker.h"

/* ---- errors --------------------------------------------------------------
 */

/* A file cannot be written, or read: "[Errno 28] No space left on device". */
static PyObject *
file_error(mod_state *st, umx_status status, const char *op, PyObject *path,
           int error)
{
    PyObject *exc  = NULL;
    PyObject *text = PyUnicode_FromFormat("%s: [Errno %d] %s: %R", op, error,
                                          strerror(error), path);

    if (text != NULL) {
        exc = errors_new_text(st, status, op, PyUnicode_AsUTF8(text));
        Py_DECREF(text);
    }
    return errors_with_errno(exc, error);
}

PyObject *
outputs_error(const OutputsObject *self, umx_status status, const char *op,
              PyObject *path, int error)
{
    mod_state  *st = self->worker->st;
    char        text[128];
    const char *detail = NULL;

    if (status == UMX_ERR_IO_ERROR && path != NULL) {
        return file_error(st, status, op, path, error);
    }
    switch (status) {
    case UMX_ERR_CLOSED:
        return errors_new_text(st, status, op,
                               "the outputs or their communicator are closed, "
                               "or what was written is committed");
    case UMX_ERR_INVALID_PARAM:
        detail = "the ranks give different numbers of maps or partitions";
        break;
    case UMX_ERR_BUSY:
        detail = "another call, or another rank that commits the map again "
                 "and again, is in the way";
        break;
    case UMX_ERR_PROTOCOL:
        detail = "the file is no output of so many partitions, with such "
                 "offsets and checksums";
        break;
    case UMX_ERR_TIMED_OUT:
        snprintf(text, sizeof(text),
                 "%zu memories that were committed here are still mapped by "
                 "others, or by children of fork()",
                 (self->umx == NULL) ? 0 : umx_outputs_num_mapped(self->umx));
        detail = text;
        break;
    default:
        break;
    }
    return joint_error(self, status, op, detail);
}

static int
set_number(PyObject *exc, const char *name, PyObject *number)
{
    int rc = (number == NULL) ? -1 : PyObject_SetAttrString(exc, name, number);

    Py_XDECREF(number);
    return rc;
}

PyObject *
outputs_with_owner(PyObject *exc, uint32_t map, int rank)
{
    if (exc != NULL &&
        (set_number(exc, "map_id", PyLong_FromUnsignedLong(map)) < 0 ||
         set_number(exc, "rank", PyLong_FromLong(rank)) < 0)) {
        Py_CLEAR(exc);
    }
    return exc;
}

/* ---- operations ----------------------------------------------------------
 */

PyObject *
outputs_request_error(RequestObject *req)
{
    return outputs_error(TAIL_OF(req, outputs_tail)->outputs, req->status,
                         req->type->name, NULL, 0);
}

int
outputs_parse_number(PyObject *value, const char *what, uint32_t below,
                     uint32_t *number_p)
{
    Py_ssize_t number = PyNumber_AsSsize_t(value, PyExc_OverflowError);

    if (number == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (number < 0 || (size_t)number >= below) {
        PyErr_Format(PyExc_ValueError, "there is no %s %zd: there are %u", what,
                     number, below);
        return -1;
    }
    *number_p = (uint32_t)number;
    return 0;
}

/* ---- creation ------------------------------------------------------------
 */

static umx_status
create_post(RequestObject *req, const umx_op_params *params)
{
    OutputsObject *self   = joint_of(req);
    umx_status     status = joint_check_new(self);
    umx_outputs   *umx;

    if (status != UMX_OK) {
        return status;
    }
    status = umx_outputs_create(self->comm->umx, &self->params, params, &umx,
                                &req->op);
    if (status >= 0) {
        joint_set(self, umx, umx_outputs_joint(umx));
    }
    return status;
}

static const op_type op_create = {
    .name     = "create",
    .flags    = OP_PLAIN,
    .post     = create_post,
    .error    = joint_request_error,
    .clear    = joint_request_clear,
    .traverse = joint_request_traverse,
};

PyDoc_STRVAR(create_doc, "_create($self, /)\n--\n\n"
                         "Meet the other ranks; awaitable.");

static PyObject *
create(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RequestObject *req = joint_request(op, NULL, &op_create);

    return (req == NULL) ? NULL : request_post(req);
}

#define LIMIT_MAX ((Py_ssize_t)1 << 46) /* bytes */

static int
parse_limit(PyObject *value, const char *name, uint64_t flag,
            umx_outputs_params *params, size_t *out)
{
    Py_ssize_t limit;

    if (value == Py_None) {
        return 0;
    }
    limit = PyNumber_AsSsize_t(value, PyExc_OverflowError);
    if (limit == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (limit <= 0 || limit > LIMIT_MAX) {
        PyErr_Format(PyExc_ValueError, "%s is %zd bytes, not 1 to 2**46", name,
                     limit);
        return -1;
    }
    *out = (size_t)limit;
    params->field_mask |= flag;
    return 0;
}

static int
parse_count(PyObject *value, const char *name, uint32_t most, uint32_t *out)
{
    Py_ssize_t count = PyNumber_AsSsize_t(value, PyExc_OverflowError);

    if (count == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (count < 1 || (size_t)count > most) {
        PyErr_Format(PyExc_ValueError, "%s is %zd, not 1 to %u", name, count,
                     most);
        return -1;
    }
    *out = (uint32_t)count;
    return 0;
}

static int
parse(umx_outputs_params *params, PyObject *args, PyObject *kwargs,
      mod_state *st, CommObject **comm_p)
{
    static char *keywords[] = {"comm",   "num_maps",   "num_partitions",
                               "window", "max_mapped", "lease",
                               NULL};
    PyObject    *comm, *maps, *partitions, *window = Py_None;
    PyObject    *mapped = Py_None, *lease = Py_None;

    if (args_check_made(args, st->comm_type,
                        "a MapOutputs is made by await MapOutputs.create(comm, "
                        "num_maps, num_partitions)") < 0 ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|OOO:MapOutputs",
                                     keywords, st->comm_type, &comm, &maps,
                                     &partitions, &window, &mapped, &lease) ||
        parse_count(maps, "num_maps", UMX_OUTPUTS_MAPS_MAX, &params->num_maps) <
            0 ||
        parse_count(partitions, "num_partitions", UMX_OUTPUTS_PARTITIONS_MAX,
                    &params->num_partitions) < 0 ||
        parse_limit(window, "window", UMX_OUTPUTS_FIELD_WINDOW, params,
                    &params->window) < 0 ||
        parse_limit(mapped, "max_mapped", UMX_OUTPUTS_FIELD_MAPPED, params,
                    &params->max_mapped) < 0) {
        return -1;
    }
    if (lease != Py_None) {
        params->field_mask |= UMX_OUTPUTS_FIELD_LEASE;
        if (args_timeout(lease, 0, &params->lease_ns) < 0) {
            return -1;
        }
        if (params->lease_ns == 0) {
            PyErr_Format(PyExc_ValueError,
                         "lease is %R: nothing can be read in "
                         "that time",
                         lease);
            return -1;
        }
    }
    if ((params->field_mask & UMX_OUTPUTS_FIELD_MAPPED) != 0 &&
        params->max_mapped <
            (((params->field_mask & UMX_OUTPUTS_FIELD_WINDOW) != 0) ?
                 params->window :
                 (size_t)256 << 20)) {
        PyErr_Format(PyExc_ValueError,
                     "max_mapped is %zu bytes, less than a window",
                     params->max_mapped);
        return -1;
    }
    *comm_p = (CommObject *)comm;
    return 0;
}

static const joint_kind outputs_kind = {"outputs", event_drop_outputs};

static PyObject *
map_outputs_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    mod_state         *st     = state_of_type(type);
    umx_outputs_params params = {.field_mask = 0};
    OutputsObject     *self;
    CommObject        *comm;

    if (st == NULL || parse(&params, args, kwargs, st, &comm) < 0) {
        return NULL;
    }
    self = (OutputsObject *)joint_new(type, &outputs_kind, comm);
    if (self != NULL) {
        self->params = params;
    }
    return (PyObject *)self;
}

/* ---- life ----------------------------------------------------------------
 */

static umx_status
close_post(RequestObject *req, const umx_op_params *params)
{
    const outputs_tail *tail = TAIL_OF(req, outputs_tail);

    if (tail->outputs->umx == NULL) {
        return UMX_OK;
    }
    tail->outputs->is_closed = true;
    return umx_outputs_close(tail->outputs->umx, tail->timeout_ns, params,
                             &req->op);
}

static const op_type op_close_outputs = {
    .name     = "close",
    .flags    = OP_PLAIN,
    .post     = close_post,
    .error    = outputs_request_error,
    .clear    = joint_request_clear,
    .traverse = joint_request_traverse,
};

PyDoc_STRVAR(close_doc, "_close($self, timeout, /)\n--\n\n"
                        "Wait until nobody has anything of this rank mapped;\n"
                        "awaitable.");

static PyObject *
map_outputs_close(PyObject *op, PyObject *timeout)
{
    uint64_t       timeout_ns;
    RequestObject *req;

    if (args_timeout(timeout, UMX_TIMEOUT_INFINITE, &timeout_ns) < 0) {
        return NULL;
    }
    req = joint_request(op, NULL, &op_close_outputs);
    if (req == NULL) {
        return NULL;
    }
    TAIL_OF(req, outputs_tail)->timeout_ns = timeout_ns;
    return request_post(req);
}

PyDoc_STRVAR(abort_doc,
             "abort($self, /)\n--\n\n"
             "Give the outputs up without waiting: what was committed here is\n"
             "lost for ranks that have not read it, but for files.");

PyDoc_STRVAR(closed_doc, "closed($self, /)\n--\n\n"
                         "True after close() or abort(), and when the worker\n"
                         "has ended.");

/* ---- what is committed ---------------------------------------------------
 */

PyDoc_STRVAR(find_doc, "_find($self, map_id, /)\n--\n\n"
                       "(epoch, rank, kind, nbytes, flags) of an output, or\n"
                       "None.");

static PyObject *
find(PyObject *op, PyObject *number)
{
    OutputsObject   *self = (OutputsObject *)op;
    umx_outputs_info info;
    uint32_t         map;
    umx_status       status;

    if (outputs_parse_number(number, "map", self->params.num_maps, &map) < 0 ||
        joint_check(self) < 0) {
        return NULL;
    }
    status = umx_outputs_find(self->umx, map, &info);
    if (status == UMX_ERR_NO_ELEM) {
        Py_RETURN_NONE;
    }
    if (status != UMX_OK) {
        return errors_set(outputs_error(self, status, "find", NULL, 0));
    }
    return Py_BuildValue("(KisKI)", info.epoch, info.rank,
                         (info.kind == UMX_OUTPUTS_FILE) ? "file" : "memory",
                         info.len, info.flags);
}

static umx_status
publish_post(RequestObject *req, const umx_op_params *params)
{
    const outputs_tail              *tail = TAIL_OF(req, outputs_tail);
    const umx_outputs_writer_params *call = (const void *)PyBytes_AS_STRING(
        PyTuple_GET_ITEM(tail->object, 0));
    umx_outputs_writer_params copy = *call;
    umx_status                status;

    if (tail->outputs->umx == NULL || outputs_are_cut_off(tail->outputs)) {
        return UMX_ERR_CLOSED;
    }
    copy.path = PyBytes_AS_STRING(PyTuple_GET_ITEM(tail->object, 1));
    (void)umx_take_errno();
    status        = umx_outputs_publish_file(tail->outputs->umx, &copy, params,
                                             &req->op);
    req->info.tag = (uint64_t)umx_take_errno();
    return status;
}

static PyObject *
publish_error(RequestObject *req)
{
    const outputs_tail *tail = TAIL_OF(req, outputs_tail);

    return outputs_error(tail->outputs, req->status, req->type->name,
                         PyTuple_GET_ITEM(tail->object, 1), (int)req->info.tag);
}

static const op_type op_publish_file = {
    .name     = "publish_file",
    .flags    = OP_PLAIN,
    .post     = publish_post,
    .error    = publish_error,
    .clear    = joint_request_clear,
    .traverse = joint_request_traverse,
};

PyDoc_STRVAR(publish_doc, "_publish_file($self, map_id, path, flags, /)\n--\n\n"
                          "Publish a file as the output of a map; awaitable.");

static PyObject *
publish_file(PyObject *op, PyObject *args)
{
    OutputsObject            *self   = (OutputsObject *)op;
    umx_outputs_writer_params params = {
        .field_mask = UMX_OUTPUTS_WRITER_FIELD_FLAGS |
                      UMX_OUTPUTS_WRITER_FIELD_PATH};
    PyObject      *number, *path = NULL, *call;
    RequestObject *req = NULL;

    if (!PyArg_ParseTuple(args, "OO&I:_publish_file", &number,
                          PyUnicode_FSConverter, &path, &params.flags)) {
        return NULL;
    }
    call = (outputs_parse_number(number, "map", self->params.num_maps,
                                 &params.map) < 0) ?
               NULL :
               Py_BuildValue("(y#O)", (const char *)&params,
                             (Py_ssize_t)sizeof(params), path);
    Py_DECREF(path);
    if (call != NULL) {
        req = joint_request(self, call, &op_publish_file);
        Py_DECREF(call);
    }
    return (req == NULL) ? NULL : request_post(req);
}

static PyObject *
get_mapped(PyObject *op, void *Py_UNUSED(closure))
{
    OutputsObject *self = (OutputsObject *)op;
    size_t         now, most;

    if (joint_check(self) < 0) {
        return NULL;
    }
    umx_outputs_mapped(self->umx, &now, &most);
    return Py_BuildValue("(nn)", (Py_ssize_t)now, (Py_ssize_t)most);
}

static PyObject *
get_num_maps(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(((OutputsObject *)op)->params.num_maps);
}

static PyObject *
get_num_partitions(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(
        ((OutputsObject *)op)->params.num_partitions);
}

static PyMethodDef methods[] = {
    {"_create", create, METH_NOARGS, create_doc},
    {"_close", map_outputs_close, METH_O, close_doc},
    {"_find", find, METH_O, find_doc},
    {"_publish_file", publish_file, METH_VARARGS, publish_doc},
    {"abort", joint_abort, METH_NOARGS, abort_doc},
    {"closed", joint_closed, METH_NOARGS, closed_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"_mapped", get_mapped, NULL, NULL, NULL},
    {"num_maps", get_num_maps, NULL, "How many maps there are.", NULL},
    {"num_partitions", get_num_partitions, NULL,
     "How many partitions each map has.", NULL},
    {"worker", owned_get_worker, NULL, "The worker that moves the bytes.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(map_outputs_doc,
             "MapOutputs(comm, num_maps, num_partitions, window=None,\n"
             "           max_mapped=None, lease=None)\n--\n\n"
             "The outputs of maps: see ucp.shuffle.MapOutputs.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)map_outputs_doc},
    {Py_tp_new, map_outputs_new},
    {Py_tp_dealloc, joint_dealloc},
    {Py_tp_traverse, joint_traverse},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_members, owned_members},
    {0, NULL},
};

PyType_Spec map_outputs_spec = {
    .name      = "ucp._ext.MapOutputs",
    .basicsize = sizeof(OutputsObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
