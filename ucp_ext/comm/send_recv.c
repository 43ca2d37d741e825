/* SPDX-License-Identifier: BSD-3-Clause */
/* send_recv.c: messages between the ranks of a communicator. */
#include "comm/send_recv.h"

#include "base/errors.h"
#include "comm/event.h"
#include "comm/message.h"
#include "worker/worker.h"

enum {
    ANY_TAG = -1
};

/* ---- messages --------------------------------------------------------------
 */

static umx_status
send_post(RequestObject *req, const umx_op_params *params)
{
    const comm_tail *tail  = TAIL_OF(req, comm_tail);
    umx_op_params    given = *params;

    if (req->worker->is_in_call) {
        given.flags |= UMX_OP_FLAG_WAITED;
        given.field_mask |= UMX_OP_FIELD_FLAGS;
    }
    return umx_comm_isend(tail->comm->umx, tail->rank, tail->tag,
                          &req->hold.buf, &given, &req->op);
}

static uint64_t
mask_of(const comm_tail *tail)
{
    return tail->is_any_tag ? 0 : UINT64_MAX;
}

/* Keep what a receive has got that is complete in its posting call. */
static umx_status
keep_result(RequestObject *req, umx_status status, const umx_comm_status *got)
{
    if (status == UMX_OK || status == UMX_ERR_MESSAGE_TRUNCATED) {
        event_mark_comm_status(req, got);
    }
    return status;
}

static umx_status
recv_post(RequestObject *req, const umx_op_params *params)
{
    const comm_tail *tail = TAIL_OF(req, comm_tail);
    umx_comm_status  got  = {0};

    return keep_result(req,
                       umx_comm_irecv(tail->comm->umx, tail->rank, tail->tag,
                                      mask_of(tail), &req->hold.buf, params,
                                      &req->op, &got),
                       &got);
}

static umx_status
probe_post(RequestObject *req, const umx_op_params *params)
{
    const comm_tail *tail = TAIL_OF(req, comm_tail);
    umx_comm_status  got  = {0};

    return keep_result(req,
                       umx_comm_wait_message(tail->comm->umx, tail->rank,
                                             tail->tag, mask_of(tail), params,
                                             &req->op, &got),
                       &got);
}

static umx_status
mrecv_post(RequestObject *req, const umx_op_params *params)
{
    CommMessageObject *message =
        (CommMessageObject *)TAIL_OF(req, comm_tail)->object;
    umx_comm_status got = message->info;

    return keep_result(
        req, umx_comm_mrecv(&message->umx, &req->hold.buf, params, &req->op),
        &got);
}

static umx_status
recv_unrecv(RequestObject *req)
{
    const CommObject     *comm = TAIL_OF(req, comm_tail)->comm;
    const umx_comm_status got  = {.source = (int)req->info.channel,
                                  .seq    = req->info.seq,
                                  .tag    = req->info.tag,
                                  .length = req->info.length};

    return (comm == NULL || comm->umx == NULL) ?
               UMX_OK :
               umx_comm_unrecv(comm->umx, &got, &req->hold.buf);
}

static PyObject *
recv_result(RequestObject *req)
{
    return comm_status_new(req->worker->st, (int)req->info.channel,
                           req->info.tag, req->info.length);
}

static void
mrecv_clear(RequestObject *req)
{
    Py_CLEAR(TAIL_OF(req, comm_tail)->object);
    comm_request_clear(req);
}

static int
mrecv_traverse(const RequestObject *req, visitproc visit, void *arg)
{
    Py_VISIT(TAIL_OF(req, comm_tail)->object);
    return comm_request_traverse(req, visit, arg);
}

/* op_type.late(): with whom the message is. */
static PyObject *
send_late(const RequestObject *req, char *text, size_t size)
{
    const comm_tail *tail = TAIL_OF(req, comm_tail);

    (void)snprintf(text, size, " to rank %d with tag %" PRIu64, tail->rank,
                   tail->tag);
    return NULL;
}

static PyObject *
recv_late(const RequestObject *req, char *text, size_t size)
{
    const comm_tail *tail = TAIL_OF(req, comm_tail);
    int              len;

    if (tail->rank < 0) {
        len = snprintf(text, size, " from any rank");
    } else {
        len = snprintf(text, size, " from rank %d", tail->rank);
    }
    if (!tail->is_any_tag) {
        (void)snprintf(text + len, size - (size_t)len, " with tag %" PRIu64,
                       tail->tag);
    }
    return NULL;
}

static PyObject *
mrecv_late(const RequestObject *req, char *text, size_t size)
{
    const umx_comm_status *info =
        &((CommMessageObject *)TAIL_OF(req, comm_tail)->object)->info;

    (void)snprintf(text, size, " from rank %d with tag %" PRIu64, info->source,
                   info->tag);
    return NULL;
}

