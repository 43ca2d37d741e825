/* SPDX-License-Identifier: BSD-3-Clause */
/* block.c: the bytes of one map for one partition, which any object may view.
 */
#include "outputs/block.h"

#include "worker/worker.h"

typedef struct BlockObject {
    OWNED_HEAD;
    umx_outputs_block     *umx; /* NULL once it is released */
    umx_outputs_block_info info;
    OutputsObject         *outputs;
    Py_buffer  landed; /* what its bytes were read into; or nothing */
    bool       has_landed;
    Py_ssize_t exports;
} BlockObject;

PyObject *
map_block_new(OutputsObject *outputs, umx_outputs_block *block)
{
    WorkerObject *worker = outputs->worker;
    BlockObject  *self   = (BlockObject *)owned_new(worker->st->map_block_type,
                                                    worker);

    if (self == NULL) {
        umx_outputs_block_release(block);
        return NULL;
    }
    self->umx     = block;
    self->outputs = (OutputsObject *)Py_NewRef(outputs);
    umx_outputs_block_query(block, &self->info);
    return (PyObject *)self;
}

static void
release(PyObject *op)
{
    BlockObject       *self  = (BlockObject *)op;
    umx_outputs_block *block = self->umx;

    self->umx = NULL;
    if (block != NULL && !worker_is_forked(self->worker)) {
        umx_outputs_block_release(block);
    }
    if (self->landed.obj != NULL) {
        PyBuffer_Release(&self->landed);
    }
}

static void
dealloc(PyObject *op)
{
    owned_dealloc_with(op, release, (PyObject *)((BlockObject *)op)->outputs);
}

static int
traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(((BlockObject *)op)->outputs);
    Py_VISIT(((BlockObject *)op)->landed.obj);
    return owned_traverse(op, visit, arg);
}

PyDoc_STRVAR(release_doc,
             "release($self, /)\n--\n\n"
             "Give the bytes back. Otherwise that happens with the last\n"
             "reference. A second call does nothing.\n\n"
             "BufferError: something still views the bytes.");

static PyObject *
map_block_release(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    if (((BlockObject *)op)->exports != 0) {
        PyErr_SetString(PyExc_BufferError, "the block is still viewed");
        return NULL;
    }
    release(op);
    Py_RETURN_NONE;
}

/* ---- reading it elsewhere ------------------------------------------------
 */

static umx_status
get_post(RequestObject *req, const umx_op_params *params)
{
    const BlockObject *self = (BlockObject *)TAIL_OF(req, outputs_tail)->object;

    return (self->umx == NULL) ?
               UMX_ERR_CLOSED :
               umx_outputs_block_get(self->umx, &req->hold.buf, params,
                                     &req->op);
}

static PyObject *
get_error(RequestObject *req)
{
    const BlockObject *self = (BlockObject *)TAIL_OF(req, outputs_tail)->object;
    char               text[160];

    snprintf(text, sizeof(text),
             "the output of map %u (epoch %llu of rank %d) cannot be read: %s",
             self->info.map, (unsigned long long)self->info.epoch,
             self->info.rank, umx_status_string(req->status));
    return outputs_with_owner(
        errors_new(req->worker->st, req->status, "fetch", text), self->info.map,
        self->info.rank);
}

static const op_type op_block_get = {
    .name     = "get",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = get_post,
    .error    = get_error,
    .clear    = joint_request_clear,
    .traverse = joint_request_traverse,
};

PyDoc_STRVAR(get_doc, "_get($self, buffer, /)\n--\n\n"
                      "Read the bytes into `buffer`; awaitable.");

