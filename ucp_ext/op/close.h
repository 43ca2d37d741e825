/* SPDX-License-Identifier: BSD-3-Clause */
/* close.h: what ends or settles a connection. */
#ifndef UCP_EXT_OP_CLOSE_H
#define UCP_EXT_OP_CLOSE_H

#include "request/request.h"

extern const op_type op_flush, op_flush_memory, op_drain, op_close,
    op_close_listener;

/* A method of Worker. */
PyObject         *worker_close_all(PyObject *op, PyObject *timeout);
extern const char worker_close_all_doc[];

#endif
