/* SPDX-License-Identifier: BSD-3-Clause */
/* rkey.c: the type of a peer's memory. Where it is mapped an operation is done
 * when the call returns; the request is made all the same, so that both kinds
 * are awaited. */
#include "type/type.h"

#include "base/args.h"
#include "object/endpoint.h"
#include "object/rkey.h"
#include "op/atomic.h"
#include "op/close.h"
#include "op/rma.h"
#include "worker/worker.h"

/* ---- the mapping ---------------------------------------------------------
 */

static int
remote_getbuffer(PyObject *op, Py_buffer *view, int flags)
{
    RemoteObject *self    = (RemoteObject *)op;
    void         *pointer = umx_rkey_pointer(self->umx);

    view->obj = NULL;
    if (pointer == NULL) {
        PyErr_SetString(PyExc_BufferError,
                        "the memory is not mapped: it is on another host, or "
                        "was not allocated by Memory.allocate()");
        return -1;
    }
    return PyBuffer_FillInfo(view, op, pointer, (Py_ssize_t)self->nbytes,
                             umx_rkey_is_readonly(self->umx), flags);
}

PyDoc_STRVAR(remote_view_doc,
             "view($self, offset=0, nbytes=None)\n--\n\n"
             "Return the memory, or a part of it, as a memoryview, if it is\n"
             "`mapped`. The view stays valid when the connection ends.");

static PyObject *
remote_view(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    static const char *const keywords[] = {"offset", "nbytes"};
    RemoteObject            *self       = (RemoteObject *)op;
    PyObject                *values[2], *whole, *part;
    uint64_t                 offset, len;

    if (args_parse("view", args, nargs, kwnames, keywords, 2, 2, 0, values) <
            0 ||
        rma_parse_offset(values[0], &offset) < 0) {
        return NULL;
    }
    len = (offset < self->nbytes) ? self->nbytes - offset : 0;
    if ((values[1] != NULL && values[1] != Py_None &&
         rma_parse_offset(values[1], &len) < 0) ||
        rma_check_range(self, offset, len) < 0) {
        return NULL;
    }
    whole = PyMemoryView_FromObject(op);
    if (whole == NULL) {
        return NULL;
    }
    part = PySequence_GetSlice(whole, (Py_ssize_t)offset,
                               (Py_ssize_t)(offset + len));
    Py_DECREF(whole);
    return part;
}

PyDoc_STRVAR(notify_doc,
             "notify($self, /)\n--\n\n"
             "Wake who waits for the memory at its owner, after stores by\n"
             "view().");

static PyObject *
remote_notify(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RemoteObject *self   = (RemoteObject *)op;
    WorkerObject *worker = self->endpoint->worker;
    umx_status    status = umx_rkey_notify(self->umx);

    if (status != UMX_OK) {
        return errors_raise(worker->st, status, "notify", NULL);
    }
    worker_drain_if_due(worker);
    Py_RETURN_NONE;
}

/* ---- the rest ------------------------------------------------------------
 */

PyDoc_STRVAR(flush_doc,
             "flush($self, /)\n--\n\n"
             "Wait until all operations of the endpoint have reached the\n"
             "peer; awaitable.");

static PyObject *
remote_flush(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    EndpointObject *endpoint = ((RemoteObject *)op)->endpoint;

    return request_begin(endpoint->worker, endpoint, &op_flush_memory);
}

PyDoc_STRVAR(close_doc,
             "close($self, /)\n--\n\n"
             "End the access: further operations raise UCXCloseError. Views\n"
             "stay valid.");

static PyObject *
remote_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RemoteObject *self = (RemoteObject *)op;

    umx_rkey_close(self->umx);
    self->is_closed = true;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(closed_doc, "closed($self, /)\n--\n\nTrue after close().");

static PyObject *
remote_closed(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(((RemoteObject *)op)->is_closed);
}

static PyObject *
get_nbytes(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((RemoteObject *)op)->nbytes);
}

static PyObject *
get_readonly(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(umx_rkey_is_readonly(((RemoteObject *)op)->umx));
}

static PyObject *
get_mapped(PyObject *op, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(umx_rkey_pointer(((RemoteObject *)op)->umx) != NULL);
}

static PyObject *
get_endpoint(PyObject *op, void *Py_UNUSED(closure))
{
    return Py_NewRef(((RemoteObject *)op)->endpoint);
}

static PyObject *
remote_repr(PyObject *op)
{
    RemoteObject *self = (RemoteObject *)op;

    return PyUnicode_FromFormat(
        "<ucp.RemoteMemory of %llu bytes%s, %s>", self->nbytes,
        umx_rkey_is_readonly(self->umx) ? ", read-only" : "",
        self->is_closed                     ? "closed" :
        umx_rkey_pointer(self->umx) != NULL ? "mapped" :
                                              "not mapped");
}

#define KEYWORDS (METH_FASTCALL | METH_KEYWORDS)
#define KEYWORDS_FUNC(f) ((PyCFunction)(void (*)(void))(f))
#define METHOD(name)                                                       \
    {                                                                      \
#name, KEYWORDS_FUNC(remote_##name), KEYWORDS, remote_##name##_doc \
    }

static PyMethodDef remote_methods[] = {
    METHOD(put),
    METHOD(get),
    {"put_many", (PyCFunction)(void (*)(void))remote_put_many,
     METH_FASTCALL | METH_KEYWORDS, remote_put_many_doc},
    {"get_many", (PyCFunction)(void (*)(void))remote_get_many,
     METH_FASTCALL | METH_KEYWORDS, remote_get_many_doc},
    METHOD(put_signal),
    METHOD(add),
    METHOD(and_),
    METHOD(or_),
    METHOD(xor),
    METHOD(fetch_add),
    METHOD(fetch_and),
    METHOD(fetch_or),
    METHOD(fetch_xor),
    METHOD(swap),
    METHOD(cswap),
    METHOD(view),
    {"notify", remote_notify, METH_NOARGS, notify_doc},
    {"flush", remote_flush, METH_NOARGS, flush_doc},
    {"close", remote_close, METH_NOARGS, close_doc},
    {"closed", remote_closed, METH_NOARGS, closed_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef remote_getset[] = {
    {"nbytes", get_nbytes, NULL, "Length in bytes.", NULL},
    {"readonly", get_readonly, NULL, "True if the memory cannot be written.",
     NULL},
    {"mapped", get_mapped, NULL,
     "True if the memory is in the address space of this process, see view().",
     NULL},
    {"endpoint", get_endpoint, NULL, "The endpoint of the memory.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(remote_doc, "Memory of a peer; made by Endpoint.remote().");

static PyType_Slot remote_slots[] = {
    {Py_tp_doc, (void *)remote_doc},     {Py_tp_dealloc, remote_dealloc},
    {Py_tp_traverse, remote_traverse},   {Py_tp_repr, remote_repr},
    {Py_tp_methods, remote_methods},     {Py_tp_getset, remote_getset},
    {Py_bf_getbuffer, remote_getbuffer}, {0, NULL},
};

PyType_Spec remote_spec = {
    .name      = "ucp._ext.RemoteMemory",
    .basicsize = sizeof(RemoteObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = remote_slots,
};
