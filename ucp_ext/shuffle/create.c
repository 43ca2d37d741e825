/* SPDX-License-Identifier: BSD-3-Clause */
/* create.c: how a shuffler is made. */
#include "shuffle/create.h"

#include "base/args.h"
#include "comm/communicator.h"
#include "shuffle/shuffler.h"
#include "worker/worker.h"

/* What is parsed for umx_shuffler_create(). */
typedef struct shuffler_call {
    umx_shuffler_params params;
    int                *owners; /* of PyMem; or NULL */
    PyObject           *dir;    /* bytes; or NULL */
} shuffler_call;

static int
owner_of(uint32_t partition, void *arg)
{
    return ((const int *)arg)[partition];
}

static int
parse_owners(shuffler_call *call, PyObject *owners, int size)
{
    PyObject *items;
    int       rc = -1;

    if (owners == Py_None) {
        return 0;
    }
    items = args_items(owners, "owners must be an iterable of ranks");
    if (items == NULL) {
        return -1;
    }
    if (PyTuple_GET_SIZE(items) != (Py_ssize_t)call->params.num_partitions) {
        PyErr_Format(PyExc_ValueError, "owners has %zd ranks for %u partitions",
                     PyTuple_GET_SIZE(items), call->params.num_partitions);
        goto out;
    }
    call->owners = PyMem_New(int, call->params.num_partitions);
    if (call->owners == NULL) {
        PyErr_NoMemory();
        goto out;
    }
    for (uint32_t i = 0; i < call->params.num_partitions; i++) {
        Py_ssize_t rank = PyNumber_AsSsize_t(PyTuple_GET_ITEM(items, i),
                                             PyExc_OverflowError);

        if (rank == -1 && PyErr_Occurred()) {
            goto out;
        }
        if (rank < 0 || rank >= size) {
            PyErr_Format(PyExc_ValueError,
                         "owners: %zd is no rank of %d, of partition %u", rank,
                         size, i);
            goto out;
        }
        call->owners[i] = (int)rank;
    }
    call->params.field_mask |= UMX_SHUFFLER_FIELD_OWNER;
    call->params.owner     = owner_of;
    call->params.owner_arg = call->owners;
    rc                     = 0;
out:
    Py_DECREF(items);
    return rc;
}

static int
parse_bytes_limit(PyObject *value, const char *name, uint64_t flag,
                  shuffler_call *call, size_t *out)
{
    Py_ssize_t limit;

    if (value == Py_None) {
        return 0;
    }
    limit = PyNumber_AsSsize_t(value, PyExc_OverflowError);
    if (limit == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (limit < 0) {
        PyErr_Format(PyExc_ValueError, "%s is %zd bytes", name, limit);
        return -1;
    }
    *out = (size_t)limit;
    call->params.field_mask |= flag;
    return 0;
}

static int
parse_op_id(PyObject *op_id, uint64_t *value_p)
{
    int rc = args_raw_tag(op_id, "op_id", value_p);

    if (rc < 0 && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "op_id must be 0 to 2**64-1, not %R",
                     op_id);
    }
    return rc;
}

static int
parse(shuffler_call *call, PyObject *args, PyObject *kwargs, mod_state *st,
      CommObject **comm_p)
{
    static char *keywords[] = {"comm",      "op_id",  "num_partitions",
                               "owners",    "budget", "peer_credit",
                               "spill_dir", NULL};

    PyObject  *comm, *op_id, *count, *owners = Py_None, *budget = Py_None;
    PyObject  *credit = Py_None, *dir = Py_None;
    Py_ssize_t value;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO|OOOO:Shuffler",
                                     keywords, st->comm_type, &comm, &op_id,
                                     &count, &owners, &budget, &credit, &dir) ||
        parse_op_id(op_id, &call->params.op_id) < 0) {
        return -1;
    }
    value = PyNumber_AsSsize_t(count, PyExc_OverflowError);
    if (value == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (value < 1 || value > UMX_PARTITIONS_MAX) {
        PyErr_Format(PyExc_ValueError, "num_partitions is %zd, not 1 to %d",
                     value, UMX_PARTITIONS_MAX);
        return -1;
    }
    call->params.num_partitions = (uint32_t)value;
    *comm_p                     = (CommObject *)comm;
    if (parse_bytes_limit(budget, "budget", UMX_SHUFFLER_FIELD_BUDGET, call,
                          &call->params.budget) < 0 ||
        parse_bytes_limit(credit, "peer_credit", UMX_SHUFFLER_FIELD_PEER_CREDIT,
                          call, &call->params.peer_credit) < 0) {
        return -1;
    }
    if (dir != Py_None) {
        if (!PyUnicode_FSConverter(dir, &call->dir)) {
            return -1;
        }
        call->params.spill_dir = PyBytes_AS_STRING(call->dir);
        call->params.field_mask |= UMX_SHUFFLER_FIELD_SPILL_DIR;
    }
    if (comm_check(*comm_p) < 0) { /* after what the arguments' code may do */
        return -1;
    }
    return parse_owners(call, owners, umx_comm_size((*comm_p)->umx));
}

/* No file can be made in the directory. */
static PyObject *
raise_os_error(PyObject *dir, int error)
{
    errno = error;
    return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, dir);
}

static PyObject *
create(PyTypeObject *type, CommObject *comm, shuffler_call *call)
{
    WorkerObject   *worker = comm->worker;
    ShufflerObject *self   = (ShufflerObject *)type->tp_alloc(type, 0);
    umx_status      status;

    if (self == NULL) {
        return NULL;
    }
    self->worker = (WorkerObject *)Py_NewRef(worker);
    if (call->dir != NULL) {
        self->spill_dir = PyUnicode_DecodeFSDefault(call->params.spill_dir);
        if (self->spill_dir == NULL) {
            Py_DECREF(self);
            return NULL;
        }
    }
    if (comm_check(comm) < 0) { /* collecting may have closed it */
        Py_DECREF(self);
        return NULL;
    }
    status = umx_shuffler_create(comm->umx, &call->params, &self->umx);
    if (status == UMX_ERR_IO_ERROR) {
        (void)raise_os_error(self->spill_dir, umx_take_errno());
        Py_DECREF(self);
        return NULL;
    }
    if (status != UMX_OK) {
        Py_DECREF(self);
        return errors_set(comm_error(comm, status, "Shuffler", -1));
    }
    worker_after_call(worker);
    worker_schedule_drain(worker);
    return (PyObject *)self;
}

PyObject *
shuffler_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    mod_state    *st   = state_of_type(type);
    shuffler_call call = {.owners = NULL};
    CommObject   *comm;
    PyObject     *self = NULL;

    if (st != NULL && parse(&call, args, kwargs, st, &comm) == 0) {
        self = create(type, comm, &call);
    }
    PyMem_Free(call.owners);
    Py_XDECREF(call.dir);
    return self;
}
