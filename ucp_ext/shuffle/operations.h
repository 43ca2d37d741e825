/* SPDX-License-Identifier: BSD-3-Clause */
/* operations.h: the operations of a shuffler. */
#ifndef UCP_EXT_SHUFFLE_OPERATIONS_H
#define UCP_EXT_SHUFFLE_OPERATIONS_H

#include "request/request.h"
#include "shuffle/shuffler.h"

/* A partition's number. -1 with an exception. */
int shuffle_parse_partition(PyObject *number, uint32_t *partition_p);

/* The same, or UMX_PARTITION_ALL for None and for NULL. */
int shuffle_parse_partition_or_all(PyObject *number, uint32_t *partition_p);

/* Methods of Shuffler. */
PyObject *shuffler_insert(PyObject *op, PyObject *const *args,
                          Py_ssize_t nargs);
PyObject *shuffler_wait(PyObject *op, PyObject *const *args, Py_ssize_t nargs);
PyObject *shuffler_close(PyObject *op, PyObject *ignored);
extern const char shuffler_insert_doc[], shuffler_wait_doc[],
    shuffler_close_doc[];

#endif
