/* SPDX-License-Identifier: BSD-3-Clause */
/* collective.c: the collective operations of a communicator. */
#include "comm/collective.h"

#include "buffer/item.h"
#include "base/errors.h"
#include "comm/bytes_block.h"
#include "worker/worker.h"

#include <string.h>

/* What an operation needs beside the request's `hold`, which has what is sent,
 * or what is both sent and received. */
typedef struct collective_call {
    buffer_hold   recv;
    int           root;
    bool          is_in_place;
    size_t       *send_counts; /* `size` of each, in one piece; or NULL */
    size_t       *send_displs;
    size_t       *recv_counts;
    size_t       *recv_displs;
    umx_reduction what;
    /* split */
    CommObject *made;
    int         color;
    int         key;
    /* alltoall_buffers */
    int          size;
    buffer_hold *sends;
    umx_buffer  *sent;
    umx_buffer  *received; /* of malloc() */
} collective_call;

static collective_call *
call_of(const RequestObject *req)
{
    return TAIL_OF(req, comm_tail)->call;
}

static umx_comm *
comm_of(const RequestObject *req)
{
    return TAIL_OF(req, comm_tail)->comm->umx;
}

/* ---- the request -----------------------------------------------------------
 */

/* op_type.release() */
static void
release(RequestObject *req)
{
    collective_call *call = call_of(req);

    if (call == NULL) {
        return;
    }
    buffer_release(&call->recv);
    for (int i = 0; call->sends != NULL && i < call->size; i++) {
        buffer_release(&call->sends[i]);
    }
}

static void
free_received(collective_call *call)
{
    for (int i = 0; call->received != NULL && i < call->size; i++) {
        free(call->received[i].data);
    }
    PyMem_Free(call->received);
}

static void
clear(RequestObject *req)
{
    collective_call *call = call_of(req);

    release(req);
    TAIL_OF(req, comm_tail)->call = NULL;
    if (call != NULL) {
        free_received(call);
        PyMem_Free(call->send_counts);
        PyMem_Free(call->sends);
        PyMem_Free(call->sent);
        Py_XDECREF(call->made);
        PyMem_Free(call);
    }
    Py_CLEAR(TAIL_OF(req, comm_tail)->comm);
}

static int
traverse(const RequestObject *req, visitproc visit, void *arg)
{
    const collective_call *call = call_of(req);
    int                    rc   = 0;

    Py_VISIT(TAIL_OF(req, comm_tail)->comm);
    if (call == NULL) {
        return 0;
    }
    Py_VISIT(call->made);
    rc = request_visit_lent(req, &call->recv, visit, arg);
    for (int i = 0; rc == 0 && call->sends != NULL && i < call->size; i++) {
        rc = request_visit_lent(req, &call->sends[i], visit, arg);
    }
    return rc;
}

/* Show the request to the collector: it may hold what refers to it. */
static PyObject *
post(RequestObject *req)
{
    const collective_call *call = call_of(req);

    if (buffer_is_in_gc(&call->recv) || call->sends != NULL) {
        request_track(req);
    }
    return request_post(req);
}

/* Begin an operation; NULL with an exception. */
static RequestObject *
begin(CommObject *self, const op_type *type)
{
    RequestObject   *req;
    collective_call *call;

    if (self->umx == NULL) {
        (void)comm_check(self);
        return NULL;
    }
    req = request_new(self->worker, NULL, type);
    if (req == NULL) {
        return NULL;
    }
    comm_set(req, self);
    call = PyMem_Calloc(1, sizeof(*call));
    if (call == NULL) {
        Py_DECREF(req);
        return (RequestObject *)PyErr_NoMemory();
    }
    call->size                    = umx_comm_size(self->umx);
    TAIL_OF(req, comm_tail)->call = call;
    return req;
}

/* An operation that failed while its arguments were read: NULL. */
static PyObject *
give_up(RequestObject *req)
{
    Py_DECREF(req);
    return NULL;
}

