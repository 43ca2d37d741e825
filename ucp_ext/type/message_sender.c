/* SPDX-License-Identifier: BSD-3-Clause */
/* message_sender.c: sending messages with metadata.
 *
 * A small message is complete at once: its request comes from the free list and
 * goes back there. Another request holds the buffers, and the endpoints: one
 * that is dropped is closed, and what waits would go out at once. */
#include "type/type.h"

#include "base/args.h"
#include "base/metadata.h"
#include "object/endpoint.h"
#include "object/owned.h"
#include "op/frames.h"
#include "op/message.h"
#include "request/event.h"
#include "type/event.h"
#include "worker/worker.h"

typedef struct MessageSenderObject {
    OWNED_HEAD;
    umx_message_sender *umx; /* NULL once closed */
} MessageSenderObject;

/* ---- life ----------------------------------------------------------------
 */

static PyObject *
sender_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"worker", "max_bytes", "channel", NULL};

    umx_message_sender_params params = {
        .field_mask = UMX_MESSAGE_SENDER_FIELD_MAX_BYTES |
                      UMX_MESSAGE_SENDER_FIELD_CHANNEL};
    mod_state           *st      = state_of_type(type);
    unsigned long long   max     = 64 << 20;
    int                  channel = UMX_MESSAGE_CHANNEL;
    PyObject            *worker;
    MessageSenderObject *self;
    umx_status           status;

    if (st == NULL || !PyArg_ParseTupleAndKeywords(
                          args, kwargs, "O!|Ki:MessageSender", keywords,
                          st->worker_type, &worker, &max, &channel)) {
        return NULL;
    }
    if (channel < 0 || channel > UINT16_MAX) {
        PyErr_Format(PyExc_ValueError, "channel must be 0 to 65535, not %d",
                     channel);
        return NULL;
    }
    self = (MessageSenderObject *)owned_new(type, (WorkerObject *)worker);
    if (self == NULL) {
        return NULL;
    }
    params.max_bytes = max;
    params.channel   = (uint16_t)channel;
    if (worker_check(self->worker) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    status = umx_message_sender_create(self->worker->umx, &params, &self->umx);
    if (status != UMX_OK) {
        Py_DECREF(self);
        return errors_raise(st, status, "MessageSender", NULL);
    }
    return (PyObject *)self;
}

/* Give the sender of libumx back, which still sends what was given to it. */
static void
release(PyObject *op)
{
    MessageSenderObject *self = (MessageSenderObject *)op;
    umx_message_sender  *umx  = self->umx;

    self->umx = NULL;
    if (umx != NULL && event_drop_sender(self->worker, umx)) {
        worker_drain_if_due(self->worker);
    }
}

static void
sender_dealloc(PyObject *op)
{
    owned_dealloc(op, release);
}

/* ---- sending -------------------------------------------------------------
 */

static int
check(MessageSenderObject *self)
{
    if (worker_check(self->worker) < 0) {
        return -1;
    }
    if (self->umx == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the sender is closed");
        return -1;
    }
    return 0;
}

/* An endpoint of our worker; NULL with an exception. */
static EndpointObject *
as_endpoint(MessageSenderObject *self, PyObject *obj)
{
    EndpointObject *endpoint = (EndpointObject *)obj;

    if (!PyObject_TypeCheck(obj, self->worker->st->endpoint_type)) {
        PyErr_Format(PyExc_TypeError,
                     "destinations must be endpoints, not %.200s",
                     Py_TYPE(obj)->tp_name);
        return NULL;
    }
    if (endpoint->worker != self->worker) {
        PyErr_SetString(PyExc_ValueError,
                        "a destination is an endpoint of another worker");
        return NULL;
    }
    if (endpoint->umx == NULL) {
        errors_raise(self->worker->st, UMX_ERR_CLOSED, NULL, NULL);
        return NULL;
    }
    return endpoint;
}

