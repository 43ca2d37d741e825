/* SPDX-License-Identifier: BSD-3-Clause */
/* moe_buffer.h: a group of experts, as one rank has it. */
#ifndef UCP_EXT_MOE_MOE_BUFFER_H
#define UCP_EXT_MOE_MOE_BUFFER_H

#include "request/request.h"

#include "comm/communicator.h"

typedef struct MoeBufferObject {
    OWNED_HEAD;
    umx_moe *umx; /* NULL until it begins to be made, and once it is given
                     back */
    CommObject    *comm;
    PyObject      *memory; /* a Memory */
    umx_moe_params params;
} MoeBufferObject;

/* The tail of the operations of this room. */
typedef struct TAIL moe_tail {
    MoeBufferObject *buffer;
    PyObject        *call; /* a MoeCall; or NULL */
} moe_tail;

/* -1 with an exception unless this thread may call libumx with it. */
int moe_check(const MoeBufferObject *self);

/* The exception of a status. */
PyObject *moe_error(const MoeBufferObject *self, umx_status status,
                    const char *op);

/* Begin an operation; `call` may be NULL. NULL with an exception. */
RequestObject *moe_request(MoeBufferObject *self, PyObject *call,
                           const op_type *type);

/* op_type.error(), op_type.clear() and op_type.traverse() of operations. */
PyObject *moe_request_error(RequestObject *req);
void      moe_request_clear(RequestObject *req);
int moe_request_traverse(const RequestObject *req, visitproc visit, void *arg);

extern PyType_Spec moe_buffer_spec;

#endif
