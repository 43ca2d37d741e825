/* SPDX-License-Identifier: BSD-3-Clause */
/* stream.c: the byte stream of an endpoint. */
#include "op/stream.h"

#include "base/args.h"
#include "base/errors.h"
#include "object/endpoint.h"
#include "worker/worker.h"

static umx_status
send_post(RequestObject *req, const umx_op_params *params)
{
    return umx_stream_send(req->endpoint->umx, &req->hold.buf, params,
                           &req->op);
}

static umx_status
recv_post(RequestObject *req, const umx_op_params *params)
{
    return umx_stream_recv(req->endpoint->umx, &req->hold.buf, req->match.flags,
                           params, &req->op, &req->info);
}

static umx_status
stream_unrecv(RequestObject *req)
{
    umx_ep *ep = req->endpoint->umx;

    return (ep == NULL) ? UMX_OK :
                          umx_stream_unrecv(ep, &req->info, &req->hold.buf);
}

const op_type op_stream_send = {
    .name  = "stream_send",
    .flags = OP_SEND | OP_PLAIN,
    .post  = send_post,
};

const op_type op_stream_recv = {
    .name   = "stream_recv",
    .flags  = OP_RECV | OP_UNRECV | OP_UNRECV_LATE | OP_WHOLE,
    .post   = recv_post,
    .result = request_length,
    .unrecv = stream_unrecv,
};

PyObject *
endpoint_stream_send(PyObject *op, PyObject *buffer)
{
    EndpointObject *self = (EndpointObject *)op;
    RequestObject  *req  = request_new(self->worker, self, &op_stream_send);

    if (UNLIKELY(req == NULL)) {
        return NULL;
    }
    if (UNLIKELY(buffer_acquire_run(self->worker->st, buffer, false,
                                    &req->hold) < 0)) {
        Py_DECREF(req);
        return NULL;
    }
    return request_post(req);
}

PyObject *
endpoint_stream_recv(PyObject *op, PyObject *const *args, Py_ssize_t nargs,
                     PyObject *kwnames)
{
    static const char *const keywords[] = {"buffer", "wait_all"};
    EndpointObject          *self       = (EndpointObject *)op;
    PyObject                *values[2];
    RequestObject           *req;
    int                      is_wait_all = 0;

    if (args_parse("stream_recv", args, nargs, kwnames, keywords, 2, 2, 1,
                   values) < 0) {
        return NULL;
    }
    if (values[1] != NULL) {
        is_wait_all = PyObject_IsTrue(values[1]);
        if (is_wait_all < 0) {
            return NULL;
        }
    }
    req = request_new(self->worker, self, &op_stream_recv);
    if (req == NULL) {
        return NULL;
    }
    if (buffer_acquire_run(self->worker->st, values[0], true, &req->hold) < 0) {
        Py_DECREF(req);
        return NULL;
    }
    req->match.flags = is_wait_all ? UMX_STREAM_WAITALL : 0;
    return request_post(req);
}

PyObject *
endpoint_stream_shutdown(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    EndpointObject *self = (EndpointObject *)op;
    umx_status      status;

    if (self->worker->umx == NULL || worker_is_forked(self->worker)) {
        return errors_raise(self->worker->st,
                            self->worker->umx == NULL ? UMX_ERR_CLOSED :
                                                        UMX_ERR_FORKED,
                            "stream_shutdown", NULL);
    }
    if (worker_check(self->worker) < 0) {
        return NULL;
    }
    status = umx_stream_shutdown(self->umx);
    if (status != UMX_OK) {
        return errors_raise(self->worker->st,
                            status == UMX_ERR_PEER_CLOSED ? UMX_ERR_CLOSED :
                                                            status,
                            "stream_shutdown", NULL);
    }
    worker_schedule_drain(self->worker);
    Py_RETURN_NONE;
}
