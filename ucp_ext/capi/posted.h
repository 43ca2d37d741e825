/* SPDX-License-Identifier: BSD-3-Clause */
/* posted.h: awaitables of operations that C code of the program posts. */
#ifndef UCP_EXT_CAPI_POSTED_H
#define UCP_EXT_CAPI_POSTED_H

#include "capi/ops.h"
#include "comm/communicator.h"
#include "request/request.h"

/* The operations of a request. */
typedef struct posted {
    posted_ops  ops;
    uint32_t    num_lost;   /* of those that have not ended */
    umx_status  lost;       /* the status of one of these */
    umx_status  status;     /* of the first that has failed, or UMX_OK */
    bool        is_open;    /* more may be posted */
    bool        is_short;   /* `ops` has not all, for want of memory, or ... */
    bool        is_unnamed; /* ... because the program did not name one */
    CommObject *comm;       /* or NULL */
} posted;

typedef struct TAIL posted_tail {
    posted   *all;
    PyObject *keep; /* or NULL */
} posted_tail;

static inline posted *
posted_of(const RequestObject *req)
{
    return TAIL_OF(req, posted_tail)->all;
}

/* The functions of the table of the same names: see ucp_api.h. */
PyObject *posted_new(PyObject *owner, PyObject *keep, umx_op_params *params_p);
void      posted_add(PyObject *request, umx_status status, umx_request *op);
int       posted_done(PyObject *request, umx_status status, umx_request *op);
int       posted_set_result(PyObject *request, PyObject *result);

#endif
