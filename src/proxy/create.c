/* SPDX-License-Identifier: BSD-3-Clause */
/* create.c: how a proxy is made: the ranks tell each other by the communicator
 * that they can, and where the root's worker is, and the threads meet there.
 * Until they have met, a rank that gives up revokes that communicator, and the
 * others hear of it by a receive that ends. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <umx/address.h>
#include <umx/buffer.h>
#include <umx/collective.h>

#include "proxy/proxy.h"
#include "util/clock.h"

#define LABEL UINT64_C(0x79786f72702e) /* of the derived communicator */

enum {
    SPIN_NS   = 50000,
    TIMEOUT_S = 60,
    RECORD    = 16, /* bytes that a rank tells, and the root more */
    SECOND_NS = 1000000000
};

/* What a rank tells the others. */
typedef struct record {
    int64_t  status;
    uint64_t len; /* of the address, which follows it */
} record;

_Static_assert(sizeof(record) == RECORD, "RECORD");

/* What is in use while the ranks tell each other, and until the receive ends.
 */
typedef struct meeting {
    umx_proxy *proxy;   /* held */
    uint64_t   nothing; /* what the receive would get */
    size_t    *counts;
    uint8_t   *sent;
    uint8_t    received[];
} meeting;

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
    proxy->timeout_ns = TIMEOUT_S * (uint64_t)SECOND_NS;
    status            = read_cpus(proxy, params);
    if (params != NULL && (params->field_mask & UMX_PROXY_FIELD_SPIN) != 0) {
        proxy->spin_ns = params->spin_ns;
    }
    if (params != NULL && (params->field_mask & UMX_PROXY_FIELD_TIMEOUT) != 0) {
        proxy->timeout_ns = params->timeout_ns;
    }
    return status;
}

/* Not all ranks have come: those that have hear of it. Once there is a thread
 * it looks at the time. */
static void
on_late(umx_timer *timer)
{
    umx_proxy      *proxy    = umi_container_of(timer, umx_proxy, late);
    umi_proxy_task *creation = proxy->creation;

    if (creation == NULL || creation->req == NULL || proxy->has_thread) {
        return;
    }
    (void)snprintf(proxy->reason, sizeof(proxy->reason),
                   "not all ranks have begun to make a proxy");
    umi_proxy_complete(creation, UMX_ERR_TIMED_OUT);
    umx_comm_abort(proxy->exchange, "not all ranks have begun to make a proxy "
                                    "in the time that a rank has for it");
}

static umx_proxy *
new_proxy(umx_comm *comm, umx_worker *home)
{
    umx_proxy *proxy = calloc(1, sizeof(*proxy));

    if (proxy == NULL) {
        return NULL;
    }
    atomic_init(&proxy->refs, 1);
    proxy->home                 = home;
    proxy->rank                 = umx_comm_rank(comm);
    proxy->size                 = umx_comm_size(comm);
    proxy->made_in              = umi_proxy_forks;
    proxy->calls_end            = &proxy->calls;
    proxy->done_end             = &proxy->done;
    proxy->errand.fn            = umi_proxy_run_errand;
    proxy->dependent.on_destroy = umi_proxy_on_home_destroy;
    (void)pthread_mutex_init(&proxy->lock, NULL);
    (void)pthread_mutex_init(&proxy->busy, NULL);
    umi_list_init(&proxy->tasks);
    umi_list_init(&proxy->waits);
    umi_node_init(&proxy->process_node);
    umx_timer_init(&proxy->late, on_late);
    proxy->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    umx_worker_attach(home, &proxy->dependent);
    return proxy;
}

/* ---- its end -------------------------------------------------------------
 */

static void
leave_exchange(umx_proxy *proxy)
{
    umx_comm *exchange = proxy->exchange;

    proxy->exchange = NULL;
    if (exchange != NULL) {
        umx_comm_close(exchange);
        umx_comm_destroy(exchange);
    }
}

void
umi_proxy_end_creation(umx_proxy *proxy, umx_status status)
{
    umi_proxy_task *creation = proxy->creation;

    proxy->creation = NULL;
    umx_timer_stop(&proxy->late);
    leave_exchange(proxy);
    if (proxy->worker != NULL) {
        umx_worker_destroy(proxy->worker);
        proxy->worker = NULL;
    }
    if (creation != NULL) {
        umi_proxy_complete(creation, status);
        umi_proxy_task_free(creation);
    }
}

umx_status
umi_proxy_created(umx_proxy *proxy, umx_status status)
{
    umx_comm_failure failure;

    proxy->creation = NULL;
    umx_timer_stop(&proxy->late);
    if (status != UMX_OK && proxy->exchange != NULL) {
        if (umx_comm_get_failure(proxy->exchange, &failure)) {
            status = UMX_ERR_RANK_FAILED;
            (void)snprintf(proxy->reason, sizeof(proxy->reason), "%s",
                           umx_comm_reason(proxy->exchange));
        } else {
            umx_comm_abort(proxy->exchange, proxy->reason);
        }
    }
    leave_exchange(proxy);
    proxy->is_open = status == UMX_OK;
    return status;
}