static int
hold_several(MessageSenderObject *self, RequestObject *req, PyObject *objects)
{
    PyObject  *items = args_items(objects, "destinations must be an "
                                            "endpoint or several");
    Py_ssize_t count;
    sent      *what;

    if (items == NULL) {
        return -1;
    }
    count = PyTuple_GET_SIZE(items);
    if (count == 0) {
        PyErr_SetString(PyExc_ValueError, "there are no destinations");
        goto fail;
    }
    what = PyMem_Malloc(sizeof(*what) +
                        (size_t)count * (sizeof(PyObject *) + sizeof(umx_ep *) +
                                         sizeof(umx_status)));
    if (what == NULL) {
        PyErr_NoMemory();
        goto fail;
    }
    what->count    = 0;
    what->eps      = (umx_ep **)(void *)(what->endpoints + count);
    what->statuses = (umx_status *)(void *)(what->eps + count);

    TAIL_OF(req, sent_tail)->sent = what;
    request_track(req);
    for (; what->count < (size_t)count; what->count++) {
        EndpointObject *endpoint = as_endpoint(
            self, PyTuple_GET_ITEM(items, what->count));

        if (endpoint == NULL) {
            goto fail;
        }
        what->endpoints[what->count] = Py_NewRef(endpoint);
        what->eps[what->count]       = endpoint->umx;
        what->statuses[what->count]  = UMX_INPROGRESS;
    }
    Py_DECREF(items);
    return 0;

fail:
    Py_DECREF(items);
    return -1;
}

static int
hold_destinations(MessageSenderObject *self, RequestObject *req, PyObject *arg,
                  umx_message_out *message)
{
    const sent *what;

    if (LIKELY(PyObject_TypeCheck(arg, self->worker->st->endpoint_type))) {
        EndpointObject *endpoint = as_endpoint(self, arg);

        if (endpoint == NULL) {
            return -1;
        }
        req->endpoint          = (EndpointObject *)Py_NewRef(endpoint);
        message->endpoints     = &endpoint->umx;
        message->num_endpoints = 1;
        return 0;
    }
    if (hold_several(self, req, arg) < 0) {
        return -1;
    }
    what                   = TAIL_OF(req, sent_tail)->sent;
    message->endpoints     = what->eps;
    message->num_endpoints = what->count;
    message->statuses      = what->statuses;
    return 0;
}

static int
hold_buffers(RequestObject *req, PyObject *buffers, umx_message_out *message)
{
    if (buffers == NULL ||
        (PyTuple_CheckExact(buffers) && PyTuple_GET_SIZE(buffers) == 0)) {
        return 0;
    }
    if (frames_hold(req, buffers, false) < 0) {
        return -1;
    }
    message->buffers     = frames_of(req)->buffers;
    message->num_buffers = (size_t)frames_of(req)->count;
    return 0;
}

PyDoc_STRVAR(send_doc,
             "send($self, destinations, metadata, buffers=())\n--\n\n"
             "Send a message to one endpoint, or the same message to\n"
             "several; awaitable.\n\n"
             "Messages to one endpoint arrive in the order of these calls. A\n"
             "message of up to 4 KiB in host memory is copied: its request\n"
             "is done immediately, and it is sent together with others at\n"
             "the end of the event loop's turn. A longer message is sent\n"
             "from the given memory to all endpoints: do not change that\n"
             "memory before the request is done. Messages are not\n"
             "acknowledged: a request that is done says that the buffers may\n"
             "be reused, and not that a peer has read the message.\n\n"
             "Args:\n"
             "    destinations: one endpoint or a sequence of endpoints.\n"
             "    metadata: a dict of str to str, int of 64 bits or bytes;\n"
             "        up to 256 items and 65535 bytes.\n"
             "    buffers: as for send_frames().\n\n"
             "Raises:\n"
             "    TypeError, ValueError: destinations, metadata or buffers\n"
             "        cannot be sent; nothing has been sent.\n"
             "    UCXCloseError, UCXConnectionReset: as send(), when the\n"
             "        request is awaited. Of several endpoints, the\n"
             "        exception of the first one that failed; its attribute\n"
             "        results has None or an exception for each endpoint.\n"
             "        The other endpoints get the message.\n\n"
             "When cancelled, a message that waits for others to be sent is\n"
             "withdrawn, and the buffers are referenced until they are not\n"
             "needed any more.");

