/* SPDX-License-Identifier: BSD-3-Clause */
/* send_recv.h: messages between the ranks of a communicator. */
#ifndef UCP_EXT_COMM_SEND_RECV_H
#define UCP_EXT_COMM_SEND_RECV_H

#include "comm/request.h"

/* Methods of Communicator. */
COMM_METHOD(send);
COMM_METHOD(recv);
COMM_METHOD(probe);
COMM_METHOD(iprobe);
COMM_METHOD(improbe);

/* A method of CommMessage. */
PyObject         *comm_message_recv(PyObject *op, PyObject *buffer);
extern const char comm_isend_doc[];
extern const char comm_irecv_doc[];
extern const char comm_message_recv_doc[];

#endif
