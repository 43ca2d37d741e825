/* SPDX-License-Identifier: BSD-3-Clause */
/* shuffler.c: a shuffle in which this process takes part. */
#include "shuffle/shuffler.h"

#include "comm/communicator.h"
#include "shuffle/event.h"
#include "worker/worker.h"

int
shuffler_check(const ShufflerObject *self)
{
    if (worker_is_forked(self->worker)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "the shuffler belongs to the parent process");
        return -1;
    }
    if (self->umx == NULL || self->worker->umx == NULL) {
        PyErr_SetString(self->worker->st->exceptions[EXC_UCXCloseError],
                        "the shuffler is closed");
        return -1;
    }
    return worker_check(self->worker);
}

PyObject *
shuffler_error(const ShufflerObject *self, umx_status status, const char *op)
{
    mod_state  *st   = self->worker->st;
    const char *text = NULL;

    switch (status) {
    case UMX_ERR_RANK_FAILED:
        if (self->umx != NULL) {
            return comm_failure_error(st, umx_shuffler_comm(self->umx), op);
        }
        break;
    case UMX_ERR_CLOSED:
        text = "the shuffler is closed";
        break;
    case UMX_ERR_EXCEEDS_LIMIT:
        text = "the budget holds no more until partitions are extracted; a "
               "larger one, or a spill_dir, would";
        break;
    case UMX_ERR_IO_ERROR:
        text = "the spill file cannot grow";
        break;
    case UMX_ERR_NO_ELEM:
        text = "the partition has been extracted";
        break;
    case UMX_ERR_INVALID_PARAM:
        text = "insert_finished() has been called for the partition";
        break;
    default:
        break;
    }
    return errors_new(st, status, op, text);
}

/* Give it back, in whichever thread. */
void
shuffler_drop(ShufflerObject *self)
{
    WorkerObject *worker = self->worker;
    umx_shuffler *umx    = self->umx;

    self->umx = NULL;
    if (umx == NULL || worker_is_forked(worker)) {
        return; /* a child's copy is the parent's */
    }
    if (worker->umx != NULL && !worker_is_mine(worker)) {
        (void)event_drop_shuffler(worker, umx);
        return;
    }
    umx_shuffler_destroy(umx);
    if (worker->umx != NULL) {
        worker_schedule_drain(worker);
    }
}
