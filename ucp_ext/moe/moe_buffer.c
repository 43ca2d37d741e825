/* SPDX-License-Identifier: BSD-3-Clause */
/* moe_buffer.c: a group of experts, as one rank has it. */
#include "moe/moe_buffer.h"

#include "base/args.h"
#include "buffer/memh.h"
#include "moe/event.h"
#include "moe/moe_call.h"
#include "worker/worker.h"

/* ---- errors --------------------------------------------------------------
 */

/* Another rank goes on without this one. */
static PyObject *
masked_error(const MoeBufferObject *self, umx_status status, const char *op)
{
    int       rank = umx_moe_masked_by(self->umx);
    char      text[80];
    PyObject *exc, *number;

    snprintf(text, sizeof(text), "rank %d has masked this one, which was late",
             rank);
    exc    = errors_new(self->worker->st, status, op, text);
    number = PyLong_FromLong(rank);
    if (exc != NULL &&
        (number == NULL || PyObject_SetAttrString(exc, "rank", number) < 0)) {
        Py_CLEAR(exc);
    }
    Py_XDECREF(number);
    return exc;
}

PyObject *
moe_error(const MoeBufferObject *self, umx_status status, const char *op)
{
    char        text[96];
    const char *detail = NULL;

    switch (status) {
    case UMX_ERR_RANK_FAILED:
        if (self->umx != NULL && umx_moe_masked_by(self->umx) >= 0) {
            return masked_error(self, status, op);
        }
        break;
    case UMX_ERR_CANCELED:
        detail = "a call was cancelled here, which has ended the buffer on all "
                 "ranks: make another one";
        break;
    case UMX_ERR_TIMED_OUT:
        detail = "not all ranks have come within the time limit";
        if (self->umx != NULL && umx_moe_failed_rank(self->umx) >= 0) {
            snprintf(text, sizeof(text),
                     "rank %d has not come within the time limit",
                     umx_moe_failed_rank(self->umx));
            detail = text;
        }
        break;
    case UMX_ERR_BUSY:
        detail = "two calls are live: combine the older one first";
        break;
    case UMX_ERR_INVALID_PARAM:
        detail = (strcmp(op, "create") == 0) ?
                     "the ranks give different numbers" :
                     "calls are dispatched and combined once each, in the "
                     "order in which they began";
        break;
    case UMX_ERR_UNSUPPORTED:
        detail = "a rank is masked: dispatch() and combine() need all";
        break;
    default:
        break;
    }
    return joint_error(self, status, op, detail);
}

/* ---- operations ----------------------------------------------------------
 */

PyObject *
moe_request_error(RequestObject *req)
{
    return moe_error(TAIL_OF(req, moe_tail)->buffer, req->status,
                     req->type->name);
}

/* ---- creation ------------------------------------------------------------
 */

static umx_status
create_post(RequestObject *req, const umx_op_params *params)
{
    MoeBufferObject *self   = joint_of(req);
    umx_memh        *memh   = ((MemoryObject *)self->memory)->umx;
    umx_status       status = joint_check_new(self);
    umx_moe         *umx;

    if (status != UMX_OK || memh == NULL) {
        return UMX_ERR_CLOSED;
    }
    status = umx_moe_create(self->comm->umx, memh, &self->params, params, &umx,
                            &req->op);
    if (status >= 0) {
        joint_set(self, umx, umx_moe_joint(umx));
    }
    return status;
}

static const op_type op_create = {
    .name     = "create",
    .flags    = OP_PLAIN,
    .post     = create_post,
    .error    = moe_request_error,
    .clear    = joint_request_clear,
    .traverse = joint_request_traverse,
};

PyDoc_STRVAR(create_doc, "_create($self, /)\n--\n\n"
                         "Meet the other ranks; awaitable.");

static PyObject *
create(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RequestObject *req = joint_request(op, NULL, &op_create);

    return (req == NULL) ? NULL : request_post(req);
}

static const joint_kind buffer_kind = {"buffer", event_drop_moe};

/* Numbers that the package has checked by moe_memory_size(). */
static PyObject *
moe_buffer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {
        "comm",   "memory", "num_experts", "max_tokens", "max_topk",
        "hidden", "dtype",  "timeout",     "mask",       NULL};
    mod_state       *st     = state_of_type(type);
    umx_moe_params   params = {.field_mask = UMX_MOE_FIELD_FLAGS |
                                             UMX_MOE_FIELD_TIMEOUT};
    PyObject        *comm, *memory, *timeout = Py_None;
    unsigned         dtype;
    int              mask = 0;
    MoeBufferObject *self;

    if (st == NULL ||
        args_check_made(
            args, st->comm_type,
            "a Buffer of experts is made by await Buffer.create(comm, ...)") <
            0 ||
        !PyArg_ParseTupleAndKeywords(
            args, kwargs, "O!O!IIIII|Op:MoeBuffer", keywords, st->comm_type,
            &comm, st->memory_type, &memory, &params.num_experts,
            &params.max_tokens, &params.max_topk, &params.hidden, &dtype,
            &timeout, &mask) ||
        args_timeout(timeout, UMX_TIMEOUT_INFINITE, &params.timeout_ns) < 0 ||
        memory_check_open(memory) < 0) {
        return NULL;
    }
    if (dtype > UMX_MOE_FP8) {
        return PyErr_Format(PyExc_ValueError, "there is no dtype %u", dtype);
    }
    params.dtype = (umx_moe_dtype)dtype;
    params.flags = mask ? UMX_MOE_FLAG_MASK : 0;
    self = (MoeBufferObject *)joint_new(type, &buffer_kind, (CommObject *)comm);
    if (self != NULL) {
        self->memory = Py_NewRef(memory);
        self->params = params;
    }
    return (PyObject *)self;
}

