/* SPDX-License-Identifier: BSD-3-Clause */
/* bootstrap.c: how the processes of a group meet.
 *
 *   root                                 each other process
 *   listens                              connects, again until somebody listens
 *                     <---- HELLO ----   rank, size, name, worker address
 *   has it all?       --- PENDING --->   who is missing, for its own error
 *   yes               ---- TABLE ---->   its rank, all addresses: made
 *   no, for a reason  --- REFUSE ---->   the reason: failed
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <umx/observe.h>

#include "comm/bootstrap.h"
#include "comm/communicator.h"
#include "comm/describe.h"
#include "comm/dispatch.h"
#include "comm/group.h"
#include "comm/member.h"
#include "util/hash.h"
#include "util/log.h"

#define MILLISECOND_NS UINT64_C(1000000)
#define SECOND_NS UINT64_C(1000000000)

enum {
    RETRY_MIN_MS     = 5,
    MIN_HEARTBEAT_MS = 10,
    GRACE_MS         = 500, /* the root says more than the others know */
    LATE_MS          = 2000,
    MAX_LATE_MS      = 60000
};

/* ---- the end -------------------------------------------------------------
 */

/* Free what the group has not taken over: the endpoints that it has are NULL
 * here. */
static void
free_bootstrap(umi_comm_bootstrap *bootstrap)
{
    umx_comm *comm = bootstrap->comm;

    bootstrap->group->bootstrap = NULL;
    umx_timer_stop(&bootstrap->timer);
    umx_timer_stop(&bootstrap->retry);
    umi_comm_bootstrap_leave_door(bootstrap);
    umi_comm_bootstrap_free_guests(bootstrap);
    if (bootstrap->ep != NULL) {
        umx_layer_ep_set_on_state(bootstrap->ep, NULL, NULL);
        umx_ep_destroy(bootstrap->ep);
    }
    free(bootstrap->root);
    free(bootstrap);
    umi_comm_put(comm);
}

void
umi_comm_bootstrap_end(umi_comm_bootstrap *bootstrap, umx_status status)
{
    umx_request *req = bootstrap->req;

    bootstrap->req = NULL;
    free_bootstrap(bootstrap);
    if (req != NULL) {
        umx_request_complete(req, status);
    }
}

umx_ep *
umi_comm_bootstrap_take_back(umi_comm_member *member)
{
    umx_ep *ep = member->out;

    member->out    = NULL;
    member->mine   = NULL;
    member->theirs = NULL;
    return ep;
}

void __attribute__((format(printf, 3, 4)))
umi_comm_bootstrap_fail(umi_comm_bootstrap *bootstrap, umx_status status,
                        const char *format, ...)
{
    char    text[UMI_COMM_REASON_MAX];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    umi_comm_bootstrap_refuse_guests(bootstrap, status, text);
    umi_comm_revoke(bootstrap->comm, -1, status, true, "%s", text);
    umi_comm_bootstrap_end(bootstrap, status);
}

void
umi_comm_bootstrap_cancel(umi_comm_group *group, umx_status status)
{
    umi_comm_bootstrap_fail(group->bootstrap, status,
                            "the communicator was given up by rank %d",
                            group->rank);
}

/* ---- what the root and the others need -----------------------------------
 */

void
umi_comm_bootstrap_name_ranks(char *text, size_t size, const uint32_t *ranks,
                              unsigned count, unsigned total)
{
    size_t used = 0;

    text[0] = '\0';
    for (unsigned i = 0; i < count && used + 24 < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%u",
                                 (i == 0) ? "" : ", ", ranks[i]);
    }
    if (count < total) {
        (void)snprintf(text + used, size - used, " and others");
    }
}

bool
umi_comm_bootstrap_has_name(const umi_comm_bootstrap *bootstrap,
                            const umi_comm_text      *name)
{
    return strlen(bootstrap->comm->name) == name->len &&
           memcmp(bootstrap->comm->name, name->data, name->len) == 0;
}