static const op_type op_comm_send = {
    .name     = "send",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = send_post,
    .error    = comm_request_error,
    .late     = send_late,
    .clear    = comm_request_clear,
    .traverse = comm_request_traverse,
};

static const op_type op_comm_recv = {
    .name     = "recv",
    .flags    = OP_RECV | OP_UNRECV | OP_UNRECV_LATE,
    .post     = recv_post,
    .note     = event_note_comm_status,
    .result   = recv_result,
    .error    = comm_request_error,
    .late     = recv_late,
    .unrecv   = recv_unrecv,
    .clear    = comm_request_clear,
    .traverse = comm_request_traverse,
};

static const op_type op_comm_probe = {
    .name     = "probe",
    .flags    = OP_RECV,
    .post     = probe_post,
    .note     = event_note_comm_status,
    .result   = recv_result,
    .error    = comm_request_error,
    .late     = recv_late,
    .clear    = comm_request_clear,
    .traverse = comm_request_traverse,
};

static const op_type op_comm_mrecv = {
    .name     = "CommMessage.recv",
    .flags    = OP_RECV | OP_UNRECV | OP_UNRECV_LATE,
    .post     = mrecv_post,
    .note     = event_note_comm_status,
    .result   = recv_result,
    .error    = comm_request_error,
    .late     = mrecv_late,
    .unrecv   = recv_unrecv,
    .clear    = mrecv_clear,
    .traverse = mrecv_traverse,
};

/* ---- methods ---------------------------------------------------------------
 */

const char comm_send_doc[] =
    "send($self, buffer, dest, tag=0)\n--\n\n"
    "Send all of `buffer` to the rank `dest`, this one included; awaitable,\n"
    "done when `buffer` may be used again. It begins with the call, so\n"
    "isend() is the same. Messages of one rank to another are matched in\n"
    "their order. `tag` is an int of 64 bits, 0 or more.\n\n"
    "UCXRankFailed: the communicator has failed, or `dest` has left it.";

