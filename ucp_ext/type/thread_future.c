/* SPDX-License-Identifier: BSD-3-Clause */
/* thread_future.c: the future of an operation that a thread has begun.
 *
 * What programs get is a subclass in Python that is a concurrent.futures.Future
 * too: ucp/_communicator/blocking.py. Its locks, lists and callbacks take
 * longer than a short message. So a new future is *light*: it has the request,
 * and result() waits for that in the calling thread. It becomes a complete one
 * when somebody needs more, such as a callback or concurrent.futures.wait():
 * the subclass calls _complete(), and its methods do all from then on. A future
 * that was not made by Worker._begin() is complete from the start.
 *
 * Thread: any, with the GIL. While a thread waits for the request, others may
 * take the outcome, or complete the future. */
#include "type/thread_future.h"

#include "base/args.h"
#include "base/errors.h"
#include "op/call.h"
#include "request/request.h"
#include "type/type.h"
#include "worker/worker.h"

typedef struct ThreadFutureObject {
    PyObject_HEAD RequestObject *request; /* while light, until the outcome */
    bool                         is_light;
    bool                         was_light; /* and is complete */
    bool                         is_cancelled;
    uintptr_t                    taker; /* the thread in take(), or 0 */
    PyObject                    *value; /* the outcome: one of these */
    PyObject                    *exc;
} ThreadFutureObject;

/* ---- outcome -------------------------------------------------------------
 */

static bool
is_over(const ThreadFutureObject *self)
{
    return self->request == NULL || request_is_settled(self->request);
}

/* Let another thread take the outcome: making it may run code of the program's.
 * -1 with an exception: such code has asked for it in this thread. */
static int
let_others_take(const ThreadFutureObject *self)
{
    while (self->taker != 0) {
        if (self->taker == compat_thread_id()) {
            PyErr_SetString(PyExc_RuntimeError, "the result is being made");
            return -1;
        }
        PyEval_RestoreThread(PyEval_SaveThread());
    }
    return 0;
}

/* Take the outcome of a request that is over: it is handed out now. -1 with an
 * exception: there is no memory for it, and whoever asks next tries again. */
static int
take(ThreadFutureObject *self)
{
    RequestObject *req;
    PyObject      *value, *exc;

    if (UNLIKELY(self->taker != 0) && let_others_take(self) < 0) {
        return -1;
    }
    req = self->request;
    if (req == NULL) {
        return 0;
    }
    if (req->state == REQUEST_CANCELLED) {
        self->is_cancelled = true;
    } else {
        self->taker = compat_thread_id();
        value       = request_take(req, &exc);
        self->taker = 0;
        if (value == NULL && exc == NULL) {
            return -1;
        }
        self->value = value;
        self->exc   = exc;
    }
    self->request = NULL;
    Py_DECREF(req);
    return 0;
}

/* Call a method of the subclass. */
static PyObject *
call_method(ThreadFutureObject *self, const char *name, PyObject *argument)
{
    PyObject *method = PyObject_GetAttrString((PyObject *)self, name);
    PyObject *result;

    if (method == NULL) {
        return NULL;
    }
    result = (argument == NULL) ? PyObject_CallNoArgs(method) :
                                  PyObject_CallOneArg(method, argument);
    Py_DECREF(method);
    return result;
}

/* Wait for the request of a light future. 1: the outcome is here; 0: the future
 * has been completed meanwhile; -1: with an exception. */
static int
wait_for(ThreadFutureObject *self, PyObject *timeout)
{
    int rc = 1;

    if (UNLIKELY(!is_over(self))) {
        RequestObject *req = (RequestObject *)Py_NewRef(self->request);

        rc = worker_wait_for(req->worker, req, timeout);
        Py_DECREF(req);
    }
    if (rc == 0) {
        PyErr_SetNone(PyExc_TimeoutError);
        return -1;
    }
    if (rc < 0 || (self->is_light && take(self) < 0)) {
        return -1;
    }
    return self->is_light;
}

/* ---- methods -------------------------------------------------------------
 */

static PyObject *
get_result(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwnames, const char *name, bool is_exception)
{
    static const char *const keywords[] = {"timeout"};

    ThreadFutureObject *self    = (ThreadFutureObject *)op;
    PyObject           *timeout = NULL;
    int                 rc;

    if (args_parse(name, args, nargs, kwnames, keywords, 1, 1, 0, &timeout) <
        0) {
        return NULL;
    }
    timeout = (timeout == NULL) ? Py_None : timeout;
    rc      = self->is_light ? wait_for(self, timeout) : 0;
    if (rc <= 0) {
        return (rc < 0) ? NULL :
                          call_method(self,
                                      is_exception ? "_complete_exception" :
                                                     "_complete_result",
                                      timeout);
    }
    if (self->is_cancelled) {
        return call_method(self, "_raise_cancelled", NULL);
    }
    if (is_exception) {
        return Py_NewRef(self->exc == NULL ? Py_None : self->exc);
    }
    if (self->exc != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(self->exc), self->exc);
        return NULL;
    }
    return Py_NewRef(self->value);
}

