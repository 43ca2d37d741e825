/* SPDX-License-Identifier: BSD-3-Clause */
/* alltoall.c: alltoall, with buffers of known and of unknown lengths. */
#include "comm/collective.h"

#include "comm/bytes_block.h"
#include "comm/pieces.h"
#include "worker/worker.h"

static umx_status
alltoall_post(RequestObject *req, const umx_op_params *params)
{
    const collective_call *call = collective_call_of(req);
    umx_pieces             out = pieces_sent(call), in = pieces_received(call);

    return umx_alltoallv(collective_comm_of(req), collective_send_buffer(req),
                         &out, &call->recv.buf, &in, params, &req->op);
}

COLLECTIVE(alltoall, "alltoall", NULL);

/* Read the pieces that are sent; of those that are received the counts are
 * known. */
static int
parse_sent(const CommObject *self, PyObject *const *values, RequestObject *req)
{
    collective_call *call = collective_call_of(req);
    piece_args args = {values[0], &req->hold.buf, values[1], values[4], "send"};
    int        rank = umx_comm_rank(self->umx);

    if (!call->is_in_place) {
        return (pieces_parse(self, &args, call->send_counts,
                             call->send_displs) < 0 ||
                collective_check_apart(&req->hold.buf, &call->recv.buf) < 0) ?
                   -1 :
                   collective_check_len(
                       "the piece from this rank to itself, received",
                       call->recv_counts[rank], call->send_counts[rank]);
    }
    if (collective_is_absent(values[1]) && collective_is_absent(values[4])) {
        return 0;
    }
    PyErr_SetString(PyExc_ValueError,
                    "alltoallv() with ucp.IN_PLACE sends the pieces of recv: "
                    "give None for send_counts and send_displs");
    return -1;
}

/* `values` as alltoallv() has them. */
static PyObject *
begin_alltoall(CommObject *self, PyObject *const *values)
{
    RequestObject   *req = collective_begin(self, &op_alltoall);
    collective_call *call;
    piece_args       in = {values[2], NULL, values[3], values[5], "recv"};

    if (req == NULL) {
        return NULL;
    }
    call   = collective_call_of(req);
    in.buf = &call->recv.buf;
    if (collective_hold_both(self, values[0], values[2], req) < 0 ||
        pieces_alloc(call) < 0 ||
        pieces_parse(self, &in, call->recv_counts, call->recv_displs) < 0 ||
        pieces_check_no_overlap(call) < 0 ||
        parse_sent(self, values, req) < 0) {
        return collective_give_up(req);
    }
    return collective_post(req);
}

const char comm_alltoall_doc[] =
    "alltoall($self, send, recv)\n--\n\n"
    "Send part i of `send` to rank i, and receive part i of `recv` from it;\n"
    "all parts have one length. Awaitable. With IN_PLACE for `send` the parts\n"
    "of `recv` are copied, and the copies are sent.";

PyObject *
comm_alltoall(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
              PyObject *kwnames)
{
    static const char *const keywords[] = {"send", "recv"};
    PyObject                *values[2];
    PyObject                *all[6] = {NULL};

    if (args_parse("alltoall", args, nargs, kwnames, keywords, 2, 2, 2,
                   values) < 0) {
        return NULL;
    }
    all[0] = values[0];
    all[2] = values[1];
    return begin_alltoall((CommObject *)op, all);
}

const char comm_alltoallv_doc[] =
    "alltoallv($self, send, send_counts, recv, recv_counts, *,\n"
    "          send_displs=None, recv_displs=None)\n--\n\n"
    "Do the same as alltoall(), with parts of different lengths; awaitable.\n"
    "Each list has a number for each rank: `send_counts` and `recv_counts`\n"
    "say how many items go to the rank and come from it, and the displs say\n"
    "at which item its part begins. An item of a buffer without a type is\n"
    "one byte. Rank j must expect from rank i as many bytes as rank i sends\n"
    "to rank j. With IN_PLACE for `send` and None for `send_counts` the\n"
    "parts of `recv` are copied, and the copies are sent.";

