/* SPDX-License-Identifier: BSD-3-Clause */
/* current.c: the worker of the running event loop. ucp knows it, and makes it;
 * the last one it gave is kept in mind, as to ask costs more than many an
 * operation. */
#include "worker/methods.h"

PyObject *
worker_running_loop(mod_state *st)
{
    if (st->get_running_loop == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the module has ended");
        return NULL;
    }
    return PyObject_CallNoArgs(st->get_running_loop);
}

static inline bool
is_of_loop(const WorkerObject *self, const PyObject *loop)
{
    return self->loop == loop && self->umx != NULL && !worker_is_forked(self) &&
           worker_is_mine(self);
}

static WorkerObject *
ask(mod_state *st)
{
    PyObject *worker = PyObject_CallNoArgs(st->current_worker);

    if (worker != NULL && !PyObject_TypeCheck(worker, st->worker_type)) {
        PyErr_Format(PyExc_TypeError, "expected a Worker, not %.200s",
                     Py_TYPE(worker)->tp_name);
        Py_CLEAR(worker);
    }
    st->recent_worker = worker;
    return (WorkerObject *)worker;
}

WorkerObject *
worker_current(mod_state *st)
{
    WorkerObject *recent;
    PyObject     *loop;

    if (st->current_worker == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the module ucp is not there");
        return NULL;
    }
    loop = worker_running_loop(st);
    if (loop == NULL) {
        return NULL;
    }
    Py_DECREF(loop); /* it runs */
    recent = (WorkerObject *)st->recent_worker;
    if (recent != NULL && is_of_loop(recent, loop)) {
        return (WorkerObject *)Py_NewRef(recent);
    }
    return ask(st);
}

void
worker_forget_current(const WorkerObject *self)
{
    if (self->st->recent_worker == (const PyObject *)self) {
        self->st->recent_worker = NULL;
    }
}

const char worker_set_current_doc[] =
    "set_current_worker(function, /)\n--\n\n"
    "Have function() called for the worker of the running event loop.";

PyObject *
worker_set_current(PyObject *module, PyObject *function)
{
    mod_state *st = PyModule_GetState(module);

    Py_XSETREF(st->current_worker, Py_NewRef(function));
    Py_RETURN_NONE;
}
