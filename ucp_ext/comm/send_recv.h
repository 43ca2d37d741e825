/* SPDX-License-Identifier: BSD-3-Clause */
/* send_recv.h: messages between the ranks of a communicator, and how it is made. */
#ifndef UCP_EXT_COMM_SEND_RECV_H
#define UCP_EXT_COMM_SEND_RECV_H

#include "base/args.h"
#include "request/request.h"
#include "comm/communicator.h"

/* The tail of every operation of a communicator. */
typedef struct TAIL comm_tail {
    CommObject *comm;
    union {
        uint64_t                tag;
        struct collective_call *call;   /* comm/collective.h; or NULL */
        struct comm_call       *create; /* comm/create.c; or NULL */
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

/* The rank `number` of the communicator; `what` is for errors. -1 with an
 * exception; also if it is not made, or belongs to another process. */
int comm_parse_rank(const CommObject *comm, PyObject *number, const char *what,
                    int *rank_p);

/* Methods of Communicator. */
#define COMM_METHOD(name)                                               \
    PyObject         *comm_##name(PyObject *op, PyObject *const *args,  \
                                  Py_ssize_t nargs, PyObject *kwnames); \
    extern const char comm_##name##_doc[]
COMM_METHOD(create);
COMM_METHOD(send);
COMM_METHOD(recv);
COMM_METHOD(probe);
COMM_METHOD(iprobe);
COMM_METHOD(improbe);

extern const op_type op_comm_create, op_comm_send, op_comm_recv, op_comm_probe,
    op_comm_mrecv;

#endif
