/* SPDX-License-Identifier: BSD-3-Clause */
/* joint.c: objects that all ranks make together: their life, and what their
 * operations raise. */
#include "comm/joint.h"

#include "worker/worker.h"

/* ---- errors --------------------------------------------------------------
 */

static PyObject *
closed_error(const JointObject *self, const char *op)
{
    char text[96];

    (void)snprintf(text, sizeof(text), "the %s or its communicator is closed",
                   self->kind->noun);
    return errors_new_text(self->worker->st, UMX_ERR_CLOSED, op, text);
}

/* A rank has failed: the object knows which, or the communicator does. */
static PyObject *
rank_error(const JointObject *self, const char *op)
{
    mod_state       *st = self->worker->st;
    umx_comm_failure failure;
    const char      *why;
    char             text[128];

    if (self->joint != NULL &&
        umx_joint_get_failure(self->joint, &failure, &why)) {
        return comm_lost_error(st, &failure, why, op);
    }
    if (self->comm->umx != NULL &&
        umx_comm_get_failure(self->comm->umx, &failure)) {
        return comm_failure_error(st, self->comm->umx, op);
    }
    if (self->is_closed) {
        return closed_error(self, op);
    }
    failure = (umx_comm_failure){
        .rank = -1, .op = op, .cause = UMX_ERR_PEER_CLOSED, .member = -1};
    (void)snprintf(text, sizeof(text),
                   "a rank has left the %s, or has cancelled a call of all "
                   "ranks",
                   self->kind->noun);
    return comm_lost_error(st, &failure, text, op);
}

PyObject *
joint_error(const void *object, umx_status status, const char *op,
            const char *detail)
{
    const JointObject *self   = object;
    const char        *reason = (self->joint == NULL) ? "" :
                                                        umx_joint_reason(self->joint);

    switch (status) {
    case UMX_ERR_RANK_FAILED:
        return rank_error(self, op);
    case UMX_ERR_CLOSED:
        return closed_error(self, op);
    default:
        return (reason[0] != '\0') ?
                   errors_new_text(self->worker->st, status, op, reason) :
                   errors_new(self->worker->st, status, op, detail);
    }
}

/* ---- life ----------------------------------------------------------------
 */

PyObject *
joint_new(PyTypeObject *type, const joint_kind *kind, CommObject *comm)
{
    JointObject *self;

    if (comm_check(comm) < 0) {
        return NULL;
    }
    self = (JointObject *)owned_new(type, comm->worker);
    if (self != NULL) {
        self->kind = kind;
        self->comm = (CommObject *)Py_NewRef(comm);
    }
    return (PyObject *)self;
}

int
joint_check(const void *object)
{
    const JointObject *self = object;

    return owned_check(self->worker, self->is_closed ? NULL : self->umx,
                       self->kind->noun);
}

umx_status
joint_check_new(const void *object)
{
    const JointObject *self = object;

    return (self->umx == NULL && self->comm->umx != NULL) ? UMX_OK :
                                                            UMX_ERR_CLOSED;
}

void
joint_set(void *object, void *umx, umx_joint *joint)
{
    JointObject *self = object;

    self->umx   = umx;
    self->joint = joint;
}

void
joint_give_back(PyObject *op)
{
    JointObject *self = (JointObject *)op;
    void        *umx  = self->umx;

    self->umx       = NULL;
    self->joint     = NULL;
    self->is_closed = true;
    if (umx != NULL && self->kind->drop(self->worker, umx)) {
        worker_schedule_drain(self->worker);
    }
}

void
joint_dealloc(PyObject *op)
{
    owned_dealloc_with(op, joint_give_back,
                       (PyObject *)((JointObject *)op)->comm);
}

int
joint_traverse(PyObject *op, visitproc visit, void *arg)
{
    Py_VISIT(((JointObject *)op)->comm);
    return owned_traverse(op, visit, arg);
}

PyObject *
joint_abort(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    joint_give_back(op);
    Py_RETURN_NONE;
}

PyObject *
joint_closed(PyObject *op, PyObject *Py_UNUSED(ignored))
{
    const JointObject *self = (JointObject *)op;

    return PyBool_FromLong(self->is_closed || self->umx == NULL ||
                           self->worker->umx == NULL);
}

/* ---- operations ----------------------------------------------------------
 */

RequestObject *
joint_request(void *object, PyObject *held, const op_type *type)
{
    RequestObject *req = request_new(((JointObject *)object)->worker, NULL,
                                     type);

    if (req != NULL) {
        TAIL_OF(req, joint_tail)->self   = (JointObject *)Py_NewRef(object);
        TAIL_OF(req, joint_tail)->object = Py_XNewRef(held);
    }
    return req;
}

PyObject *
joint_request_error(RequestObject *req)
{
    return joint_error(joint_of(req), req->status, req->type->name, NULL);
}

void
joint_request_clear(RequestObject *req)
{
    Py_CLEAR(TAIL_OF(req, joint_tail)->object);
    Py_CLEAR(TAIL_OF(req, joint_tail)->self);
}

int
joint_request_traverse(const RequestObject *req, visitproc visit, void *arg)
{
    Py_VISIT(TAIL_OF(req, joint_tail)->object);
    Py_VISIT(TAIL_OF(req, joint_tail)->self);
    return 0;
}
