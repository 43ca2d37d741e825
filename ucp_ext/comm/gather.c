/* SPDX-License-Identifier: BSD-3-Clause */
/* gather.c: gather, scatter and allgather. */
#include "comm/collective.h"

#include "comm/pieces.h"
#include "worker/worker.h"

static umx_status
gather_post(RequestObject *req, const umx_op_params *params)
{
    const collective_call *call   = collective_call_of(req);
    umx_pieces             pieces = pieces_received(call);
    bool is_root = umx_comm_rank(collective_comm_of(req)) == call->root;

    return umx_gatherv(
        collective_comm_of(req), call->root, collective_send_buffer(req),
        is_root ? &call->recv.buf : NULL, &pieces, params, &req->op);
}

COLLECTIVE(gather, "gather", NULL);

/* Parse the pieces that are received, of which `send` is this rank's. */
static int
parse_gathered(const CommObject *self, PyObject *recv, PyObject *counts,
               PyObject *displs, RequestObject *req)
{
    collective_call *call = collective_call_of(req);
    piece_args       args = {recv, &call->recv.buf, counts, displs, "recv"};
    int              rank = umx_comm_rank(self->umx);

    if (pieces_alloc(call) < 0 ||
        pieces_parse(self, &args, call->recv_counts, call->recv_displs) < 0 ||
        pieces_check_no_overlap(call) < 0) {
        return -1;
    }
    if (call->is_in_place) {
        return 0;
    }
    return (collective_check_apart(&req->hold.buf, &call->recv.buf) < 0 ||
            collective_check_len("the send buffer", req->hold.buf.len,
                                 call->recv_counts[rank]) < 0) ?
               -1 :
               0;
}

static int
parse_gather(const CommObject *self, PyObject *const *values,
             RequestObject *req)
{
    bool is_root = umx_comm_rank(self->umx) == collective_call_of(req)->root;

    if (is_root) {
        return (collective_is_absent(values[1]) ||
                collective_hold_both(self, values[0], values[1], req) < 0) ?
                   (PyErr_Occurred() ? -1 :
                                       collective_missing("gather", "recv")) :
                   parse_gathered(self, values[1], values[3], values[4], req);
    }
    if (collective_is_in_place(self, values[0])) {
        PyErr_SetString(PyExc_ValueError,
                        "gather: only the root may send ucp.IN_PLACE");
        return -1;
    }
    return collective_hold_send(self, values[0], req);
}

const char comm_gather_doc[] =
    "gather($self, send, recv=None, root=0, *, counts=None, displs=None)\n"
    "--\n\n"
    "Collect every rank's `send` in the root's `recv`, in the order of the\n"
    "ranks; awaitable. Only the root needs the other arguments: `counts` says\n"
    "how many items come from each rank, and `displs` at which item of `recv`\n"
    "they begin. An item of a buffer without a type is one byte. Without\n"
    "`counts` all parts are equal. IN_PLACE for `send` on the root: its part\n"
    "is in `recv`.";

static PyObject *
begin_rooted(CommObject *self, const op_type *type, PyObject *const *values,
             int (*parse)(const CommObject *, PyObject *const *,
                          RequestObject *))
{
    RequestObject *req;
    int            root = 0;

    if (values[2] != NULL &&
        comm_parse_rank(self, values[2], "root", &root) < 0) {
        return NULL;
    }
    req = collective_begin(self, type);
    if (req == NULL) {
        return NULL;
    }
    collective_call_of(req)->root = root;
    return (parse(self, values, req) < 0) ? collective_give_up(req) :
                                            collective_post(req);
}

PyObject *
comm_gather(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    static const char *const keywords[] = {"send", "recv", "root", "counts",
                                           "displs"};
    PyObject                *values[5];

    if (args_parse("gather", args, nargs, kwnames, keywords, 5, 3, 1, values) <
        0) {
        return NULL;
    }
    return begin_rooted((CommObject *)op, &op_gather, values, parse_gather);
}

static umx_status
scatter_post(RequestObject *req, const umx_op_params *params)
{
    const collective_call *call   = collective_call_of(req);
    umx_pieces             pieces = pieces_sent(call);
    bool is_root = umx_comm_rank(collective_comm_of(req)) == call->root;

    return umx_scatterv(
        collective_comm_of(req), call->root, is_root ? &req->hold.buf : NULL,
        &pieces, call->is_in_place ? NULL : &call->recv.buf, params, &req->op);
}

COLLECTIVE(scatter, "scatter", NULL);

