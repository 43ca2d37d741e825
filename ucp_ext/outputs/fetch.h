/* SPDX-License-Identifier: BSD-3-Clause */
/* fetch.h: blocks of partitions, on their way. */
#ifndef UCP_EXT_OUTPUTS_FETCH_H
#define UCP_EXT_OUTPUTS_FETCH_H

#include "outputs/reader.h"

/* Reader._fetch() */
PyObject         *map_fetch_begin(PyObject *op, PyObject *args);
extern const char map_fetch_begin_doc[];

extern PyType_Spec map_fetch_spec;

#endif
