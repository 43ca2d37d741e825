/* SPDX-License-Identifier: BSD-3-Clause */
/* methods.h: what the type of workers calls. */
#ifndef UCP_EXT_WORKER_METHODS_H
#define UCP_EXT_WORKER_METHODS_H

#include "worker/worker.h"

/* Bind the worker to its loop, which calls it from now on. -1 with an
 * exception. */
int worker_add_reader(WorkerObject *self);

/* Destroy what libumx has of the worker. */
void worker_shut(WorkerObject *self);

/* The worker goes: it is not the current one any more. */
void worker_forget_current(const WorkerObject *self);

void worker_close_wake_fds(WorkerObject *worker);

/* ---- methods ---- */

PyObject *worker_submit_call(PyObject *op, PyObject *callable);
PyObject *worker_on_readable(PyObject *op, PyObject *ignored);
PyObject *worker_on_drain(PyObject *op, PyObject *ignored);
PyObject *worker_fileno(PyObject *op, PyObject *ignored);
PyObject *worker_progress(PyObject *op, PyObject *ignored);
PyObject *worker_poll(PyObject *op, PyObject *ignored);
PyObject *worker_arm(PyObject *op, PyObject *ignored);
PyObject *worker_overslept(PyObject *op, PyObject *ignored);
PyObject *worker_abort(PyObject *op, PyObject *ignored);
PyObject *worker_run_until_closed(PyObject *op, PyObject *timeout);
PyObject *worker_set_thread(PyObject *op, PyObject *has_thread);
PyObject *worker_adopt(PyObject *op, PyObject *ignored);
PyObject *worker_disown(PyObject *op, PyObject *ignored);
PyObject *worker_share(PyObject *op, PyObject *ignored);
PyObject *worker_keep(PyObject *op, PyObject *ignored);
PyObject *worker_describe(PyObject *op, PyObject *max);

extern const char worker_submit_doc[], worker_fileno_doc[],
    worker_progress_doc[], worker_poll_doc[], worker_arm_doc[],
    worker_overslept_doc[], worker_abort_doc[], worker_run_until_closed_doc[],
    worker_adopt_doc[], worker_disown_doc[], worker_share_doc[],
    worker_keep_doc[], worker_describe_doc[];

#endif