static PyObject *
map_block_get(PyObject *op, PyObject *buffer)
{
    BlockObject   *self = (BlockObject *)op;
    RequestObject *req  = joint_request(self->outputs, op, &op_block_get);

    if (req == NULL) {
        return NULL;
    }
    if (buffer_acquire_run(req->worker->st, buffer, true, &req->hold) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

PyDoc_STRVAR(land_doc, "_land($self, buffer, /)\n--\n\n"
                       "Have the block's bytes in `buffer`, which is held.");

static PyObject *
block_land(PyObject *op, PyObject *buffer)
{
    BlockObject *self = (BlockObject *)op;

    if (self->umx == NULL || self->has_landed) {
        PyErr_SetString(PyExc_BufferError, "the block is released, or has its "
                                           "bytes");
        return NULL;
    }
    if (PyObject_GetBuffer(buffer, &self->landed, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if ((size_t)self->landed.len != self->info.len) {
        PyBuffer_Release(&self->landed);
        return PyErr_Format(PyExc_ValueError, "%zd bytes for a block of %zu",
                            self->landed.len, self->info.len);
    }
    self->has_landed = true;
    self->info.data  = self->landed.buf;
    Py_RETURN_NONE;
}

/* ---- attributes ----------------------------------------------------------
 */

#define NUMBER(name, field, make)                                       \
    static PyObject *get_##name(PyObject *op, void *Py_UNUSED(closure)) \
    {                                                                   \
        return make(((BlockObject *)op)->info.field);                   \
    }
NUMBER(map_id, map, PyLong_FromUnsignedLong)
NUMBER(partition, partition, PyLong_FromUnsignedLong)
NUMBER(nbytes, len, PyLong_FromSize_t)
NUMBER(epoch, epoch, PyLong_FromUnsignedLongLong)
NUMBER(rank, rank, PyLong_FromLong)

static const char *
place_name(const BlockObject *self)
{
    switch (self->info.place) {
    case UMX_OUTPUTS_OWN:
        return "own";
    case UMX_OUTPUTS_MAPPED:
        return "mapped";
    case UMX_OUTPUTS_COPIED:
        return "copied";
    case UMX_OUTPUTS_AWAY:
        return self->has_landed ? "copied" : "away";
    }
    return "unknown";
}

static PyObject *
get_place(PyObject *op, void *Py_UNUSED(closure))
{
    return PyUnicode_FromString(place_name((BlockObject *)op));
}

static PyObject *
block_repr(PyObject *op)
{
    const BlockObject *self = (BlockObject *)op;

    return PyUnicode_FromFormat(
        "<ucp.shuffle.MapBlock of map %u for partition %u, %zu bytes of rank "
        "%d, %s>",
        self->info.map, self->info.partition, self->info.len, self->info.rank,
        (self->umx == NULL) ? "released" : place_name(self));
}

static int
get_buffer(PyObject *op, Py_buffer *view, int flags)
{
    BlockObject *self = (BlockObject *)op;

    view->obj = NULL;
    if (self->umx == NULL) {
        PyErr_SetString(PyExc_BufferError, "the block is released");
        return -1;
    }
    if (self->info.place == UMX_OUTPUTS_AWAY && !self->has_landed) {
        PyErr_SetString(PyExc_BufferError, "the block has not been read");
        return -1;
    }
    if (PyBuffer_FillInfo(view, op, (void *)(uintptr_t)self->info.data,
                          (Py_ssize_t)self->info.len, 1, flags) < 0) {
        return -1;
    }
    self->exports++;
    return 0;
}

static void
release_buffer(PyObject *op, Py_buffer *Py_UNUSED(view))
{
    ((BlockObject *)op)->exports--;
}

static PyMethodDef methods[] = {
    {"release", map_block_release, METH_NOARGS, release_doc},
    {"_get", map_block_get, METH_O, get_doc},
    {"_land", block_land, METH_O, land_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"map_id", get_map_id, NULL, "The map that made these bytes.", NULL},
    {"partition", get_partition, NULL,
     "The partition for which these bytes are.", NULL},
    {"nbytes", get_nbytes, NULL, "Length in bytes.", NULL},
    {"epoch", get_epoch, NULL,
     "The commit of the map from which these bytes are.", NULL},
    {"rank", get_rank, NULL, "The rank that has the output.", NULL},
    {"place", get_place, NULL,
     "Where the bytes are: \"own\", in the memory that was committed here;\n"
     "\"mapped\", there, in another process, or in a file; \"copied\", in\n"
     "memory of this process.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(map_block_doc,
             "Bytes of a map for a partition: a read-only buffer.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)map_block_doc},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_repr, block_repr},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_members, owned_members},
    {Py_bf_getbuffer, get_buffer},
    {Py_bf_releasebuffer, release_buffer},
    {0, NULL},
};

PyType_Spec map_block_spec = {
    .name      = "ucp._ext.MapBlock",
    .basicsize = sizeof(BlockObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
