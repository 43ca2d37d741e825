/* SPDX-License-Identifier: BSD-3-Clause */
/* reduce.c: reduce and allreduce, scan and exscan, reduce_scatter. */
#include "comm/collective.h"

#include "buffer/buffer.h"
#include "buffer/item.h"
#include "comm/pieces.h"
#include "worker/worker.h"

static const struct {
    const char *name;
    const char *takes; /* types of items */
} ops[] = {
    [UMX_SUM]    = {"sum", "ints, floats, complex numbers and bools"},
    [UMX_PROD]   = {"prod", "ints, floats, complex numbers and bools"},
    [UMX_MIN]    = {"min", "ints, floats and bools"},
    [UMX_MAX]    = {"max", "ints, floats and bools"},
    [UMX_AVG]    = {"avg", "floats and complex numbers"},
    [UMX_LAND]   = {"land", "ints and bools"},
    [UMX_LOR]    = {"lor", "ints and bools"},
    [UMX_LXOR]   = {"lxor", "ints and bools"},
    [UMX_BAND]   = {"band", "ints and bools"},
    [UMX_BOR]    = {"bor", "ints and bools"},
    [UMX_BXOR]   = {"bxor", "ints and bools"},
    [UMX_MAXLOC] = {"maxloc", "pairs of a value and an index"},
    [UMX_MINLOC] = {"minloc", "pairs of a value and an index"},
};

static int
parse_op(PyObject *text, umx_reduce_op *op_p)
{
    *op_p = UMX_SUM;
    if (text == NULL) {
        return 0;
    }
    for (size_t i = 0; PyUnicode_Check(text) && i < Py_ARRAY_LENGTH(ops); i++) {
        if (PyUnicode_CompareWithASCIIString(text, ops[i].name) == 0) {
            *op_p = (umx_reduce_op)i;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError,
                 "the operation is 'sum', 'prod', 'min', 'max', 'avg', 'land', "
                 "'lor', 'lxor', 'band', 'bor', 'bxor', 'maxloc' or 'minloc', "
                 "not %R",
                 text);
    return -1;
}

static int
refuse_impossible(const umx_reduction *what)
{
    PyObject *name = item_dtype_name(what->dtype);

    if (name != NULL) {
        PyErr_Format(PyExc_ValueError, "'%s' is for %s, not for %U",
                     ops[what->op].name, ops[what->op].takes, name);
        Py_DECREF(name);
    }
    return -1;
}

static int
refuse_different(umx_dtype sent, umx_dtype received)
{
    PyObject *send = item_dtype_name(sent);
    PyObject *recv = item_dtype_name(received);

    if (send != NULL && recv != NULL) {
        PyErr_Format(PyExc_ValueError,
                     "the items of send are %U, those of recv %U", send, recv);
    }
    Py_XDECREF(send);
    Py_XDECREF(recv);
    return -1;
}

/* The reduction of the items of `send`, and of `recv` if it is not NULL. */
static int
parse_reduction(mod_state *st, PyObject *send, PyObject *recv, PyObject *op,
                umx_reduction *what)
{
    umx_dtype other;

    if (parse_op(op, &what->op) < 0 || item_dtype(st, send, &what->dtype) < 0) {
        return -1;
    }
    if (!umx_reduction_is_possible(what)) {
        return refuse_impossible(what);
    }
    if (recv == NULL) {
        return 0;
    }
    if (item_dtype(st, recv, &other) < 0) {
        return -1;
    }
    return (other != what->dtype) ? refuse_different(what->dtype, other) : 0;
}

static int
check_device(const umx_buffer *buf)
{
    if (buf->len <= UMX_REDUCE_DEVICE_MAX) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError,
                 "a reduction takes at most %d bytes of a device, which it "
                 "combines on the host, not %zu: use NCCL for more "
                 "(cupyx.distributed, torch.distributed), or copy them to the "
                 "host",
                 UMX_REDUCE_DEVICE_MAX, buf->len);
    return -1;
}

/* Have an array whose items are not aligned copied, as one with gaps is. What a
 * device has is copied anyway, if it is short. */
