/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint_info.h: what is known of an endpoint. */
#ifndef UCP_EXT_TYPE_ENDPOINT_INFO_H
#define UCP_EXT_TYPE_ENDPOINT_INFO_H

#include "base/state.h"

/* -1 with the exception of `op` unless this thread may call an open worker. */
int endpoint_check_open(EndpointObject *self, const char *op);

/* Methods of Endpoint. */
PyObject         *endpoint_info(PyObject *op, PyObject *ignored);
PyObject         *endpoint_transports(PyObject *op, PyObject *ignored);
PyObject         *endpoint_ways(PyObject *op, PyObject *ignored);
PyObject         *endpoint_stats(PyObject *op, PyObject *ignored);
extern const char endpoint_info_doc[], endpoint_transports_doc[],
    endpoint_ways_doc[], endpoint_stats_doc[];

extern PyGetSetDef endpoint_getset[];

#endif
