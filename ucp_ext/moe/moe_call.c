/* SPDX-License-Identifier: BSD-3-Clause */
/* moe_call.c: a dispatch and its combine, as an object. Its heavy parts run
 * without the GIL; no other thread can use the object meanwhile. */
#include "moe/moe_call.h"

#include "moe/event.h"
#include "worker/worker.h"

typedef struct MoeCallObject {
    OWNED_HEAD;
    MoeBufferObject *buffer;
    umx_moe_call    *umx; /* NULL once it is given back */
    size_t           num_tokens;
    size_t           num_topk;
    unsigned         flags;
    bool             is_busy; /* a thread is in a part without the GIL */
} MoeCallObject;

/* ---- life ----------------------------------------------------------------
 */

static void
give_back(PyObject *op)
{
    MoeCallObject *self = (MoeCallObject *)op;
    umx_moe_call  *umx  = self->umx;

    self->umx = NULL;
    if (umx != NULL && event_drop_moe_call(self->worker, umx)) {
        worker_schedule_drain(self->worker);
    }
}

static void
dealloc(PyObject *op)
{
    owned_dealloc_with(op, give_back,
                       (PyObject *)((MoeCallObject *)op)->buffer);
}

static int
traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(((MoeCallObject *)op)->buffer);
    return owned_traverse(op, visit, arg);
}

static int
check(const MoeCallObject *self)
{
    if (self->is_busy) {
        PyErr_SetString(PyExc_RuntimeError,
                        "another thread is using the handle");
        return -1;
    }
    return owned_check(self->worker, self->umx, "handle");
}

/* Check the length of memory that is given. */
static int
check_len(const Py_buffer *view, const char *what, size_t len)
{
    if (view->obj != NULL && (size_t)view->len != len) {
        PyErr_Format(PyExc_ValueError, "%s has %zd bytes, not %zu", what,
                     view->len, len);
        return -1;
    }
    return 0;
}

static void
release(Py_buffer *view)
{
    if (view->obj != NULL) {
        PyBuffer_Release(view);
    }
}

/* Bytes of a row, and of its scales, as it is in the program's memory. */
static size_t
row_len(const MoeCallObject *self)
{
    const umx_moe_params *params = &self->buffer->params;

    return params->hidden * umx_moe_dtype_size(params->dtype);
}

static size_t
scales_len(const MoeCallObject *self)
{
    return self->buffer->params.hidden / UMX_MOE_BLOCK * sizeof(float);
}

/* ---- begin ---------------------------------------------------------------
 */

const char moe_call_begin_doc[] =
    "_begin($self, topk_idx, num_tokens, num_topk, flags, like, /)\n--\n\n"
    "Begin a call: MoeCall. topk_idx: int64; like: a MoeCall, or None.";

PyObject *
moe_call_begin(PyObject *op, PyObject *args)
{
    MoeBufferObject *buffer = (MoeBufferObject *)op;
    mod_state       *st     = buffer->worker->st;
    umx_moe_routing  routing;
    Py_ssize_t       num_tokens, num_topk;
    Py_buffer        idx;
    PyObject        *like;
    MoeCallObject   *self = NULL;
    unsigned         flags;
    umx_status       status;

    if (!PyArg_ParseTuple(args, "y*nnIO:_begin", &idx, &num_tokens, &num_topk,
                          &flags, &like)) {
        return NULL;
    }
    if (num_tokens < 0 || num_topk < 0 ||
        check_len(&idx, "topk_idx",
                  (size_t)num_tokens * (size_t)num_topk * sizeof(int64_t)) <
            0 ||
        joint_check(buffer) < 0) {
        goto out;
    }
    if (like != Py_None && (!PyObject_TypeCheck(like, st->moe_call_type) ||
                            check((MoeCallObject *)like) < 0)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "like is no MoeCall");
        }
        goto out;
    }
    if (like != Py_None && ((MoeCallObject *)like)->buffer != buffer) {
        PyErr_SetString(PyExc_ValueError, "the handle is of another buffer");
        goto out;
    }
    self = (MoeCallObject *)st->moe_call_type->tp_alloc(st->moe_call_type, 0);
    if (self == NULL) {
        goto out;
    }
    self->worker = (WorkerObject *)Py_NewRef(buffer->worker);
    self->buffer = (MoeBufferObject *)Py_NewRef(buffer);
    if (joint_check(buffer) < 0) { /* collecting may have closed it */
        Py_CLEAR(self);
        goto out;
    }
    routing = (umx_moe_routing){.topk_idx    = idx.buf,
                                .num_tokens  = (size_t)num_tokens,
                                .num_topk    = (size_t)num_topk,
                                .num_experts = buffer->params.num_experts,
                                .num_ranks   = umx_moe_num_ranks(buffer->umx)};
    status  = (like == Py_None) ?
                  umx_moe_begin(buffer->umx, &routing, flags, &self->umx) :
                  umx_moe_begin_like(((MoeCallObject *)like)->umx, flags,
                                     &self->umx);
    if (status != UMX_OK) {
        Py_CLEAR(self);
        (void)errors_set(moe_error(buffer, status, "dispatch"));
        goto out;
    }
    self->num_tokens = (size_t)num_tokens;
    self->num_topk   = (size_t)num_topk;
    self->flags      = flags;