PyDoc_STRVAR(result_doc,
             "result($self, timeout=None)\n--\n\n"
             "Make progress until the operation has ended; return its result.\n"
             "\nTimeoutError: it has not ended within so many seconds.");

static PyObject *
future_result(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
              PyObject *kwnames)
{
    return get_result(op, args, nargs, kwnames, "result", false);
}

PyDoc_STRVAR(wait_doc, "wait($self, timeout=None)\n--\n\n"
                       "``result()``, by the name that it has in MPI.");

static PyObject *
future_wait(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    return get_result(op, args, nargs, kwnames, "wait", false);
}

PyDoc_STRVAR(
    exception_doc,
    "exception($self, timeout=None)\n--\n\n"
    "As result(), but return the exception of the operation, or None.");

static PyObject *
future_exception(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                 PyObject *kwnames)
{
    return get_result(op, args, nargs, kwnames, "exception", true);
}

PyDoc_STRVAR(done_doc, "done($self, /)\n--\n\n"
                       "True if it has ended, or was cancelled.");

static PyObject *
future_done(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ThreadFutureObject *self = (ThreadFutureObject *)op;

    if (!self->is_light) {
        return call_method(self, "_complete_done", NULL);
    }
    /* Who knows that it is done may use the memory for something else. */
    if (is_over(self) && self->taker == 0 && take(self) < 0) {
        return NULL;
    }
    return PyBool_FromLong(is_over(self));
}

PyDoc_STRVAR(test_doc, "test($self, /)\n--\n\n"
                       "Make progress; True if it is done.");

static PyObject *
future_test(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ThreadFutureObject *self = (ThreadFutureObject *)op;
    PyObject           *worker, *result;

    if (!self->is_light) {
        return call_method(self, "_complete_test", NULL);
    }
    if (!is_over(self) && self->request->worker->umx != NULL) {
        worker = Py_NewRef(self->request->worker);
        result = PyObject_CallMethod(worker, "progress", NULL);
        Py_DECREF(worker);
        if (result == NULL) {
            return NULL;
        }
        Py_DECREF(result);
    }
    return future_done(op, NULL);
}

PyDoc_STRVAR(cancelled_doc, "cancelled($self, /)\n--\n\n"
                            "True if it was cancelled.");

static PyObject *
future_cancelled(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ThreadFutureObject *self = (ThreadFutureObject *)op;

    if (!self->is_light) {
        return call_method(self, "_complete_cancelled", NULL);
    }
    return PyBool_FromLong(
        self->is_cancelled ||
        (self->request != NULL && self->request->state == REQUEST_CANCELLED));
}

PyDoc_STRVAR(cancel_doc, "cancel($self, /)\n--\n\n"
                         "Cancel the operation. False: it has ended.");

static PyObject *
future_cancel(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ThreadFutureObject *self = (ThreadFutureObject *)op;

    if (!self->is_light) {
        return call_method(self, "_complete_cancel", NULL);
    }
    if (is_over(self)) {
        return future_cancelled(op, NULL);
    }
    return PyObject_CallMethod((PyObject *)self->request, "cancel", NULL);
}

/* ---- for the subclass ------------------------------------------------------
 */

PyDoc_STRVAR(complete_doc, "_complete($self, /)\n--\n\n"
                           "Leave the rest to the methods of the subclass.");

static PyObject *
future_complete(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    ThreadFutureObject *self = (ThreadFutureObject *)op;
    RequestObject      *req;

    if (let_others_take(self) < 0) {
        return NULL;
    }
    req             = self->request;
    self->is_light  = false;
    self->was_light = true;
    self->request   = NULL;
    Py_CLEAR(self->value);
    Py_CLEAR(self->exc);
    Py_XDECREF(req);
    Py_RETURN_NONE;
}

static PyObject *
get_posted(PyObject *op, void *Py_UNUSED(closure))
{
    const RequestObject *req = ((ThreadFutureObject *)op)->request;

    if (req == NULL) {
        Py_RETURN_NONE;
    }
    return PyTuple_Pack(2, (PyObject *)req->worker, (PyObject *)req);
}

/* ---- life ----------------------------------------------------------------
 */

static int
future_traverse(PyObject *op, visitproc visit, void *arg)
{
    ThreadFutureObject *self = (ThreadFutureObject *)op;

    Py_VISIT(Py_TYPE(op));
    Py_VISIT(self->request);
    Py_VISIT(self->value);
    Py_VISIT(self->exc);
    return 0;
}

