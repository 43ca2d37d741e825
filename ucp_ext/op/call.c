/* SPDX-License-Identifier: BSD-3-Clause */
/* call.c: calls of threads that share a worker, which wait for what they have
 * posted: see worker/share.c. */
#include "op/call.h"

#include "base/log.h"
#include "request/request.h"
#include "worker/share.h"
#include "worker/thread.h"
#include "worker/worker.h"

/* A thread that waits for a request. */
typedef struct call_waiter {
    waiter               waiter;
    const RequestObject *req;
} call_waiter;

static bool
is_over(const waiter *self)
{
    return request_is_settled(((const call_waiter *)self)->req);
}

/* Make progress. UMX_OK: the worker is armed. */
static umx_status
make_progress(WorkerObject *worker, const RequestObject *req)
{
    umx_status status = UMX_OK;

    (void)umx_worker_spin(worker->umx, &req->is_told);
    worker_after_call(worker);
    if (!request_is_settled(req) && worker->umx != NULL) {
        status = umx_worker_drain(worker->umx);
        worker_after_call(worker);
    }
    return status;
}

static bool
is_armed(const WorkerObject *worker)
{
    return worker->umx == NULL || umx_worker_is_armed(worker->umx);
}

/* Sleep, or let other threads have the GIL. -1 with an exception. */
static int
rest(WorkerObject *worker, waiter *self, uint64_t left_ns)
{
    int rc = 0;

    worker->num_awake--;
    if (is_armed(worker)) {
        rc = worker_sleep_shared(worker, self,
                                 (left_ns < SIGNALS_NS) ? left_ns : SIGNALS_NS);
    } else {
        PyEval_RestoreThread(PyEval_SaveThread());
    }
    worker->num_awake++;
    worker_let_thread_leave(worker);
    return rc;
}

/* 1: the request is settled; 0: the time is out; -1: with an exception. */
static int
wait_until(WorkerObject *worker, call_waiter *self, uint64_t end_ns)
{
    const RequestObject *req = self->req;

    while (!request_is_settled(req)) {
        umx_status status;
        uint64_t   now;

        if (worker->umx == NULL) {
            PyErr_SetString(worker->st->exceptions[EXC_UCXCloseError],
                            "ucp was shut down meanwhile");
            return -1;
        }
        status = make_progress(worker, req);
        if (worker_raise_kept(worker) < 0) {
            return -1;
        }
        if (request_is_settled(req)) {
            break;
        }
        if (PyErr_CheckSignals() < 0) {
            return -1;
        }
        log_follow(worker->st);
        log_deliver(worker->st);
        if (status < 0) {
            (void)errors_raise(worker->st, status, req->type->name, NULL);
            return -1;
        }
        now = (end_ns == UINT64_MAX) ? 0 : compat_clock_ns();
        if (now >= end_ns) {
            return 0;
        }
        /* A signal's handler may have settled it, or closed the worker. */
        if (!request_is_settled(req) && worker->umx != NULL &&
            rest(worker, &self->waiter, end_ns - now) < 0) {
            return -1;
        }
    }
    return 1;
}

/* The thread leaves: others may go on without it. Keeps exceptions. */
static void
leave(WorkerObject *worker, const waiter *self)
{
    PyObject *exc = PyErr_GetRaisedException();

    worker->num_awake--;
    if (UNLIKELY(worker->leader != NULL) && !is_armed(worker)) {
        if (umx_worker_drain(worker->umx) != UMX_OK) {
            worker_wake_leader(worker);
        }
        worker_after_call(worker);
    }
    if (self->has_duty) {
        worker_hand_over(worker);
    }
    log_deliver(worker->st);
    if (exc != NULL) {
        PyErr_SetRaisedException(exc);
    }
}

/* As wait_until(); worker->num_awake counts this thread. */
static int
wait_and_leave(WorkerObject *worker, const RequestObject *req, uint64_t end_ns)
{
    call_waiter self = {.waiter = {.is_over = is_over}, .req = req};
    int         rc   = (req != NULL) ? wait_until(worker, &self, end_ns) : 1;

    leave(worker, &self.waiter);
    return rc;
}

