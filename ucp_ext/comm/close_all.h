/* SPDX-License-Identifier: BSD-3-Clause */
/* close_all.h: the end of all communicators of a worker. */
#ifndef UCP_EXT_COMM_CLOSE_ALL_H
#define UCP_EXT_COMM_CLOSE_ALL_H

#include "base/compat.h"

#include <umx/umx.h>

PyObject         *comm_close_all(PyObject *module, PyObject *args);
extern const char comm_close_all_doc[];

/* Read the `_fault` of a UCXRankFailed, or None. -1 with an exception. */
int comm_parse_fault(PyObject *object, umx_comm_failure *fault);

#endif
