/* SPDX-License-Identifier: BSD-3-Clause */
/* close.c: the end of a worker, and the wait for what is closing. */
#include "worker/internal.h"

#include "base/log.h"

#include "base/args.h"
#include "base/errors.h"
#include "worker/methods.h"
#include "worker/share.h"
#include "worker/thread.h"

void
worker_settle_closers(WorkerObject *worker)
{
    event *first;

    if (worker->umx != NULL && umx_worker_num_closing(worker->umx) != 0) {
        return;
    }
    while ((first = event_pop(&worker->closers)) != NULL) {
        first->type->settle(first);
    }
}

void
worker_shut(WorkerObject *self)
{
    umx_worker *umx = self->umx;

    if (umx == NULL || self->is_shutting) {
        return;
    }
    self->is_shutting = true; /* the loop's code may close it again */
    worker_remove_reader(self);
    if (self->loop != NULL && worker_loop_is_closed(self)) {
        Py_CLEAR(self->call_soon);
    }
    self->in_callback = true; /* collect what completes */
    umx_worker_destroy(umx);
    self->umx        = NULL;
    self->has_thread = false;
    worker_settle_told(self);
    worker_settle_closers(self);
    self->in_callback = false;
    worker_queue_wakes(self);
    worker_run_calls(self, false);
    worker_wake_waiters(self);
    worker_end_keeper(self);
    self->st->num_workers--;
    Py_CLEAR(self->call_soon);
    Py_CLEAR(self->ready);
    Py_CLEAR(self->drain_call);
    Py_CLEAR(self->readable_call);
    log_deliver(self->st);
}

const char worker_abort_doc[] =
    "abort($self, /)\n--\n\n"
    "Destroy the worker and all under it: listeners stop, endpoints\n"
    "are closed by force, pending requests are cancelled.";

PyObject *
worker_abort(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    WorkerObject *self = (WorkerObject *)op;

    if (self->umx == NULL || worker_is_forked(self)) {
        Py_RETURN_NONE;
    }
    if (worker_check(self) < 0) {
        return NULL;
    }
    worker_shut(self);
    return (worker_raise_kept(self) < 0) ? NULL : Py_NewRef(Py_None);
}

/* Make progress and run callbacks, which may close the worker. */
static umx_status
drain_in_turn(WorkerObject *self)
{
    umx_status status;

    worker_begin_turn(self);
    status = umx_worker_drain(self->umx);
    if (self->loop == NULL) {
        worker_after_progress(self);
    } else {
        worker_after_call(self);
    }
    return status;
}

const char worker_run_until_closed_doc[] =
    "_run_until_closed($self, timeout, /)\n--\n\n"
    "Block, `timeout` seconds at most, until no close is under way.";

PyObject *
worker_run_until_closed(PyObject *op, PyObject *timeout)
{
    WorkerObject *self = (WorkerObject *)op;
    uint64_t      timeout_ns, start = compat_clock_ns(), now = start;
    umx_status    status;

    if (args_timeout(timeout, 0, &timeout_ns) < 0 || worker_check(self) < 0) {
        return NULL;
    }
    if (self->loop != NULL && worker_loop_is_closed(self)) {
        Py_CLEAR(self->call_soon);
    }
    if (self->umx == NULL) {
        Py_RETURN_NONE; /* the loop's code closed it */
    }
    /* Endpoints dropped just now start to close in this. */
    status = drain_in_turn(self);
    while (status >= 0 && self->umx != NULL &&
           umx_worker_num_closing(self->umx) != 0 && now - start < timeout_ns) {
        uint64_t left = timeout_ns - (now - start);

        /* Not for long: a signal may have come just before. */
        worker_sleep(self, (left < SIGNALS_NS) ? left : SIGNALS_NS);
        if (PyErr_CheckSignals() < 0) {
            return NULL;
        }
        if (self->umx == NULL) {
            Py_RETURN_NONE; /* a signal's handler closed it */
        }
        status = drain_in_turn(self);
        if (self->umx == NULL) {
            Py_RETURN_NONE; /* so did a callback */
        }
        now = compat_clock_ns();
    }
    if (status < 0) {
        return errors_raise(self->st, status, "run_until_closed", NULL);
    }
    Py_RETURN_NONE;
}