/* The time at which `seconds`, or None, have passed. -1 with an exception. */
static int
parse_end(PyObject *seconds, uint64_t *end_p)
{
    double value;

    *end_p = UINT64_MAX;
    if (seconds == Py_None) {
        return 0;
    }
    value = PyFloat_AsDouble(seconds);
    if (value == -1.0 && PyErr_Occurred()) {
        return -1;
    }
    if (!(value > 0)) {
        *end_p = 0;
    } else if (value < 1e9) {
        *end_p = compat_clock_ns() + (uint64_t)(value * 1e9);
    }
    return 0;
}

int
worker_check_open(const WorkerObject *worker)
{
    if (UNLIKELY(worker->umx == NULL || !worker->is_shared)) {
        PyErr_SetString(worker->st->exceptions[EXC_UCXCloseError],
                        "ucp was shut down meanwhile");
        return -1;
    }
    return 0;
}

const char worker_call_and_wait_doc[] =
    "_call($self, timeout, method, /, *args, **kwargs)\n--\n\n"
    "Call `method` and wait for the Request that it returns, `timeout`\n"
    "seconds at most or for ever if it is None; return its result. Any\n"
    "thread may call it once the worker is shared.";

const char worker_call_as_doc[] =
    "_call_as($self, name, timeout, method, /, *args, **kwargs)\n--\n\n"
    "_call() of a program's call of that name.";

/* Return what the request gives; or cancel it, without a message lost. `name`:
 * of the program's call; NULL: the operation's. */
static PyObject *
finish(RequestObject *req, int rc, const char *name, PyObject *timeout)
{
    if (rc > 0) {
        return request_take_or_raise(req);
    }
    request_give_up(req);
    return (rc < 0) ? NULL : errors_set(request_timeout(req, name, timeout));
}

/* `args` are the timeout, the method, and its `nargs` - 2 arguments. */
static PyObject *
call_and_wait(WorkerObject *self, const char *name, PyObject *const *args,
              Py_ssize_t nargs, PyObject *kwnames)
{
    RequestObject *req = NULL;
    PyObject      *result;
    uint64_t       end_ns;
    int            rc;

    if (nargs < 2) {
        return PyErr_Format(PyExc_TypeError,
                            "_call() takes a timeout and a method");
    }
    if (worker_check_open(self) < 0 || parse_end(args[0], &end_ns) < 0) {
        return NULL;
    }
    self->num_awake++;
    worker_let_thread_leave(self);
    self->is_in_call = true;
    result = PyObject_Vectorcall(args[1], args + 2, (size_t)(nargs - 2),
                                 kwnames);
    self->is_in_call = false;
    if (result != NULL && request_check(self->st, result) &&
        ((RequestObject *)result)->worker == self) {
        req = (RequestObject *)result;
    }
    rc = wait_and_leave(self, req, end_ns);
    if (req != NULL) {
        result = finish(req, rc, name, args[0]);
        Py_DECREF(req);
    }
    return result;
}

PyObject *
worker_call_and_wait(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                     PyObject *kwnames)
{
    return call_and_wait((WorkerObject *)op, NULL, args, nargs, kwnames);
}

PyObject *
worker_call_as(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames)
{
    const char *name = NULL;

    if (nargs > 0) {
        name = PyUnicode_AsUTF8(args[0]); /* which lives as long as it does */
    }
    return (nargs > 0 && name == NULL) ?
               NULL :
               call_and_wait((WorkerObject *)op, name, args + 1, nargs - 1,
                             kwnames);
}

int
worker_wait_for(WorkerObject *worker, const RequestObject *req,
                PyObject *timeout)
{
    uint64_t end_ns;

    if (request_is_settled(req)) {
        return 1;
    }
    if (worker_check_open(worker) < 0 || parse_end(timeout, &end_ns) < 0) {
        return -1;
    }
    worker->num_awake++;
    return wait_and_leave(worker, req, end_ns);
}

const char worker_wait_for_request_doc[] =
    "_wait($self, timeout, request, /)\n--\n\n"
    "Wait until the request is done: True; or until the time is out.";

PyObject *
worker_wait_for_request(PyObject *op, PyObject *const *args, Py_ssize_t nargs)
{
    WorkerObject *self = (WorkerObject *)op;
    int           rc;

    if (nargs != 2 || !request_check(self->st, args[1])) {
        return PyErr_Format(PyExc_TypeError,
                            "_wait() takes a timeout and a Request");
    }
    rc = worker_wait_for(self, (RequestObject *)args[1], args[0]);
    return (rc < 0) ? NULL : PyBool_FromLong(rc);
}
