/* SPDX-License-Identifier: BSD-3-Clause */
/* create.c: how a proxy is made: the ranks tell each other by the communicator
 * that they can, and where the root's worker is, and the threads meet there.
 * Until they have met, a rank that gives up revokes that communicator, which
 * the others watch. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <umx/address.h>
#include <umx/buffer.h>
#include <umx/collective.h>
#include <unistd.h>

#include "proxy/proxy.h"
#include "util/clock.h"

#define LABEL UINT64_C(0x79786f72702e) /* of the derived communicator */

enum {
    SPIN_NS = 50000,
    RECORD  = 16 /* bytes that a rank tells, and the root more */
};

/* What a rank tells the others. */
typedef struct record {
    int64_t  status;
    uint64_t len; /* of the address, which follows it */
} record;

_Static_assert(sizeof(record) == RECORD, "RECORD");

/* What is in use while the ranks tell each other. */
struct umi_proxy_meeting {
    size_t  *counts;
    uint8_t *sent;
    uint8_t  received[];
};

/* ---- parameters ----------------------------------------------------------
 */

static umx_status
read_cpus(umx_proxy *proxy, const umx_proxy_params *params)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        CPU_ZERO(&set); /* more CPUs than the set has */
    } else if (CPU_COUNT(&set) == 1) {
        proxy->spin_ns = 0;
    }
    proxy->cpu = -1;
    if (params != NULL && (params->field_mask & UMX_PROXY_FIELD_CPU) != 0) {
        if (params->cpu >= CPU_SETSIZE || !CPU_ISSET(params->cpu, &set)) {
            return UMX_ERR_OUT_OF_RANGE;
        }
        proxy->cpu = (int)params->cpu;
    }
    return UMX_OK;
}

static umx_status
read_params(umx_proxy *proxy, const umx_proxy_params *params)
{
    umx_status status;

    proxy->spin_ns    = SPIN_NS;
    proxy->timeout_ns = umx_comm_get_timeout(proxy->joint.comm);
    status            = read_cpus(proxy, params);
    if (params != NULL && (params->field_mask & UMX_PROXY_FIELD_SPIN) != 0) {
        proxy->spin_ns = params->spin_ns;
    }
    if (params != NULL && (params->field_mask & UMX_PROXY_FIELD_TIMEOUT) != 0) {
        proxy->timeout_ns = params->timeout_ns;
    }
    return status;
}

static umx_proxy *
new_proxy(void)
{
    umx_proxy *proxy = calloc(1, sizeof(*proxy));

    if (proxy == NULL) {
        return NULL;
    }
    proxy->made_in   = umi_proxy_forks;
    proxy->calls_end = &proxy->calls;
    proxy->done_end  = &proxy->done;
    proxy->errand.fn = umi_proxy_run_errand;
    (void)pthread_mutex_init(&proxy->lock, NULL);
    (void)pthread_mutex_init(&proxy->busy, NULL);
    umi_list_init(&proxy->tasks);
    umi_list_init(&proxy->waits);
    umi_node_init(&proxy->process_node);
    proxy->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return proxy;
}

/* ---- the meeting ---------------------------------------------------------
 */

static void
free_meeting(umx_proxy *proxy)
{
    umi_proxy_meeting *meeting = proxy->meeting;

    proxy->meeting = NULL;
    if (meeting != NULL) {
        free(meeting->counts);
        free(meeting->sent);
        free(meeting);
    }
}

/* Make what this rank tells the others; false: out of memory. */
static bool
make_meeting(umx_proxy *proxy, umx_status own, const void *address, size_t len)
{
    size_t             size    = (size_t)proxy->joint.size;
    umi_proxy_meeting *meeting = calloc(1, sizeof(*meeting) + size * RECORD +
                                               UMX_ADDRESS_MAX);
    record             one     = {.status = own, .len = len};

    proxy->meeting = meeting;
    if (meeting == NULL) {
        return false;
    }
    meeting->counts = calloc(size, sizeof(*meeting->counts));
    meeting->sent   = calloc(1, RECORD + UMX_ADDRESS_MAX);
    if (meeting->counts == NULL || meeting->sent == NULL) {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        meeting->counts[i] = RECORD + ((i == 0) ? UMX_ADDRESS_MAX : 0);
    }
    memcpy(meeting->sent, &one, sizeof(one));
    if (len != 0) {
        memcpy(meeting->sent + RECORD, address, len);
    }
    return true;
}

