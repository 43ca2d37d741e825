/* SPDX-License-Identifier: BSD-3-Clause */
/* wait.h: waiting for a number in memory of one's own. */
#ifndef UCP_EXT_OP_WAIT_H
#define UCP_EXT_OP_WAIT_H

#include "request/request.h"

/* A condition of Python's arguments; `bits` may be NULL. -1 with an exception.
 */
int wait_parse(umx_condition *until, PyObject *offset, PyObject *cmp,
               PyObject *value, PyObject *bits);

/* A comparison. -1 with an exception. */
int wait_parse_cmp(PyObject *cmp, umx_cmp *cmp_p);

/* The request of a wait for `until` in the Memory `memory`. */
PyObject *wait_post(WorkerObject *worker, PyObject *memory,
                    const umx_condition *until);

extern const op_type op_wait;

#endif