umx_status
umi_comm_bootstrap_make_world(umi_comm_bootstrap *bootstrap)
{
    umi_comm_group   *group = bootstrap->group;
    umi_comm_member **all   = malloc((size_t)group->size * sizeof(*all));

    if (all == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    for (int i = 0; i < group->size; i++) {
        all[i] = &group->members[i];
    }
    umi_comm_set_ranks(bootstrap->comm, group->id, group->rank, group->size,
                       all);
    free(all);
    umi_comm_group_start(group);
    umi_comm_register(bootstrap->comm);
    umx_observe_rank(group->dispatch->worker, umx_comm_name(bootstrap->comm),
                     group->rank, group->size);
    return UMX_OK;
}

/* ---- the beginning -------------------------------------------------------
 */

static void
on_timeout(umx_timer *timer)
{
    umi_comm_bootstrap *bootstrap = umi_container_of(timer, umi_comm_bootstrap,
                                                     timer);
    double   seconds = (double)bootstrap->timeout_ns / (double)SECOND_NS;
    uint32_t ranks[UMI_COMM_PENDING_MAX];
    unsigned count;

    if (umi_comm_bootstrap_is_root(bootstrap)) {
        count = umi_comm_bootstrap_find_missing(bootstrap, ranks,
                                                UMI_COMM_PENDING_MAX);
        umi_comm_bootstrap_name_ranks(bootstrap->missing,
                                      sizeof(bootstrap->missing), ranks, count,
                                      count);
        umi_comm_bootstrap_fail(bootstrap, UMX_ERR_TIMED_OUT,
                                "%d of %d ranks have come within %g s; not: %s",
                                bootstrap->num_guests + 1,
                                bootstrap->group->size, seconds,
                                bootstrap->missing);
    } else if (bootstrap->missing[0] != '\0') {
        umi_comm_bootstrap_fail(
            bootstrap, UMX_ERR_TIMED_OUT,
            "not all of %d ranks have come within %g s; not: %s",
            bootstrap->group->size, seconds, bootstrap->missing);
    } else {
        umi_comm_bootstrap_fail(
            bootstrap, UMX_ERR_TIMED_OUT,
            "the root, rank 0, has not answered within %g s%s%s", seconds,
            (bootstrap->last_error[0] != '\0') ? ": " : "",
            bootstrap->last_error);
    }
}

/* The root waits: say for whom, each time after twice as long. Other ranks use
 * this timer to connect again. */
static void
on_late(umx_timer *timer)
{
    umi_comm_bootstrap *bootstrap = umi_container_of(timer, umi_comm_bootstrap,
                                                     retry);

    if (umi_log_is_on(UMI_LOG_INFO)) {
        umi_comm_log_missing(bootstrap);
    }
    if (bootstrap->retry_ms < MAX_LATE_MS) {
        bootstrap->retry_ms *= 2;
    }
    umx_timer_start(bootstrap->group->dispatch->worker, timer,
                    bootstrap->retry_ms * MILLISECOND_NS);
}

static void
cancel_create(umx_request *req)
{
    umi_comm_bootstrap *bootstrap = UMX_REQUEST_OF(req, umi_comm_bootstrap);

    if (bootstrap != NULL) {
        umi_comm_bootstrap_cancel(bootstrap->group, UMX_ERR_CANCELED);
    }
}

static const umx_request_class create_class = {
    .name   = "comm_create",
    .cancel = cancel_create,
};

static umx_status
listen_or_connect(umi_comm_bootstrap *bootstrap, const umx_comm_params *params)
{
    if (umi_comm_bootstrap_is_root(bootstrap)) {
        return umi_comm_bootstrap_listen(bootstrap, params);
    }
    if (params->addr != NULL) {
        memcpy(&bootstrap->addr, params->addr, params->addr_len);
        bootstrap->addr_len = params->addr_len;
    } else {
        bootstrap->root = malloc(params->root_len);
        if (bootstrap->root == NULL) {
            return UMX_ERR_NO_MEMORY;
        }
        memcpy(bootstrap->root, params->root, params->root_len);
        bootstrap->root_len = params->root_len;
    }
    return umi_comm_bootstrap_connect(bootstrap);
}

static umx_status
begin(umx_comm *comm, const umx_comm_params *params, const umx_op_params *op,
      umx_request **req_p)
{
    umi_comm_group     *group     = comm->group;
    umx_worker         *worker    = group->dispatch->worker;
    umi_comm_bootstrap *bootstrap = calloc(1, sizeof(*bootstrap));
    umx_status          status;

    if (bootstrap == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    bootstrap->group = group;
    bootstrap->comm  = comm;
    umi_comm_hold(comm);
    umi_list_init(&bootstrap->guests);
    umx_timer_init(&bootstrap->timer, on_timeout);
    umx_timer_init(&bootstrap->retry, umi_comm_bootstrap_on_retry);
    bootstrap->retry_ms   = RETRY_MIN_MS;
    bootstrap->timeout_ns = (params->field_mask & UMX_COMM_FIELD_TIMEOUT) ?
                                params->timeout_ns :
                                60 * SECOND_NS;
    group->bootstrap      = bootstrap;
    group->timeout_ns     = bootstrap->timeout_ns;
    bootstrap->req        = umx_request_create(worker, &create_class, op);
    status                = (bootstrap->req == NULL) ? UMX_ERR_NO_MEMORY :
                                                       listen_or_connect(bootstrap, params);
    if (status != UMX_OK) {
        if (bootstrap->req != NULL) {
            umx_request_discard(bootstrap->req);
        }
        free_bootstrap(bootstrap);
        return status;
    }
    UMX_REQUEST_OF(bootstrap->req, umi_comm_bootstrap) = bootstrap;
    *req_p                                             = bootstrap->req;
    if (bootstrap->timeout_ns != UMX_TIMEOUT_INFINITE) {
        umx_timer_start(worker, &bootstrap->timer,
                        bootstrap->timeout_ns +
                            (umi_comm_bootstrap_is_root(bootstrap) ?
                                 0 :
                                 GRACE_MS * MILLISECOND_NS));
    }
    if (umi_comm_bootstrap_is_root(bootstrap)) {
        bootstrap->retry_ms = LATE_MS;
        umx_timer_init(&bootstrap->retry, on_late);
        umx_timer_start(worker, &bootstrap->retry,
                        bootstrap->retry_ms * MILLISECOND_NS);
    }
    umi_comm_dispatch_adopt(group->dispatch); /* HELLOs that came before */
    return UMX_INPROGRESS;
}

static umx_status
check_params(const umx_comm_params *params)
{
    size_t      len;
    const char *why;

    if (params->size < 1 || params->size > UMX_COMM_SIZE_MAX ||
        params->rank < UMX_RANK_ANY || params->rank >= params->size) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    if ((params->field_mask & UMX_COMM_FIELD_NAME) &&
        (params->name == NULL || strlen(params->name) > UMX_COMM_NAME_MAX)) {
        return UMX_ERR_INVALID_PARAM;
    }
    if (params->size == 1) {
        return UMX_OK;
    }
    if (params->addr != NULL) {
        return (params->addr_len <= sizeof(struct sockaddr_storage)) ?
                   UMX_OK :
                   UMX_ERR_INVALID_PARAM;
    }
    if (params->rank == 0) {
        return UMX_OK;
    }
    return (params->root == NULL) ?
               UMX_ERR_INVALID_PARAM :
               umx_address_check(params->root, params->root_len, &len, &why);
}

static umx_status
begin_alone(umx_comm *comm)
{
    umi_comm_bootstrap bootstrap = {.group = comm->group, .comm = comm};

    comm->group->rank = 0;
    return umi_random_bytes(&comm->group->id, sizeof(comm->group->id)) ?
               umi_comm_bootstrap_make_world(&bootstrap) :
               UMX_ERR_IO_ERROR;
}

umx_status
umx_comm_create(umx_worker *worker, const umx_comm_params *params,
                const umx_op_params *op, umx_comm **comm_p, umx_request **req_p)
{
    UMX_LAYER_LOCK(worker);
    umx_status         status = check_params(params);
    umi_comm_dispatch *dispatch;
    umi_comm_group    *group;
    umx_comm          *comm = NULL;

    if (status != UMX_OK) {
        return status;
    }
    if (!umx_worker_is_owner(worker)) {
        return UMX_ERR_WRONG_THREAD;
    }
    dispatch = umi_comm_dispatch_get(worker);
    if (dispatch == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    group = umi_comm_group_new(dispatch, params->rank, params->size);
    if (group != NULL) {
        group->heartbeat_ns = (params->field_mask & UMX_COMM_FIELD_HEARTBEAT) ?
                                  params->heartbeat_ns :
                                  UMX_KEEPALIVE_NS;
        if (group->heartbeat_ns != 0 &&
            group->heartbeat_ns < MIN_HEARTBEAT_MS * MILLISECOND_NS) {
            group->heartbeat_ns = MIN_HEARTBEAT_MS * MILLISECOND_NS;
        }
        comm = umi_comm_new(group, (params->field_mask & UMX_COMM_FIELD_NAME) ?
                                       params->name :
                                       "");
        umi_comm_group_put(group);
    }
    umi_comm_dispatch_put(dispatch);
    if (comm == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = (params->size == 1) ? begin_alone(comm) :
                                   begin(comm, params, op, req_p);
    if (status < 0) {
        umi_comm_put(comm);
        return status;
    }
    *comm_p = comm;
    return status;
}

int
umx_comm_num_arrived(const umx_comm *comm)
{
    UMI_COMM_LOCK(comm);
    const umi_comm_bootstrap *bootstrap = comm->group->bootstrap;

    if (comm->ranks != NULL) {
        return comm->size;
    }
    return (bootstrap != NULL && umi_comm_bootstrap_is_root(bootstrap)) ?
               bootstrap->num_guests + 1 :
               1;
}
