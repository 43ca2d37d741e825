/* SPDX-License-Identifier: BSD-3-Clause */
/* shuffler.c: a shuffle in which this process takes part. */
#include "shuffle/shuffler.h"

#include "comm/communicator.h"
#include "worker/worker.h"

int
shuffler_check(const ShufflerObject *self)
{
    return owned_check(self->worker, self->umx, "shuffler");
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