/* ---- the meeting ---------------------------------------------------------
 */

/* End the creation with what went wrong here, or at another rank. */
static void
fail(umx_proxy *proxy, umx_status status, int rank)
{
    const char      *why = (status == UMX_ERR_OUT_OF_RANGE) ?
                               "its process may not run on the CPU that was given" :
                               umx_status_string(status);
    umx_comm_failure failure;

    if (status == UMX_ERR_RANK_FAILED &&
        umx_comm_get_failure(proxy->exchange, &failure)) {
        (void)snprintf(proxy->reason, sizeof(proxy->reason), "%s",
                       umx_comm_reason(proxy->exchange));
    } else {
        (void)snprintf(proxy->reason, sizeof(proxy->reason), "rank %d: %s",
                       rank, why);
    }
    umi_proxy_end_creation(proxy, status);
}

/* The ranks have told each other. Returns the rank that cannot, or -1. */
static int
read_records(umx_proxy *proxy, const meeting *self, umx_status *status_p)
{
    const uint8_t *at = self->received;
    record         one;

    for (int rank = 0; rank < proxy->size; rank++) {
        memcpy(&one, at, sizeof(one));
        if (one.status != UMX_OK) {
            *status_p = (umx_status)one.status;
            return rank;
        }
        if (rank == 0) {
            if (one.len > UMX_ADDRESS_MAX) {
                *status_p = UMX_ERR_PROTOCOL;
                return 0;
            }
            proxy->root = malloc(one.len + 1);
            if (proxy->root == NULL) {
                *status_p = UMX_ERR_NO_MEMORY;
                return proxy->rank;
            }
            memcpy(proxy->root, at + sizeof(one), one.len);
            proxy->root_len = one.len;
        }
        at += self->counts[rank];
    }
    return -1;
}

static void
free_meeting(meeting *self)
{
    umx_proxy *proxy = self->proxy;

    free(self->counts);
    free(self->sent);
    free(self);
    umi_proxy_put(proxy);
}

/* End the thread; umi_proxy_created() says why. */
static void
give_up(umx_proxy *proxy)
{
    atomic_store(&proxy->is_abort, true);
    umi_proxy_kick(proxy);
}

static void
on_watched(umx_request *req, umx_status status, void *arg)
{
    meeting         *self  = arg;
    umx_proxy       *proxy = self->proxy;
    umx_comm_failure failure;

    (void)req;
    (void)status;
    if (proxy->creation != NULL && proxy->exchange != NULL &&
        umx_comm_get_failure(proxy->exchange, &failure)) {
        give_up(proxy);
    }
    free_meeting(self);
}

/* Hear of it if another rank gives up. */
static void
watch(umx_proxy *proxy, meeting *self)
{
    umx_op_params   op  = umx_layer_op_params(on_watched, self);
    umx_buffer      buf = umx_host_buffer(&self->nothing, sizeof(uint64_t));
    umx_comm_status got;
    umx_request    *req;
    umx_status      status = UMX_ERR_NO_ELEM;

    if (proxy->size > 1) {
        status = umx_comm_irecv(proxy->exchange, UMX_ANY_SOURCE, 0, UINT64_MAX,
                                &buf, &op, &req, &got);
    }
    if (status != UMX_INPROGRESS) {
        on_watched(NULL, status, self);
    }
}

static void
on_met(umx_request *req, umx_status status, void *arg)
{
    meeting   *self  = arg;
    umx_proxy *proxy = self->proxy;
    int        rank  = proxy->rank;

    (void)req;
    if (proxy->creation != NULL && proxy->creation->req == NULL) {
        umi_proxy_end_creation(proxy, UMX_ERR_CANCELED);
    }
    if (proxy->creation != NULL) {
        if (status == UMX_OK) {
            rank = read_records(proxy, self, &status);
        }
        if (status == UMX_OK) {
            status = umi_proxy_start_thread(proxy);
            rank   = proxy->rank;
        }
        if (status == UMX_OK) {
            watch(proxy, self);
            return;
        }
        umx_comm_abort(proxy->exchange, umx_status_string(status));
        fail(proxy, status, rank);
    }
    free_meeting(self);
}

