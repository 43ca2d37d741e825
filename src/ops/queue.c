/* SPDX-License-Identifier: BSD-3-Clause */
#include "ops/queue.h"

#include <stdlib.h>
#include <string.h>

#include "core/link.h"
#include "ops/am.h"
#include "ops/tag.h"
#include "util/hash.h"
#include "util/log.h"

/* Silence is counted in turns that have been waited for, so that a pause of our
 * own does not count. Senders may have to wait for a core, all of them. */
enum {
    TURN_MS       = 100,
    LONGEST_TURNS = 20
};

static const char reason[] =
    "a process that was killed blocks the queue in shared memory";

struct umi_queue_probe {
    umx_worker *worker;
    umi_engine *engine; /* held while `handle` is open */
    ucp_ep_h    handle; /* to this worker itself; NULL: not open */
    uint64_t    number; /* in the message: random, so that no peer knows it */
    bool        has_arrived;
    unsigned    turns;     /* that the message has taken so far */
    bool        is_needed; /* another end has followed */
    bool        is_off;    /* this worker has no shared memory */
};

/* ---- the message ---------------------------------------------------------
 */

/* Peers can send messages of this kind, too: they must neither hide that the
 * queue is blocked nor make it look so. */
static int
on_arrival(umx_worker *worker, const umi_am_arrival *arrival)
{
    umi_queue_probe *probe = worker->queue_probe;

    if (probe != NULL && arrival->header_len == sizeof(probe->number) &&
        memcmp(arrival->header, &probe->number, sizeof(probe->number)) == 0) {
        probe->has_arrived = true;
    }
    return arrival->is_rndv ? UMI_AM_REFUSED : UMI_AM_CONSUMED;
}

static void
on_error(void *arg, ucp_ep_h handle, ucs_status_t status)
{
    (void)arg;
    (void)handle;
    (void)status;
}

static void
on_sent(void *request, ucs_status_t status, void *arg)
{
    (void)status;
    free(arg);
    ucp_request_free(request);
}

static void
note_transport(const char *transport, const char *device, void *arg)
{
    bool *is_shared = arg;

    (void)device;
    if (umi_transport_is_shm(transport)) {
        *is_shared = true;
    }
}

static void
close_handle(umi_queue_probe *probe)
{
    if (probe->handle == NULL) {
        return;
    }
    umi_engine_close(probe->engine, probe->handle);
    probe->handle = NULL;
    umi_engine_release(probe->engine);
}

/* Make an endpoint as links have, so that the probe takes the way that messages
 * take. False if that is not shared memory, or UCX cannot. */
static bool
open_handle(umi_queue_probe *probe)
{
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_error},
    };
    umi_engine *engine    = probe->worker->engine;
    bool        is_shared = false;
    const void *address;
    size_t      len;

    if (umi_engine_address(engine, true, &address, &len) != UMX_OK) {
        return false;
    }
    params.address = address;
    if (ucp_ep_create(engine->ucp, &params, &probe->handle) != UCS_OK) {
        probe->handle = NULL;
        return false;
    }
    probe->engine = engine;
    umi_engine_hold(engine);
    (void)!umi_transports(probe->handle, note_transport, &is_shared);
    if (!is_shared) {
        probe->is_off = true;
        close_handle(probe);
    }
    return is_shared;
}

/* Send the probe's message. False: there is no memory for it, or there are no
 * random bytes. */
static bool
send_message(umi_queue_probe *probe)
{
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags   = UCP_AM_SEND_FLAG_EAGER,
        .cb.send = on_sent,
    };
    uint64_t        *number = malloc(sizeof(*number));
    ucs_status_ptr_t request;

    if (number == NULL || !umi_random_bytes(number, sizeof(*number))) {
        free(number);
        return false;
    }
    probe->number           = *number;
    probe->has_arrived      = false;
    params.user_data        = number;
    probe->worker->is_armed = false;
    request = ucp_am_send_nbx(probe->handle, UMI_AM_PROBE, number,
                              sizeof(*number), NULL, 0, &params);
    if (!UCS_PTR_IS_PTR(request)) {
        free(number);
    }
    return !UCS_PTR_IS_ERR(request);
}

