/* SPDX-License-Identifier: BSD-3-Clause */
/* worker.c: who may call a worker. */
#include "worker/worker.h"

int
worker_check(WorkerObject *self)
{
    if (self->umx == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the worker is closed");
        return -1;
    }
    if (umx_worker_is_owner(self->umx) && worker_is_mine(self)) {
        worker_call_off(self);
        return 0;
    }
    PyErr_SetString(PyExc_RuntimeError,
                    worker_is_forked(self) ?
                        "the worker belongs to the parent process" :
                        "the worker belongs to another thread: worker.submit() "
                        "has a function called there");
    return -1;
}
