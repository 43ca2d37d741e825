/* SPDX-License-Identifier: BSD-3-Clause */
/* type.c: the types of communicators and of messages of ranks. */
#include "comm/type.h"

#include "base/args.h"
#include "comm/close_all.h"
#include "comm/collective.h"
#include "comm/create.h"
#include "comm/derive.h"
#include "comm/event.h"
#include "comm/message.h"
#include "comm/send_recv.h"
#include "worker/worker.h"

#include <string.h>

/* ---- life ----------------------------------------------------------------
 */

static PyObject *
comm_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"worker", NULL};

    mod_state *st = state_of_type(type);
    PyObject  *worker;

    if (st == NULL ||
        args_check_made(args, st->worker_type,
                        "a Communicator is made by await "
                        "Communicator.from_env() or from_allgather()") < 0 ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O!:Communicator", keywords,
                                     st->worker_type, &worker)) {
        return NULL;
    }
    return owned_new(type, (WorkerObject *)worker);
}

/* One that was not closed is aborted. */
static void
give_back(PyObject *op)
{
    CommObject *self = (CommObject *)op;
    umx_comm   *umx  = self->umx;

    self->umx = NULL;
    if (umx != NULL && event_drop_comm(self->worker, umx)) {
        worker_schedule_drain(self->worker);
    }
}

static void
comm_dealloc(PyObject *op)
{
    owned_dealloc(op, give_back);
}

/* ---- what it is ------------------------------------------------------------
 */

static PyObject *
get_rank(PyObject *op, void *Py_UNUSED(closure))
{
    CommObject *self = (CommObject *)op;

    return PyLong_FromLong((self->umx == NULL) ? -1 : umx_comm_rank(self->umx));
}

static PyObject *
get_size(PyObject *op, void *Py_UNUSED(closure))
{
    CommObject *self = (CommObject *)op;

    return PyLong_FromLong((self->umx == NULL) ? 0 : umx_comm_size(self->umx));
}

static PyObject *
get_name(PyObject *op, void *Py_UNUSED(closure))
{
    CommObject *self = (CommObject *)op;

    return PyUnicode_FromString((self->umx == NULL) ? "" :
                                                      umx_comm_name(self->umx));
}

static PyObject *
get_arrived(PyObject *op, void *Py_UNUSED(closure))
{
    CommObject *self = (CommObject *)op;

    return PyLong_FromLong(
        (self->umx == NULL) ? 0 : umx_comm_num_arrived(self->umx));
}

static PyObject *
get_failure(PyObject *op, void *Py_UNUSED(closure))
{
    CommObject      *self = (CommObject *)op;
    umx_comm_failure failure;

    if (self->umx == NULL || !umx_comm_get_failure(self->umx, &failure)) {
        Py_RETURN_NONE;
    }
    return comm_error(self, UMX_ERR_RANK_FAILED, "failure", -1);
}

/* ---- its end ---------------------------------------------------------------
 */

PyDoc_STRVAR(abort_doc,
             "abort($self, reason=None, _fault=None)\n--\n\n"
             "End it on every rank: operations, pending and later ones, raise\n"
             "UCXRankFailed, with `reason` in its text. Nothing if it is\n"
             "closed, or has ended already.");

