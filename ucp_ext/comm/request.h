/* SPDX-License-Identifier: BSD-3-Clause */
/* request.h: what the operations of a communicator share. */
#ifndef UCP_EXT_COMM_REQUEST_H
#define UCP_EXT_COMM_REQUEST_H

#include "base/args.h"
#include "comm/communicator.h"
#include "request/request.h"

/* The tail of every operation of a communicator. */
typedef struct TAIL comm_tail {
    CommObject *comm;
    union {
        uint64_t                tag;
        struct collective_call *call;   /* collective.h; or NULL */
        struct comm_call       *create; /* create.c; or NULL */
        PyObject               *object; /* a CommMessage; or NULL */
    };
    int32_t rank;       /* the other side; or -1 */
    bool    is_any_tag; /* of a receive */
} comm_tail;

/* The operation is one of `comm`. */
static inline void
comm_set(RequestObject *req, CommObject *comm)
{
    TAIL_OF(req, comm_tail)->comm = (CommObject *)Py_NewRef(comm);
    TAIL_OF(req, comm_tail)->rank = -1;
}

/* op_type.error() of the operations. */
PyObject *comm_request_error(RequestObject *req);

/* op_type.clear() and op_type.traverse() of operations that have nothing but
 * the communicator. */
void comm_request_clear(RequestObject *req);
int comm_request_traverse(const RequestObject *req, visitproc visit, void *arg);

/* Begin an operation of `self`; NULL with an exception. */
RequestObject *comm_request_new(CommObject *self, const op_type *type);

/* Declare a method of Communicator. */
#define COMM_METHOD(name)                                               \
    PyObject         *comm_##name(PyObject *op, PyObject *const *args,  \
                                  Py_ssize_t nargs, PyObject *kwnames); \
    extern const char comm_##name##_doc[]

#endif
