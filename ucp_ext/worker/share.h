/* SPDX-License-Identifier: BSD-3-Clause */
/* share.h: a worker that every thread may call, and calls that wait. */
#ifndef UCP_EXT_WORKER_SHARE_H
#define UCP_EXT_WORKER_SHARE_H

#include "base/state.h"

/* Wake the threads whose requests are settled, or all if the worker has ended.
 * Runs no Python. */
void worker_wake_waiters(WorkerObject *worker);

/* Something has been posted: wake the thread that sleeps for all if none is
 * awake that will drain the worker. Runs no Python. */
void worker_wake_leader(WorkerObject *worker);

/* Forget the threads of the parent process. */
void worker_forget_waiters(WorkerObject *worker);

/* The worker has ended: the thread in _keep() returns. */
void worker_end_keeper(WorkerObject *worker);

void worker_close_wake_fds(WorkerObject *worker);

/* Methods of Worker. */
PyObject *worker_share(PyObject *op, PyObject *ignored);
PyObject *worker_call_and_wait(PyObject *op, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames);
PyObject *worker_wait_for_request(PyObject *op, PyObject *const *args,
                                  Py_ssize_t nargs);
PyObject *worker_keep(PyObject *op, PyObject *ignored);

extern const char worker_share_doc[], worker_call_and_wait_doc[],
    worker_wait_for_request_doc[], worker_keep_doc[];

#endif
