/* SPDX-License-Identifier: BSD-3-Clause */
/* request.c: what the operations of a communicator share. */
#include "comm/request.h"

#include "worker/worker.h"

PyObject *
comm_request_error(RequestObject *req)
{
    const comm_tail *tail = TAIL_OF(req, comm_tail);
    char             text[128];
    PyObject        *exc;

    if (req->status != UMX_ERR_MESSAGE_TRUNCATED) {
        return comm_error(tail->comm, req->status, req->type->name, tail->rank);
    }
    snprintf(text, sizeof(text),
             "recv: the message of rank %u with tag %" PRIu64
             " has %zu bytes, the buffer %zu",
             req->info.channel, req->info.tag, req->info.length,
             req->hold.buf.len);
    exc = errors_new(req->worker->st, req->status, req->type->name, text);
    if (exc != NULL && request_set_size(exc, NAME(req->worker->st, nbytes),
                                        req->info.length) < 0) {
        Py_CLEAR(exc);
    }
    return exc;
}

void
comm_request_clear(RequestObject *req)
{
    Py_CLEAR(TAIL_OF(req, comm_tail)->comm);
}

int
comm_request_traverse(const RequestObject *req, visitproc visit, void *arg)
{
    Py_VISIT(TAIL_OF(req, comm_tail)->comm);
    return 0;
}

RequestObject *
comm_request_new(CommObject *self, const op_type *type)
{
    RequestObject *req = request_new(self->worker, NULL, type);

    if (req != NULL) {
        comm_set(req, self);
    }
    return req;
}
