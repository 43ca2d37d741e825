/* SPDX-License-Identifier: BSD-3-Clause */
/* joint.c: how ranks make something together, and how it ends. */
#include "joint/joint.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "util/list.h"

/* ---- references, states --------------------------------------------------
 */

void
umi_joint_put(umx_joint *joint)
{
    if (!umi_shared_refs_put(&joint->refs)) {
        return;
    }
    assert(joint->state == UMI_JOINT_ENDED);
    assert(joint->req == NULL && joint->comm == NULL);
    umx_worker_detach(&joint->dependent);
    if (joint->region != NULL) {
        umx_region_destroy(joint->region);
    }
    joint->cls->free(joint);
}

static void
set_state(umx_joint *joint, umi_joint_state state)
{
    assert(state == UMI_JOINT_ENDED ?
               joint->state != UMI_JOINT_ENDED :
               joint->state == UMI_JOINT_MEETING && state == UMI_JOINT_OPEN);
    joint->state = state;
}

/* ---- failures ------------------------------------------------------------
 */

/* Ask the communicator, or the region that could not be made. */
static bool
find_failure(const umx_joint *joint, umx_comm_failure *failure,
             const char **why_p)
{
    if (joint->comm != NULL && umx_comm_get_failure(joint->comm, failure)) {
        *why_p = umx_comm_reason(joint->comm);
        return true;
    }
    return joint->region != NULL &&
           umx_region_get_failure(joint->region, failure, why_p);
}

static void
set_failed(umx_joint *joint)
{
    __atomic_store_n(&joint->has_failed, true, __ATOMIC_RELAXED);
}

void
umi_joint_keep(umx_joint *joint, const umx_comm_failure *failure,
               const char *why)
{
    if (joint->is_told) {
        return;
    }
    joint->is_told = true;
    if (failure->rank >= 0 || joint->failure.rank < 0) {
        joint->failure    = *failure;
        joint->failure.op = "";
        (void)snprintf(joint->why, sizeof(joint->why), "%s", why);
    }
    set_failed(joint);
}

bool
umi_joint_learn(umx_joint *joint)
{
    umx_comm_failure failure;
    const char      *why;

    if (!joint->is_told && find_failure(joint, &failure, &why)) {
        umi_joint_keep(joint, &failure, why);
    }
    return joint->has_failed;
}

void
umi_joint_note_failure(umx_joint *joint, int rank, umx_status cause,
                       const char *format, ...)
{
    va_list args;

    (void)umi_joint_learn(joint);
    if (joint->failure.rank < 0 && !joint->is_told) {
        joint->failure.rank  = rank;
        joint->failure.cause = cause;
        va_start(args, format);
        (void)vsnprintf(joint->why, sizeof(joint->why), format, args);
        va_end(args);
    }
    set_failed(joint);
}

umx_status
umi_joint_refuse(umx_joint *joint, umx_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(joint->reason, sizeof(joint->reason), format, args);
    va_end(args);
    joint->is_agreed = true;
    return status;
}

/* ---- the end -------------------------------------------------------------
 */

void
umi_joint_leave(umx_joint *joint)
{
    umx_comm *comm = joint->comm;

    (void)umi_joint_learn(joint);
    joint->comm = NULL;
    if (comm != NULL) {
        umx_comm_close(comm);
        umx_comm_destroy(comm);
    }
}

/* Write which ranks have not come to `text`, behind what is there. */
static void
add_late(umx_joint *joint, char *text, size_t size)
{
    int    late[UMX_COMM_LATE_MAX];
    int    count = (joint->region != NULL) ?
                       umx_region_find_late(joint->region, late) :
                       umx_comm_find_late(joint->comm, late);
    size_t len   = strlen(text);

    for (int i = 0; i < count && len < size; i++) {
        len += (size_t)snprintf(text + len, size - len, "%s%d%s",
                                (i != 0)     ? ", " :
                                (count == 1) ? ": rank " :
                                               ": ranks ",
                                late[i],
                                (i + 1 < count) ? "" :
                                (count == 1)    ? " has not" :
                                                  " have not");
    }
}

/* This rank does not make it: tell the others. */
static void
give_up(umx_joint *joint, umx_status status)
{
    umx_comm_failure failure = {.rank = joint->rank, .cause = status};
    char            *text    = joint->reason;
    size_t           size    = sizeof(joint->reason);

    if (text[0] != '\0') { /* the layer has said why */
    } else if (status == UMX_ERR_TIMED_OUT) {
        (void)snprintf(text, size,
                       "not all ranks have come in time to make the %s",
                       joint->cls->name);
        add_late(joint, text, size);
    } else if (status == UMX_ERR_CANCELED) {
        (void)snprintf(text, size, "making the %s was cancelled",
                       joint->cls->name);
    } else {
        (void)snprintf(text, size, "making the %s has failed: %s",
                       joint->cls->name, umx_status_string(status));
    }
    failure.member = umx_comm_member(joint->comm, joint->rank, &failure.group);
    umx_comm_abort_for(joint->comm, &failure, text);
}

