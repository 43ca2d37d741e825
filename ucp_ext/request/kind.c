/* SPDX-License-Identifier: BSD-3-Clause */
/* kind.c: the two types of a request, a coroutine and a future.
 *
 * asyncio takes a coroutine in some places and a future in others, and tells
 * them apart by their methods: isfuture() looks for _asyncio_future_blocking,
 * iscoroutine() for send, throw and close, and asyncio.wait() refuses what has
 * these. So a request is a coroutine until somebody asks whether it is a
 * future, and then a future, which is what it is used as from then on. One that
 * has been awaited stays a coroutine: whoever awaits it holds it as an iterator
 * and calls its send and throw. A future that is awaited gives another
 * iterator.
 *
 * Both derive from Request, which has all that they share, and differ in
 * nothing that the objects are made of. */
#include "request/internal.h"

#include "worker/worker.h"

bool
request_check(const mod_state *st, PyObject *op)
{
    return Py_IS_TYPE(op, st->request_type) ||
           Py_IS_TYPE(op, st->future_request_type);
}

/* Instances of heap types hold their type. */
static void
change_type(RequestObject *self, PyTypeObject *type)
{
    PyTypeObject *old = Py_TYPE(self);

    Py_INCREF(type);
    Py_SET_TYPE((PyObject *)self, type);
    Py_DECREF(old);
}

void
request_become_future(RequestObject *self)
{
    const mod_state *st = self->worker->st;

    if (!self->has_yielded && !self->has_let_loop &&
        Py_IS_TYPE((PyObject *)self, st->request_type) &&
        st->future_request_type != NULL) {
        change_type(self, st->future_request_type);
    }
}

void
request_become_coroutine(RequestObject *self, const mod_state *st)
{
    if (UNLIKELY(!Py_IS_TYPE((PyObject *)self, st->request_type))) {
        change_type(self, st->request_type);
    }
}

/* ---- awaiting a future ---------------------------------------------------
 */

typedef struct FutureAwaitObject {
    PyObject_HEAD RequestObject *request;
} FutureAwaitObject;

PyObject *
request_await_future(PyObject *op)
{
    mod_state         *st = ((RequestObject *)op)->worker->st;
    FutureAwaitObject *self;

    if (st->future_await_type == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the module has ended");
        return NULL;
    }
    self = PyObject_GC_New(FutureAwaitObject, st->future_await_type);
    if (self != NULL) {
        self->request = (RequestObject *)Py_NewRef(op);
        PyObject_GC_Track(self);
    }
    return (PyObject *)self;
}

static PyObject *
request_of(PyObject *op)
{
    return (PyObject *)((FutureAwaitObject *)op)->request;
}

static PySendResult
future_await_am_send(PyObject *op, PyObject *value, PyObject **out)
{
    return request_am_send(request_of(op), value, out);
}

static PyObject *
future_await_iternext(PyObject *op)
{
    return request_iternext(request_of(op));
}

static PyObject *
future_await_send(PyObject *op, PyObject *value)
{
    return request_send(request_of(op), value);
}

static PyObject *
future_await_throw(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    return request_throw(request_of(op), args, nargs);
}

static PyObject *
future_await_close(PyObject *op, PyObject *ignored)
{
    return request_close(request_of(op), ignored);
}

static int
future_await_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(op));
    Py_VISIT(((FutureAwaitObject *)op)->request);
    return 0;
}

static void
future_await_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    Py_DECREF(request_of(op));
    PyObject_GC_Del(op);
    Py_DECREF(type);
}

#define FASTCALL_FUNC(f) ((PyCFunction)(void (*)(void))(f))

static PyMethodDef future_await_methods[] = {
    {"send", future_await_send, METH_O, NULL},
    {"throw", FASTCALL_FUNC(future_await_throw), METH_FASTCALL, NULL},
    {"close", future_await_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot future_await_slots[] = {
    {Py_tp_dealloc, future_await_dealloc},
    {Py_tp_traverse, future_await_traverse},
    {Py_am_send, future_await_am_send},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, future_await_iternext},
    {Py_tp_methods, future_await_methods},
    {0, NULL},
};

static PyType_Spec future_await_spec = {
    .name      = "ucp._ext._FutureAwait",
    .basicsize = sizeof(FutureAwaitObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = future_await_slots,
};

/* ---- the types -----------------------------------------------------------
 */

static PyMethodDef coroutine_methods[] = {
    {"send", request_send, METH_O, request_send_doc},
    {"throw", FASTCALL_FUNC(request_throw), METH_FASTCALL, request_throw_doc},
    {"close", request_close, METH_NOARGS, request_close_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(coroutine_doc,
             "A request that nobody has asked whether it is a future.");

static PyType_Slot coroutine_slots[] = {
    {Py_tp_doc, (void *)coroutine_doc}, {Py_tp_dealloc, request_dealloc},
    {Py_tp_traverse, request_traverse}, {Py_tp_clear, request_clear},
    {Py_am_await, request_await},       {Py_am_send, request_am_send},
    {Py_tp_iter, request_await},        {Py_tp_iternext, request_iternext},
    {Py_tp_methods, coroutine_methods}, {0, NULL},
};

PyDoc_STRVAR(future_doc, "A request that asyncio uses as a future.");

static PyType_Slot future_slots[] = {
    {Py_tp_doc, (void *)future_doc},
    {Py_tp_dealloc, request_dealloc},
    {Py_tp_traverse, request_traverse},
    {Py_tp_clear, request_clear},
    {0, NULL},
};

enum {
    KIND_FLAGS = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                 Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION
};

static PyType_Spec coroutine_spec = {
    .name      = "ucp._ext.CoroutineRequest",
    .basicsize = sizeof(RequestObject),
    .flags     = KIND_FLAGS,
    .slots     = coroutine_slots,
};

static PyType_Spec future_spec = {
    .name      = "ucp._ext.FutureRequest",
    .basicsize = sizeof(RequestObject),
    .flags     = KIND_FLAGS,
    .slots     = future_slots,
};

static int
add_kind(PyObject *module, PyType_Spec *spec, PyObject *base,
         PyTypeObject **type_p)
{
    *type_p = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, base);
    return (*type_p == NULL) ? -1 : PyModule_AddType(module, *type_p);
}

int
request_init_types(PyObject *module, mod_state *st)
{
    PyObject *base = PyType_FromModuleAndSpec(module, &request_spec, NULL);
    int       rc   = -1;

    if (base == NULL) {
        return -1;
    }
    if (PyModule_AddType(module, (PyTypeObject *)base) == 0 &&
        add_kind(module, &coroutine_spec, base, &st->request_type) == 0 &&
        add_kind(module, &future_spec, base, &st->future_request_type) == 0) {
        st->future_await_type = (PyTypeObject *)PyType_FromModuleAndSpec(
            module, &future_await_spec, NULL);
        rc = (st->future_await_type == NULL) ? -1 : 0;
    }
    Py_DECREF(base);
    return rc;
}
