/* SPDX-License-Identifier: BSD-3-Clause */
/* message.c: a message of a rank that is not received. */
#include "comm/message.h"

#include "buffer/buffer.h"
#include "base/event.h"
#include "comm/send_recv.h"
#include "comm/communicator.h"
#include "worker/worker.h"

PyObject *
comm_message_new(CommObject *comm, umx_comm_message *message,
                 const umx_comm_status *info)
{
    PyTypeObject      *type = comm->worker->st->comm_message_type;
    CommMessageObject *self = (CommMessageObject *)type->tp_alloc(type, 0);

    if (self == NULL) {
        return NULL;
    }
    self->comm = (CommObject *)Py_NewRef(comm);
    self->umx  = message;
    self->info = *info;
    comm->worker->st->num_messages++;
    return (PyObject *)self;
}

void
comm_message_give_back(CommObject *comm, umx_comm_message *message)
{
    WorkerObject *worker = comm->worker;

    if (worker_is_forked(worker)) {
        return; /* the parent's, which has it still */
    }
    if (worker->umx != NULL && !worker_is_mine(worker)) {
        (void)event_return_comm_message(worker, message);
        return;
    }
    umx_comm_message_return(message);
    if (worker->umx != NULL) {
        worker_schedule_drain(worker); /* somebody may wait for it */
    }
}

static int
comm_message_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((CommMessageObject *)op)->comm);
    return 0;
}

static void
comm_message_dealloc(PyObject *op)
{
    CommMessageObject *self = (CommMessageObject *)op;
    PyTypeObject      *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    if (self->umx != NULL) {
        comm_message_give_back(self->comm, self->umx);
    }
    self->comm->worker->st->num_messages--;
    Py_CLEAR(self->comm);
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(
    recv_doc,
    "recv($self, buffer, /)\n--\n\n"
    "Receive the bytes into `buffer`, which must be at least as long;\n"
    "awaits the Status, once only.");

static PyObject *
comm_message_recv(PyObject *op, PyObject *buffer)
{
    CommMessageObject *self = (CommMessageObject *)op;
    RequestObject *req = request_new(self->comm->worker, NULL, &op_comm_mrecv);

    if (req == NULL) {
        return NULL;
    }
    comm_set(req, self->comm);
    TAIL_OF(req, comm_tail)->object = Py_NewRef(op);
    if (buffer_acquire(self->comm->worker->st, buffer, true, &req->hold) < 0) {
        goto drop_req;
    }
    if (self->is_asked) { /* the buffer's code may have done that */
        PyErr_SetString(PyExc_RuntimeError, "the message was received");
        goto drop_req;
    }
    if (buffer_check_room(&req->hold, self->info.length) < 0) {
        goto drop_req;
    }
    self->is_asked = true;
    return request_post(req);

drop_req:
    Py_DECREF(req);
    return NULL;
}

static PyObject *
get_source(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((CommMessageObject *)op)->info.source);
}

static PyObject *
get_tag(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((CommMessageObject *)op)->info.tag);
}

static PyObject *
get_nbytes(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(((CommMessageObject *)op)->info.length);
}

static PyObject *
comm_message_repr(PyObject *op)
{
    const umx_comm_status *info = &((CommMessageObject *)op)->info;
    char                   text[96];

    snprintf(text, sizeof(text),
             "<ucp.CommMessage of rank %d, tag %" PRIu64 ", %zu bytes>",
             info->source, info->tag, info->length);
    return PyUnicode_FromString(text);
}

static PyMethodDef comm_message_methods[] = {
    {"recv", comm_message_recv, METH_O, recv_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef comm_message_getset[] = {
    {"source", get_source, NULL, "Rank of the sender.", NULL},
    {"tag", get_tag, NULL, "The tag, an int of 64 bits.", NULL},
    {"nbytes", get_nbytes, NULL, "Length in bytes.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(comm_message_doc,
             "A message of a rank whose bytes have not been received yet. If\n"
             "it is dropped without recv(), it returns to its place in the\n"
             "queue.");

static PyType_Slot comm_message_slots[] = {
    {Py_tp_doc, (void *)comm_message_doc},
    {Py_tp_dealloc, comm_message_dealloc},
    {Py_tp_traverse, comm_message_traverse},
    {Py_tp_repr, comm_message_repr},
    {Py_tp_methods, comm_message_methods},
    {Py_tp_getset, comm_message_getset},
    {0, NULL},
};

PyType_Spec comm_message_spec = {
    .name      = "ucp._ext.CommMessage",
    .basicsize = sizeof(CommMessageObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = comm_message_slots,
};
