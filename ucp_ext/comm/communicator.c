/* SPDX-License-Identifier: BSD-3-Clause */
/* communicator.c: a communicator, and what its operations raise. */
#include "comm/communicator.h"

#include "worker/worker.h"

/* ---- errors ------------------------------------------------------------
 */

int
comm_check(const CommObject *comm)
{
    return owned_check(comm->worker, comm->umx, "communicator");
}

/* Set an attribute to an object whose reference is taken over, which may be
 * NULL with an exception. */
static int
set_attribute(PyObject *exc, const char *name, PyObject *value)
{
    int rc = (value == NULL) ? -1 : PyObject_SetAttrString(exc, name, value);

    Py_XDECREF(value);
    return rc;
}

PyObject *
comm_late(const umx_comm_failure *failure)
{
    PyObject *late = PyTuple_New(failure->num_late);

    for (int i = 0; late != NULL && i < failure->num_late; i++) {
        PyObject *rank = PyLong_FromLong(failure->late[i]);

        if (rank == NULL) {
            Py_CLEAR(late);
        } else {
            PyTuple_SET_ITEM(late, i, rank);
        }
    }
    return late;
}

static int
set_failure(mod_state *st, PyObject *exc, const umx_comm_failure *failure,
            const char *op)
{
    PyObject *cause = errors_new(st, failure->cause, NULL, NULL);

    if (cause == NULL ||
        set_attribute(exc, "rank",
                      (failure->rank < 0) ?
                          Py_NewRef(Py_None) :
                          PyLong_FromLong(failure->rank)) < 0 ||
        set_attribute(exc, "op",
                      PyUnicode_FromString(
                          (failure->op[0] != '\0') ? failure->op : op)) < 0 ||
        set_attribute(exc, "op_id",
                      (failure->op_id == 0) ?
                          Py_NewRef(Py_None) :
                          PyLong_FromUnsignedLongLong(failure->op_id)) < 0 ||
        set_attribute(exc, "late", comm_late(failure)) < 0) {
        Py_XDECREF(cause);
        return -1;
    }
    PyException_SetCause(exc, Py_NewRef(cause));
    if (set_attribute(exc, "cause", cause) < 0) {
        return -1;
    }
    return (failure->member < 0) ?
               0 :
               set_attribute(
                   exc, "_fault",
                   Py_BuildValue("(Kii)", (unsigned long long)failure->group,
                                 failure->member, (int)failure->cause));
}

PyObject *
comm_lost_error(mod_state *st, const umx_comm_failure *failure,
                const char *reason, const char *op)
{
    PyObject *exc = errors_new_text(st, UMX_ERR_RANK_FAILED, op, reason);

    if (exc != NULL && set_failure(st, exc, failure, op) < 0) {
        Py_CLEAR(exc);
    }
    return exc;
}

/* A rank has failed; or has left, which revokes nothing. `rank` -1: all
 * others. */
static PyObject *
rank_failed(mod_state *st, const umx_comm *comm, const char *op, int rank)
{
    umx_comm_failure failure;
    char             text[64];
    const char      *reason = umx_comm_reason(comm);

    if (!umx_comm_get_failure(comm, &failure)) {
        failure = (umx_comm_failure){
            .rank = rank, .op = op, .cause = UMX_ERR_PEER_CLOSED, .member = -1};
        reason = "all other ranks have left the communicator";
        if (rank >= 0) {
            (void)snprintf(text, sizeof(text),
                           "rank %d has left the communicator", rank);
            reason = text;
        }
    }
    return comm_lost_error(st, &failure, reason, op);
}

PyObject *
comm_failure_error(mod_state *st, const umx_comm *comm, const char *op)
{
    return rank_failed(st, comm, op, -1);
}

PyObject *
comm_error(const CommObject *comm, umx_status status, const char *op, int rank)
{
    mod_state  *st     = comm->worker->st;
    const char *reason = NULL;

    if (status == UMX_ERR_RANK_FAILED && comm->umx != NULL) {
        return rank_failed(st, comm->umx, op, rank);
    }
    if (status == UMX_ERR_CLOSED) {
        return errors_new_text(st, status, op, "the communicator is closed");
    }
    if (comm->umx != NULL && umx_comm_reason(comm->umx)[0] != '\0') {
        reason = umx_comm_reason(comm->umx);
    }
    return errors_new(st, status, op, reason);
}

int
comm_parse_rank(const CommObject *comm, PyObject *number, const char *what,
                int *rank_p)
{
    Py_ssize_t rank;
    int        size;

    if (comm->umx == NULL) {
        return comm_check(comm);
    }
    size = umx_comm_size(comm->umx);
    rank = PyNumber_AsSsize_t(number, PyExc_OverflowError);
    if (rank == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (rank < 0 || rank >= size) {
        PyErr_Format(PyExc_ValueError,
                     "%s is %zd, but the communicator has the ranks 0 to %d",
                     what, rank, size - 1);
        return -1;
    }
    *rank_p = (int)rank;
    return 0;
}

/* ---- ucp.Status --------------------------------------------------------
 */

static PyStructSequence_Field status_fields[] = {
    {"source", "rank of the sender"},
    {"tag", "tag of the message"},
    {"nbytes", "bytes of the message"},
    {NULL, NULL},
};

PyStructSequence_Desc comm_status_desc = {
    .name          = "ucp._ext.Status",
    .doc           = "What a receive has got.",
    .fields        = status_fields,
    .n_in_sequence = 3,
};

PyObject *
comm_status_new(mod_state *st, int source, uint64_t tag, size_t len)
{
    PyObject *self;
    PyObject *values[3];
    bool      is_bad;

    /* It cannot change, and messages are often alike. */
    if (st->comm_status != NULL && st->comm_status_of.source == source &&
        st->comm_status_of.tag == tag && st->comm_status_of.len == len) {
        return Py_NewRef(st->comm_status);
    }
    self   = PyStructSequence_New(st->comm_status_type);
    is_bad = self == NULL;

    values[0] = PyLong_FromLong(source);
    values[1] = PyLong_FromUnsignedLongLong(tag);
    values[2] = PyLong_FromSize_t(len);
    for (int i = 0; i < 3; i++) {
        is_bad = is_bad || values[i] == NULL;
        if (self != NULL) {
            PyStructSequence_SET_ITEM(self, i, values[i]);
        } else {
            Py_XDECREF(values[i]);
        }
    }
    if (is_bad) {
        Py_CLEAR(self);
        return NULL;
    }
    st->comm_status_of.source = source;
    st->comm_status_of.tag    = tag;
    st->comm_status_of.len    = len;
    Py_XSETREF(st->comm_status, Py_NewRef(self));
    return self;
}

CommObject *
comm_new_like(const CommObject *like)
{
    CommObject *self = (CommObject *)owned_new(Py_TYPE(like), like->worker);

    if (self != NULL) {
        self->allows_pickle = like->allows_pickle;
    }
    return self;
}
