/* SPDX-License-Identifier: BSD-3-Clause */
/* message.c: the type of messages that have come and are not received. */
#include "type/type.h"

#include "buffer/buffer.h"
#include "object/endpoint.h"
#include "object/message.h"
#include "op/message.h"
#include "worker/worker.h"

/* Kept, so that it is there when the message is gone. */
static PyObject *
message_get_header(MessageObject *self)
{
    if (self->header == NULL) {
        self->header = message_header(self->umx);
    }
    return Py_XNewRef(self->header);
}

PyDoc_STRVAR(recv_doc,
             "recv($self, buffer, /)\n--\n\n"
             "Receive the bytes into buffer, which must be at least as long;\n"
             "awaitable, once only. The result is the number of bytes.");

static int
check_unreceived(const MessageObject *self)
{
    const WorkerObject *worker = self->endpoint->worker;

    if (self->umx == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the message was received");
        return -1;
    }
    if (self->num_views != 0) {
        PyErr_SetString(PyExc_BufferError,
                        "the message has memoryviews: its bytes are there");
        return -1;
    }
    return (worker->umx != NULL) ? worker_check(self->endpoint->worker) : 0;
}

/* Looking at the buffer may run code that receives the message: that comes
 * before the message is looked at. */
static int
hold_buffer(MessageObject *self, PyObject *buffer, RequestObject *req)
{
    if (buffer_acquire(req->worker->st, buffer, true, &req->hold) < 0 ||
        check_unreceived(self) < 0 ||
        buffer_check_room(&req->hold, self->info.length) < 0) {
        return -1;
    }
    TAIL_OF(req, message_tail)->header = message_get_header(self);
    return (TAIL_OF(req, message_tail)->header != NULL) ? 0 : -1;
}

static PyObject *
message_recv(PyObject *op, PyObject *buffer)
{
    MessageObject *self = (MessageObject *)op;
    RequestObject *req;

    req = request_new(self->endpoint->worker, self->endpoint, &op_message_recv);
    if (req == NULL) {
        return NULL;
    }
    if (hold_buffer(self, buffer, req) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    req->message = self->umx;
    req->info    = self->info;
    self->umx    = NULL;
    return request_post(req);
}

static PyObject *
get_length(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(((MessageObject *)op)->info.length);
}

static PyObject *
get_tag(PyObject *op, void *Py_UNUSED(closure))
{
    MessageObject *self = (MessageObject *)op;

    if (self->info.is_untagged) {
        Py_RETURN_NONE;
    }
    return PyLong_FromUnsignedLongLong(self->info.tag);
}

static PyObject *
get_header(PyObject *op, void *Py_UNUSED(closure))
{
    return message_get_header((MessageObject *)op);
}

static PyObject *
get_endpoint(PyObject *op, void *Py_UNUSED(closure))
{
    return Py_NewRef(((MessageObject *)op)->endpoint);
}

static PyObject *
get_is_here(PyObject *op, void *Py_UNUSED(closure))
{
    MessageObject *self = (MessageObject *)op;

    return PyBool_FromLong(self->umx != NULL &&
                           umx_message_data(self->umx) != NULL);
}

/* The bytes where they lie. Who has seen them has received them. */
static int
message_getbuffer(PyObject *op, Py_buffer *view, int flags)
{
    MessageObject *self = (MessageObject *)op;
    const void    *data = NULL;

    if (self->umx != NULL && !worker_is_forked(self->endpoint->worker)) {
        data = umx_message_data(self->umx);
    }
    if (data == NULL) {
        view->obj = NULL;
        PyErr_SetString(PyExc_BufferError,
                        self->umx == NULL ?
                            "the message was received" :
                            "the bytes are with the sender: await recv()");
        return -1;
    }
    if (PyBuffer_FillInfo(view, op, (void *)(uintptr_t)data,
                          (Py_ssize_t)self->info.length, 1, flags) < 0) {
        return -1;
    }
    self->is_consumed = true;
    self->num_views++;
    return 0;
}

static void
message_releasebuffer(PyObject *op, Py_buffer *Py_UNUSED(view))
{
    ((MessageObject *)op)->num_views--;
}

static PyObject *
message_repr(PyObject *op)
{
    MessageObject *self = (MessageObject *)op;

    return PyUnicode_FromFormat("<ucp.Message of %zu bytes on %R>",
                                self->info.length, (PyObject *)self->endpoint);
}

static PyMethodDef message_methods[] = {
    {"recv", message_recv, METH_O, recv_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef message_getset[] = {
    {"nbytes", get_length, NULL, "Length in bytes.", NULL},
    {"tag", get_tag, NULL, "The tag, an int of 64 bits, or None.", NULL},
    {"header", get_header, NULL, "The header of am_send().", NULL},
    {"is_here", get_is_here, NULL,
     "True if memoryview(message) gives access to the bytes.", NULL},
    {"endpoint", get_endpoint, NULL,
     "The endpoint on which the message arrived.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(message_doc,
             "A message whose bytes have not been received yet. Dropped\n"
             "without recv() or memoryview(), it returns to its queue.");

static PyType_Slot message_slots[] = {
    {Py_tp_doc, (void *)message_doc},
    {Py_tp_dealloc, message_dealloc},
    {Py_tp_traverse, message_traverse},
    {Py_tp_repr, message_repr},
    {Py_tp_methods, message_methods},
    {Py_tp_getset, message_getset},
    {Py_bf_getbuffer, message_getbuffer},
    {Py_bf_releasebuffer, message_releasebuffer},
    {0, NULL},
};

PyType_Spec message_spec = {
    .name      = "ucp._ext.Message",
    .basicsize = sizeof(MessageObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = message_slots,
};