#define COLLECTIVE(op, text, function)  \
    static const op_type op_##op = {    \
        .name     = text,               \
        .flags    = OP_SEND | OP_PLAIN, \
        .post     = op##_post,          \
        .result   = function,           \
        .error    = comm_request_error, \
        .release  = release,            \
        .clear    = clear,              \
        .traverse = traverse,           \
    }

/* ---- buffers ---------------------------------------------------------------
 */

static bool
is_in_place(const CommObject *self, PyObject *obj)
{
    return obj == self->worker->st->in_place;
}

static bool
is_absent(PyObject *obj)
{
    return obj == NULL || obj == Py_None;
}

static int
hold_send(const CommObject *self, PyObject *obj, RequestObject *req)
{
    return buffer_acquire(self->worker->st, obj, false, &req->hold);
}

static int
hold_recv(const CommObject *self, PyObject *obj, RequestObject *req)
{
    return buffer_acquire(self->worker->st, obj, true, &call_of(req)->recv);
}

/* Hold both, or with IN_PLACE the second one. */
static int
hold_both(const CommObject *self, PyObject *send, PyObject *recv,
          RequestObject *req)
{
    collective_call *call = call_of(req);

    call->is_in_place = is_in_place(self, send);
    if (!call->is_in_place && hold_send(self, send, req) < 0) {
        return -1;
    }
    return hold_recv(self, recv, req);
}

static const umx_buffer *
send_buffer(const RequestObject *req)
{
    return call_of(req)->is_in_place ? UMX_IN_PLACE : &req->hold.buf;
}

/* -1 with an exception if what is received overlaps what is sent. */
static int
check_apart(const umx_buffer *send, const umx_buffer *recv)
{
    const char *out = send->data, *in = recv->data;

    if (send->len != 0 && recv->len != 0 && out < in + recv->len &&
        in < out + send->len) {
        PyErr_Format(PyExc_ValueError,
                     "the receive buffer (%zu bytes) overlaps the send buffer "
                     "(%zu bytes): give ucp.IN_PLACE to send from it",
                     recv->len, send->len);
        return -1;
    }
    return 0;
}

static int
check_len(const char *what, size_t len, size_t expected)
{
    if (len == expected) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "%s: %zu bytes, expected %zu", what, len,
                 expected);
    return -1;
}

/* ---- pieces ----------------------------------------------------------------
 */

