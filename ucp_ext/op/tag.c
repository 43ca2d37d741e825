/* SPDX-License-Identifier: BSD-3-Clause */
/* tag.c: UCX's own tags: messages between workers, apart from the
 * channels of their endpoints. */
#include "op/tag.h"

#include "base/args.h"
#include "base/errors.h"
#include "object/endpoint.h"
#include "object/tag_message.h"
#include "op/channel.h"
#include "op/event.h"
#include "worker/worker.h"

/* ---- operations ----------------------------------------------------------
 */

/* Get the endpoint, or NULL: the message may be from any peer. */
static inline umx_ep *
ep_of(const RequestObject *req)
{
    return (req->endpoint != NULL) ? req->endpoint->umx : NULL;
}

static umx_status
send_post(RequestObject *req, const umx_op_params *params)
{
    return umx_tag_send(ep_of(req), req->match.tag, &req->hold.buf, params,
                        &req->op);
}

static umx_status
send_sync_post(RequestObject *req, const umx_op_params *params)
{
    return umx_tag_send_sync(ep_of(req), req->match.tag, &req->hold.buf, params,
                             &req->op);
}

static umx_status
recv_post(RequestObject *req, const umx_op_params *params)
{
    return umx_tag_recv(req->worker->umx, ep_of(req), req->match.tag,
                        req->match.mask, &req->hold.buf, params, &req->op,
                        &req->info);
}

static umx_status
wait_post(RequestObject *req, const umx_op_params *params)
{
    return umx_tag_wait(req->worker->umx, req->match.tag, req->match.mask,
                        params, &req->op, &req->info);
}

static umx_status
recv_message_post(RequestObject *req, const umx_op_params *params)
{
    return umx_tag_recv_message(req->worker->umx, req->match.tag,
                                req->match.mask, params, &req->op,
                                &req->tag_message);
}

static umx_status
message_recv_post(RequestObject *req, const umx_op_params *params)
{
    return umx_tag_message_recv(&req->tag_message, &req->hold.buf, params,
                                &req->op);
}

static umx_status
tag_unrecv(RequestObject *req)
{
    (void)!umx_tag_unrecv(req->worker->umx, &req->info, &req->hold.buf);
    return UMX_OK;
}

static void
return_message(RequestObject *req)
{
    umx_tag_message *message = req->tag_message;

    req->tag_message = NULL;
    tag_message_give_back(req->worker, message);
}

static PyObject *
wait_result(RequestObject *req)
{
    return Py_BuildValue("(nK)", (Py_ssize_t)req->info.length, req->info.tag);
}

static PyObject *
recv_message_result(RequestObject *req)
{
    PyObject *object = tag_message_new(req->worker, req->tag_message);

    if (object != NULL) {
        req->tag_message = NULL;
    }
    return object;
}

const op_type op_tag_send = {
    .name     = "send",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = send_post,
    .describe = channel_describe_send,
};

const op_type op_tag_send_sync = {
    .name     = "send",
    .flags    = OP_SEND | OP_PLAIN,
    .post     = send_sync_post,
    .describe = channel_describe_send,
};

const op_type op_tag_recv = {
    .name     = "recv",
    .flags    = OP_RECV | OP_UNRECV | OP_UNRECV_LATE | OP_EXACT,
    .post     = recv_post,
    .describe = channel_describe_recv,
    .unrecv   = tag_unrecv,
};

const op_type op_tag_recv_into = {
    .name     = "recv",
    .flags    = OP_RECV | OP_UNRECV | OP_UNRECV_LATE,
    .post     = recv_post,
    .result   = request_length,
    .describe = channel_describe_recv,
    .unrecv   = tag_unrecv,
};

const op_type op_tag_wait = {
    .name   = "probe",
    .flags  = OP_RECV,
    .post   = wait_post,
    .result = wait_result,
};

const op_type op_tag_recv_message = {
    .name           = "recv_message",
    .flags          = OP_RECV,
    .post           = recv_message_post,
    .note           = event_note_tag_message,
    .result         = recv_message_result,
    .return_message = return_message,
};

const op_type op_tag_message_recv = {
    .name           = "TagMessage.recv",
    .flags          = OP_RECV | OP_UNRECV | OP_UNRECV_LATE,
    .post           = message_recv_post,
    .result         = request_length,
    .unrecv         = tag_unrecv,
    .return_message = return_message,
};

/* ---- methods of Worker ---------------------------------------------------
 */

const char worker_send_doc[] =
    "send($self, ep, buffer, tag, *, sync=False)\n--\n\n"
    "Send all of buffer with a tag of 64 bits to the worker of ep's peer;\n"
    "awaitable, done when buffer may be reused, with sync=True only once the\n"
    "peer has started to receive it. The same as ep.send(buffer, tag,\n"
    "force_tag=True): ucp_tag_send_nbx().\n\n"
    "Fails as the endpoint does; one that is connecting is waited for. What\n"
    "is cancelled before that is not sent.";

