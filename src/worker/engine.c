/* SPDX-License-Identifier: BSD-3-Clause */
#include "worker/engine.h"

#include <errno.h>
#include <stdlib.h>

#include "host/descriptors.h"
#include "host/segment_limit.h"
#include "host/status.h"
#include "host/unsent.h"
#include "util/log.h"
#include "worker/kinds_of_peers.h"
#include "worker/worker.h"

/* Worker's descriptor is an epoll set that UCX's event fd is in, so that one
 * descriptor wakes the owner for UCX and for sockets of ours. */
static umx_status
watch_fd(umi_engine *engine)
{
    struct epoll_event event = {.events = EPOLLIN};
    umx_status         status;

    status = (umx_status)ucp_worker_get_efd(engine->ucp, &engine->fd);
    if (status == UMX_OK && epoll_ctl(engine->worker->watches.fd, EPOLL_CTL_ADD,
                                      engine->fd, &event) != 0) {
        status = umi_status_from_errno(errno);
    }
    return status;
}

/* Make UCX's worker. */
static umx_status
create_ucp(umi_engine *engine)
{
    ucp_worker_params_t params = {
        .field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED, /* umx_worker_adopt() */
    };
    umx_status status;

    engine->ucx = umi_context_take_ucx(engine->worker->context);
    status      = (umx_status)ucp_worker_create(engine->ucx->handle, &params,
                                                &engine->ucp);
    if (status != UMX_OK) {
        umi_context_put_ucx(engine->ucx);
    }
    return status;
}

/* Make UCX's worker. It opens all devices that UCX's context has: where one has
 * lost its address since, or its link, a new context is without it. */
static umx_status
create_ucp_anew(umi_engine *engine)
{
    umx_context *context = engine->worker->context;
    umi_ucx     *ucx     = umi_context_take_ucx(context);
    umx_status   status  = create_ucp(engine);

    if (status == UMX_ERR_NO_DEVICE &&
        umi_context_renew(context, ucx) == UMX_OK) {
        status = create_ucp(engine);
    }
    umi_context_put_ucx(ucx);
    return status;
}

umx_status
umi_engine_create(umx_worker *worker, umi_engine **engine_p)
{
    umi_engine *engine;
    umx_status  status;

    /* UCX aborts the process where it finds none. */
    if (!umi_descriptors_are_left(umi_descriptors_of_engine())) {
        return UMX_ERR_DESCRIPTOR_LIMIT;
    }
    if (!umi_port_range_has_free(&worker->context->ports)) {
        return UMX_ERR_PORT_LIMIT;
    }
    engine = calloc(1, sizeof(*engine));
    if (engine == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    engine->worker = worker;
    umi_node_init(&engine->node);
    umi_list_init(&engine->configurations);
    status = create_ucp_anew(engine);
    if ((status == UMX_ERR_NO_MEMORY || status == UMX_ERR_NO_RESOURCE) &&
        umi_segments_are_used_up()) {
        status = UMX_ERR_SEGMENT_LIMIT; /* UCX's sysv transport gets none */
    }
    if (status != UMX_OK) {
        goto free_engine;
    }
    status = watch_fd(engine);
    if (status != UMX_OK) {
        goto destroy_ucp;
    }
    *engine_p = engine;
    return UMX_OK;

destroy_ucp:
    ucp_worker_destroy(engine->ucp);
    umi_context_put_ucx(engine->ucx);
free_engine:
    free(engine);
    return status;
}

/* ---- what UCX counts -----------------------------------------------------
 */

/* How many endpoints have been made to one worker. The table finds it by the
 * lower half of the worker's uuid, which several may share. */
typedef struct count {
    struct count *next;
    uint64_t      uuid;
    uint64_t      made;
} count;

static count *
find_count(const umi_engine *engine, uint64_t uuid)
{
    count *each = umi_table_get(&engine->counts, (uint32_t)uuid);

    while (each != NULL && each->uuid != uuid) {
        each = each->next;
    }
    return each;
}

static count *
add_count(umi_engine *engine, uint64_t uuid)
{
    count *first = umi_table_get(&engine->counts, (uint32_t)uuid);
    count *added = calloc(1, sizeof(*added));

    if (added == NULL) {
        return NULL;
    }
    added->uuid = uuid;
    if (first != NULL) {
        added->next = first->next;
        first->next = added;
    } else if (!umi_table_add(&engine->counts, (uint32_t)uuid, added)) {
        free(added);
        return NULL;
    }
    return added;
}

/* Free the counts of one place of the table. */
static void
free_counts(void *first)
{
    count *each = first;

    while (each != NULL) {
        count *next = each->next;

        free(each);
        each = next;
    }
}

uint64_t
umi_engine_counted(const umi_engine *engine, uint64_t uuid)
{
    const count *found = find_count(engine, uuid);

    return (found != NULL) ? found->made : 0;
}

uint64_t
umi_engine_count(umi_engine *engine, uint64_t uuid)
{
    count *found = find_count(engine, uuid);

    if (found == NULL) {
        found = add_count(engine, uuid);
    }
    return (found != NULL) ? ++found->made : 0;
}

/* ---- sockets of tcp ------------------------------------------------------
 */

bool
umi_engine_has_sent(const umi_engine *engine)
{
    return umi_unsent_is_none(engine->fd);
}

void
umi_engine_tune(umi_engine *engine, bool is_new)
{
    enum {
        TUNE_MS = 50
    };
    uint64_t now   = umi_ticks();
    uint64_t pause = umi_ticks_from_ns(TUNE_MS * UINT64_C(1000000));

    if (is_new || engine->tuned == 0 || now - engine->tuned > pause) {
        engine->tuned = now | 1;
        umi_unsent_limit(engine->fd);
    }
}

void
umi_engine_keep_alive(umi_engine *engine, uint64_t keepalive_ns)
{
    bool is_longer = keepalive_ns == 0 || keepalive_ns > engine->keepalive_ns;

    if (!engine->is_unlimited && is_longer) {
        engine->is_unlimited = keepalive_ns == 0;
        engine->keepalive_ns = keepalive_ns;
    }
    umi_unsent_keep_alive(engine->fd, engine->keepalive_ns);
}

/* ---- life ----------------------------------------------------------------
 */

void
umi_engine_fini(umi_engine *engine)
{
    struct epoll_event event = {0}; /* not NULL: Linux before 2.6.9 */

    if (engine->ucp == NULL) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        if (engine->addresses[i] != NULL) {
            ucp_worker_release_address(engine->ucp, engine->addresses[i]);
        }
    }
    if (engine->worker->watches.fd >= 0) {
        (void)epoll_ctl(engine->worker->watches.fd, EPOLL_CTL_DEL, engine->fd,
                        &event);
    }
    ucp_worker_destroy(engine->ucp);
    engine->ucp = NULL;
    umi_context_put_ucx(engine->ucx);
}