static int
alloc_pieces(collective_call *call)
{
    size_t  size = (size_t)call->size;
    size_t *all  = PyMem_Calloc(4 * size, sizeof(*all));

    if (all == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    call->send_counts = all;
    call->send_displs = all + size;
    call->recv_counts = all + 2 * size;
    call->recv_displs = all + 3 * size;
    return 0;
}

/* Fill `sizes` with the items of a sequence, in bytes. */
static int
parse_sizes(PyObject *sequence, const char *what, size_t item, int size,
            size_t *sizes)
{
    char      text[64];
    PyObject *items;

    snprintf(text, sizeof(text), "%s must be a sequence of ints", what);
    items = args_items(sequence, text);
    if (items == NULL) {
        return -1;
    }
    if (PyTuple_GET_SIZE(items) != size) {
        PyErr_Format(PyExc_ValueError, "%s has %zd items for %d ranks", what,
                     PyTuple_GET_SIZE(items), size);
        goto drop_items;
    }
    for (int i = 0; i < size; i++) {
        Py_ssize_t number = PyNumber_AsSsize_t(PyTuple_GET_ITEM(items, i),
                                               PyExc_OverflowError);

        if (number == -1 && PyErr_Occurred()) {
            goto drop_items;
        }
        if (number < 0 || (size_t)number > PY_SSIZE_T_MAX / item) {
            PyErr_Format(PyExc_ValueError, "%s[%d] is %zd", what, i, number);
            goto drop_items;
        }
        sizes[i] = (size_t)number * item;
    }
    Py_DECREF(items);
    return 0;

drop_items:
    Py_DECREF(items);
    return -1;
}

/* Pieces of a buffer, as they are given: for each rank. */
typedef struct piece_args {
    PyObject         *obj; /* the buffer */
    const umx_buffer *buf;
    PyObject         *counts; /* in items; NULL, None: equal parts */
    PyObject         *displs; /* in items; NULL, None: one after the other */
    const char       *what;   /* "send" or "recv", for errors */
} piece_args;

static int
equal_parts(const piece_args *args, int size, size_t *counts)
{
    if (args->buf->len % (size_t)size != 0) {
        PyErr_Format(PyExc_ValueError,
                     "the %s buffer of %zu bytes has no %d equal parts",
                     args->what, args->buf->len, size);
        return -1;
    }
    for (int i = 0; i < size; i++) {
        counts[i] = args->buf->len / (size_t)size;
    }
    return 0;
}

static int
check_pieces(const piece_args *args, size_t item, int size,
             const size_t *counts, const size_t *displs)
{
    for (int i = 0; i < size; i++) {
        if (displs[i] > args->buf->len ||
            counts[i] > args->buf->len - displs[i]) {
            PyErr_Format(PyExc_ValueError,
                         "the piece of rank %d, %zu items at %zu, does not lie "
                         "in the %s buffer of %zu items",
                         i, counts[i] / item, displs[i] / item, args->what,
                         args->buf->len / item);
            return -1;
        }
    }
    return 0;
}

/* The counts and displacements of all ranks, in bytes. */
static int
parse_pieces(const CommObject *self, const piece_args *args, size_t *counts,
             size_t *displs)
{
    int    size = umx_comm_size(self->umx);
    size_t item = 1, next = 0;
    char   text[32];

    if (!is_absent(args->counts) || !is_absent(args->displs)) {
        item = item_size(self->worker->st, args->obj);
        if (item == 0) {
            return -1;
        }
    }
    snprintf(text, sizeof(text), "%s counts", args->what);
    if ((is_absent(args->counts) ?
             equal_parts(args, size, counts) :
             parse_sizes(args->counts, text, item, size, counts)) < 0) {
        return -1;
    }
    snprintf(text, sizeof(text), "%s displs", args->what);
    if (!is_absent(args->displs)) {
        if (parse_sizes(args->displs, text, item, size, displs) < 0) {
            return -1;
        }
    } else {
        for (int i = 0; i < size; i++) {
            displs[i] = next;
            next += counts[i];
        }
    }
    return check_pieces(args, item, size, counts, displs);
}

/* Pieces that are received must not overlap: some bytes would come twice. */
static int
check_no_overlap(const collective_call *call)
{
    for (int i = 0; i < call->size; i++) {
        for (int j = 0; j < i; j++) {
            size_t a = call->recv_displs[i], b = call->recv_displs[j];

            if (call->recv_counts[i] != 0 && call->recv_counts[j] != 0 &&
                a < b + call->recv_counts[j] && b < a + call->recv_counts[i]) {
                PyErr_Format(PyExc_ValueError,
                             "the pieces of the ranks %d and %d overlap in the "
                             "recv buffer",
                             j, i);
                return -1;
            }
        }
    }
    return 0;
}

static umx_pieces
send_pieces(const collective_call *call)
{
    return (umx_pieces){call->send_counts, call->send_displs};
}

static umx_pieces
recv_pieces(const collective_call *call)
{
    return (umx_pieces){call->recv_counts, call->recv_displs};
}

/* ---- barrier, bcast -----------------------------------------------------
 */

static umx_status
barrier_post(RequestObject *req, const umx_op_params *params)
{
    return umx_barrier(comm_of(req), params, &req->op);
}

COLLECTIVE(barrier, "barrier", NULL);

const char comm_barrier_doc[] =
    "barrier($self, /)\n--\n\n"
    "Wait until every rank has called it; awaitable.";

PyObject *
comm_barrier(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RequestObject *req = begin((CommObject *)op, &op_barrier);

    return (req == NULL) ? NULL : post(req);
}

static umx_status
bcast_post(RequestObject *req, const umx_op_params *params)
{
    const collective_call *call = call_of(req);
    const umx_buffer      *buf  = (call->recv.owner != NULL) ? &call->recv.buf :
                                                               &req->hold.buf;

    return umx_bcast(comm_of(req), call->root, buf, params, &req->op);
}

COLLECTIVE(bcast, "bcast", NULL);

const char comm_bcast_doc[] =
    "bcast($self, buffer, root=0)\n--\n\n"
    "Copy the bytes of the root's `buffer` to every rank's; awaitable. All\n"
    "have the same length. The root's may be read-only.";

PyObject *
comm_bcast(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwnames)
{
    static const char *const keywords[] = {"buffer", "root"};
    CommObject              *self       = (CommObject *)op;
    PyObject                *values[2];
    RequestObject           *req;
    int                      root = 0;

    if (args_parse("bcast", args, nargs, kwnames, keywords, 2, 2, 1, values) <
            0 ||
        (values[1] != NULL &&
         comm_parse_rank(self, values[1], "root", &root) < 0)) {
        return NULL;
    }
    req = begin(self, &op_bcast);
    if (req == NULL) {
        return NULL;
    }
    call_of(req)->root = root;
    if ((root == umx_comm_rank(self->umx) ?
             hold_send(self, values[0], req) :
             hold_recv(self, values[0], req)) < 0) {
        return give_up(req);
    }
    return post(req);
}

/* ---- gather, scatter ----------------------------------------------------
 */

static umx_status
gather_post(RequestObject *req, const umx_op_params *params)
{
    const collective_call *call    = call_of(req);
    umx_pieces             pieces  = recv_pieces(call);
    bool                   is_root = umx_comm_rank(comm_of(req)) == call->root;

    return umx_gatherv(comm_of(req), call->root, send_buffer(req),
                       is_root ? &call->recv.buf : NULL, &pieces, params,
                       &req->op);
}

COLLECTIVE(gather, "gather", NULL);

/* Parse the pieces that are received, of which `send` is this rank's. */
static int
parse_gathered(const CommObject *self, PyObject *recv, PyObject *counts,
               PyObject *displs, RequestObject *req)
{
    collective_call *call = call_of(req);
    piece_args       args = {recv, &call->recv.buf, counts, displs, "recv"};
    int              rank = umx_comm_rank(self->umx);

    if (alloc_pieces(call) < 0 ||
        parse_pieces(self, &args, call->recv_counts, call->recv_displs) < 0 ||
        check_no_overlap(call) < 0) {
        return -1;
    }
    if (call->is_in_place) {
        return 0;
    }
    return (check_apart(&req->hold.buf, &call->recv.buf) < 0 ||
            check_len("the send buffer", req->hold.buf.len,
                      call->recv_counts[rank]) < 0) ?
               -1 :
               0;
}

static int
missing(const char *name, const char *what)
{
    PyErr_Format(PyExc_TypeError, "%s() on the root needs the argument %s",
                 name, what);
    return -1;
}

static int
parse_gather(const CommObject *self, PyObject *const *values,
             RequestObject *req)
{
    bool is_root = umx_comm_rank(self->umx) == call_of(req)->root;

    if (is_root) {
        return (is_absent(values[1]) ||
                hold_both(self, values[0], values[1], req) < 0) ?
                   (PyErr_Occurred() ? -1 : missing("gather", "recv")) :
                   parse_gathered(self, values[1], values[3], values[4], req);
    }
    if (is_in_place(self, values[0])) {
        PyErr_SetString(PyExc_ValueError,
                        "gather: only the root may send ucp.IN_PLACE");
        return -1;
    }
    return hold_send(self, values[0], req);
}

const char comm_gather_doc[] =
    "gather($self, send, recv=None, root=0, *, counts=None, displs=None)\n"
    "--\n\n"
    "Collect every rank's `send` in the root's `recv`, one behind the other;\n"
    "awaitable. Only the root needs the other arguments: `counts` says how\n"
    "many items come from each rank, `displs` where they go, in items of\n"
    "`recv` (of one byte, if it has no others); without `counts` all parts\n"
    "are equal. IN_PLACE for `send` on the root: its part is in `recv`.";

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
    req = begin(self, type);
    if (req == NULL) {
        return NULL;
    }
    call_of(req)->root = root;
    return (parse(self, values, req) < 0) ? give_up(req) : post(req);
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
    const collective_call *call    = call_of(req);
    umx_pieces             pieces  = send_pieces(call);
    bool                   is_root = umx_comm_rank(comm_of(req)) == call->root;

    return umx_scatterv(
        comm_of(req), call->root, is_root ? &req->hold.buf : NULL, &pieces,
        call->is_in_place ? NULL : &call->recv.buf, params, &req->op);
}

