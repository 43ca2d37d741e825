/* SPDX-License-Identifier: BSD-3-Clause */
/* joint.h: objects that all ranks of a communicator make together: symmetric
 * heaps, outputs of maps, groups of experts, proxies. What such an object has
 * in common with the others, its life and its errors, is here. */
#ifndef UCP_EXT_COMM_JOINT_H
#define UCP_EXT_COMM_JOINT_H

#include "comm/communicator.h"
#include "request/request.h"

/* A kind of such objects. */
typedef struct joint_kind {
    const char *noun; /* "heap" */
    /* Give it back: true if the worker has to be drained. */
    bool (*drop)(WorkerObject *worker, void *umx);
} joint_kind;

/* How the struct of such an object begins. */
#define JOINT_HEAD                                                      \
    OWNED_HEAD;                                                         \
    const joint_kind *kind;                                             \
    void *umx; /* NULL until it begins to be made, and once it is given \
                  back */                                               \
    umx_joint  *joint; /* of `umx`; or NULL */                          \
    CommObject *comm;                                                   \
    bool        is_closed

typedef struct JointObject {
    JOINT_HEAD;
} JointObject;

/* Make an object of `type`, which nobody has begun to make with the others.
 * NULL with an exception; also if the communicator is closed. */
PyObject *joint_new(PyTypeObject *type, const joint_kind *kind,
                    CommObject *comm);

/* -1 with an exception unless this thread may call libumx with it. */
int joint_check(const void *object);

/* Can it begin to be made? UMX_OK, UMX_ERR_CLOSED. */
umx_status joint_check_new(const void *object);

/* It has begun to be made. */
void joint_set(void *object, void *umx, umx_joint *joint);

/* The exception of a status. UCXRankFailed names the rank, the operation and
 * the cause, as far as they are known. `detail` says more of another status,
 * unless libumx does; or NULL. */
PyObject *joint_error(const void *object, umx_status status, const char *op,
                      const char *detail);

/* tp_dealloc, tp_traverse, and the methods abort() and closed(). */
void      joint_dealloc(PyObject *op);
int       joint_traverse(PyObject *op, visitproc visit, void *arg);
PyObject *joint_abort(PyObject *op, PyObject *ignored);
PyObject *joint_closed(PyObject *op, PyObject *ignored);

/* Give back what is libumx's. */
void joint_give_back(PyObject *op);

/* ---- operations ----------------------------------------------------------
 */

/* How the tail of the operations of such objects begins. */
typedef struct TAIL joint_tail {
    JointObject *self;
    PyObject    *object; /* held by the operation; or NULL */
} joint_tail;

/* Begin an operation of `object`; `held` may be NULL. NULL with an exception.
 */
RequestObject *joint_request(void *object, PyObject *held, const op_type *type);

/* The object of an operation. */
static inline void *
joint_of(const RequestObject *req)
{
    return TAIL_OF(req, joint_tail)->self;
}

/* op_type.error(), op_type.clear() and op_type.traverse() of operations. */
PyObject *joint_request_error(RequestObject *req);
void      joint_request_clear(RequestObject *req);
int       joint_request_traverse(const RequestObject *req, visitproc visit,
                                 void *arg);

#endif
