/* SPDX-License-Identifier: BSD-3-Clause */
/* address.c: the type of addresses of workers. */
#include "type/type.h"

#include "object/address.h"
#include "op/address.h"

enum {
    ID_OFFSET = 8, /* of the worker's number, see src/codec/address.h */
    ID_SHOWN  = 8
};

PyDoc_STRVAR(from_buffer_doc,
             "from_buffer($type, buffer, /)\n--\n\n"
             "The address whose bytes are in buffer; zeros may follow them.\n"
             "ValueError for anything else.");

static PyObject *
address_from_buffer(PyObject *type, PyObject *buffer)
{
    mod_state *st = state_of_type((PyTypeObject *)type);

    return (st == NULL) ? NULL : address_from_object(st, buffer);
}

PyDoc_STRVAR(from_worker_doc, "from_worker($type, worker, /)\n--\n\n"
                              "worker.get_address()");

static PyObject *
address_from_worker(PyObject *type, PyObject *worker)
{
    mod_state *st = state_of_type((PyTypeObject *)type);

    if (st == NULL) {
        return NULL;
    }
    if (!PyObject_TypeCheck(worker, st->worker_type)) {
        return PyErr_Format(PyExc_TypeError, "expected a Worker, not %.200s",
                            Py_TYPE(worker)->tp_name);
    }
    return worker_get_address(worker, NULL);
}

static void
address_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);

    Py_CLEAR(((AddressObject *)op)->bytes);
    type->tp_free(op);
    Py_DECREF(type);
}

static const char *
bytes_of(PyObject *op)
{
    return PyBytes_AS_STRING(((AddressObject *)op)->bytes);
}

static Py_ssize_t
length_of(PyObject *op)
{
    return PyBytes_GET_SIZE(((AddressObject *)op)->bytes);
}

static int
address_getbuffer(PyObject *op, Py_buffer *view, int flags)
{
    return PyBuffer_FillInfo(view, op, (void *)(uintptr_t)bytes_of(op),
                             length_of(op), 1, flags);
}

static Py_hash_t
address_hash(PyObject *op)
{
    return PyObject_Hash(((AddressObject *)op)->bytes);
}

static PyObject *
address_richcompare(PyObject *op, PyObject *other, int operation)
{
    if (!Py_IS_TYPE(other, Py_TYPE(op)) ||
        (operation != Py_EQ && operation != Py_NE)) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    return PyObject_RichCompare(((AddressObject *)op)->bytes,
                                ((AddressObject *)other)->bytes, operation);
}

static PyObject *
address_repr(PyObject *op)
{
    char id[2 * ID_SHOWN + 1];

    for (int i = 0; i < ID_SHOWN; i++) {
        snprintf(id + 2 * i, 3, "%02x",
                 (unsigned)(uint8_t)bytes_of(op)[ID_OFFSET + i]);
    }
    return PyUnicode_FromFormat("<ucp.UCXAddress of worker %s, %zd bytes>", id,
                                length_of(op));
}

static PyObject *
address_reduce(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    PyObject *maker = PyObject_GetAttrString((PyObject *)Py_TYPE(op),
                                             "from_buffer");

    return (maker == NULL) ?
               NULL :
               Py_BuildValue("(N(O))", maker, ((AddressObject *)op)->bytes);
}

static PyObject *
get_length(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(length_of(op));
}

static PyObject *
get_address(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromVoidPtr((void *)(uintptr_t)bytes_of(op));
}

static PyMethodDef address_methods[] = {
    {"from_buffer", address_from_buffer, METH_O | METH_CLASS, from_buffer_doc},
    {"from_worker", address_from_worker, METH_O | METH_CLASS, from_worker_doc},
    {"__reduce__", address_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef address_getset[] = {
    {"nbytes", get_length, NULL, "Bytes.", NULL},
    {"length", get_length, NULL, "`nbytes`, as in ucx-py.", NULL},
    {"address", get_address, NULL, "Where they are in memory.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(address_doc,
             "How to reach a worker without a listener: bytes that may be\n"
             "kept, pickled and sent anywhere. bytes(address) are they.");

static PyType_Slot address_slots[] = {
    {Py_tp_doc, (void *)address_doc},
    {Py_tp_dealloc, address_dealloc},
    {Py_tp_repr, address_repr},
    {Py_tp_hash, address_hash},
    {Py_tp_richcompare, address_richcompare},
    {Py_bf_getbuffer, address_getbuffer},
    {Py_tp_methods, address_methods},
    {Py_tp_getset, address_getset},
    {0, NULL},
};

PyType_Spec address_spec = {
    .name      = "ucp._ext.UCXAddress",
    .basicsize = sizeof(AddressObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = address_slots,
};
