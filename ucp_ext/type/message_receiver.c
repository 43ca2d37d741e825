/* SPDX-License-Identifier: BSD-3-Clause */
/* message_receiver.c: one message with metadata that is being received.
 *
 * What a subclass does not override is done here without a call: bytearrays
 * whose bytes nobody has set, since all of them come. */
#include "type/message_receiver.h"

#include "base/args.h"
#include "type/type.h"

/* ---- what listeners call -------------------------------------------------
 */

/* Is the method `name` of `op` the one that `base` has? -1 with an exception.
 */
static int
is_own(const MessageReceiverObject *op, PyTypeObject *base, PyObject *name)
{
    PyObject *method, *own;
    int       rc;

    if (Py_TYPE(op) == base) {
        return 1;
    }
    method = PyObject_GetAttr((PyObject *)Py_TYPE(op), name);
    own    = PyObject_GetAttr((PyObject *)base, name);
    rc     = (method == NULL || own == NULL) ? -1 : method == own;
    Py_XDECREF(method);
    Py_XDECREF(own);
    return rc;
}

static PyObject *
make_bytearrays(const umx_frames_info *info)
{
    PyObject *list = PyList_New((Py_ssize_t)info->count);

    for (size_t i = 0; list != NULL && i < info->count; i++) {
        PyObject *object = PyByteArray_FromStringAndSize(
            NULL, (Py_ssize_t)info->frames[i].len);

        if (object == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, (Py_ssize_t)i, object);
        }
    }
    return list;
}

static PyObject *
sizes_of(const umx_frames_info *info)
{
    PyObject *list = PyList_New((Py_ssize_t)info->count);

    for (size_t i = 0; list != NULL && i < info->count; i++) {
        PyObject *size = PyLong_FromSize_t(info->frames[i].len);

        if (size == NULL) {
            Py_CLEAR(list);
        } else {
            PyList_SET_ITEM(list, (Py_ssize_t)i, size);
        }
    }
    return list;
}

PyObject *
receiver_allocate(mod_state *st, MessageReceiverObject *self,
                  const umx_frames_info *info)
{
    int       is_default = (self->allocator == NULL) ?
                               is_own(self, st->message_receiver_type,
                                      NAME(st, allocate)) :
                               0;
    PyObject *sizes, *given, *list;

    if (is_default != 0) {
        return (is_default < 0) ? NULL : make_bytearrays(info);
    }
    sizes = sizes_of(info);
    given = (sizes != NULL) ? PyObject_CallMethodOneArg(
                                  (PyObject *)self, NAME(st, allocate), sizes) :
                              NULL;
    list  = (given != NULL) ? PySequence_List(given) : NULL; /* ours */
    Py_XDECREF(given);
    Py_XDECREF(sizes);
    return list;
}

/* Wake the tasks that await the message. */
static int
wake(mod_state *st, MessageReceiverObject *self)
{
    PyObject *result;

    if (self->waiters == NULL || self->waiters == Py_None) {
        return 0;
    }
    result = PyObject_CallMethodNoArgs((PyObject *)self, NAME(st, _wake));
    Py_XDECREF(result);
    return (result == NULL) ? -1 : 0;
}

int
receiver_land(mod_state *st, MessageReceiverObject *self, PyObject *buffers)
{
    PyObject *result = PyObject_CallMethodOneArg((PyObject *)self,
                                                 NAME(st, finish), buffers);

    if (result == NULL) {
        PyObject *exc = PyErr_GetRaisedException();

        Py_XSETREF(self->error, Py_NewRef(exc));
        if (wake(st, self) < 0) {
            PyErr_Clear();
        }
        PyErr_SetRaisedException(exc);
        return -1;
    }
    Py_XSETREF(self->result, result);
    return wake(st, self);
}

int
receiver_fail(mod_state *st, MessageReceiverObject *self, PyObject *exc)
{
    PyObject *result;

    Py_XSETREF(self->error, Py_NewRef(exc));
    if (wake(st, self) < 0) {
        return -1;
    }
    result = PyObject_CallMethodOneArg((PyObject *)self, NAME(st, failed), exc);
    Py_XDECREF(result);
    return (result == NULL) ? -1 : 0;
}

/* ---- the type ------------------------------------------------------------
 */

static int
receiver_init(PyObject *op, PyObject *args, PyObject *kwargs)
{
    static char           *keywords[] = {"metadata", "allocator", NULL};
    MessageReceiverObject *self       = (MessageReceiverObject *)op;
    PyObject              *metadata, *allocator = NULL;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:MessageReceiver",
                                     keywords, &metadata, &allocator)) {
        return -1;
    }
    if (args_allocator(&allocator) < 0) {
        return -1;
    }
    Py_XSETREF(self->metadata, Py_NewRef(metadata));
    Py_XSETREF(self->allocator, Py_XNewRef(allocator));
    return 0;
}