/* Tell the others, and hear of them. */
static umx_status
post(umx_joint *joint, const umx_op_params *op, umx_request **req_p)
{
    umx_proxy         *proxy   = umi_container_of(joint, umx_proxy, joint);
    umi_proxy_meeting *meeting = proxy->meeting;
    umx_buffer         sent, received;
    umx_pieces         pieces = {.counts = meeting->counts};

    sent     = umx_host_buffer(meeting->sent, meeting->counts[joint->rank]);
    received = umx_host_buffer(meeting->received,
                               (size_t)joint->size * RECORD + UMX_ADDRESS_MAX);
    return umx_allgatherv(joint->comm, &sent, &received, &pieces, op, req_p);
}

/* The ranks have told each other. All find the same one that cannot. */
static umx_status
read_records(umx_proxy *proxy)
{
    const uint8_t *at = proxy->meeting->received;
    record         one;

    for (int rank = 0; rank < proxy->joint.size; rank++) {
        memcpy(&one, at, sizeof(one));
        if (one.status != UMX_OK) {
            return umi_joint_refuse(
                &proxy->joint, (umx_status)one.status, "rank %d: %s", rank,
                (one.status == UMX_ERR_OUT_OF_RANGE) ?
                    "its process may not run on the CPU that was given" :
                    umx_status_string((umx_status)one.status));
        }
        if (rank == 0) {
            if (one.len > UMX_ADDRESS_MAX) {
                return UMX_ERR_PROTOCOL;
            }
            proxy->root = malloc(one.len + 1);
            if (proxy->root == NULL) {
                return UMX_ERR_NO_MEMORY;
            }
            memcpy(proxy->root, at + sizeof(one), one.len);
            proxy->root_len = one.len;
        }
        at += proxy->meeting->counts[rank];
    }
    return UMX_OK;
}

/* Start the thread, which meets those of the others, and looks at the time from
 * now on. */
