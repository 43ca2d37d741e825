/* SPDX-License-Identifier: BSD-3-Clause */
/* turn.c: how long a turn of the event loop may last.
 *
 * A task that awaits without waiting keeps the loop. It may do so for
 * config.drain; and once more, if nobody else wants the loop. asyncio has no
 * call that tells, so this looks at its queues: `_ready` has the handles to run
 * next, `_scheduled` is a heap of the timers. A loop without them has turns of
 * one length. */
#include "worker/internal.h"

/* Clear an error of the loop's attributes; what ends the program is kept. */
static void
clear_error(WorkerObject *worker)
{
    PyObject *exc = PyErr_GetRaisedException();

    if (exc != NULL && worker_ends_program(exc)) {
        worker_keep_exception(worker, exc);
    } else {
        Py_XDECREF(exc);
    }
}

void
worker_find_ready(WorkerObject *worker)
{
    PyObject *ready = PyObject_GetAttr(worker->loop, NAME(worker->st, _ready));

    if (ready != NULL &&
        strcmp(Py_TYPE(ready)->tp_name, "collections.deque") == 0) {
        Py_XSETREF(worker->ready, Py_NewRef(ready));
    }
    Py_XDECREF(ready);
    clear_error(worker);
}

/* Are the worker's own calls all that is to run next? */
static bool
is_ready_alone(WorkerObject *worker)
{
    Py_ssize_t size    = PyObject_Size(worker->ready);
    bool       is_ours = size >= 0 && size <= 2; /* _on_readable, _on_drain */

    for (Py_ssize_t i = 0; i < size && is_ours; i++) {
        PyObject *handle   = PySequence_GetItem(worker->ready, i);
        PyObject *callback = NULL;

        if (handle != NULL) {
            callback = PyObject_GetAttr(handle, NAME(worker->st, _callback));
        }
        is_ours = callback != NULL && (callback == worker->drain_call ||
                                       callback == worker->readable_call);
        Py_XDECREF(callback);
        Py_XDECREF(handle);
    }
    return is_ours;
}

/* Get when the first timer is due, of those that are cancelled, too. False: it
 * is not known. */
static bool
first_timer(WorkerObject *worker, uint64_t *when_ns)
{
    PyObject *timers = PyObject_GetAttr(worker->loop,
                                        NAME(worker->st, _scheduled));
    PyObject *first = NULL, *when = NULL;
    double    seconds = -1;

    *when_ns = UINT64_MAX;
    if (timers != NULL && PyList_CheckExact(timers)) {
        if (PyList_GET_SIZE(timers) == 0) {
            Py_DECREF(timers);
            return true;
        }
        first = Py_NewRef(PyList_GET_ITEM(timers, 0));
        when  = PyObject_GetAttr(first, NAME(worker->st, _when));
    }
    if (when != NULL && PyFloat_CheckExact(when)) {
        seconds = PyFloat_AS_DOUBLE(when);
    }
    Py_XDECREF(when);
    Py_XDECREF(first);
    Py_XDECREF(timers);
    if (!(seconds >= 0 && seconds < 1e9)) {
        return false;
    }
    *when_ns = (uint64_t)(seconds * 1e9);
    return true;
}

/* Tell for how long the loop has nothing to do but to poll descriptors; 0: a
 * call or a timer is due. The worker keeps callbacks of requests in lists of
 * its own. */
static uint64_t
free_time(WorkerObject *worker)
{
    uint64_t now = compat_clock_ns(), when;

    if (worker_has_due(worker) || !is_ready_alone(worker) ||
        !first_timer(worker, &when) || when <= now) {
        return 0;
    }
    return when - now;
}

bool
worker_extend_turn(WorkerObject *worker)
{
    PyObject *raised;
    uint64_t  ns;

    if (worker->has_asked || worker->ready == NULL || worker->is_turn_due) {
        return false;
    }
    worker->has_asked = true;
    raised            = PyErr_GetRaisedException();
    ns                = free_time(worker);
    clear_error(worker);
    PyErr_SetRaisedException(raised);
    if (ns == 0 || worker->umx == NULL) {
        return false;
    }
    umx_worker_extend_turn(worker->umx, ns);
    return true;
}