COLLECTIVE(scatter, "scatter", NULL);

static int
parse_scatter(const CommObject *self, PyObject *const *values,
              RequestObject *req)
{
    collective_call *call = call_of(req);
    int              rank = umx_comm_rank(self->umx);
    piece_args args = {values[0], &req->hold.buf, values[3], values[4], "send"};
    bool       is_root = rank == call->root;

    call->is_in_place = is_in_place(self, values[1]);
    if (call->is_in_place && !is_root) {
        PyErr_SetString(PyExc_ValueError,
                        "scatter: only the root may receive ucp.IN_PLACE");
        return -1;
    }
    if (is_root && is_absent(values[0])) {
        return missing("scatter", "send");
    }
    if ((is_root && hold_send(self, values[0], req) < 0) ||
        (!call->is_in_place && hold_recv(self, values[1], req) < 0)) {
        return -1;
    }
    if (!is_root) {
        return 0;
    }
    if (alloc_pieces(call) < 0 ||
        parse_pieces(self, &args, call->send_counts, call->send_displs) < 0) {
        return -1;
    }
    if (call->is_in_place) {
        return 0;
    }
    return (check_apart(&req->hold.buf, &call->recv.buf) < 0 ||
            check_len("the recv buffer", call->recv.buf.len,
                      call->send_counts[rank]) < 0) ?
               -1 :
               0;
}