PyObject *
worker_send(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    static const char *const keywords[] = {"ep", "buffer", "tag", "sync"};
    WorkerObject            *self       = (WorkerObject *)op;
    PyObject                *values[4];
    RequestObject           *req;
    int                      is_sync = 0;

    if (args_parse("send", args, nargs, kwnames, keywords, 4, 3, 3, values) <
        0) {
        return NULL;
    }
    if (!PyObject_TypeCheck(values[0], self->st->endpoint_type)) {
        return PyErr_Format(PyExc_TypeError,
                            "ep must be an Endpoint, not %.200s",
                            Py_TYPE(values[0])->tp_name);
    }
    if (((EndpointObject *)values[0])->worker != self) {
        return PyErr_Format(PyExc_ValueError, "%R is not of this worker",
                            values[0]);
    }
    if (values[3] != NULL) {
        is_sync = PyObject_IsTrue(values[3]);
        if (is_sync < 0) {
            return NULL;
        }
    }
    req = request_new(self, (EndpointObject *)values[0],
                      is_sync ? &op_tag_send_sync : &op_tag_send);
    if (req == NULL) {
        return NULL;
    }
    if (args_raw_tag(values[2], "tag", &req->match.tag) < 0 ||
        buffer_acquire(self->st, values[1], false, &req->hold) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

/* Parse the arguments tag and mask. */
static int
parse_match(PyObject *const *values, umx_match *match)
{
    match->mask = UINT64_MAX;
    if (args_raw_tag(values[0], "tag", &match->tag) < 0 ||
        (values[1] != NULL &&
         args_raw_tag(values[1], "mask", &match->mask) < 0)) {
        return -1;
    }
    return 0;
}

static PyObject *
recv_into(WorkerObject *self, const char *name, PyObject *const *args,
          Py_ssize_t nargs, PyObject *kwnames, const op_type *type)
{
    static const char *const keywords[] = {"buffer", "tag", "mask"};
    PyObject                *values[3];
    RequestObject           *req;

    if (args_parse(name, args, nargs, kwnames, keywords, 3, 3, 2, values) < 0 ||
        (self->umx == NULL && worker_check(self) < 0)) {
        return NULL;
    }
    req = request_new(self, NULL, type);
    if (req == NULL) {
        return NULL;
    }
    if (parse_match(&values[1], &req->match) < 0 ||
        buffer_acquire(self->st, values[0], true, &req->hold) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

const char worker_recv_doc[] =
    "recv($self, buffer, tag, mask=0xffffffffffffffff)\n--\n\n"
    "Receive a message of at most buffer's length, from any peer, whose tag\n"
    "agrees with `tag` in the bits of `mask`; awaits the number of bytes.\n"
    "UCXMsgTruncated for a longer one, which is consumed:\n"
    "ucp_tag_recv_nbx(). Cancelled, it loses no message.";

PyObject *
worker_recv(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    return recv_into((WorkerObject *)op, "recv", args, nargs, kwnames,
                     &op_tag_recv_into);
}

const char worker_tag_recv_doc[] =
    "_tag_recv($self, buffer, tag, mask=0xffffffffffffffff)\n--\n\n"
    "recv() of a message of exactly buffer's length; awaits None.";

PyObject *
worker_tag_recv(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                PyObject *kwnames)
{
    return recv_into((WorkerObject *)op, "tag_recv", args, nargs, kwnames,
                     &op_tag_recv);
}

static const char *const match_keywords[] = {"tag", "mask"};

static PyObject *
wait_for_message(WorkerObject *self, const char *name, PyObject *const *args,
                 Py_ssize_t nargs, PyObject *kwnames, const op_type *type)
{
    PyObject      *values[2];
    umx_match      match;
    RequestObject *req;

    if (args_parse(name, args, nargs, kwnames, match_keywords, 2, 2, 1,
                   values) < 0 ||
        parse_match(values, &match) < 0 ||
        (self->umx == NULL && worker_check(self) < 0)) {
        return NULL;
    }
    req = request_new(self, NULL, type);
    if (req == NULL) {
        return NULL;
    }
    req->match = match;
    return request_post(req);
}

const char worker_recv_message_doc[] =
    "recv_message($self, tag, mask=0xffffffffffffffff)\n--\n\n"
    "Take the next message that matches and that no recv() got, without its\n"
    "bytes; awaits a TagMessage. Cancelled, it loses no message.";

PyObject *
worker_recv_message(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                    PyObject *kwnames)
{
    return wait_for_message((WorkerObject *)op, "recv_message", args, nargs,
                            kwnames, &op_tag_recv_message);
}

const char worker_probe_doc[] =
    "probe($self, tag, mask=0xffffffffffffffff)\n--\n\n"
    "Wait for a message that matches and that no recv() got; awaits\n"
    "(length, tag) and takes nothing.";

PyObject *
worker_probe(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
             PyObject *kwnames)
{
    return wait_for_message((WorkerObject *)op, "probe", args, nargs, kwnames,
                            &op_tag_wait);
}

const char worker_tag_probe_doc[] =
    "tag_probe($self, tag, mask=0xffffffffffffffff)\n--\n\n"
    "(length, tag) of the next message that has come, matches, and is not\n"
    "received; or None. Takes nothing: ucp_tag_probe_nb().";

PyObject *
worker_tag_probe(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                 PyObject *kwnames)
{
    WorkerObject *self = (WorkerObject *)op;
    PyObject     *values[2];
    umx_match     match;
    umx_recv_info info;
    umx_status    status;

    if (args_parse("tag_probe", args, nargs, kwnames, match_keywords, 2, 2, 1,
                   values) < 0 ||
        parse_match(values, &match) < 0 || worker_check(self) < 0) {
        return NULL;
    }
    status = umx_tag_probe(self->umx, match.tag, match.mask, &info);
    if (status == UMX_ERR_NO_MESSAGE) {
        Py_RETURN_NONE;
    }
    if (status != UMX_OK) {
        return errors_raise(self->st, status, "tag_probe", NULL);
    }
    return Py_BuildValue("(nK)", (Py_ssize_t)info.length, info.tag);
}