out:
    PyBuffer_Release(&idx);
    return (PyObject *)self;
}

/* ---- steps that wait -----------------------------------------------------
 */

typedef umx_status step_fn(umx_moe_call *call, const umx_op_params *params,
                           umx_request **req_p);

static umx_status
post(RequestObject *req, const umx_op_params *params, step_fn *step)
{
    const moe_tail      *tail = TAIL_OF(req, moe_tail);
    const MoeCallObject *call = (MoeCallObject *)tail->call;

    if (tail->buffer->umx == NULL || call->umx == NULL || call->is_busy) {
        return UMX_ERR_CLOSED;
    }
    return step(call->umx, params, &req->op);
}

#define STEP(noun, text, function)                                            \
    static umx_status noun##_post(RequestObject       *req,                   \
                                  const umx_op_params *params)                \
    {                                                                         \
        return post(req, params, function);                                   \
    }                                                                         \
                                                                              \
    static const op_type op_##noun = {                                        \
        .name     = text,                                                     \
        .flags    = OP_PLAIN,                                                 \
        .post     = noun##_post,                                              \
        .error    = moe_request_error,                                        \
        .clear    = joint_request_clear,                                      \
        .traverse = joint_request_traverse,                                   \
    };                                                                        \
                                                                              \
    static PyObject *noun(PyObject *op, PyObject *Py_UNUSED(ignored))         \
    {                                                                         \
        RequestObject *req = joint_request(((MoeCallObject *)op)->buffer, op, \
                                           &op_##noun);                       \
                                                                              \
        return (req == NULL) ? NULL : request_post(req);                      \
    }

STEP(tell_counts, "dispatch", umx_moe_count)
STEP(tell_sent, "dispatch", umx_moe_dispatch)
STEP(tell_ready, "combine", umx_moe_combine)

/* ---- parts without the GIL -----------------------------------------------
 */

/* Raise what a part has returned; None. */
static PyObject *
part_result(const MoeCallObject *self, umx_status status, const char *op)
{
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (status != UMX_OK) {
        return errors_set(moe_error(self->buffer, status, op));
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(pack_doc, "_pack($self, rows, scales, weights, /)\n--\n\n"
                       "Write the rows where they go.");

static PyObject *
pack(PyObject *op, PyObject *args)
{
    MoeCallObject *self = (MoeCallObject *)op;
    Py_buffer      data = {.obj = NULL}, scales = {.obj = NULL};
    Py_buffer      weights = {.obj = NULL};
    umx_status     status  = UMX_OK;
    bool           is_fp8  = self->buffer->params.dtype == UMX_MOE_FP8;

    if (!PyArg_ParseTuple(args, "y*z*z*:_pack", &data, &scales, &weights)) {
        return NULL;
    }
    if (is_fp8 && scales.obj == NULL) {
        PyErr_SetString(PyExc_TypeError, "rows of fp8 need scales");
    } else if (check(self) == 0 &&
               check_len(&data, "x", self->num_tokens * row_len(self)) == 0 &&
               check_len(&scales, "x_scales",
                         self->num_tokens * scales_len(self)) == 0 &&
               check_len(&weights, "topk_weights",
                         self->num_tokens * self->num_topk * sizeof(float)) ==
                   0) {
        umx_moe_rows rows = {.data    = data.buf,
                             .scales  = scales.obj ? scales.buf : NULL,
                             .weights = weights.obj ? weights.buf : NULL};

        self->is_busy = true;
        Py_BEGIN_ALLOW_THREADS;
        status = umx_moe_pack(self->umx, &rows);
        Py_END_ALLOW_THREADS;
        self->is_busy = false;
    }
    release(&data);
    release(&scales);
    release(&weights);
    return part_result(self, status, "dispatch");
}

PyDoc_STRVAR(unpack_doc, "_unpack($self, rows, scales, num_rows, /)\n--\n\n"
                         "Copy outputs to where other ranks read them.");

static PyObject *
unpack(PyObject *op, PyObject *args)
{
    MoeCallObject        *self   = (MoeCallObject *)op;
    const umx_moe_params *params = &self->buffer->params;
    size_t     most = params->num_experts * (size_t)params->max_tokens;
    Py_buffer  data = {.obj = NULL}, scales = {.obj = NULL};
    Py_ssize_t num_rows;
    umx_status status = UMX_OK;

    if (!PyArg_ParseTuple(args, "y*z*n:_unpack", &data, &scales, &num_rows)) {
        return NULL;
    }
    if (num_rows < 0 || (size_t)num_rows > most) {
        PyErr_Format(PyExc_ValueError, "y has %zd rows, of at most %zu",
                     num_rows, most);
    } else if (params->dtype == UMX_MOE_FP8 && scales.obj == NULL) {
        PyErr_SetString(PyExc_TypeError, "rows of fp8 need scales");
    } else if (check(self) == 0 &&
               check_len(&data, "y", (size_t)num_rows * row_len(self)) == 0 &&
               check_len(&scales, "y_scales",
                         (size_t)num_rows * scales_len(self)) == 0) {
        self->is_busy = true;
        Py_BEGIN_ALLOW_THREADS;
        status = umx_moe_unpack(self->umx, data.buf,
                                scales.obj ? scales.buf : NULL);
        Py_END_ALLOW_THREADS;
        self->is_busy = false;
    }
    release(&data);
    release(&scales);
    return part_result(self, status, "combine");
}

PyDoc_STRVAR(sum_doc, "_sum($self, weights, dtype, out, /)\n--\n\n"
                      "Write the sums of what the experts gave to `out`.");

static PyObject *
sum(PyObject *op, PyObject *args)
{
    MoeCallObject *self    = (MoeCallObject *)op;
    Py_buffer      weights = {.obj = NULL}, out = {.obj = NULL};
    unsigned       dtype;
    umx_status     status = UMX_OK;

    if (!PyArg_ParseTuple(args, "z*Iw*:_sum", &weights, &dtype, &out)) {
        return NULL;
    }
    if (dtype >= UMX_MOE_FP8) {
        PyErr_Format(PyExc_ValueError, "there are no sums of dtype %u", dtype);
    } else if (check(self) == 0 &&
               check_len(&weights, "topk_weights",
                         self->num_tokens * self->num_topk * sizeof(float)) ==
                   0 &&
               check_len(&out, "out",
                         self->num_tokens * self->buffer->params.hidden *
                             umx_moe_dtype_size((umx_moe_dtype)dtype)) == 0) {
        self->is_busy = true;
        Py_BEGIN_ALLOW_THREADS;
        status = umx_moe_sum(self->umx, weights.obj ? weights.buf : NULL,
                             (umx_moe_dtype)dtype, out.buf);
        Py_END_ALLOW_THREADS;
        self->is_busy = false;
    }
    release(&weights);
    release(&out);
    return part_result(self, status, "combine");
}

/* ---- what is known -------------------------------------------------------
 */

PyDoc_STRVAR(info_doc,
             "_info($self, /)\n--\n\n"
             "(dtype, rows, scales, outputs, output_scales, topk_idx,\n"
             "topk_weights, counts, num_topk): see umx_moe_info; counts are\n"
             "bytes.");

static PyObject *
info(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    MoeCallObject        *self   = (MoeCallObject *)op;
    const umx_moe_params *params = &self->buffer->params;
    umx_moe_info          i;
    size_t                count;

    if (check(self) < 0 || joint_check(self->buffer) < 0) {
        return NULL;
    }
    umx_moe_call_info(self->umx, &i);
    count = ((self->flags & UMX_MOE_UNIQUE) != 0) ?
                (size_t)umx_moe_num_ranks(self->buffer->umx) :
                params->num_experts;
    return Py_BuildValue("(Innnnnny#I)", (unsigned)i.dtype, (Py_ssize_t)i.rows,
                         (Py_ssize_t)i.scales, (Py_ssize_t)i.outputs,
                         (Py_ssize_t)i.output_scales, (Py_ssize_t)i.topk_idx,
                         (Py_ssize_t)i.topk_weights, (const char *)i.counts,
                         (Py_ssize_t)(count * sizeof(uint32_t)), i.num_topk);
}

PyDoc_STRVAR(drop_doc, "_drop($self, /)\n--\n\nGive the call back.");

static PyObject *
drop(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    if (((MoeCallObject *)op)->is_busy && check((MoeCallObject *)op) < 0) {
        return NULL;
    }
    give_back(op);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"_count", tell_counts, METH_NOARGS,
     "_count($self, /)\n--\n\nExchange how many rows come; awaitable."},
    {"_pack", pack, METH_VARARGS, pack_doc},
    {"_dispatch", tell_sent, METH_NOARGS,
     "_dispatch($self, /)\n--\n\nWait for the rows of all; awaitable."},
    {"_info", info, METH_NOARGS, info_doc},
    {"_unpack", unpack, METH_VARARGS, unpack_doc},
    {"_combine", tell_ready, METH_NOARGS,
     "_combine($self, /)\n--\n\nWait for the outputs of all; awaitable."},
    {"_sum", sum, METH_VARARGS, sum_doc},
    {"_drop", drop, METH_NOARGS, drop_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)"A dispatch and its combine: see ucp.moe.Handle."},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_methods, methods},
    {Py_tp_members, owned_members},
    {0, NULL},
};

PyType_Spec moe_call_spec = {
    .name      = "ucp._ext.MoeCall",
    .basicsize = sizeof(MoeCallObject),
    .flags     = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