const char comm_scatter_doc[] =
    "scatter($self, send, recv, root=0, *, counts=None, displs=None)\n--\n\n"
    "Give each rank its part of the root's `send`, in its `recv`; awaitable.\n"
    "Only the root needs `send`, None elsewhere, and `counts` and `displs`:\n"
    "in items of `send` (of one byte, if it has no others), by default equal\n"
    "parts, one behind the other. IN_PLACE for `recv` on the root: its part\n"
    "stays where it is.";

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

/* ---- allgather ----------------------------------------------------------
 */

static umx_status
allgather_post(RequestObject *req, const umx_op_params *params)
{
    const collective_call *call   = call_of(req);
    umx_pieces             pieces = recv_pieces(call);

    return umx_allgatherv(comm_of(req), send_buffer(req), &call->recv.buf,
                          &pieces, params, &req->op);
}

COLLECTIVE(allgather, "allgather", NULL);

static PyObject *
begin_allgather(CommObject *self, PyObject *send, PyObject *recv,
                PyObject *counts, PyObject *displs)
{
    RequestObject *req = begin(self, &op_allgather);

    if (req == NULL) {
        return NULL;
    }
    if (hold_both(self, send, recv, req) < 0 ||
        parse_gathered(self, recv, counts, displs, req) < 0) {
        return give_up(req);
    }
    return post(req);
}

const char comm_allgather_doc[] =
    "allgather($self, send, recv)\n--\n\n"
    "Collect every rank's `send`, all of one length, in every rank's `recv`,\n"
    "one behind the other; awaitable. IN_PLACE for `send`: this rank's part\n"
    "is in `recv`.";

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
    "allgather() of parts of different lengths: `counts` says how many items\n"
    "come from each rank, `displs` where they go, in items of `recv` (of one\n"
    "byte, if it has no others); awaitable.";

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

/* ---- alltoall -----------------------------------------------------------
 */

static umx_status
alltoall_post(RequestObject *req, const umx_op_params *params)
{
    const collective_call *call = call_of(req);
    umx_pieces             out = send_pieces(call), in = recv_pieces(call);

    return umx_alltoallv(comm_of(req), &req->hold.buf, &out, &call->recv.buf,
                         &in, params, &req->op);
}

