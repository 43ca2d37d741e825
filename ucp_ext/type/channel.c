/* SPDX-License-Identifier: BSD-3-Clause */
/* channel.c: the type of channels of an endpoint. */
#include "type/type.h"

#include "base/args.h"
#include "object/endpoint.h"
#include "op/channel.h"

typedef struct ChannelObject {
    PyObject_HEAD EndpointObject *endpoint;
    uint16_t                      number;
} ChannelObject;

static PyObject *
channel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char   *keywords[] = {"endpoint", "number", NULL};
    mod_state     *st         = state_of_type(type);
    PyObject      *endpoint;
    ChannelObject *self;
    long           number;

    if (st == NULL ||
        args_check_made(args, st->endpoint_type,
                        "a Channel is made by Endpoint.channel(number)") < 0 ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O!l:Channel", keywords,
                                     st->endpoint_type, &endpoint, &number)) {
        return NULL;
    }
    if (number < 1 || number > UINT16_MAX) {
        return PyErr_Format(PyExc_ValueError,
                            "a channel is 1 to 65535, not %ld", number);
    }
    self = (ChannelObject *)type->tp_alloc(type, 0);
    if (self != NULL) {
        self->endpoint = (EndpointObject *)Py_NewRef(endpoint);
        self->number   = (uint16_t)number;
    }
    return (PyObject *)self;
}

static int
channel_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((ChannelObject *)op)->endpoint);
    return 0;
}

static void
channel_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    Py_CLEAR(((ChannelObject *)op)->endpoint);
    type->tp_free(op);
    Py_DECREF(type);
}

/* ---- messages ------------------------------------------------------------
 */

#define DEFINE(name)                                                      \
    static PyObject *channel_##name(PyObject *op, PyObject *const *args,  \
                                    Py_ssize_t nargs, PyObject *kwnames)  \
    {                                                                     \
        ChannelObject *self = (ChannelObject *)op;                        \
                                                                          \
        return messages_##name(self->endpoint, self->number, args, nargs, \
                               kwnames);                                  \
    }
MESSAGE_METHODS(DEFINE)
DEFINE(recv_pickle)
#undef DEFINE

PyDoc_STRVAR(send_doc, "send($self, buffer, tag=None, *, strided=False,\n"
                       "     stream=None)\n--\n\n"
                       "As Endpoint.send(), on this channel.");
PyDoc_STRVAR(recv_doc, "recv($self, buffer, tag=None, *, strided=False,\n"
                       "     stream=None)\n--\n\n"
                       "As Endpoint.recv(), on this channel.");
PyDoc_STRVAR(recv_into_doc,
             "recv_into($self, buffer, tag=ANY, mask=0xffffffffffffffff)\n"
             "--\n\n"
             "As Endpoint.recv_into(), on this channel.");
PyDoc_STRVAR(send_many_doc, "send_many($self, buffers, tag=None)\n--\n\n"
                            "As Endpoint.send_many(), on this channel.");
PyDoc_STRVAR(recv_many_doc, "recv_many($self, buffers, tag=None)\n--\n\n"
                            "As Endpoint.recv_many(), on this channel.");
PyDoc_STRVAR(recv_message_doc, "recv_message($self, tag=None)\n--\n\n"
                               "As Endpoint.recv_message(), on this channel.");
PyDoc_STRVAR(probe_doc, "probe($self, tag=ANY)\n--\n\n"
                        "As Endpoint.probe(), on this channel.");

PyDoc_STRVAR(send_frames_doc, "send_frames($self, buffers, header=b'')\n--\n\n"
                              "As Endpoint.send_frames(), on this channel.");
PyDoc_STRVAR(recv_frames_doc,
             "recv_frames($self, allocator=None, *, into=None)\n--\n\n"
             "As Endpoint.recv_frames(), on this channel.");
PyDoc_STRVAR(recv_obj_doc, "recv_obj($self, tag=None, allocator=None)\n--\n\n"
                           "As Endpoint.recv_obj(), on this channel.");
PyDoc_STRVAR(recv_multi_doc, "recv_multi($self, allocator=None)\n--\n\n"
                             "As Endpoint.recv_multi(), on this channel.");
PyDoc_STRVAR(recv_pickle_doc, "_recv_pickle($self, decode, allocator)\n--\n\n"
                              "As that of Endpoint, on this channel.");

/* ---- attributes ----------------------------------------------------------
 */

static PyObject *
get_endpoint(PyObject *op, void *Py_UNUSED(closure))
{
    return Py_NewRef(((ChannelObject *)op)->endpoint);
}

static PyObject *
get_number(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((ChannelObject *)op)->number);
}

#define KEYWORDS (METH_FASTCALL | METH_KEYWORDS)
#define METHOD_AS(text, name) \
    {text, (PyCFunction)(void (*)(void))channel_##name, KEYWORDS, name##_doc},
#define METHOD(name) METHOD_AS(#name, name)

static PyMethodDef channel_methods[] = {
    MESSAGE_METHODS(METHOD)
        METHOD_AS("_recv_pickle", recv_pickle){NULL, NULL, 0, NULL},
};

static PyGetSetDef channel_getset[] = {
    {"endpoint", get_endpoint, NULL, "The Endpoint.", NULL},
    {"number", get_number, NULL, "1 to 65535.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(channel_doc,
             "Channel(endpoint, number)\n--\n\n"
             "An ordered sequence of messages, with a queue of its own.");

static PyType_Slot channel_slots[] = {
    {Py_tp_doc, (void *)channel_doc},
    {Py_tp_new, channel_new},
    {Py_tp_dealloc, channel_dealloc},
    {Py_tp_traverse, channel_traverse},
    {Py_tp_methods, channel_methods},
    {Py_tp_getset, channel_getset},
    {0, NULL},
};

PyType_Spec channel_spec = {
    .name      = "ucp._ext.Channel",
    .basicsize = sizeof(ChannelObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = channel_slots,
};