static umx_status
start(umx_proxy *proxy)
{
    umi_proxy_task *task = umi_proxy_task_new(proxy, NULL, NULL, NULL);
    umx_status      status;

    if (task == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    task->is_of_home = true;
    umi_list_append(&proxy->tasks, &task->home);
    proxy->creation = task;
    status          = umi_proxy_start_thread(proxy);
    if (status != UMX_OK) {
        proxy->creation = NULL;
        umi_proxy_task_free(task);
        return status;
    }
    umx_timer_stop(&proxy->joint.late);
    status = umi_joint_watch(&proxy->joint);
    return (status == UMX_OK) ? UMX_INPROGRESS : status;
}

static umx_status
on_met(umx_joint *joint)
{
    umx_proxy *proxy  = umi_container_of(joint, umx_proxy, joint);
    umx_status status = read_records(proxy);

    free_meeting(proxy);
    return (status == UMX_OK) ? start(proxy) : status;
}

void
umi_proxy_created(umx_proxy *proxy, umx_status status)
{
    umx_joint       *joint = &proxy->joint;
    umx_comm_failure failure;

    proxy->creation = NULL;
    if (status != UMX_OK && joint->comm != NULL &&
        umx_comm_get_failure(joint->comm, &failure)) {
        status = UMX_ERR_RANK_FAILED;
    } else if (status != UMX_OK && joint->reason[0] == '\0') {
        (void)snprintf(joint->reason, sizeof(joint->reason), "%s",
                       proxy->reason);
    }
    umi_joint_opened(joint, status);
    if (joint->state == UMI_JOINT_OPEN) {
        umi_joint_leave(joint);
    }
}

/* ---- the end -------------------------------------------------------------
 */

/* Another rank has given up, or has ended. */
static void
on_failed(umx_joint *joint, bool has_failed)
{
    if (has_failed && joint->state == UMI_JOINT_MEETING) {
        umi_proxy_give_up(umi_container_of(joint, umx_proxy, joint));
    }
}

static void
on_end(umx_joint *joint, umx_status status, bool was_open)
{
    umx_proxy *proxy = umi_container_of(joint, umx_proxy, joint);

    (void)status;
    if (proxy->has_thread && !was_open) {
        umi_proxy_give_up(proxy);
    } else if (!proxy->has_thread && proxy->worker != NULL) {
        umx_worker_destroy(proxy->worker);
        proxy->worker = NULL;
    }
}

static void
free_proxy(umx_joint *joint)
{
    umx_proxy *proxy = umi_container_of(joint, umx_proxy, joint);

    free_meeting(proxy);
    (void)pthread_mutex_destroy(&proxy->lock);
    (void)pthread_mutex_destroy(&proxy->busy);
    if (proxy->wake_fd >= 0) {
        (void)close(proxy->wake_fd);
    }
    free(proxy->rings);
    free(proxy->root);
    free(proxy);
}

static const umi_joint_class proxy_class = {
    .name       = "proxy",
    .label      = LABEL,
    .post       = post,
    .on_met     = on_met,
    .on_end     = on_end,
    .on_failed  = on_failed,
    .on_destroy = umi_proxy_on_home_destroy,
    .free       = free_proxy};

/* ---- public --------------------------------------------------------------
 */

/* What this rank can do, which the others are told. */
static umx_status
prepare(umx_proxy *proxy, const umx_proxy_params *params,
        const void **address_p, size_t *len_p)
{
    umx_worker *home   = proxy->joint.worker;
    umx_status  status = read_params(proxy, params);
    uint64_t    now    = umi_clock_ns();

    proxy->deadline_ns = (proxy->timeout_ns < UINT64_MAX - now) ?
                             now + proxy->timeout_ns :
                             UINT64_MAX;
    if (status == UMX_OK && proxy->wake_fd < 0) {
        status = UMX_ERR_NO_RESOURCE;
    }
    if (status == UMX_OK) {
        status = umx_worker_create(umx_worker_get_context(home),
                                   &proxy->worker);
    }
    if (status == UMX_OK && proxy->joint.rank == 0) {
        status = umx_worker_get_address(proxy->worker, address_p, len_p);
    }
    return status;
}

static umx_status
set_up(umx_proxy *proxy, umx_comm *comm, const umx_proxy_params *params)
{
    const void *address = NULL;
    size_t      len     = 0;
    umx_status  status = umi_joint_init(&proxy->joint, &proxy_class, comm), own;

    if (status != UMX_OK) {
        return status;
    }
    own = prepare(proxy, params, &address, &len);
    return make_meeting(proxy, own, address, len) ? UMX_OK : UMX_ERR_NO_MEMORY;
}

umx_status
umx_proxy_create(umx_comm *comm, const umx_proxy_params *params,
                 const umx_op_params *op, umx_proxy **proxy_p,
                 umx_request **req_p)
{
    umx_worker *home = umx_comm_get_worker(comm);
    UMX_LAYER_LOCK(home);
    umi_joint_offer offer = {.has_timeout = true};
    umx_proxy      *proxy;
    umx_status      status;

    if (home == NULL || umx_comm_rank(comm) < 0) {
        return UMX_ERR_CLOSED;
    }
    proxy = new_proxy();
    if (proxy == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = set_up(proxy, comm, params);
    if (status == UMX_OK) {
        umi_proxy_hold(proxy); /* it may have a thread when that fails */
        offer.timeout_ns = proxy->timeout_ns;
        status           = umi_joint_meet(&proxy->joint, &offer, op, req_p);
        if (status == UMX_OK || status == UMX_INPROGRESS) {
            umi_proxy_put(proxy);
            *proxy_p = proxy;
            return status;
        }
    }
    umx_proxy_destroy(proxy);
    return status;
}
