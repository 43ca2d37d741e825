/* SPDX-License-Identifier: BSD-3-Clause */
/* stream.c: the byte stream of an endpoint. */
#include "op/stream.h"

#include "args.h"
#include "errors.h"
#include "buffer/buffer.h"
#include "request/request.h"
#include "types/endpoint.h"
#include "worker/worker.h"

PyObject *
endpoint_stream_send(PyObject *op, PyObject *buffer)
{
    EndpointObject *self = (EndpointObject *)op;
    RequestObject  *req  = request_new(self->worker, self, REQUEST_STREAM_SEND);

    if (UNLIKELY(req == NULL)) {
        return NULL;
    }
    if (UNLIKELY(buffer_acquire(req->st, buffer, false, &req->hold) < 0)) {
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
    req = request_new(self->worker, self, REQUEST_STREAM_RECV);
    if (req == NULL) {
        return NULL;
    }
    if (buffer_acquire(req->st, values[0], true, &req->hold) < 0) {
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