static PyObject *
comm_abort(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwnames)
{
    static const char *const keywords[] = {"reason", "_fault"};
    CommObject              *self       = (CommObject *)op;
    PyObject                *values[2];
    PyObject                *reason;
    umx_comm_failure         fault;

    if (args_parse("abort", args, nargs, kwnames, keywords, 2, 2, 0, values) <
            0 ||
        comm_parse_fault(values[1], &fault) < 0 ||
        args_reason(values[0], &reason) < 0) {
        return NULL;
    }
    if (self->umx == NULL || self->worker->umx == NULL) {
        Py_XDECREF(reason);
        Py_RETURN_NONE;
    }
    if (comm_check(self) < 0) {
        Py_XDECREF(reason);
        return NULL;
    }
    umx_comm_abort_for(self->umx, &fault,
                       (reason != NULL) ? PyBytes_AS_STRING(reason) : NULL);
    Py_XDECREF(reason);
    worker_after_call(self->worker);
    worker_schedule_drain(self->worker);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(
    close_doc,
    "close($self, /)\n--\n\n"
    "Leave it: the other ranks finish what this one has taken part in;\n"
    "later operations that need it raise UCXRankFailed, which names\n"
    "this rank. Operations under way here are aborted. A second call\n"
    "does nothing.");

static PyObject *
comm_close(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    CommObject *self = (CommObject *)op;

    if (self->umx == NULL || self->worker->umx == NULL) {
        Py_RETURN_NONE;
    }
    if (comm_check(self) < 0) {
        return NULL;
    }
    self->is_closed = true;
    umx_comm_close(self->umx);
    worker_after_call(self->worker);
    worker_schedule_drain(self->worker);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(closed_doc, "closed($self, /)\n--\n\n"
                         "True after close(), and when its worker has ended.");

static PyObject *
comm_closed(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    CommObject *self = (CommObject *)op;

    return PyBool_FromLong(self->is_closed || self->umx == NULL ||
                           self->worker->umx == NULL);
}

PyDoc_STRVAR(explain_doc,
             "_explain($self, rank, /)\n--\n\n"
             "The way that messages of collective operations take to a rank,\n"
             "and why: \"way: reason\".");

static PyObject *
comm_explain(PyObject *op, PyObject *number)
{
    CommObject *self = (CommObject *)op;
    char        text[512];
    int         rank;

    if (comm_parse_rank(self, number, "rank", &rank) < 0 ||
        comm_check(self) < 0) {
        return NULL;
    }
    (void)umx_comm_explain(self->umx, rank, text, sizeof(text));
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyDoc_STRVAR(address_doc, "_address($self, rank, /)\n--\n\n"
                          "The address of a rank's worker.");

static PyObject *
comm_address(PyObject *op, PyObject *number)
{
    CommObject *self = (CommObject *)op;
    const void *address;
    size_t      len;
    umx_status  status;
    int         rank;

    if (comm_parse_rank(self, number, "rank", &rank) < 0 ||
        comm_check(self) < 0) {
        return NULL;
    }
    status = umx_comm_get_address(self->umx, rank, &address, &len);
    if (status != UMX_OK) {
        return errors_set(comm_error(self, status, "endpoint", rank));
    }
    return PyBytes_FromStringAndSize(address, (Py_ssize_t)len);
}

/* Every process in the communicator, by what identifies it in all of them. */
static PyObject *
get_processes(PyObject *op, void *Py_UNUSED(closure))
{
    CommObject *self    = (CommObject *)op;
    bool        is_made = self->umx != NULL && umx_comm_rank(self->umx) >= 0;
    int         size    = is_made ? umx_comm_size(self->umx) : 0;
    PyObject   *list    = PyTuple_New(size);

    for (int i = 0; list != NULL && i < size; i++) {
        uint64_t  group;
        int       member = umx_comm_member(self->umx, i, &group);
        PyObject *pair   = Py_BuildValue("(Ki)", (unsigned long long)group,
                                         member);

        if (pair == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyTuple_SET_ITEM(list, i, pair);
    }
    return list;
}

#define METHOD(name, function)                                   \
    {                                                            \
        name, (PyCFunction)(void (*)(void))comm_##function,      \
            METH_FASTCALL | METH_KEYWORDS, comm_##function##_doc \
    }

static PyMethodDef comm_methods[] = {
    METHOD("_create", create),
    METHOD("send", send),
    METHOD("isend", send),
    METHOD("recv", recv),
    METHOD("irecv", recv),
    METHOD("probe", probe),
    METHOD("iprobe", iprobe),
    METHOD("improbe", improbe),
    METHOD("bcast", bcast),
    METHOD("gather", gather),
    METHOD("scatter", scatter),
    METHOD("allgather", allgather),
    METHOD("allgatherv", allgatherv),
    METHOD("alltoall", alltoall),
    METHOD("alltoallv", alltoallv),
    METHOD("alltoall_buffers", alltoall_buffers),
    METHOD("reduce", reduce),
    METHOD("allreduce", allreduce),
    METHOD("scan", scan),
    METHOD("exscan", exscan),
    METHOD("reduce_scatter", reduce_scatter),
    METHOD("split", split),
    {"barrier", comm_barrier, METH_NOARGS, comm_barrier_doc},
    {"abort", (PyCFunction)(void (*)(void))comm_abort,
     METH_FASTCALL | METH_KEYWORDS, abort_doc},
    {"close", comm_close, METH_NOARGS, close_doc},
    {"closed", comm_closed, METH_NOARGS, closed_doc},
    {"_address", comm_address, METH_O, address_doc},
    {"_explain", comm_explain, METH_O, explain_doc},
    {"_derive", comm_derive, METH_O, comm_derive_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef comm_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(OwnedObject, weakrefs),
     READONLY, NULL},
    {"_allows_pickle", T_BOOL, offsetof(CommObject, allows_pickle), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef comm_getset[] = {
    {"rank", get_rank, NULL, "This process's rank, from 0.", NULL},
    {"size", get_size, NULL, "How many ranks there are.", NULL},
    {"name", get_name, NULL, "Its name; \"\" if it was given none.", NULL},
    {"worker", owned_get_worker, NULL, "The worker that moves its messages.",
     NULL},
    {"failure", get_failure, NULL,
     "The UCXRankFailed that operations raise, once it has failed; or None.",
     NULL},
    {"_arrived", get_arrived, NULL, NULL, NULL},
    {"_processes", get_processes, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(comm_doc, "Communicator(worker)\n--\n\n"
                       "Processes with ranks: see ucp.Communicator.");

static PyType_Slot comm_slots[] = {
    {Py_tp_doc, (void *)comm_doc}, {Py_tp_new, comm_new},
    {Py_tp_dealloc, comm_dealloc}, {Py_tp_traverse, owned_traverse},
    {Py_tp_methods, comm_methods}, {Py_tp_getset, comm_getset},
    {Py_tp_members, comm_members}, {0, NULL},
};

PyType_Spec comm_spec = {
    .name      = "ucp._ext.Communicator",
    .basicsize = sizeof(CommObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = comm_slots,
};

/* ---- messages of ranks -------------------------------------------------
 */

static PyObject *
message_source(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(((CommMessageObject *)op)->info.source);
}

static PyObject *
message_tag(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(((CommMessageObject *)op)->info.tag);
}

static PyObject *
message_nbytes(PyObject *op, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(((CommMessageObject *)op)->info.length);
}

static PyObject *
comm_message_repr(PyObject *op)
{
    const umx_comm_status *info = &((CommMessageObject *)op)->info;
    char                   text[96];

    snprintf(text, sizeof(text),
             "<ucp.CommMessage of rank %d, tag %" PRIu64 ", %zu bytes>",
             info->source, info->tag, info->length);
    return PyUnicode_FromString(text);
}

static PyMethodDef comm_message_methods[] = {
    {"recv", comm_message_recv, METH_O, comm_message_recv_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef comm_message_getset[] = {
    {"source", message_source, NULL, "Rank of the sender.", NULL},
    {"tag", message_tag, NULL, "The tag, an int of 64 bits.", NULL},
    {"nbytes", message_nbytes, NULL, "Length in bytes.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(comm_message_doc,
             "A message of a rank whose bytes have not been received yet. If\n"
             "it is dropped without recv(), it returns to its place in the\n"
             "queue.");

static PyType_Slot comm_message_slots[] = {
    {Py_tp_doc, (void *)comm_message_doc},
    {Py_tp_dealloc, comm_message_dealloc},
    {Py_tp_traverse, comm_message_traverse},
    {Py_tp_repr, comm_message_repr},
    {Py_tp_methods, comm_message_methods},
    {Py_tp_getset, comm_message_getset},
    {0, NULL},
};

PyType_Spec comm_message_spec = {
    .name      = "ucp._ext.CommMessage",
    .basicsize = sizeof(CommMessageObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = comm_message_slots,
};
