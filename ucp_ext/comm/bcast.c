/* SPDX-License-Identifier: BSD-3-Clause */
/* bcast.c: barrier and bcast. */
#include "comm/collective.h"

#include "worker/worker.h"

static umx_status
barrier_post(RequestObject *req, const umx_op_params *params)
{
    return umx_barrier(collective_comm_of(req), params, &req->op);
}

COLLECTIVE(barrier, "barrier", NULL);

const char comm_barrier_doc[] =
    "barrier($self, /)\n--\n\n"
    "Wait until every rank has called it; awaitable.";

PyObject *
comm_barrier(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    RequestObject *req = collective_begin((CommObject *)op, &op_barrier);

    return (req == NULL) ? NULL : collective_post(req);
}

static umx_status
bcast_post(RequestObject *req, const umx_op_params *params)
{
    const collective_call *call = collective_call_of(req);
    const umx_buffer      *buf  = (call->recv.owner != NULL) ? &call->recv.buf :
                                                               &req->hold.buf;

    return umx_bcast(collective_comm_of(req), call->root, buf, params,
                     &req->op);
}

COLLECTIVE(bcast, "bcast", NULL);

const char comm_bcast_doc[] =
    "bcast($self, buffer, root=0)\n--\n\n"
    "Copy the bytes of the root's `buffer` to the `buffer` of every rank;\n"
    "awaitable. All buffers have the same length. The buffer of the root may\n"
    "be read-only.";

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
    req = collective_begin(self, &op_bcast);
    if (req == NULL) {
        return NULL;
    }
    collective_call_of(req)->root = root;
    if ((root == umx_comm_rank(self->umx) ?
             collective_hold_send(self, values[0], req) :
             collective_hold_recv(self, values[0], req)) < 0) {
        return collective_give_up(req);
    }
    return collective_post(req);
}