static PyObject *
sender_send(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    static const char *const keywords[] = {"destinations", "metadata",
                                           "buffers"};
    MessageSenderObject     *self       = (MessageSenderObject *)op;
    umx_message_out          message    = {0};
    umx_metadata_builder     builder;
    umx_op_params            params;
    PyObject                *values[3];
    RequestObject           *req;
    umx_status               status;

    if (args_parse("send", args, nargs, kwnames, keywords, 3, 3, 2, values) <
            0 ||
        check(self) < 0) {
        return NULL;
    }
    req = request_new(self->worker, NULL, &op_send_message);
    if (req == NULL) {
        return NULL;
    }
    umx_metadata_init(&builder);
    if (hold_destinations(self, req, values[0], &message) < 0 ||
        metadata_encode(values[1], &builder) < 0 ||
        hold_buffers(req, values[2], &message) < 0 || check(self) < 0) {
        umx_metadata_fini(&builder);
        Py_DECREF(req);
        return NULL;
    }
    message.metadata = builder.metadata;
    params           = event_op_params(req);
    status           = umx_message_send(self->umx, &message, &params, &req->op);
    umx_metadata_fini(&builder);
    return request_posted(req, status);
}

PyDoc_STRVAR(wait_sent_doc,
             "wait_sent($self, /)\n--\n\n"
             "Wait until every buffer that was sent may be reused;\n"
             "awaitable.");

static PyObject *
sender_wait_sent(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    MessageSenderObject *self = (MessageSenderObject *)op;
    umx_op_params        params;
    RequestObject       *req;

    req = request_new(self->worker, NULL, &op_drain_sender);
    if (req == NULL) {
        return NULL;
    }
    if (check(self) < 0) { /* the collector may have run until here */
        Py_DECREF(req);
        return NULL;
    }
    params = event_op_params(req);
    return request_posted(
        req, umx_message_sender_drain(self->umx, &params, &req->op));
}

PyDoc_STRVAR(send_now_doc, "send_now($self, /)\n--\n\n"
                           "Send the small messages that wait for others.");

static PyObject *
sender_send_now(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    MessageSenderObject *self = (MessageSenderObject *)op;

    if (check(self) < 0) {
        return NULL;
    }
    umx_message_sender_flush(self->umx);
    worker_drain_if_due(self->worker);
    Py_RETURN_NONE;
}

static PyObject *
sender_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    MessageSenderObject *self = (MessageSenderObject *)op;

    if (self->umx != NULL && self->worker->umx != NULL &&
        worker_check(self->worker) < 0) {
        return NULL;
    }
    release(op);
    Py_RETURN_NONE;
}

static PyObject *
sender_stats(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    umx_message_sender_stats stats = {0};
    MessageSenderObject     *self  = (MessageSenderObject *)op;

    if (self->umx != NULL) {
        umx_message_sender_query(self->umx, &stats);
    }
    return Py_BuildValue("(KKKKK)", stats.bytes_pending, stats.bytes_peak,
                         stats.num_waiting, stats.num_packed, stats.num_packs);
}

PyDoc_STRVAR(closed_doc, "closed($self, /)\n--\n\n"
                         "True once the sender is closed.");

static PyObject *
sender_closed(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(((MessageSenderObject *)op)->umx == NULL);
}

#define KEYWORDS_FUNC(f) ((PyCFunction)(void (*)(void))(f))

static PyMethodDef sender_methods[] = {
    {"send", KEYWORDS_FUNC(sender_send), METH_FASTCALL | METH_KEYWORDS,
     send_doc},
    {"wait_sent", sender_wait_sent, METH_NOARGS, wait_sent_doc},
    {"send_now", sender_send_now, METH_NOARGS, send_now_doc},
    {"closed", sender_closed, METH_NOARGS, closed_doc},
    {"_close", sender_close, METH_NOARGS, NULL},
    {"_stats", sender_stats, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef sender_getset[] = {
    {"worker", owned_get_worker, NULL, "The Worker.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(sender_doc,
             "MessageSender(worker, max_bytes=67108864, channel=65535)\n--\n\n"
             "Sends messages with metadata to endpoints of a worker.");

static PyType_Slot sender_slots[] = {
    {Py_tp_doc, (void *)sender_doc}, {Py_tp_new, sender_new},
    {Py_tp_dealloc, sender_dealloc}, {Py_tp_traverse, owned_traverse},
    {Py_tp_methods, sender_methods}, {Py_tp_getset, sender_getset},
    {Py_tp_members, owned_members},  {0, NULL},
};

PyType_Spec message_sender_spec = {
    .name      = "ucp._ext.MessageSender",
    .basicsize = sizeof(MessageSenderObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = sender_slots,
};