PyObject *
comm_send(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
          PyObject *kwnames)
{
    static const char *const keywords[] = {"buffer", "dest", "tag"};
    CommObject              *self       = (CommObject *)op;
    PyObject                *values[3];
    RequestObject           *req;
    comm_tail               *tail;
    uint64_t                 tag = 0;
    int                      rank;

    if (args_parse("send", args, nargs, kwnames, keywords, 3, 3, 2, values) <
            0 ||
        comm_parse_rank(self, values[1], "dest", &rank) < 0 ||
        (values[2] != NULL && args_raw_tag(values[2], "tag", &tag) < 0)) {
        return NULL;
    }
    req = comm_request_new(self, &op_comm_send);
    if (req == NULL) {
        return NULL;
    }
    tail       = TAIL_OF(req, comm_tail);
    tail->rank = rank;
    tail->tag  = tag;
    if (buffer_acquire(self->worker->st, values[0], false, &req->hold) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

static bool
is_minus_one(PyObject *number)
{
    int  overflow;
    long value;

    if (!PyLong_Check(number)) {
        return false;
    }
    value = PyLong_AsLongAndOverflow(number, &overflow);
    return overflow == 0 && value == -1;
}

/* The arguments source and tag, which may be NULL; the types of both may run
 * code of the program's. */
static int
parse_match(const CommObject *self, PyObject *source, PyObject *tag,
            comm_tail *match)
{
    int rank = UMX_ANY_SOURCE;

    if (self->umx == NULL) {
        return comm_check(self);
    }
    if (source != NULL && !is_minus_one(source) &&
        comm_parse_rank(self, source, "source", &rank) < 0) {
        return -1;
    }
    match->rank       = rank;
    match->is_any_tag = tag == NULL || is_minus_one(tag) ||
                        tag == self->worker->st->any;
    match->tag = 0;
    return (match->is_any_tag) ? 0 : args_raw_tag(tag, "tag", &match->tag);
}

static const char *const match_keywords[] = {"source", "tag"};

/* Parse the arguments of a function that only looks. */
static int
parse_look(const CommObject *self, const char *name, PyObject *const *args,
           Py_ssize_t nargs, PyObject *kwnames, comm_tail *match)
{
    PyObject *values[2];

    if (args_parse(name, args, nargs, kwnames, match_keywords, 2, 2, 0,
                   values) < 0) {
        return -1;
    }
    return parse_match(self, values[0], values[1], match);
}

static void
set_match(RequestObject *req, const comm_tail *match)
{
    comm_tail *tail = TAIL_OF(req, comm_tail);

    tail->rank       = match->rank;
    tail->tag        = match->tag;
    tail->is_any_tag = match->is_any_tag;
}

const char comm_recv_doc[] =
    "recv($self, buffer, source=-1, tag=-1)\n--\n\n"
    "Receive the next message of the rank `source`, or of any rank, with\n"
    "`tag`, or with any; awaits a Status, whose `nbytes` may be less than\n"
    "`buffer` has. The receive begins with the call, so irecv() is the "
    "same.\n\n"
    "UCXMsgTruncated: the message is longer; it is consumed, and\n"
    "`.nbytes` is its length. UCXRankFailed: the communicator has failed, or\n"
    "`source` has left it, for any rank all others have, and no such message\n"
    "is left.";

PyObject *
comm_recv(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
          PyObject *kwnames)
{
    static const char *const keywords[] = {"buffer", "source", "tag"};
    CommObject              *self       = (CommObject *)op;
    PyObject                *values[3];
    comm_tail                match;
    RequestObject           *req;

    if (args_parse("recv", args, nargs, kwnames, keywords, 3, 3, 1, values) <
            0 ||
        parse_match(self, values[1], values[2], &match) < 0) {
        return NULL;
    }
    req = comm_request_new(self, &op_comm_recv);
    if (req == NULL) {
        return NULL;
    }
    set_match(req, &match);
    if (buffer_acquire(self->worker->st, values[0], true, &req->hold) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

const char comm_probe_doc[] =
    "probe($self, source=-1, tag=-1)\n--\n\n"
    "Wait until there is a message for recv(source=source, tag=tag). The\n"
    "message stays in the queue. The await returns the Status of the message.";

PyObject *
comm_probe(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwnames)
{
    CommObject    *self = (CommObject *)op;
    comm_tail      match;
    RequestObject *req;

    if (parse_look(self, "probe", args, nargs, kwnames, &match) < 0) {
        return NULL;
    }
    req = comm_request_new(self, &op_comm_probe);
    if (req == NULL) {
        return NULL;
    }
    set_match(req, &match);
    return request_post(req);
}

const char comm_iprobe_doc[] =
    "iprobe($self, source=-1, tag=-1)\n--\n\n"
    "The Status of the message that recv(source=source, tag=tag) would get\n"
    "if it has come; else None.";

PyObject *
comm_iprobe(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    CommObject     *self = (CommObject *)op;
    comm_tail       match;
    umx_comm_status got;
    umx_status      status;

    if (parse_look(self, "iprobe", args, nargs, kwnames, &match) < 0 ||
        comm_check(self) < 0) {
        return NULL;
    }
    status = umx_comm_iprobe(self->umx, match.rank, match.tag, mask_of(&match),
                             &got);
    if (status == UMX_ERR_NO_MESSAGE) {
        Py_RETURN_NONE;
    }
    if (status != UMX_OK) {
        return errors_set(comm_error(self, status, "iprobe", match.rank));
    }
    return comm_status_new(self->worker->st, got.source, got.tag, got.length);
}

const char comm_improbe_doc[] =
    "improbe($self, source=-1, tag=-1)\n--\n\n"
    "Take the message that recv(source=source, tag=tag) would get, without\n"
    "its bytes, if it has come: a CommMessage, which no other receive gets;\n"
    "else None.";

PyObject *
comm_improbe(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
             PyObject *kwnames)
{
    CommObject       *self = (CommObject *)op;
    comm_tail         match;
    umx_comm_status   got;
    umx_comm_message *message;
    umx_status        status;
    PyObject         *object;

    if (parse_look(self, "improbe", args, nargs, kwnames, &match) < 0 ||
        comm_check(self) < 0) {
        return NULL;
    }
    status = umx_comm_improbe(self->umx, match.rank, match.tag, mask_of(&match),
                              &message, &got);
    if (status == UMX_ERR_NO_MESSAGE) {
        Py_RETURN_NONE;
    }
    if (status != UMX_OK) {
        return errors_set(comm_error(self, status, "improbe", match.rank));
    }
    object = comm_message_new(self, message, &got);
    if (object == NULL) {
        comm_message_give_back(self, message);
    }
    return object;
}

const char comm_message_recv_doc[] =
    "recv($self, buffer, /)\n--\n\n"
    "Receive the bytes into `buffer`, which must be at least as long;\n"
    "awaits the Status, once only.";

PyObject *
comm_message_recv(PyObject *op, PyObject *buffer)
{
    CommMessageObject *self = (CommMessageObject *)op;
    RequestObject *req = request_new(self->comm->worker, NULL, &op_comm_mrecv);

    if (req == NULL) {
        return NULL;
    }
    comm_set(req, self->comm);
    TAIL_OF(req, comm_tail)->object = Py_NewRef(op);
    if (buffer_acquire(self->comm->worker->st, buffer, true, &req->hold) < 0) {
        goto drop_req;
    }
    if (self->is_asked) { /* the buffer's code may have done that */
        PyErr_SetString(PyExc_RuntimeError, "the message was received");
        goto drop_req;
    }
    if (buffer_check_room(&req->hold, self->info.length) < 0) {
        goto drop_req;
    }
    self->is_asked = true;
    return request_post(req);

drop_req:
    Py_DECREF(req);
    return NULL;
}
