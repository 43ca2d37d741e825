/* SPDX-License-Identifier: BSD-3-Clause */
/* chunk.c: bytes that a shuffle has brought, which any object may view. */
#include "shuffle/chunk.h"

#include "worker/worker.h"

PyObject *
chunk_new(WorkerObject *worker, umx_shuffle_chunk *chunk)
{
    ChunkObject *self = (ChunkObject *)owned_new(worker->st->chunk_type,
                                                 worker);

    if (self == NULL) {
        umx_shuffle_chunk_release(chunk);
        return NULL;
    }
    self->umx = chunk;
    umx_shuffle_chunk_query(chunk, &self->info);
    return (PyObject *)self;
}

static void
release(PyObject *op)
{
    ChunkObject       *self  = (ChunkObject *)op;
    umx_shuffle_chunk *chunk = self->umx;

    self->umx = NULL;
    if (chunk != NULL && !worker_is_forked(self->worker)) {
        umx_shuffle_chunk_release(chunk);
    }
}

static void
chunk_dealloc(PyObject *op)
{
    owned_dealloc(op, release);
}

PyDoc_STRVAR(
    release_doc,
    "release($self, /)\n--\n\n"
    "Give the bytes back: the rank that inserted them may use its memory\n"
    "again. Otherwise that happens with the last reference. A second call\n"
    "does nothing.\n\n"
    "BufferError: something still views the bytes.");

static PyObject *
chunk_release(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ChunkObject *self = (ChunkObject *)op;

    if (self->exports != 0) {
        PyErr_SetString(PyExc_BufferError, "the chunk is still viewed");
        return NULL;
    }
    release(op);
    Py_RETURN_NONE;
}

static PyObject *
get_source(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((ChunkObject *)op)->info.source);
}

static PyObject *
get_nbytes(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(((ChunkObject *)op)->info.len);
}

static const char *
place_name(umx_shuffle_chunk_place place)
{
    switch (place) {
    case UMX_CHUNK_OWN:
        return "own";
    case UMX_CHUNK_MAPPED:
        return "mapped";
    case UMX_CHUNK_COPIED:
        return "copied";
    case UMX_CHUNK_SPILLED:
        return "spilled";
    }
    return "unknown";
}

static PyObject *
get_place(PyObject *op, void *Py_UNUSED(closure))
{
    return PyUnicode_FromString(place_name(((ChunkObject *)op)->info.place));
}

static PyObject *
chunk_repr(PyObject *op)
{
    const ChunkObject *self = (ChunkObject *)op;

    return PyUnicode_FromFormat(
        "<ucp.Chunk of rank %d, %zu bytes, %s>", self->info.source,
        self->info.len,
        (self->umx == NULL) ? "released" : place_name(self->info.place));
}

static int
chunk_get_buffer(PyObject *op, Py_buffer *view, int flags)
{
    ChunkObject *self = (ChunkObject *)op;

    if (self->umx == NULL) {
        PyErr_SetString(PyExc_BufferError, "the chunk is released");
        view->obj = NULL;
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
chunk_release_buffer(PyObject *op, Py_buffer *Py_UNUSED(view))
{
    ((ChunkObject *)op)->exports--;
}

static PyMethodDef chunk_methods[] = {
    {"release", chunk_release, METH_NOARGS, release_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef chunk_getset[] = {
    {"source", get_source, NULL, "Rank that inserted it.", NULL},
    {"nbytes", get_nbytes, NULL, "Length in bytes.", NULL},
    {"place", get_place, NULL,
     "Where the bytes are: \"own\", in the memory that they were inserted\n"
     "from; \"mapped\", there, in another process; \"copied\", in memory of\n"
     "this process; \"spilled\", in the spill file.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(chunk_doc,
             "Bytes that a shuffle has brought: a read-only buffer.");

static PyType_Slot chunk_slots[] = {
    {Py_tp_doc, (void *)chunk_doc},
    {Py_tp_dealloc, chunk_dealloc},
    {Py_tp_traverse, owned_traverse},
    {Py_tp_repr, chunk_repr},
    {Py_tp_methods, chunk_methods},
    {Py_tp_getset, chunk_getset},
    {Py_bf_getbuffer, chunk_get_buffer},
    {Py_bf_releasebuffer, chunk_release_buffer},
    {0, NULL},
};

PyType_Spec chunk_spec = {
    .name      = "ucp._ext.Chunk",
    .basicsize = sizeof(ChunkObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = chunk_slots,
};