static int
future_clear(PyObject *op)
{
    ThreadFutureObject *self = (ThreadFutureObject *)op;

    Py_CLEAR(self->request);
    Py_CLEAR(self->value);
    Py_CLEAR(self->exc);
    return 0;
}

/* Nobody asks any more. What has come was received into the program's memory,
 * so that its message is not for another receive. */
static void
future_finalize(PyObject *op)
{
    ThreadFutureObject *self   = (ThreadFutureObject *)op;
    PyObject           *result = NULL, *exc;

    if (self->request == NULL && !self->was_light) {
        return;
    }
    exc = PyErr_GetRaisedException();
    if (self->was_light) {
        result = call_method(self, "_complete_drop", NULL);
    } else if (!is_over(self)) {
        result = call_method(self, "_drop", (PyObject *)self->request);
    } else if (take(self) == 0) {
        result = Py_NewRef(Py_None);
    }
    if (result == NULL) {
        PyErr_WriteUnraisable(op);
    }
    Py_XDECREF(result);
    PyErr_SetRaisedException(exc);
}

static void
future_dealloc(PyObject *op)
{
    PyTypeObject *type = Py_TYPE(op);

    PyObject_GC_UnTrack(op);
    (void)future_clear(op);
    type->tp_free(op);
    Py_DECREF(type);
}

const char worker_begin_doc[] =
    "_begin($self, type, keep, method, /, *args, **kwargs)\n--\n\n"
    "Call `method`; return a ThreadFuture, of the subclass `type`, of the\n"
    "Request that it returns. If that is pending, `keep` is called first, "
    "once\n"
    "for a worker: a thread is to have callbacks run.";

static PyObject *
future_new(PyTypeObject *type, RequestObject *req)
{
    ThreadFutureObject *self = (ThreadFutureObject *)type->tp_alloc(type, 0);

    if (self != NULL) {
        self->request  = (RequestObject *)Py_NewRef(req);
        self->is_light = true;
    }
    return (PyObject *)self;
}

PyObject *
worker_begin(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
             PyObject *kwnames)
{
    WorkerObject *self = (WorkerObject *)op;
    PyObject     *req, *future, *kept;

    if (nargs < 3 || !PyType_Check(args[0]) ||
        !PyType_IsSubtype((PyTypeObject *)args[0],
                          self->st->thread_future_type)) {
        return PyErr_Format(PyExc_TypeError,
                            "_begin() takes a type, a function and a method");
    }
    if (worker_check_open(self) < 0) {
        return NULL;
    }
    req = PyObject_Vectorcall(args[2], args + 3, (size_t)(nargs - 3), kwnames);
    if (req == NULL) {
        return NULL;
    }
    if (!request_check(self->st, req)) {
        Py_DECREF(req);
        return PyErr_Format(PyExc_TypeError, "the method gives no Request");
    }
    future = future_new((PyTypeObject *)args[0], (RequestObject *)req);
    Py_DECREF(req);
    if (future == NULL || self->is_kept ||
        request_is_settled((RequestObject *)req)) {
        return future;
    }
    self->is_kept = true;
    kept          = PyObject_CallNoArgs(args[1]);
    if (kept == NULL) {
        self->is_kept = false;
        Py_CLEAR(future);
    }
    Py_XDECREF(kept);
    return future;
}

#define KEYWORDS (METH_FASTCALL | METH_KEYWORDS)
#define KEYWORDS_FUNC(f) ((PyCFunction)(void (*)(void))(f))

static PyMethodDef future_methods[] = {
    {"result", KEYWORDS_FUNC(future_result), KEYWORDS, result_doc},
    {"wait", KEYWORDS_FUNC(future_wait), KEYWORDS, wait_doc},
    {"exception", KEYWORDS_FUNC(future_exception), KEYWORDS, exception_doc},
    {"done", future_done, METH_NOARGS, done_doc},
    {"test", future_test, METH_NOARGS, test_doc},
    {"cancelled", future_cancelled, METH_NOARGS, cancelled_doc},
    {"cancel", future_cancel, METH_NOARGS, cancel_doc},
    {"_complete", future_complete, METH_NOARGS, complete_doc},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef future_getset[] = {
    {"_posted", get_posted, NULL,
     "The Worker and the Request of a light one, until its outcome is taken.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(future_doc, "The future of an operation that a thread has begun.");

static PyType_Slot future_slots[] = {
    {Py_tp_doc, (void *)future_doc},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, future_dealloc},
    {Py_tp_traverse, future_traverse},
    {Py_tp_clear, future_clear},
    {Py_tp_finalize, future_finalize},
    {Py_tp_methods, future_methods},
    {Py_tp_getset, future_getset},
    {0, NULL},
};

PyType_Spec thread_future_spec = {
    .name      = "ucp._ext.ThreadFuture",
    .basicsize = sizeof(ThreadFutureObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = future_slots,
};