static int
parse_scatter(const CommObject *self, PyObject *const *values,
              RequestObject *req)
{
    collective_call *call = collective_call_of(req);
    int              rank = umx_comm_rank(self->umx);
    piece_args args = {values[0], &req->hold.buf, values[3], values[4], "send"};
    bool       is_root = rank == call->root;

    call->is_in_place = collective_is_in_place(self, values[1]);
    if (call->is_in_place && !is_root) {
        PyErr_SetString(PyExc_ValueError,
                        "scatter: only the root may receive ucp.IN_PLACE");
        return -1;
    }
    if (is_root && collective_is_absent(values[0])) {
        return collective_missing("scatter", "send");
    }
    if ((is_root && collective_hold_send(self, values[0], req) < 0) ||
        (!call->is_in_place &&
         collective_hold_recv(self, values[1], req) < 0)) {
        return -1;
    }
    if (!is_root) {
        return 0;
    }
    if (pieces_alloc(call) < 0 ||
        pieces_parse(self, &args, call->send_counts, call->send_displs) < 0) {
        return -1;
    }
    if (call->is_in_place) {
        return 0;
    }
    return (collective_check_apart(&req->hold.buf, &call->recv.buf) < 0 ||
            collective_check_len("the recv buffer", call->recv.buf.len,
                                 call->send_counts[rank]) < 0) ?
               -1 :
               0;
}

const char comm_scatter_doc[] =
    "scatter($self, send, recv, root=0, *, counts=None, displs=None)\n--\n\n"
    "Give each rank its part of the root's `send`, in the rank's `recv`;\n"
    "awaitable. Other ranks than the root give None for `send`, and need no\n"
    "`counts` and `displs`. `counts` says how many items go to each rank, and\n"
    "`displs` at which item of `send` they begin. An item of a buffer without\n"
    "a type is one byte. By default all parts are equal, in the order of the\n"
    "ranks. IN_PLACE for `recv` on the root: its part stays where it is.";

PyObject *
comm_scatter(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
             PyObject *kwnames)
{
    static const char *const keywords[] = {"send", "recv", "root", "counts",
                                           "displs"};
    PyObject                *values[5];

    if (args_parse("scatter", args, nargs, kwnames, keywords, 5, 3, 2, values) <
        0) {
        return NULL;
    }
    return begin_rooted((CommObject *)op, &op_scatter, values, parse_scatter);
}

static umx_status
allgather_post(RequestObject *req, const umx_op_params *params)
{
    const collective_call *call   = collective_call_of(req);
    umx_pieces             pieces = pieces_received(call);

    return umx_allgatherv(collective_comm_of(req), collective_send_buffer(req),
                          &call->recv.buf, &pieces, params, &req->op);
}

COLLECTIVE(allgather, "allgather", NULL);

static PyObject *
begin_allgather(CommObject *self, PyObject *send, PyObject *recv,
                PyObject *counts, PyObject *displs)
{
    RequestObject *req = collective_begin(self, &op_allgather);

    if (req == NULL) {
        return NULL;
    }
    if (collective_hold_both(self, send, recv, req) < 0 ||
        parse_gathered(self, recv, counts, displs, req) < 0) {
        return collective_give_up(req);
    }
    return collective_post(req);
}

const char comm_allgather_doc[] =
    "allgather($self, send, recv)\n--\n\n"
    "Collect every rank's `send` in every rank's `recv`, in the order of the\n"
    "ranks; awaitable. All `send` have one length. IN_PLACE for `send`: this\n"
    "rank's part is in `recv`.";

PyObject *
comm_allgather(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames)
{
    static const char *const keywords[] = {"send", "recv"};
    PyObject                *values[2];

    if (args_parse("allgather", args, nargs, kwnames, keywords, 2, 2, 2,
                   values) < 0) {
        return NULL;
    }
    return begin_allgather((CommObject *)op, values[0], values[1], NULL, NULL);
}

const char comm_allgatherv_doc[] =
    "allgatherv($self, send, recv, counts, displs=None)\n--\n\n"
    "Do the same as allgather(), with parts of different lengths; awaitable.\n"
    "`counts` says how many items come from each rank, and `displs` at which\n"
    "item of `recv` they begin. An item of a buffer without a type is one\n"
    "byte.";

PyObject *
comm_allgatherv(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                PyObject *kwnames)
{
    static const char *const keywords[] = {"send", "recv", "counts", "displs"};
    PyObject                *values[4];

    if (args_parse("allgatherv", args, nargs, kwnames, keywords, 4, 4, 3,
                   values) < 0) {
        return NULL;
    }
    return begin_allgather((CommObject *)op, values[0], values[1], values[2],
                           values[3]);
}