COLLECTIVE(alltoall, "alltoall", NULL);

/* `values` as alltoallv() has them. */
static PyObject *
begin_alltoall(CommObject *self, PyObject *const *values)
{
    RequestObject   *req = begin(self, &op_alltoall);
    collective_call *call;
    piece_args       out = {values[0], NULL, values[1], values[4], "send"};
    piece_args       in  = {values[2], NULL, values[3], values[5], "recv"};
    int              rank;

    if (req == NULL) {
        return NULL;
    }
    call    = call_of(req);
    rank    = umx_comm_rank(self->umx);
    out.buf = &req->hold.buf;
    in.buf  = &call->recv.buf;
    if (is_in_place(self, values[0])) {
        PyErr_SetString(PyExc_ValueError,
                        "alltoall: ucp.IN_PLACE is not possible here");
        return give_up(req);
    }
    if (hold_both(self, values[0], values[2], req) < 0 ||
        alloc_pieces(call) < 0 ||
        parse_pieces(self, &out, call->send_counts, call->send_displs) < 0 ||
        parse_pieces(self, &in, call->recv_counts, call->recv_displs) < 0 ||
        check_no_overlap(call) < 0 ||
        check_apart(&req->hold.buf, &call->recv.buf) < 0 ||
        check_len("the piece from this rank to itself, received",
                  call->recv_counts[rank], call->send_counts[rank]) < 0) {
        return give_up(req);
    }
    return post(req);
}

const char comm_alltoall_doc[] =
    "alltoall($self, send, recv)\n--\n\n"
    "Send part i of `send` to rank i, and receive part i of `recv` from it;\n"
    "all parts have one length. Awaitable.";

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
    "alltoall() of parts of different lengths: how many items go to each rank\n"
    "and come from it, and where they are, in items of `send` and of `recv`\n"
    "(of one byte, if it has no others). What rank i sends to rank j has the\n"
    "length that rank j expects. Awaitable.";

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

/* ---- alltoall_buffers ---------------------------------------------------
 */

static umx_status
alltoall_buffers_post(RequestObject *req, const umx_op_params *params)
{
    const collective_call *call = call_of(req);

    return umx_alltoall_buffers(comm_of(req), call->sent, call->received, NULL,
                                NULL, params, &req->op);
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
    collective_call *call = call_of(req);
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
    collective_call *call = call_of(req);
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
        rc = buffer_acquire(self->worker->st, PyTuple_GET_ITEM(items, i), false,
                            &call->sends[i]);
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
    req = begin((CommObject *)op, &op_alltoall_buffers);
    if (req == NULL) {
        return NULL;
    }
    return (parse_buffers((CommObject *)op, values[0], req) < 0) ?
               give_up(req) :
               post(req);
}

/* ---- reduce -------------------------------------------------------------
 */

static int
parse_op(PyObject *text, umx_reduce_op *op_p)
{
    static const char *const names[] = {[UMX_SUM]  = "sum",
                                        [UMX_PROD] = "prod",
                                        [UMX_MIN]  = "min",
                                        [UMX_MAX]  = "max"};

    *op_p = UMX_SUM;
    if (text == NULL) {
        return 0;
    }
    for (int i = UMX_SUM; PyUnicode_Check(text) && i <= UMX_MAX; i++) {
        if (PyUnicode_CompareWithASCIIString(text, names[i]) == 0) {
            *op_p = (umx_reduce_op)i;
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError,
                 "the operation is 'sum', 'prod', 'min' or 'max', not %R",
                 text);
    return -1;
}

/* The reduction of the items of `send`, and of `recv` if it is not NULL. */
static int
parse_reduction(PyObject *send, PyObject *recv, PyObject *op,
                umx_reduction *what)
{
    umx_dtype other;

    if (parse_op(op, &what->op) < 0 || item_dtype(send, &what->dtype) < 0) {
        return -1;
    }
    if ((what->dtype == UMX_COMPLEX64 || what->dtype == UMX_COMPLEX128) &&
        (what->op == UMX_MIN || what->op == UMX_MAX)) {
        PyErr_Format(PyExc_ValueError, "complex numbers have no %S", op);
        return -1;
    }
    if (recv == NULL) {
        return 0;
    }
    if (item_dtype(recv, &other) < 0) {
        return -1;
    }
    if (other != what->dtype) {
        PyErr_Format(PyExc_ValueError,
                     "the items of send are %s, those of recv %s",
                     item_dtype_name(what->dtype), item_dtype_name(other));
        return -1;
    }
    return 0;
}

static int
check_aligned(const umx_buffer *buf, umx_dtype dtype)
{
    size_t item = umx_dtype_size(dtype);

    if (dtype == UMX_COMPLEX64 || dtype == UMX_COMPLEX128) {
        item /= 2;
    }
    if (buf->len == 0 || (uintptr_t)buf->data % item == 0) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "the array of %s is not aligned",
                 item_dtype_name(dtype));
    return -1;
}