static int
align(buffer_hold *hold, umx_dtype dtype)
{
    size_t item = umx_dtype_size(dtype);

    if (dtype == UMX_COMPLEX64 || dtype == UMX_COMPLEX128 ||
        dtype >= UMX_INT8_INT32) {
        item /= 2; /* two parts */
    }
    if (UNLIKELY(hold->buf.memtype == UMX_MEMTYPE_CUDA)) {
        return check_device(&hold->buf);
    }
    return (LIKELY((uintptr_t)hold->buf.data % item == 0) ||
            hold->buf.layout != NULL || hold->buf.len == 0) ?
               0 :
               buffer_set_one_run(hold);
}

/* Hold the arrays; `recv` NULL: the result goes to nobody, or where the
 * array is that `send` is. */
static int
hold_arrays(const CommObject *self, PyObject *send, PyObject *recv,
            RequestObject *req)
{
    collective_call *call = collective_call_of(req);

    if (recv == NULL) {
        return (collective_hold_send(self, send, req) < 0) ?
                   -1 :
                   align(&req->hold, call->what.dtype);
    }
    if (collective_hold_both(self, send, recv, req) < 0 ||
        align(&call->recv, call->what.dtype) < 0) {
        return -1;
    }
    if (call->is_in_place) {
        return 0;
    }
    return (collective_check_apart(&req->hold.buf, &call->recv.buf) < 0 ||
            align(&req->hold, call->what.dtype) < 0 ||
            collective_check_len("the recv buffer", call->recv.buf.len,
                                 req->hold.buf.len) < 0) ?
               -1 :
               0;
}

static umx_status
reduce_post(RequestObject *req, const umx_op_params *params)
{
    const collective_call *call = collective_call_of(req);
    bool is_root = umx_comm_rank(collective_comm_of(req)) == call->root;

    return umx_reduce(collective_comm_of(req), call->root, &call->what,
                      collective_send_buffer(req),
                      is_root ? &call->recv.buf : NULL, params, &req->op);
}

COLLECTIVE(reduce, "reduce", NULL);

static int
parse_reduce(const CommObject *self, PyObject *send, PyObject *recv,
             PyObject *op, RequestObject *req)
{
    collective_call *call      = collective_call_of(req);
    bool             is_root   = umx_comm_rank(self->umx) == call->root;
    bool             is_placed = collective_is_in_place(self, send);

    if (!is_root && is_placed) {
        PyErr_SetString(PyExc_ValueError,
                        "reduce: only the root may send ucp.IN_PLACE");
        return -1;
    }
    if (is_root && collective_is_absent(recv)) {
        return collective_missing("reduce", "recv");
    }
    if (!is_root) {
        recv = NULL;
    }
    return (parse_reduction(self->worker->st, is_placed ? recv : send,
                            is_placed ? NULL : recv, op, &call->what) < 0 ||
            hold_arrays(self, send, recv, req) < 0) ?
               -1 :
               0;
}

const char comm_reduce_doc[] =
    "reduce($self, send, recv=None, op='sum', root=0)\n--\n\n"
    "Combine the arrays of all ranks item by item, in the order of the ranks,\n"
    "into the root's `recv`, which only the root needs; awaitable. `op` is\n"
    "'sum', 'prod', 'min' or 'max'; 'avg'; 'land', 'lor' or 'lxor', whose\n"
    "results are 0 or 1; 'band', 'bor' or 'bxor'; 'maxloc' or 'minloc' of\n"
    "pairs of a value and an index. The items are ints of 8 to 64 bits,\n"
    "floats of 16 to 64 bits, bfloat16 of ml_dtypes, complex numbers of 32 or\n"
    "64 bits a part, or bools, as the arrays say; an operation that a type\n"
    "does not have is a ValueError. Arrays of a device may have 256 KiB, and\n"
    "are combined on the host. Floats of 16 bits\n"
    "are combined as floats of 32 bits, and the result is rounded. IN_PLACE\n"
    "for `send` on the root: its array is in `recv`.";