void
umi_engine_destroy(umi_engine *engine)
{
    umi_node_remove(&engine->node);
    umi_engine_fini(engine);
    umi_table_each(&engine->counts, free_counts);
    umi_table_fini(&engine->counts);
    umi_configurations_free(&engine->configurations);
    free(engine->probe);
    free(engine);
}

void
umi_engine_release(umi_engine *engine)
{
    umx_worker *worker = engine->worker;

    if (--engine->refs == 0 && engine != worker->engine) {
        worker->has_events = true;
        worker->is_armed   = false;
    }
}

static void
on_closed(void *request, ucs_status_t status, void *arg)
{
    umi_engine *engine = arg;

    (void)status;
    ucp_request_free(request);
    engine->worker->closes_in_ucx--;
    umi_engine_release(engine);
}

void
umi_engine_close(umi_engine *engine, ucp_ep_h handle)
{
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags     = UCP_EP_CLOSE_FLAG_FORCE,
        .cb.send   = on_closed,
        .user_data = engine,
    };
    ucs_status_ptr_t request;

    engine->worker->is_armed = false;
    request                  = ucp_ep_close_nbx(handle, &params);
    if (UCS_PTR_IS_PTR(request)) {
        engine->worker->closes_in_ucx++;
        umi_engine_hold(engine);
    } else if (UCS_PTR_IS_ERR(request)) {
        umi_log(UMI_LOG_DEBUG, "closing UCX's endpoint: %s",
                umx_status_string((umx_status)UCS_PTR_STATUS(request)));
    }
}

umx_status
umi_engine_address(umi_engine *engine, bool is_local, const void **address_p,
                   size_t *len_p)
{
    ucp_worker_attr_t attr = {
        .field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS |
                      UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
        .address_flags = is_local ? 0 : UCP_WORKER_ADDRESS_FLAG_NET_ONLY};

    if (engine->addresses[is_local] == NULL) {
        umx_status status = (umx_status)ucp_worker_query(engine->ucp, &attr);

        if (status != UMX_OK) {
            return status;
        }
        engine->addresses[is_local]    = attr.address;
        engine->address_lens[is_local] = attr.address_length;
    }
    *address_p = engine->addresses[is_local];
    *len_p     = engine->address_lens[is_local];
    return UMX_OK;
}

void
umi_engine_add(umi_engine *engine)
{
    umi_list_append(&engine->worker->other_engines, &engine->node);
    engine->worker->has_other_engines = true;
    engine->worker->is_armed          = false;
}

void
umi_engine_use(umi_engine *engine)
{
    umx_worker *worker = engine->worker;

    if (worker->engine != NULL) {
        umi_engine_add(worker->engine);
    }
    worker->engine = engine;
    pthread_mutex_lock(&worker->signal_lock);
    worker->ucp = engine->ucp;
    pthread_mutex_unlock(&worker->signal_lock);
    worker->is_armed   = false;
    worker->has_events = true; /* umi_engines_collect() */
}

unsigned
umi_engines_progress(umx_worker *worker)
{
    unsigned events = 0;

    UMI_LIST_FOREACH(node, &worker->other_engines) {
        umi_engine *engine = umi_container_of(node, umi_engine, node);

        events += ucp_worker_progress(engine->ucp);
    }
    /* Messages with UCX's tags may be among them, which nobody looks for there:
     * hooks->on_arrivals. */
    if (events != 0) {
        worker->has_events = true;
    }
    return events;
}

void
umi_engines_collect(umx_worker *worker)
{
    UMI_LIST_FOREACH_SAFE(node, &worker->other_engines) {
        umi_engine *engine = umi_container_of(node, umi_engine, node);

        if (engine->refs == 0) {
            umi_engine_destroy(engine);
        }
    }
    worker->has_other_engines = !umi_list_is_empty(&worker->other_engines);
}