static int
receiver_traverse(PyObject *op, visitproc visit, void *arg)
{
    MessageReceiverObject *self = (MessageReceiverObject *)op;

    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->metadata);
    Py_VISIT(self->allocator);
    Py_VISIT(self->result);
    Py_VISIT(self->error);
    Py_VISIT(self->waiters);
    return 0;
}

static int
receiver_clear(PyObject *op)
{
    MessageReceiverObject *self = (MessageReceiverObject *)op;

    Py_CLEAR(self->metadata);
    Py_CLEAR(self->allocator);
    Py_CLEAR(self->result);
    Py_CLEAR(self->error);
    Py_CLEAR(self->waiters);
    return 0;
}

static void
receiver_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    (void)receiver_clear(op);
    type->tp_free(op);
    Py_DECREF(type);
}

PyDoc_STRVAR(allocate_doc,
             "allocate($self, sizes, /)\n--\n\n"
             "Writable buffers of exactly these sizes, in bytes.");

static PyObject *
receiver_allocate_method(PyObject *op, PyObject *sizes)
{
    MessageReceiverObject *self      = (MessageReceiverObject *)op;
    PyObject              *allocator = (self->allocator != NULL) ?
                                           self->allocator :
                                           (PyObject *)&PyByteArray_Type;
    PyObject              *list      = PySequence_List(sizes);

    Py_INCREF(allocator); /* __init__() may be called again meanwhile */
    for (Py_ssize_t i = 0; list != NULL && i < PyList_GET_SIZE(list); i++) {
        PyObject *buffer = PyObject_CallOneArg(allocator,
                                               PyList_GET_ITEM(list, i));

        if (buffer == NULL || PyList_SetItem(list, i, buffer) < 0) {
            Py_CLEAR(list);
        }
    }
    Py_DECREF(allocator);
    return list;
}

PyDoc_STRVAR(finish_doc, "finish($self, buffers, /)\n--\n\n"
                         "All bytes are there. Returns what awaiting gives.");

static PyObject *
receiver_finish(PyObject *op, PyObject *buffers)
{
    PyObject *metadata = ((MessageReceiverObject *)op)->metadata;

    return PyTuple_Pack(2, metadata != NULL ? metadata : Py_None, buffers);
}

PyDoc_STRVAR(failed_doc, "failed($self, exc, /)\n--\n\n"
                         "There will be no message; awaiting raises `exc`.");

static PyObject *
receiver_failed(PyObject *Py_UNUSED(op), PyObject *Py_UNUSED(exc))
{
    Py_RETURN_NONE;
}

PyDoc_STRVAR(done_doc, "done($self, /)\n--\n\nReceived, or failed?");

static PyObject *
receiver_done(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    MessageReceiverObject *self = (MessageReceiverObject *)op;

    return PyBool_FromLong(self->result != NULL || self->error != NULL);
}

static PyMethodDef receiver_methods[] = {
    {"allocate", receiver_allocate_method, METH_O, allocate_doc},
    {"finish", receiver_finish, METH_O, finish_doc},
    {"failed", receiver_failed, METH_O, failed_doc},
    {"done", receiver_done, METH_NOARGS, done_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef receiver_members[] = {
    {"metadata", T_OBJECT, offsetof(MessageReceiverObject, metadata), 0, NULL},
    {"_result", T_OBJECT, offsetof(MessageReceiverObject, result), READONLY,
     NULL},
    {"_error", T_OBJECT, offsetof(MessageReceiverObject, error), READONLY,
     NULL},
    {"_waiters", T_OBJECT, offsetof(MessageReceiverObject, waiters), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(receiver_doc,
             "MessageReceiver(metadata, allocator=bytearray)\n--\n\n"
             "One message that is being received.");

static PyType_Slot receiver_slots[] = {
    {Py_tp_doc, (void *)receiver_doc},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, receiver_init},
    {Py_tp_dealloc, receiver_dealloc},
    {Py_tp_traverse, receiver_traverse},
    {Py_tp_clear, receiver_clear},
    {Py_tp_methods, receiver_methods},
    {Py_tp_members, receiver_members},
    {0, NULL},
};

PyType_Spec message_receiver_spec = {
    .name      = "ucp._ext.MessageReceiver",
    .basicsize = sizeof(MessageReceiverObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = receiver_slots,
};
