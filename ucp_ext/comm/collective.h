/* SPDX-License-Identifier: BSD-3-Clause */
/* collective.h: the collective operations of a communicator, and what they
 * share. */
#ifndef UCP_EXT_COMM_COLLECTIVE_H
#define UCP_EXT_COMM_COLLECTIVE_H

#include "comm/request.h"

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

static inline collective_call *
collective_call_of(const RequestObject *req)
{
    return TAIL_OF(req, comm_tail)->call;
}

static inline umx_comm *
collective_comm_of(const RequestObject *req)
{
    return TAIL_OF(req, comm_tail)->comm->umx;
}

/* op_type.late(), op_type.release(), op_type.clear() and op_type.traverse(). */
PyObject *collective_late(const RequestObject *req, char *text, size_t size);
void      collective_release(RequestObject *req);
void      collective_clear(RequestObject *req);
int collective_traverse(const RequestObject *req, visitproc visit, void *arg);

/* Begin an operation; NULL with an exception. */
RequestObject *collective_begin(CommObject *self, const op_type *type);

/* End an operation that failed while its arguments were read: NULL. */
PyObject *collective_give_up(RequestObject *req);

/* Post the operation. */
PyObject *collective_post(RequestObject *req);

/* Define the type of an operation, whose function op##_post() exists. */
#define COLLECTIVE(op, text, function)   \
    static const op_type op_##op = {     \
        .name     = text,                \
        .flags    = OP_SEND | OP_PLAIN,  \
        .post     = op##_post,           \
        .result   = function,            \
        .error    = comm_request_error,  \
        .late     = collective_late,     \
        .release  = collective_release,  \
        .clear    = collective_clear,    \
        .traverse = collective_traverse, \
    }

/* ---- arguments; -1 with an exception -----------------------------------
 */

bool collective_is_in_place(const CommObject *self, PyObject *obj);

/* Is an argument missing, or None? */
static inline bool
collective_is_absent(PyObject *obj)
{
    return obj == NULL || obj == Py_None;
}

int collective_hold_send(const CommObject *self, PyObject *obj,
                         RequestObject *req);
int collective_hold_recv(const CommObject *self, PyObject *obj,
                         RequestObject *req);

/* Hold both, or with IN_PLACE the second one. */
int collective_hold_both(const CommObject *self, PyObject *send, PyObject *recv,
                         RequestObject *req);

const umx_buffer *collective_send_buffer(const RequestObject *req);

/* Check that what is received does not overlap what is sent. */
int collective_check_apart(const umx_buffer *send, const umx_buffer *recv);

int collective_check_len(const char *what, size_t len, size_t expected);

/* Refuse a call on the root without the argument `what`. */
int collective_missing(const char *name, const char *what);

/* ---- methods of Communicator -------------------------------------------
 */

COMM_METHOD(bcast);
COMM_METHOD(gather);
COMM_METHOD(scatter);
COMM_METHOD(allgather);
COMM_METHOD(allgatherv);
COMM_METHOD(alltoall);
COMM_METHOD(alltoallv);
COMM_METHOD(alltoall_buffers);
COMM_METHOD(reduce);
COMM_METHOD(allreduce);
COMM_METHOD(scan);
COMM_METHOD(exscan);
COMM_METHOD(reduce_scatter);
COMM_METHOD(split);

PyObject         *comm_barrier(PyObject *op, PyObject *ignored);
extern const char comm_barrier_doc[];

#endif
