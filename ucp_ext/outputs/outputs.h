/* SPDX-License-Identifier: BSD-3-Clause */
/* outputs.h: the outputs of maps, as one rank has them. */
#ifndef UCP_EXT_OUTPUTS_OUTPUTS_H
#define UCP_EXT_OUTPUTS_OUTPUTS_H

#include "request/request.h"

#include "comm/joint.h"

typedef struct OutputsObject {
    JOINT_HEAD;
    umx_outputs_params params;
} OutputsObject;

/* The tail of the operations of this room. */
typedef struct TAIL outputs_tail {
    OutputsObject *outputs;
    PyObject      *object; /* whose operation it is; or NULL: as joint_tail */
    union {
        uint64_t    timeout_ns;
        const char *text; /* of `path` */
    };
} outputs_tail;

/* Has the communicator been closed, so that nobody can be reached? */
static inline bool
outputs_are_cut_off(const OutputsObject *outputs)
{
    return outputs->comm != NULL && outputs->comm->is_closed;
}

/* The exception of a status; `path` is a file's, or NULL. */
PyObject *outputs_error(const OutputsObject *outputs, umx_status status,
                        const char *op, PyObject *path, int error);

/* Set map_id and rank of `exc`, which may be NULL; returns it, or NULL. */
PyObject *outputs_with_owner(PyObject *exc, uint32_t map, int rank);

/* op_type.error() of operations. */
PyObject *outputs_request_error(RequestObject *req);

/* The number of a map or partition, at most 2**32 - 1; `what` is for errors. -1
 * with an exception. */
int outputs_parse_number(PyObject *value, const char *what, uint32_t below,
                         uint32_t *number_p);

extern PyType_Spec map_outputs_spec;

#endif