/* Hold the arrays; `recv` NULL: the result goes to nobody, or where the
 * array is that `send` is. */
static int
hold_arrays(const CommObject *self, PyObject *send, PyObject *recv,
            RequestObject *req)
{
    collective_call *call = call_of(req);

    if (recv == NULL) {
        return (hold_send(self, send, req) < 0) ?
                   -1 :
                   check_aligned(&req->hold.buf, call->what.dtype);
    }
    if (hold_both(self, send, recv, req) < 0 ||
        check_aligned(&call->recv.buf, call->what.dtype) < 0) {
        return -1;
    }
    if (call->is_in_place) {
        return 0;
    }
    return (check_apart(&req->hold.buf, &call->recv.buf) < 0 ||
            check_aligned(&req->hold.buf, call->what.dtype) < 0 ||
            check_len("the recv buffer", call->recv.buf.len,
                      req->hold.buf.len) < 0) ?
               -1 :
               0;
}

static umx_status
reduce_post(RequestObject *req, const umx_op_params *params)
{
    const collective_call *call    = call_of(req);
    bool                   is_root = umx_comm_rank(comm_of(req)) == call->root;

    return umx_reduce(comm_of(req), call->root, &call->what, send_buffer(req),
                      is_root ? &call->recv.buf : NULL, params, &req->op);
}

COLLECTIVE(reduce, "reduce", NULL);

static int
parse_reduce(const CommObject *self, PyObject *send, PyObject *recv,
             PyObject *op, RequestObject *req)
{
    collective_call *call      = call_of(req);
    bool             is_root   = umx_comm_rank(self->umx) == call->root;
    bool             is_placed = is_in_place(self, send);

    if (!is_root && is_placed) {
        PyErr_SetString(PyExc_ValueError,
                        "reduce: only the root may send ucp.IN_PLACE");
        return -1;
    }
    if (is_root && is_absent(recv)) {
        return missing("reduce", "recv");
    }
    if (!is_root) {
        recv = NULL;
    }
    return (parse_reduction(is_placed ? recv : send, is_placed ? NULL : recv,
                            op, &call->what) < 0 ||
            hold_arrays(self, send, recv, req) < 0) ?
               -1 :
               0;
}

const char comm_reduce_doc[] =
    "reduce($self, send, recv=None, op='sum', root=0)\n--\n\n"
    "Combine the arrays of all ranks item by item, in the order of the ranks,\n"
    "into the root's `recv`, which only the root needs; awaitable. `op` is\n"
    "'sum', 'prod', 'min' or 'max'; the items are ints of 8 to 64 bits,\n"
    "floats or complex numbers of 32 or 64 bits a part, or bools, as the\n"
    "arrays say, in host memory. IN_PLACE for `send` on the root: its array\n"
    "is in `recv`.";

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
    req = begin(self, &op_reduce);
    if (req == NULL) {
        return NULL;
    }
    call_of(req)->root = root;
    return (parse_reduce(self, values[0], values[1], values[2], req) < 0) ?
               give_up(req) :
               post(req);
}