PyObject *
comm_reduce(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    static const char *const keywords[] = {"send", "recv", "op", "root"};
    CommObject              *self       = (CommObject *)op;
    PyObject                *values[4];
    RequestObject           *req;
    int                      root = 0;

    if (args_parse("reduce", args, nargs, kwnames, keywords, 4, 4, 1, values) <
            0 ||
        (values[3] != NULL &&
         comm_parse_rank(self, values[3], "root", &root) < 0)) {
        return NULL;
    }
    req = collective_begin(self, &op_reduce);
    if (req == NULL) {
        return NULL;
    }
    collective_call_of(req)->root = root;
    return (parse_reduce(self, values[0], values[1], values[2], req) < 0) ?
               collective_give_up(req) :
               collective_post(req);
}

/* ---- operations whose result every rank gets ----------------------------
 */

static umx_status
allreduce_post(RequestObject *req, const umx_op_params *params)
{
    const collective_call *call = collective_call_of(req);

    return umx_allreduce(collective_comm_of(req), &call->what,
                         collective_send_buffer(req), &call->recv.buf, params,
                         &req->op);
}

static umx_status
scan_post(RequestObject *req, const umx_op_params *params)
{
    const collective_call *call = collective_call_of(req);

    return umx_scan(collective_comm_of(req), &call->what,
                    collective_send_buffer(req), &call->recv.buf, params,
                    &req->op);
}

static umx_status
exscan_post(RequestObject *req, const umx_op_params *params)
{
    const collective_call *call = collective_call_of(req);

    return umx_exscan(collective_comm_of(req), &call->what,
                      collective_send_buffer(req), &call->recv.buf, params,
                      &req->op);
}

COLLECTIVE(allreduce, "allreduce", NULL);
COLLECTIVE(scan, "scan", NULL);
COLLECTIVE(exscan, "exscan", NULL);

/* The arguments of a method. */
typedef struct method_args {
    PyObject *const *args;
    Py_ssize_t       nargs;
    PyObject        *kwnames;
} method_args;

/* A method with the arguments of allreduce(). */
static PyObject *
begin_for_all(CommObject *self, const op_type *type, const method_args *given)
{
    static const char *const keywords[] = {"send", "recv", "op"};
    PyObject                *values[3], *send, *recv, *array;
    RequestObject           *req;

    if (args_parse(type->name, given->args, given->nargs, given->kwnames,
                   keywords, 3, 3, 1, values) < 0) {
        return NULL;
    }
    if (values[1] != NULL && PyUnicode_Check(values[1]) && values[2] == NULL) {
        values[2] = values[1];
        values[1] = NULL;
    }
    send  = collective_is_absent(values[1]) ? self->worker->st->in_place :
                                              values[0];
    recv  = collective_is_absent(values[1]) ? values[0] : values[1];
    array = collective_is_in_place(self, send) ? NULL : recv;
    req   = collective_begin(self, type);
    if (req == NULL) {
        return NULL;
    }
    if (parse_reduction(self->worker->st, (array == NULL) ? recv : send, array,
                        values[2], &collective_call_of(req)->what) < 0 ||
        hold_arrays(self, send, recv, req) < 0) {
        return collective_give_up(req);
    }
    return collective_post(req);
}

const char comm_allreduce_doc[] =
    "allreduce($self, send, recv=None, op='sum')\n--\n\n"
    "Do the same as reduce(), but give every rank the result, the same bits\n"
    "on each; awaitable.\n"
    "Without `recv` the result replaces `send`, as it does with\n"
    "allreduce(IN_PLACE, array); allreduce(array, 'max') is the same with an\n"
    "operation.";

PyObject *
comm_allreduce(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames)
{
    method_args given = {args, nargs, kwnames};

    return begin_for_all((CommObject *)op, &op_allreduce, &given);
}

const char comm_scan_doc[] =
    "scan($self, send, recv=None, op='sum')\n--\n\n"
    "Combine the arrays of the ranks from 0 to this one; awaitable. So each\n"
    "rank gets another result. Arguments are as for allreduce(). 'avg'\n"
    "divides by the number of these ranks.";

PyObject *
comm_scan(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
          PyObject *kwnames)
{
    method_args given = {args, nargs, kwnames};

    return begin_for_all((CommObject *)op, &op_scan, &given);
}

