/* SPDX-License-Identifier: BSD-3-Clause */
/* derive.h: a communicator of the same ranks, made without a message. */
#ifndef UCP_EXT_COMM_DERIVE_H
#define UCP_EXT_COMM_DERIVE_H

#include "base/compat.h"

/* A method of Communicator. */
PyObject         *comm_derive(PyObject *op, PyObject *number);
extern const char comm_derive_doc[];

#endif
