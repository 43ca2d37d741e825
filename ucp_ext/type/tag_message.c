/* SPDX-License-Identifier: BSD-3-Clause */
/* tag_message.c: the type of messages of UCX's own tags that are not received.
 */
#include "type/type.h"

#include "buffer/buffer.h"
#include "object/tag_message.h"
#include "op/tag.h"
#include "worker/worker.h"

PyDoc_STRVAR(recv_doc,
             "recv($self, buffer, /)\n--\n\n"
             "Receive the bytes into buffer, which must be at least as long;\n"
             "awaitable, once only. The result is the number of bytes. UCX's\n"
             "call is ucp_tag_msg_recv_nbx().");

/* Looking at the buffer may run code that receives the message: that comes
 * before the message is looked at. */
static int
hold_buffer(TagMessageObject *self, PyObject *buffer, RequestObject *req)
{
    if (buffer_acquire(self->worker->st, buffer, true, &req->hold) < 0) {
        return -1;
    }
    if (self->umx == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the message was received");
        return -1;
    }
    if (worker_check(self->worker) < 0) {
        return -1;
    }
    return buffer_check_room(&req->hold, self->info.length);
}

static PyObject *
tag_message_recv(PyObject *op, PyObject *buffer)
{
    TagMessageObject *self = (TagMessageObject *)op;
    RequestObject    *req;

    req = request_new(self->worker, NULL, &op_tag_message_recv);
    if (req == NULL) {
        return NULL;
    }
    if (hold_buffer(self, buffer, req) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    req->tag_message = self->umx;
    req->info        = self->info;
    self->umx        = NULL;
    return request_post(req);
}

static PyObject *
get_length(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(((TagMessageObject *)op)->info.length);
}

static PyObject *
get_tag(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((TagMessageObject *)op)->info.tag);
}

static PyObject *
tag_message_repr(PyObject *op)
{
    TagMessageObject *self = (TagMessageObject *)op;
    char              tag[24];

    snprintf(tag, sizeof(tag), "%#" PRIx64, self->info.tag);
    return PyUnicode_FromFormat("<ucp.TagMessage of %zu bytes, tag %s>",
                                self->info.length, tag);
}

static PyMethodDef tag_message_methods[] = {
    {"recv", tag_message_recv, METH_O, recv_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef tag_message_getset[] = {
    {"nbytes", get_length, NULL, "Length in bytes.", NULL},
    {"tag", get_tag, NULL, "The tag, an int of 64 bits.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(tag_message_doc,
             "A message with one of UCX's tags whose bytes have not been\n"
             "received yet. Dropped without recv(), it is kept in its place\n"
             "for whoever asks next.");

static PyType_Slot tag_message_slots[] = {
    {Py_tp_doc, (void *)tag_message_doc},
    {Py_tp_dealloc, tag_message_dealloc},
    {Py_tp_traverse, owned_traverse},
    {Py_tp_repr, tag_message_repr},
    {Py_tp_methods, tag_message_methods},
    {Py_tp_getset, tag_message_getset},
    {0, NULL},
};

PyType_Spec tag_message_spec = {
    .name      = "ucp._ext.TagMessage",
    .basicsize = sizeof(TagMessageObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = tag_message_slots,
};