/* ---- life ----------------------------------------------------------------
 */

static void
dealloc(PyObject *op)
{
    PyObject *memory = ((MoeBufferObject *)op)->memory;

    joint_dealloc(op);
    Py_XDECREF(memory);
}

static int
traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(((MoeBufferObject *)op)->memory);
    return joint_traverse(op, visit, arg);
}

static umx_status
leave_post(RequestObject *req, const umx_op_params *params)
{
    umx_moe *umx = TAIL_OF(req, moe_tail)->buffer->umx;

    return (umx == NULL) ? UMX_OK : umx_moe_leave(umx, params, &req->op);
}

static const op_type op_leave = {
    .name     = "close",
    .flags    = OP_PLAIN,
    .post     = leave_post,
    .error    = moe_request_error,
    .clear    = joint_request_clear,
    .traverse = joint_request_traverse,
};

PyDoc_STRVAR(leave_doc, "_leave($self, /)\n--\n\n"
                        "Wait until every rank does so; awaitable.");

static PyObject *
leave(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RequestObject *req = joint_request(op, NULL, &op_leave);

    return (req == NULL) ? NULL : request_post(req);
}

PyDoc_STRVAR(abort_doc,
             "abort($self, /)\n--\n\n"
             "Leave at once: calls that are under way end, and other\n"
             "ranks fail, or mask this one, when they wait for it.");

PyDoc_STRVAR(closed_doc, "closed($self, /)\n--\n\n"
                         "True after abort(), and when the worker has ended.");

/* ---- calls and masks -----------------------------------------------------
 */

PyDoc_STRVAR(check_doc, "_check($self, op, /)\n--\n\n"
                        "Raise what has ended the buffer, if anything has.");

static PyObject *
check(PyObject *op, PyObject *name)
{
    const MoeBufferObject *self = (MoeBufferObject *)op;
    const char            *text = PyUnicode_AsUTF8(name);
    umx_status             status;

    if (text == NULL || joint_check(self) < 0) {
        return NULL;
    }
    status = umx_moe_state(self->umx);
    if (status != UMX_OK) {
        return errors_set(moe_error(self, status, text));
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(cancel_doc, "_cancel($self, /)\n--\n\n"
                         "End the buffer as a cancelled call does.");

static PyObject *
cancel(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    const MoeBufferObject *self = (MoeBufferObject *)op;

    if (joint_check(self) < 0) {
        return NULL;
    }
    umx_moe_cancel(self->umx);
    worker_after_call(self->worker);
    worker_schedule_drain(self->worker);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(set_mask_doc, "_set_mask($self, rank, is_masked, /)\n--\n\n"
                           "Mask a rank, or take its mask away.");

static PyObject *
set_mask(PyObject *op, PyObject *args)
{
    MoeBufferObject *self = (MoeBufferObject *)op;
    int              rank, is_masked;

    if (!PyArg_ParseTuple(args, "ip:_set_mask", &rank, &is_masked) ||
        joint_check(self) < 0) {
        return NULL;
    }
    if (umx_moe_set_mask(self->umx, rank, is_masked != 0) != UMX_OK) {
        return PyErr_Format(PyExc_ValueError,
                            "rank is %d: this one, or none of the communicator",
                            rank);
    }
    worker_after_call(self->worker);
    worker_schedule_drain(self->worker);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(is_masked_doc, "_is_masked($self, rank, /)\n--\n\n"
                            "Is the rank masked?");

static PyObject *
is_masked(PyObject *op, PyObject *number)
{
    const MoeBufferObject *self = (MoeBufferObject *)op;
    long                   rank = PyLong_AsLong(number);

    if ((rank == -1 && PyErr_Occurred()) || joint_check(self) < 0) {
        return NULL;
    }
    return PyBool_FromLong(rank >= 0 && rank < INT_MAX &&
                           umx_moe_is_masked(self->umx, (int)rank));
}

static PyMethodDef methods[] = {
    {"_create", create, METH_NOARGS, create_doc},
    {"_begin", moe_call_begin, METH_VARARGS, moe_call_begin_doc},
    {"_check", check, METH_O, check_doc},
    {"_cancel", cancel, METH_NOARGS, cancel_doc},
    {"_set_mask", set_mask, METH_VARARGS, set_mask_doc},
    {"_is_masked", is_masked, METH_O, is_masked_doc},
    {"_leave", leave, METH_NOARGS, leave_doc},
    {"abort", joint_abort, METH_NOARGS, abort_doc},
    {"closed", joint_closed, METH_NOARGS, closed_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"worker", owned_get_worker, NULL, "The worker that moves the rows.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(moe_buffer_doc,
             "MoeBuffer(comm, memory, num_experts, max_tokens, max_topk, "
             "hidden,\n"
             "          dtype, timeout=None, mask=False)\n--\n\n"
             "A group of experts: see ucp.moe.Buffer.");

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)moe_buffer_doc},
    {Py_tp_new, moe_buffer_new},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_methods, methods},
    {Py_tp_getset, getset},
    {Py_tp_members, owned_members},
    {0, NULL},
};

PyType_Spec moe_buffer_spec = {
    .name      = "ucp._ext.MoeBuffer",
    .basicsize = sizeof(MoeBufferObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
