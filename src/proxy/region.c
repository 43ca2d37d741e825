/* SPDX-License-Identifier: BSD-3-Clause */
/* region.c: the memory that commands reach. */
#include "proxy/proxy.h"

#include <stdio.h>
#include <stdlib.h>

static void
free_entry(umi_proxy_entry *entry)
{
    if (entry->region != NULL) {
        umx_region_destroy(entry->region);
    }
    if (entry->memh != NULL) {
        umx_memh_put(entry->memh);
    }
    if (entry->source != NULL) {
        umx_memh_put(entry->source);
    }
    free(entry->targets);
    free(entry);
}

void
umi_proxy_free_entries(umx_proxy *proxy)
{
    for (int i = 0; i < UMX_PROXY_REGIONS_MAX; i++) {
        if (proxy->entries[i] != NULL) {
            free_entry(proxy->entries[i]);
            proxy->entries[i] = NULL;
        }
    }
}

/* ---- adding one ----------------------------------------------------------
 */

static void
put_memories(const umi_proxy_task *task)
{
    if (task->memh != NULL) {
        umx_memh_put(task->memh);
    }
    if (task->source != NULL) {
        umx_memh_put(task->source);
    }
}

/* Keep it for the home, which asks the proxy's communicator nothing. */
static void
note_failure(umx_proxy *proxy, const umx_comm_failure *failure, const char *why)
{
    (void)pthread_mutex_lock(&proxy->lock);
    if (!proxy->has_failure) {
        proxy->has_failure = true;
        proxy->failure     = *failure;
        (void)snprintf(proxy->why, sizeof(proxy->why), "%s", why);
    }
    (void)pthread_mutex_unlock(&proxy->lock);
}

static void
note_left(umx_proxy *proxy, int rank)
{
    umx_comm_failure failure = {
        .rank = rank, .op = "", .cause = UMX_ERR_PEER_CLOSED, .member = -1};
    char why[64];

    (void)snprintf(why, sizeof(why), "rank %d has left the proxy", rank);
    note_failure(proxy, &failure, why);
}

/* A rank has failed, or has left, as the region says or the communicator. */
static void
note_failed(umx_proxy *proxy, const umx_region *region)
{
    umx_comm_failure failure;
    const char      *why;

    if (region != NULL && umx_region_get_failure(region, &failure, &why)) {
        note_failure(proxy, &failure, why);
    } else if (umx_comm_get_failure(proxy->comm, &failure)) {
        note_failure(proxy, &failure, umx_comm_reason(proxy->comm));
    }
}

static umx_status
find_targets(umx_proxy *proxy, umi_proxy_entry *entry)
{
    umx_status status;

    for (int rank = 0; rank < proxy->joint.size; rank++) {
        umi_proxy_target *target = &entry->targets[rank];

        target->rkey = umx_region_rkey(entry->region, rank);
        if (target->rkey != NULL) {
            status = umx_comm_get_ep(proxy->comm, rank, &target->ep);
            if (status != UMX_OK) {
                note_failed(proxy, NULL);
                note_left(proxy, rank);
                return status;
            }
        }
    }
    return UMX_OK;
}

/* All ranks have told each other, or have not. */
static void
end_add(umi_proxy_task *task, umi_proxy_entry *entry, umx_status status)
{
    umx_proxy *proxy = task->proxy;

    if (status == UMX_OK) {
        status = find_targets(proxy, entry);
    } else if (status == UMX_ERR_RANK_FAILED) {
        note_failed(proxy, entry->region);
    }
    if (status == UMX_OK) {
        proxy->entries[task->number] = entry;
        __atomic_store_n(&proxy->stats.regions, proxy->stats.regions + 1,
                         __ATOMIC_RELAXED);
    } else {
        free_entry(entry);
    }
    umi_proxy_end_task(task, status);
}

typedef struct adding {
    umi_proxy_task  *task;
    umi_proxy_entry *entry;
} adding;

static void
on_region(umx_request *req, umx_status status, void *arg)
{
    adding self = *(adding *)arg;

    (void)req;
    free(arg);
    end_add(self.task, self.entry, status);
}

static umi_proxy_entry *
new_entry(const umx_proxy *proxy, const umi_proxy_task *task)
{
    umi_proxy_entry *entry = calloc(1, sizeof(*entry));

    if (entry == NULL) {
        return NULL;
    }
    entry->targets = calloc((size_t)proxy->joint.size, sizeof(*entry->targets));
    if (entry->targets == NULL) {
        free(entry);
        return NULL;
    }
    entry->memh   = task->memh;
    entry->source = task->source;
    return entry;
}

static void
add(umi_proxy_task *task, umx_status status)
{
    umx_proxy       *proxy = task->proxy;
    umi_proxy_entry *entry = NULL;
    adding          *self  = NULL;
    umx_op_params    op;
    umx_request     *req;

    if (status == UMX_OK) {
        entry  = new_entry(proxy, task);
        self   = malloc(sizeof(*self));
        status = (entry == NULL || self == NULL) ? UMX_ERR_NO_MEMORY : UMX_OK;
    }
    if (status != UMX_OK) {
        if (entry != NULL) {
            free(entry->targets);
            free(entry);
        }
        free(self);
        put_memories(task);
        umi_proxy_end_task(task, status);
        return;
    }
    *self  = (adding){.task = task, .entry = entry};
    op     = umx_layer_op_params(on_region, self);
    status = umx_region_create(proxy->comm, task->memh, NULL, 0, &op,
                               &entry->region, &req);
    if (status != UMX_INPROGRESS) {
        on_region(NULL, status, self);
    }
}

/* The request ends, and the region is made for the other ranks. */
static void
cancel(umx_request *req)
{
    umi_joint_complete(&UMX_REQUEST_OF(req, umi_proxy_task)->req,
                       UMX_ERR_CANCELED);
}

static const umx_request_class add_class = {.name   = "add_region",
                                            .cancel = cancel};

umx_status
umx_proxy_add_region(umx_proxy *proxy, umx_memh *memh, umx_memh *source,
                     const umx_op_params *op, unsigned *number_p,
                     umx_request **req_p)
{
    UMX_LAYER_LOCK(umi_proxy_is_forked(proxy) ? NULL : proxy->joint.worker);
    umx_status      status = umi_proxy_check(proxy);
    umi_proxy_task *task;
    umx_request    *req;

    if (status != UMX_OK) {
        return status;
    }
    if (proxy->num_numbers == UMX_PROXY_REGIONS_MAX) {
        return UMX_ERR_EXCEEDS_LIMIT;
    }
    task = umi_proxy_task_new(proxy, add, &add_class, op);
    if (task == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    task->memh   = memh;
    task->source = (source == NULL) ? memh : source;
    task->number = proxy->num_numbers;
    if (memh != NULL) {
        umx_memh_hold(memh);
    }
    if (task->source != NULL) {
        umx_memh_hold(task->source);
    }
    req    = task->req;
    status = umi_proxy_post(task);
    if (status != UMX_OK) {
        put_memories(task);
        umi_proxy_task_free(task);
        return status;
    }
    *number_p = proxy->num_numbers++;
    *req_p    = req;
    return UMX_INPROGRESS;
}
