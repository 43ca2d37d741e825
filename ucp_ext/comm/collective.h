/* SPDX-License-Identifier: BSD-3-Clause */
/* collective.h: the collective operations of a communicator. */
#ifndef UCP_EXT_COMM_COLLECTIVE_H
#define UCP_EXT_COMM_COLLECTIVE_H

#include "comm/send_recv.h"

/* Methods of Communicator. */
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
COMM_METHOD(split);

PyObject         *comm_barrier(PyObject *op, PyObject *ignored);
extern const char comm_barrier_doc[];

#endif
