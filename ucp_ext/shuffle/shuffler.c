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

/* The spill file cannot grow: "[Errno 28] No space left on device: '/tmp'". The
 * end of the inserts fails as one of them has. */
static PyObject *
spill_error(const ShufflerObject *self, const char *op)
{
    mod_state *st     = self->worker->st;
    bool       is_end = strcmp(op, "insert_finished") == 0 ||
                  strcmp(op, "close") == 0;
    int error      = (self->umx != NULL) ? umx_shuffler_spill_error(self->umx) :
                                           self->error;
    PyObject *exc  = NULL;
    PyObject *text = PyUnicode_FromFormat(
        "%s: %sthe spill file cannot grow: [Errno %d] %s: %A", op,
        is_end ? "an insert has failed: " : "", error, strerror(error),
        self->spill_dir);

    if (text != NULL) {
        exc = errors_new_text(st, UMX_ERR_IO_ERROR, op, PyUnicode_AsUTF8(text));
        Py_DECREF(text);
    }
    return errors_with_errno(exc, error);
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
        return spill_error(self, op);
    case UMX_ERR_INVALID_PARAM:
        text = "insert_finished() has been called for the partition";
        break;
    default:
        break;
    }
    return errors_new(st, status, op, text);
}