static meeting *
new_meeting(umx_proxy *proxy, umx_status own, const void *address, size_t len)
{
    size_t   size = (size_t)proxy->size;
    meeting *self = calloc(1, sizeof(*self) + size * RECORD + UMX_ADDRESS_MAX);
    record   one  = {.status = own, .len = len};

    if (self == NULL) {
        return NULL;
    }
    self->counts = calloc(size, sizeof(*self->counts));
    self->sent   = calloc(1, RECORD + UMX_ADDRESS_MAX);
    if (self->counts == NULL || self->sent == NULL) {
        free(self->counts);
        free(self->sent);
        free(self);
        return NULL;
    }
    for (size_t i = 0; i < size; i++) {
        self->counts[i] = RECORD + ((i == 0) ? UMX_ADDRESS_MAX : 0);
    }
    memcpy(self->sent, &one, sizeof(one));
    if (len != 0) {
        memcpy(self->sent + RECORD, address, len);
    }
    self->proxy = proxy;
    umi_proxy_hold(proxy);
    return self;
}

/* Tell the others, and hear of them. */
static umx_status
meet(umx_proxy *proxy, umx_status own, const void *address, size_t len)
{
    meeting      *self = new_meeting(proxy, own, address, len);
    umx_op_params op   = umx_layer_op_params(on_met, self);
    umx_buffer    sent, received;
    umx_pieces    pieces;
    umx_request  *req;
    umx_status    status;

    if (self == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    sent     = umx_host_buffer(self->sent, self->counts[proxy->rank]);
    received = umx_host_buffer(self->received,
                               (size_t)proxy->size * RECORD + UMX_ADDRESS_MAX);
    pieces   = (umx_pieces){.counts = self->counts};
    status   = umx_allgatherv(proxy->exchange, &sent, &received, &pieces, &op,
                              &req);
    if (status == UMX_OK) {
        on_met(NULL, UMX_OK, self);
    } else if (status != UMX_INPROGRESS) {
        free_meeting(self);
    }
    return (status == UMX_OK) ? UMX_INPROGRESS : status;
}

/* ---- public --------------------------------------------------------------
 */

static void
cancel(umx_request *req)
{
    umi_proxy_task *task  = *(umi_proxy_task **)umx_request_state(req);
    umx_proxy      *proxy = task->proxy;

    umi_proxy_complete(task, UMX_ERR_CANCELED);
    if (proxy->exchange != NULL) {
        umx_comm_abort(proxy->exchange,
                       "a rank has cancelled the making of a proxy");
    }
    if (proxy->has_thread) {
        give_up(proxy);
    }
}

static const umx_request_class create_class = {.name   = "create",
                                               .cancel = cancel};

/* What this rank can do, which the others are told. */
static umx_status
prepare(umx_proxy *proxy, const umx_proxy_params *params,
        const void **address_p, size_t *len_p)
{
    umx_status status = read_params(proxy, params);
    uint64_t   now    = umi_clock_ns();

    proxy->deadline_ns = UINT64_MAX;
    if (proxy->timeout_ns < UINT64_MAX - now) {
        proxy->deadline_ns = now + proxy->timeout_ns;
        umx_timer_start(proxy->home, &proxy->late, proxy->timeout_ns);
    }

    if (status == UMX_OK && proxy->wake_fd < 0) {
        status = UMX_ERR_NO_RESOURCE;
    }
    if (status == UMX_OK) {
        status = umx_worker_create(umx_worker_get_context(proxy->home),
                                   &proxy->worker);
    }
    if (status == UMX_OK && proxy->rank == 0) {
        status = umx_worker_get_address(proxy->worker, address_p, len_p);
    }
    return status;
}

umx_status
umx_proxy_create(umx_comm *comm, const umx_proxy_params *params,
                 const umx_op_params *op, umx_proxy **proxy_p,
                 umx_request **req_p)
{
    umx_worker *home = umx_comm_get_worker(comm);
    UMX_LAYER_LOCK(home);
    const void  *address = NULL;
    size_t       len     = 0;
    umx_request *req     = NULL;
    umx_proxy   *proxy;
    umx_status   status, own;

    if (home == NULL) {
        return UMX_ERR_CLOSED;
    }
    proxy = new_proxy(comm, home);
    if (proxy == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = umx_comm_derive(comm, LABEL, &proxy->exchange);
    if (status == UMX_OK) {
        proxy->creation = umi_proxy_task_new(proxy, NULL, &create_class, op);
        status = (proxy->creation == NULL) ? UMX_ERR_NO_MEMORY : UMX_OK;
    }
    if (status == UMX_OK) {
        req    = proxy->creation->req;
        own    = prepare(proxy, params, &address, &len);
        status = meet(proxy, own, address, len);
    }
    if (status == UMX_ERR_RANK_FAILED && req != NULL) {
        fail(proxy, status, proxy->rank); /* it has a reason */
    } else if (status != UMX_INPROGRESS) {
        if (proxy->creation != NULL) {
            umx_request_discard(proxy->creation->req);
            proxy->creation->req = NULL;
        }
        umi_proxy_end_creation(proxy, status);
        umx_proxy_destroy(proxy);
        return status;
    }
    *proxy_p = proxy;
    *req_p   = req;
    return UMX_INPROGRESS;
}