/* What the creator is told: an object that is closed while it is made is one
 * whose creation is cancelled. */
static umx_status
status_of_creation(const umx_joint *joint)
{
    return (joint->status == UMX_ERR_CLOSED) ? UMX_ERR_CANCELED : joint->status;
}

void
umi_joint_complete(umx_request **req_p, umx_status status)
{
    umx_request *req = *req_p;

    *req_p = NULL;
    if (req != NULL) {
        umx_request_complete(req, status);
    }
}

void
umi_joint_end(umx_joint *joint, umx_status status)
{
    bool was_open = joint->state == UMI_JOINT_OPEN;

    if (joint->state == UMI_JOINT_ENDED) {
        return;
    }
    umi_joint_hold(joint);
    umx_timer_stop(&joint->late);
    (void)umi_joint_learn(joint);
    set_state(joint, UMI_JOINT_ENDED);
    joint->status = status;
    if (!was_open && joint->comm != NULL && status != UMX_ERR_RANK_FAILED &&
        !joint->is_agreed) {
        give_up(joint, (status == UMX_ERR_CLOSED) ? UMX_ERR_CANCELED : status);
    }
    if (joint->cls->on_end != NULL) {
        joint->cls->on_end(joint, status, was_open);
    }
    if (joint->watch != NULL) {
        (void)umx_request_cancel(joint->watch);
    }
    umi_joint_leave(joint);
    if (joint->meeting != NULL) { /* its end finds the object ended */
        (void)umx_request_cancel(joint->meeting);
    }
    umi_joint_complete(&joint->req, status_of_creation(joint));
    umi_joint_put(joint);
}

static void
on_destroy(umx_dependent *dependent)
{
    umx_joint *joint = umi_container_of(dependent, umx_joint, dependent);

    umi_joint_hold(joint);
    umi_joint_end(joint, UMX_ERR_CLOSED);
    if (joint->cls->on_destroy != NULL) {
        joint->cls->on_destroy(joint);
    }
    joint->worker = NULL;
    umi_joint_put(joint);
}

static void
on_late(umx_timer *timer)
{
    umi_joint_end(umi_container_of(timer, umx_joint, late), UMX_ERR_TIMED_OUT);
}

static void
on_watched(umx_request *part, umx_status status, void *arg)
{
    umx_joint *joint = arg;

    (void)part;
    joint->watch = NULL;
    if (status != UMX_ERR_CANCELED && joint->state != UMI_JOINT_ENDED) {
        joint->cls->on_failed(joint, umi_joint_learn(joint));
    }
    umi_joint_put(joint);
}

umx_status
umi_joint_watch(umx_joint *joint)
{
    umx_op_params params = umx_layer_op_params(on_watched, joint);
    umx_status    status;

    if (joint->size == 1) {
        return UMX_OK;
    }
    status = umx_comm_watch(joint->comm, UMX_ANY_SOURCE, &params,
                            &joint->watch);
    if (status != UMX_INPROGRESS) {
        joint->watch = NULL;
        return status;
    }
    umi_joint_hold(joint);
    return UMX_OK;
}

/* ---- the meeting ---------------------------------------------------------
 */

static umx_status
open_or_end(umx_joint *joint, umx_status status)
{
    if (status == UMX_OK) {
        umx_timer_stop(&joint->late);
        set_state(joint, UMI_JOINT_OPEN);
    } else {
        umi_joint_end(joint, status);
    }
    return status;
}

/* The ranks have met, or have not. UMX_INPROGRESS: umi_joint_opened() follows.
 */
static umx_status
end_meeting(umx_joint *joint, umx_status status)
{
    joint->meeting = NULL;
    if (joint->state == UMI_JOINT_ENDED) {
        return status_of_creation(joint);
    }
    if (status == UMX_OK && joint->cls->on_met != NULL) {
        status = joint->cls->on_met(joint);
    }
    return (status == UMX_INPROGRESS) ? status : open_or_end(joint, status);
}

void
umi_joint_opened(umx_joint *joint, umx_status status)
{
    if (joint->state == UMI_JOINT_MEETING) {
        umi_joint_hold(joint);
        umi_joint_complete(&joint->req, open_or_end(joint, status));
        umi_joint_put(joint);
    }
}

static void
on_met(umx_request *part, umx_status status, void *arg)
{
    umx_joint *joint = arg;

    (void)part;
    status = end_meeting(joint, status);
    if (status != UMX_INPROGRESS) {
        umi_joint_complete(&joint->req, status);
    }
    umi_joint_put(joint);
}

static void
cancel_create(umx_request *req)
{
    umi_joint_end(UMX_REQUEST_OF(req, umx_joint), UMX_ERR_CANCELED);
}

static const umx_request_class create_class = {.name   = "create",
                                               .cancel = cancel_create};