/* ---- another engine ------------------------------------------------------
 */

static umx_status
renew(umx_worker *worker)
{
    umi_engine *old = worker->engine;
    umi_engine *engine;
    umx_status  status = umi_engine_create(worker, &engine);

    if (status != UMX_OK) {
        return status;
    }
    status = umi_am_copy_handlers(engine);
    if (status != UMX_OK) {
        umi_engine_destroy(engine);
        return status;
    }
    umi_engine_use(engine);
    worker->stats.renewals++;
    UMI_LIST_FOREACH_SAFE(node, &worker->links) {
        umi_link *link = umi_container_of(node, umi_link, node);

        if (link->engine == old && link->has_shm) {
            umi_link_fail(link, reason);
        }
    }
    UMI_LIST_FOREACH_SAFE(node, &worker->eps) {
        umi_ep_base *ep = umi_container_of(node, umi_ep_base, node);

        if (ep->engine == old && ep->link == NULL) {
            worker->hooks->on_renewed(ep, reason);
        }
    }
    umi_tag_move(worker, old);
    return UMX_OK;
}

/* ---- turns ---------------------------------------------------------------
 */

static void
start_turn(umi_queue_probe *probe)
{
    umi_timer_start(probe->worker, &probe->worker->queue_timer,
                    TURN_MS * UINT64_C(1000000));
}

/* Stop the probe; the next end of a connection asks again. */
static void
stop(umi_queue_probe *probe)
{
    umi_timer_stop(&probe->worker->queue_timer);
    close_handle(probe);
}

static void
begin(umi_queue_probe *probe)
{
    probe->is_needed = false;
    probe->turns     = 0;
    if (open_handle(probe) && send_message(probe)) {
        start_turn(probe);
    } else {
        stop(probe);
    }
}

static void
give_up(umi_queue_probe *probe)
{
    umx_status status = renew(probe->worker);

    if (status == UMX_OK) {
        umi_log(UMI_LOG_INFO, "%s: the worker goes on with another", reason);
        stop(probe);
    } else {
        umi_log(UMI_LOG_ERROR, "%s, and there cannot be another: %s", reason,
                umx_status_string(status));
        probe->turns = 0; /* once more after the same time */
        start_turn(probe);
    }
}

static void
on_turn(umi_timer *timer)
{
    umx_worker      *worker = umi_container_of(timer, umx_worker, queue_timer);
    umi_queue_probe *probe  = worker->queue_probe;

    if (probe->handle == NULL) {
        begin(probe);
    } else if (probe->has_arrived) {
        close_handle(probe);
        if (probe->is_needed) {
            begin(probe);
        }
    } else if (++probe->turns < LONGEST_TURNS) {
        start_turn(probe);
    } else {
        give_up(probe);
    }
}

void
umi_queue_doubt(umx_worker *worker)
{
    umi_queue_probe *probe = worker->queue_probe;

    if (probe == NULL || probe->is_off || worker->is_ending) {
        return;
    }
    probe->is_needed = true;
    if (!umi_node_is_linked(&worker->queue_timer.node)) {
        start_turn(probe); /* many may end together */
    }
}

umx_status
umi_queue_init(umx_worker *worker)
{
    umi_queue_probe *probe = calloc(1, sizeof(*probe));
    umx_status       status;

    if (probe == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    status = umi_am_set_handler(worker, UMI_AM_PROBE, on_arrival);
    if (status != UMX_OK) {
        free(probe);
        return status;
    }
    probe->worker = worker;
    umi_timer_init(&worker->queue_timer, on_turn);
    worker->queue_probe = probe;
    return UMX_OK;
}

void
umi_queue_fini(umx_worker *worker)
{
    umi_queue_probe *probe = worker->queue_probe;

    if (probe != NULL) {
        stop(probe);
        worker->queue_probe = NULL;
        free(probe);
    }
}