PyObject *
comm_alltoallv(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames)
{
    static const char *const keywords[] = {"send",        "send_counts",
                                           "recv",        "recv_counts",
                                           "send_displs", "recv_displs"};
    PyObject                *values[6];

    if (args_parse("alltoallv", args, nargs, kwnames, keywords, 6, 4, 4,
                   values) < 0) {
        return NULL;
    }
    return begin_alltoall((CommObject *)op, values);
}

static umx_status
alltoall_buffers_post(RequestObject *req, const umx_op_params *params)
{
    const collective_call *call = collective_call_of(req);

    return umx_alltoall_buffers(collective_comm_of(req), call->sent,
                                call->received, NULL, NULL, params, &req->op);
}

/* There is no memory for a list of all: who asks again gets it. */
static void
take_back(collective_call *call, PyObject *list, int count)
{
    for (int i = 0; i < count; i++) {
        call->received[i].data = bytes_block_take_back(
            PyList_GET_ITEM(list, i));
    }
    Py_DECREF(list);
}

static PyObject *
alltoall_buffers_result(RequestObject *req)
{
    collective_call *call = collective_call_of(req);
    PyObject        *list = PyList_New(call->size);

    for (int i = 0; list != NULL && i < call->size; i++) {
        PyObject *view = bytes_block_new(
            req->worker->st, call->received[i].data, call->received[i].len);

        if (view == NULL) {
            take_back(call, list, i);
            return NULL;
        }
        call->received[i].data = NULL;
        PyList_SET_ITEM(list, i, view);
    }
    return list;
}

COLLECTIVE(alltoall_buffers, "alltoall_buffers", alltoall_buffers_result);

static int
parse_buffers(const CommObject *self, PyObject *buffers, RequestObject *req)
{
    collective_call *call = collective_call_of(req);
    PyObject        *items;
    size_t           size = (size_t)call->size;
    int              rc   = 0;

    items = args_items(buffers, "buffers must be a sequence of buffers");
    if (items == NULL) {
        return -1;
    }
    if (PyTuple_GET_SIZE(items) != call->size) {
        PyErr_Format(PyExc_ValueError, "%zd buffers for %d ranks",
                     PyTuple_GET_SIZE(items), call->size);
        Py_DECREF(items);
        return -1;
    }
    call->sends    = PyMem_Calloc(size, sizeof(*call->sends));
    call->sent     = PyMem_Calloc(size, sizeof(*call->sent));
    call->received = PyMem_Calloc(size, sizeof(*call->received));
    if (call->sends == NULL || call->sent == NULL || call->received == NULL) {
        PyErr_NoMemory();
        rc = -1;
    }
    for (int i = 0; rc == 0 && i < call->size; i++) {
        rc = buffer_acquire_any(self->worker->st, PyTuple_GET_ITEM(items, i),
                                false, &call->sends[i]);
        call->sent[i] = call->sends[i].buf;
    }
    Py_DECREF(items);
    return rc;
}

const char comm_alltoall_buffers_doc[] =
    "alltoall_buffers($self, buffers)\n--\n\n"
    "Send buffers[i] to rank i, whatever their lengths are, and receive what\n"
    "the ranks send; awaits a list of memoryviews of new memory, one for each\n"
    "rank.";

PyObject *
comm_alltoall_buffers(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames)
{
    static const char *const keywords[] = {"buffers"};
    PyObject                *values[1];
    RequestObject           *req;

    if (args_parse("alltoall_buffers", args, nargs, kwnames, keywords, 1, 1, 1,
                   values) < 0) {
        return NULL;
    }
    req = collective_begin((CommObject *)op, &op_alltoall_buffers);
    if (req == NULL) {
        return NULL;
    }
    return (parse_buffers((CommObject *)op, values[0], req) < 0) ?
               collective_give_up(req) :
               collective_post(req);
}