const char comm_exscan_doc[] =
    "exscan($self, send, recv=None, op='sum')\n--\n\n"
    "Do the same as scan(), but without this rank's array; awaitable. Rank 0\n"
    "gets no result: nothing is written there.";

PyObject *
comm_exscan(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    method_args given = {args, nargs, kwnames};

    return begin_for_all((CommObject *)op, &op_exscan, &given);
}

/* ---- reduce_scatter ------------------------------------------------------
 */

static umx_status
reduce_scatter_post(RequestObject *req, const umx_op_params *params)
{
    const collective_call *call = collective_call_of(req);

    return umx_reduce_scatter(collective_comm_of(req), &call->what,
                              collective_send_buffer(req), &call->recv.buf,
                              call->send_counts, params, &req->op);
}

COLLECTIVE(reduce_scatter, "reduce_scatter", NULL);

/* Read the parts of the array `obj`, whose memory is `buf`. They are whole
 * items, and all of it. */
static int
parse_parts(const CommObject *self, const piece_args *args, umx_dtype dtype,
            collective_call *call)
{
    size_t item = umx_dtype_size(dtype), at = 0;

    if (pieces_alloc(call) < 0 ||
        pieces_parse(self, args, call->send_counts, call->send_displs) < 0) {
        return -1;
    }
    for (int i = 0; i < call->size; i++) {
        if (call->send_counts[i] % item != 0) {
            PyErr_Format(PyExc_ValueError,
                         "the %s buffer of %zu items has no %d equal parts",
                         args->what, args->buf->len / item, call->size);
            return -1;
        }
        at += call->send_counts[i];
    }
    if (at != args->buf->len) {
        PyErr_Format(PyExc_ValueError,
                     "the counts are %zu items together, the %s buffer has %zu",
                     at / item, args->what, args->buf->len / item);
        return -1;
    }
    return 0;
}

static int
parse_reduce_scatter(const CommObject *self, PyObject *const *values,
                     RequestObject *req)
{
    collective_call *call  = collective_call_of(req);
    umx_dtype        dtype = call->what.dtype;
    piece_args args = {values[0], &req->hold.buf, values[3], NULL, "send"};

    if (collective_hold_both(self, values[0], values[1], req) < 0 ||
        align(&call->recv, dtype) < 0) {
        return -1;
    }
    if (call->is_in_place) {
        args = (piece_args){values[1], &call->recv.buf, values[3], NULL,
                            "recv"};
        return parse_parts(self, &args, dtype, call);
    }
    return (align(&req->hold, dtype) < 0 ||
            collective_check_apart(&req->hold.buf, &call->recv.buf) < 0 ||
            parse_parts(self, &args, dtype, call) < 0) ?
               -1 :
               collective_check_len(
                   "the recv buffer", call->recv.buf.len,
                   call->send_counts[umx_comm_rank(self->umx)]);
}

const char comm_reduce_scatter_doc[] =
    "reduce_scatter($self, send, recv, op='sum', *, counts=None)\n--\n\n"
    "Do the same as allreduce(), but give each rank only its part of the\n"
    "result, in `recv`; awaitable. `counts` says how many items the part of\n"
    "each rank has. It is the same on every rank, and its sum is the number\n"
    "of items of `send`. Without it the parts are equal. With IN_PLACE for\n"
    "`send` the array is in `recv`, and the result goes to its beginning.";

PyObject *
comm_reduce_scatter(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                    PyObject *kwnames)
{
    static const char *const keywords[] = {"send", "recv", "op", "counts"};
    CommObject              *self       = (CommObject *)op;
    PyObject                *values[4];
    RequestObject           *req;
    bool                     is_placed;

    if (args_parse("reduce_scatter", args, nargs, kwnames, keywords, 4, 3, 2,
                   values) < 0) {
        return NULL;
    }
    req = collective_begin(self, &op_reduce_scatter);
    if (req == NULL) {
        return NULL;
    }
    is_placed = collective_is_in_place(self, values[0]);
    return (parse_reduction(self->worker->st, values[is_placed],
                            is_placed ? NULL : values[1], values[2],
                            &collective_call_of(req)->what) < 0 ||
            parse_reduce_scatter(self, values, req) < 0) ?
               collective_give_up(req) :
               collective_post(req);
}
