/* SPDX-License-Identifier: BSD-3-Clause */
/* collective.c: what the collective operations of a communicator share. */
#include "comm/collective.h"

#include "worker/worker.h"

/* ---- the request -------------------------------------------------------
 */

/* op_type.late() */
PyObject *
collective_late(const RequestObject *req, char *text, size_t size)
{
    const umx_comm  *umx = collective_comm_of(req);
    umx_comm_failure failure;

    (void)text;
    (void)size;
    return (umx != NULL && umx_comm_get_failure(umx, &failure) &&
            failure.rank == umx_comm_rank(umx)) ?
               comm_late(&failure) :
               NULL;
}

/* op_type.release() */
void
collective_release(RequestObject *req)
{
    collective_call *call = collective_call_of(req);

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

void
collective_clear(RequestObject *req)
{
    collective_call *call = collective_call_of(req);

    collective_release(req);
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

int
collective_traverse(const RequestObject *req, visitproc visit, void *arg)
{
    const collective_call *call = collective_call_of(req);
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
PyObject *
collective_post(RequestObject *req)
{
    const collective_call *call = collective_call_of(req);

    if (buffer_is_in_gc(&call->recv) || call->sends != NULL) {
        request_track(req);
    }
    return request_post(req);
}

/* Begin an operation; NULL with an exception. */
RequestObject *
collective_begin(CommObject *self, const op_type *type)
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
PyObject *
collective_give_up(RequestObject *req)
{
    Py_DECREF(req);
    return NULL;
}

/* ---- buffers -----------------------------------------------------------
 */

bool
collective_is_in_place(const CommObject *self, PyObject *obj)
{
    return obj == self->worker->st->in_place;
}

int
collective_hold_send(const CommObject *self, PyObject *obj, RequestObject *req)
{
    return buffer_acquire_any(self->worker->st, obj, false, &req->hold);
}

int
collective_hold_recv(const CommObject *self, PyObject *obj, RequestObject *req)
{
    return buffer_acquire_any(self->worker->st, obj, true,
                              &collective_call_of(req)->recv);
}

/* Hold both, or with IN_PLACE the second one. */
int
collective_hold_both(const CommObject *self, PyObject *send, PyObject *recv,
                     RequestObject *req)
{
    collective_call *call = collective_call_of(req);

    call->is_in_place = collective_is_in_place(self, send);
    if (!call->is_in_place && collective_hold_send(self, send, req) < 0) {
        return -1;
    }
    return collective_hold_recv(self, recv, req);
}

const umx_buffer *
collective_send_buffer(const RequestObject *req)
{
    return collective_call_of(req)->is_in_place ? UMX_IN_PLACE : &req->hold.buf;
}

/* -1 with an exception if what is received overlaps what is sent. */
int
collective_check_apart(const umx_buffer *send, const umx_buffer *recv)
{
    const char *out = send->data, *in = recv->data;

    if (send->layout != NULL || recv->layout != NULL) {
        return 0; /* one of them is a copy */
    }
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

int
collective_check_len(const char *what, size_t len, size_t expected)
{
    if (len == expected) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "%s: %zu bytes, expected %zu", what, len,
                 expected);
    return -1;
}

int
collective_missing(const char *name, const char *what)
{
    PyErr_Format(PyExc_TypeError, "%s() on the root needs the argument %s",
                 name, what);
    return -1;
}