static umx_status
post_meeting(umx_joint *joint, const umi_joint_offer *offer)
{
    umx_op_params params = umx_layer_op_params(on_met, joint);
    umx_status    status;

    umi_joint_hold(joint);
    status = (joint->cls->post != NULL) ?
                 joint->cls->post(joint, &params, &joint->meeting) :
                 umx_region_create(joint->comm, offer->memh, offer->record,
                                   offer->len, &params, &joint->region,
                                   &joint->meeting);
    if (status != UMX_INPROGRESS) {
        joint->meeting = NULL;
        umi_joint_put(joint);
    }
    return status;
}

static void
start_timer(umx_joint *joint, const umi_joint_offer *offer)
{
    uint64_t timeout_ns = offer->has_timeout ?
                              offer->timeout_ns :
                              umx_comm_get_timeout(joint->comm);

    if (timeout_ns != UMX_TIMEOUT_INFINITE) {
        umx_timer_start(joint->worker, &joint->late, timeout_ns);
    }
}

/* One rank has met itself; else the end of the request says what went wrong, as
 * the caller can then ask whose fault that is. */
static umx_status
meet(umx_joint *joint, const umi_joint_offer *offer, const umx_op_params *op,
     umx_request **req_p)
{
    umx_status status;

    start_timer(joint, offer);
    status = post_meeting(joint, offer);
    if (status != UMX_INPROGRESS) {
        status = end_meeting(joint, status);
        if (status == UMX_OK) {
            return status;
        }
    }
    joint->req = umx_request_create(joint->worker, &create_class, op);
    if (joint->req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    UMX_REQUEST_OF(joint->req, umx_joint) = joint;
    *req_p                                = joint->req;
    if (joint->state == UMI_JOINT_ENDED) {
        umi_joint_complete(&joint->req, status_of_creation(joint));
    }
    return UMX_INPROGRESS;
}

umx_status
umi_joint_meet(umx_joint *joint, const umi_joint_offer *offer,
               const umx_op_params *op, umx_request **req_p)
{
    umx_status status = meet(joint, offer, op, req_p);

    if (status != UMX_OK && status != UMX_INPROGRESS) {
        umi_joint_end(joint, status);
        umi_joint_put(joint);
    }
    return status;
}

umx_status
umi_joint_init(umx_joint *joint, const umi_joint_class *cls, umx_comm *comm)
{
    umx_comm_failure failure;
    umx_status       status;

    joint->cls     = cls;
    joint->worker  = umx_comm_get_worker(comm);
    joint->rank    = umx_comm_rank(comm);
    joint->size    = umx_comm_size(comm);
    joint->failure = (umx_comm_failure){
        .rank = -1, .op = "", .cause = UMX_ERR_PEER_CLOSED, .member = -1};
    joint->dependent.on_destroy = on_destroy;
    umi_shared_refs_init(&joint->refs);
    umi_node_init((umi_node *)(void *)&joint->dependent);
    umx_timer_init(&joint->late, on_late);
    status = UMX_ERR_CLOSED;
    if (joint->worker != NULL && joint->rank >= 0) {
        umx_worker_attach(joint->worker, &joint->dependent);
        status = umx_comm_derive(comm, cls->label, &joint->comm);
    }
    if (status == UMX_ERR_RANK_FAILED && umx_comm_get_failure(comm, &failure)) {
        umi_joint_keep(joint, &failure, umx_comm_reason(comm));
    }
    if (status != UMX_OK) {
        umi_joint_end(joint, status);
    }
    return status;
}

umx_status
umi_joint_create(umx_joint *joint, const umi_joint_class *cls, umx_comm *comm,
                 const umi_joint_offer *offer, const umx_op_params *op,
                 umx_request **req_p)
{
    umx_status status = umi_joint_init(joint, cls, comm);

    if (status == UMX_OK) {
        return umi_joint_meet(joint, offer, op, req_p);
    }
    umi_joint_put(joint);
    return status;
}

/* ---- public --------------------------------------------------------------
 */

umx_status
umx_joint_status(const umx_joint *joint)
{
    switch (joint->state) {
    case UMI_JOINT_MEETING:
        return UMX_INPROGRESS;
    case UMI_JOINT_OPEN:
        return (joint->worker != NULL) ? UMX_OK : UMX_ERR_CLOSED;
    default:
        return joint->status;
    }
}

bool
umx_joint_get_failure(umx_joint *joint, umx_comm_failure *failure,
                      const char **why_p)
{
    UMX_LAYER_LOCK(joint->worker);

    (void)umi_joint_learn(joint);
    *failure = joint->failure;
    *why_p   = joint->why;
    return joint->has_failed;
}

const char *
umx_joint_reason(const umx_joint *joint)
{
    bool has_failed_rank = joint->state == UMI_JOINT_ENDED &&
                           joint->status == UMX_ERR_RANK_FAILED;

    /* `why` says how the rank has failed. */
    return (joint->reason[0] == '\0' && has_failed_rank) ? joint->why :
                                                           joint->reason;
}
