/* SPDX-License-Identifier: BSD-3-Clause */
/* moe_buffer.h: a group of experts, as one rank has it. */
#ifndef UCP_EXT_MOE_MOE_BUFFER_H
#define UCP_EXT_MOE_MOE_BUFFER_H

#include "request/request.h"

#include "comm/joint.h"

typedef struct MoeBufferObject {
    JOINT_HEAD;
    PyObject      *memory; /* a Memory */
    umx_moe_params params;
} MoeBufferObject;

/* The tail of the operations of this room. */
typedef struct TAIL moe_tail {
    MoeBufferObject *buffer;
    PyObject        *call; /* a MoeCall; or NULL: as joint_tail */
} moe_tail;

/* The exception of a status. */
PyObject *moe_error(const MoeBufferObject *self, umx_status status,
                    const char *op);

/* op_type.error() of operations. */
PyObject *moe_request_error(RequestObject *req);

extern PyType_Spec moe_buffer_spec;

#endif
