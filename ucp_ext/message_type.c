#include "state.h"

PyObject *
message_new(EndpointObject *endpoint, uint16_t channel, umx_message *message)
{
    mod_state     *st   = endpoint->worker->st;
    PyTypeObject  *type = st->message_type;
    MessageObject *self = (MessageObject *)type->tp_alloc(type, 0);

    if (self == NULL) {
        umx_message_return(message);
        return NULL;
    }
    self->endpoint = (EndpointObject *)Py_NewRef(endpoint);
    self->channel  = channel;
    self->umx      = message;
    self->info     = *umx_message_info(message);
    st->num_messages++;
    return (PyObject *)self;
}

static int
message_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((MessageObject *)op)->endpoint);
    return 0;
}

static void
give_back(umx_worker *worker, umx_status status, void *arg)
{
    (void)worker;
    (void)status;
    umx_message_return(arg);
}

void
message_give_back(WorkerObject *worker, umx_message *message)
{
    if (worker_is_forked(worker)) {
        return; /* the parent's, which has it still */
    }
    if (worker->umx == NULL || worker_is_mine(worker)) {
        umx_message_return(message);
    } else {
        (void)worker_submit(worker, give_back, message);
    }
}

/* Unread, it goes back to its queue. */
static void
message_dealloc(PyObject *op)
{
    MessageObject *self   = (MessageObject *)op;
    PyTypeObject  *type   = Py_TYPE(op);
    WorkerObject  *worker = self->endpoint->worker;

    PyObject_GC_UnTrack(op);
    if (self->umx != NULL) {
        message_give_back(worker, self->umx);
    }
    worker->st->num_messages--;
    Py_CLEAR(self->endpoint);
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(recv_doc,
             "recv($self, buffer, /)\n--\n\n"
             "Receive the bytes into buffer, which is at least as long;\n"
             "awaits the length. Once only.");

static PyObject *
message_recv(PyObject *op, PyObject *buffer)
{
    MessageObject *self   = (MessageObject *)op;
    WorkerObject  *worker = self->endpoint->worker;
    RequestObject *req;

    if (self->umx == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the message was received");
        return NULL;
    }
    if (worker->umx != NULL && worker_check(worker) < 0) {
        return NULL;
    }
    req = request_new(worker, self->endpoint, REQUEST_MESSAGE_RECV);
    if (req == NULL) {
        return NULL;
    }
    if (buffer_acquire(worker->st, buffer, true, &req->hold) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    if (req->hold.buf.len < self->info.length) {
        PyErr_Format(PyExc_ValueError,
                     "the message has %zu bytes, the buffer has room for %zu",
                     self->info.length, req->hold.buf.len);
        Py_DECREF(req);
        return NULL;
    }
    req->channel = self->channel;
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

static PyMethodDef message_methods[] = {
    {"recv", message_recv, METH_O, recv_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef message_getset[] = {
    {"length", get_length, NULL, "Bytes.", NULL},
    {"tag", get_tag, NULL, "64 bits; None if untagged.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(message_doc,
             "A message whose bytes have not been received yet. Dropped\n"
             "without recv(), it returns to its queue.");

static PyType_Slot message_slots[] = {
    {Py_tp_doc, (void *)message_doc},   {Py_tp_dealloc, message_dealloc},
    {Py_tp_traverse, message_traverse}, {Py_tp_methods, message_methods},
    {Py_tp_getset, message_getset},     {0, NULL},
};

PyType_Spec message_spec = {
    .name      = "ucp._ext.Message",
    .basicsize = sizeof(MessageObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = message_slots,
};