static umx_status
allreduce_post(RequestObject *req, const umx_op_params *params)
{
    const collective_call *call = call_of(req);

    return umx_allreduce(comm_of(req), &call->what, send_buffer(req),
                         &call->recv.buf, params, &req->op);
}

COLLECTIVE(allreduce, "allreduce", NULL);

const char comm_allreduce_doc[] =
    "allreduce($self, send, recv=None, op='sum')\n--\n\n"
    "reduce() whose result every rank gets, the same bits on each; awaitable.\n"
    "Without `recv` the result replaces `send`, as it does with\n"
    "allreduce(IN_PLACE, array); allreduce(array, 'max') is the same with an\n"
    "operation.";

PyObject *
comm_allreduce(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
               PyObject *kwnames)
{
    static const char *const keywords[] = {"send", "recv", "op"};
    CommObject              *self       = (CommObject *)op;
    PyObject                *values[3], *send, *recv, *array;
    RequestObject           *req;

    if (args_parse("allreduce", args, nargs, kwnames, keywords, 3, 3, 1,
                   values) < 0) {
        return NULL;
    }
    if (values[1] != NULL && PyUnicode_Check(values[1]) && values[2] == NULL) {
        values[2] = values[1];
        values[1] = NULL;
    }
    send  = is_absent(values[1]) ? self->worker->st->in_place : values[0];
    recv  = is_absent(values[1]) ? values[0] : values[1];
    array = is_in_place(self, send) ? NULL : recv;
    req   = begin(self, &op_allreduce);
    if (req == NULL) {
        return NULL;
    }
    if (parse_reduction((array == NULL) ? recv : send, array, values[2],
                        &call_of(req)->what) < 0 ||
        hold_arrays(self, send, recv, req) < 0) {
        return give_up(req);
    }
    return post(req);
}

/* ---- split --------------------------------------------------------------
 */

static umx_status
split_post(RequestObject *req, const umx_op_params *params)
{
    collective_call *call = call_of(req);

    return umx_comm_split(comm_of(req), call->color, call->key, params,
                          &call->made->umx, &req->op);
}

static PyObject *
split_result(RequestObject *req)
{
    CommObject *made = call_of(req)->made;

    return Py_NewRef((made->umx != NULL) ? (PyObject *)made : Py_None);
}

COLLECTIVE(split, "split", split_result);

static int
parse_int(PyObject *number, const char *what, int *value_p)
{
    Py_ssize_t value = PyNumber_AsSsize_t(number, PyExc_OverflowError);

    if (value == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (value < INT32_MIN || value > INT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "%s is %zd, more than 32 bits", what,
                     value);
        return -1;
    }
    *value_p = (int)value;
    return 0;
}

const char comm_split_doc[] =
    "split($self, color, key=0)\n--\n\n"
    "Make communicators of the ranks that give the same `color`, an int of 0\n"
    "or more, in the order of their keys and then of their ranks; awaits this\n"
    "rank's Communicator. A color of None: none.";

PyObject *
comm_split(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwnames)
{
    static const char *const keywords[] = {"color", "key"};
    CommObject              *self       = (CommObject *)op;
    PyObject                *values[2];
    RequestObject           *req;
    collective_call         *call;
    int                      color = -1, key = 0;

    if (args_parse("split", args, nargs, kwnames, keywords, 2, 2, 1, values) <
            0 ||
        (values[0] != Py_None && parse_int(values[0], "color", &color) < 0) ||
        (values[1] != NULL && parse_int(values[1], "key", &key) < 0)) {
        return NULL;
    }
    if (values[0] != Py_None && color < 0) {
        return PyErr_Format(PyExc_ValueError, "a color is 0 or more, not %d",
                            color);
    }
    req = begin(self, &op_split);
    if (req == NULL) {
        return NULL;
    }
    call        = call_of(req);
    call->color = color;
    call->key   = key;
    call->made  = comm_new_like(self);
    return (call->made == NULL) ? give_up(req) : post(req);
}
