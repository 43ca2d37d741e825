/* SPDX-License-Identifier: BSD-3-Clause */
#include "ops/queue.h"

#include <stdlib.h>
#include <string.h>

#include "ops/am.h"
#include "ops/engines.h"
#include "util/hash.h"
#include "util/log.h"
#include "worker/link.h"

/* Silence is counted in turns that have been waited for, so that a pause of our
 * own does not count. Senders may have to wait for a core, all of them. */
enum {
    TURN_MS       = 100,
    LONGEST_TURNS = 20
};

static const char reason[] =
    "a process that was killed blocks the queue in shared memory";

struct umi_queue_probe {
    umi_engine *engine; /* whose queue it is; held while `handle` is open */
    ucp_ep_h    handle; /* to this engine itself; NULL: not open */
    uint64_t    number; /* in the message: random, so that no peer knows it */
    bool        has_arrived;
    bool        is_waited_for; /* by connections that begin */
    unsigned    turns;         /* that the message has taken so far */
    bool        is_needed;     /* another end has followed */
    bool        is_off;        /* the engine has no shared memory */
};

/* Tell the endpoints that may wait for the answer. `gone` is an engine whose
 * queue is blocked, or NULL. */
static void
tell_waiting(umx_worker *worker, const umi_engine *gone)
{
    UMI_LIST_FOREACH_SAFE(node, &worker->eps) {
        umi_ep_base *ep = umi_container_of(node, umi_ep_base, node);

        if (ep->link != NULL) {
            continue;
        }
        if (ep->engine == gone) {
            worker->hooks->tell_ep(ep, UMI_NEWS_RENEWED, reason);
        } else {
            worker->hooks->tell_ep(ep, UMI_NEWS_MOVES, NULL);
        }
    }
}

/* ---- the message ---------------------------------------------------------
 */

static void
hear(umi_engine *engine, const umi_am_arrival *arrival)
{
    umi_queue_probe *probe = engine->probe;

    if (probe == NULL || arrival->header_len != sizeof(probe->number) ||
        memcmp(arrival->header, &probe->number, sizeof(probe->number)) != 0) {
        return;
    }
    probe->has_arrived = true;
    if (probe->is_waited_for) {
        probe->is_waited_for = false;
        tell_waiting(engine->worker, NULL);
    }
}

/* Peers can send messages of this kind, too: they must neither hide that the
 * queue is blocked nor make it look so. */
static int
on_arrival(umx_worker *worker, const umi_am_arrival *arrival)
{
    hear(worker->engine, arrival);
    UMI_LIST_FOREACH(node, &worker->other_engines) {
        hear(umi_container_of(node, umi_engine, node), arrival);
    }
    return umi_am_is_at_hand(arrival) ? UMI_AM_CONSUMED : UMI_AM_REFUSED;
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

/* Make an endpoint of UCX from the engine to itself, like the endpoints of
 * links, so that the probe's message takes the way of other messages. False:
 * this way is not shared memory, or UCX cannot make the endpoint. */
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
    umi_engine *engine    = probe->engine;
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
    umi_engine_hold(engine);
    (void)!umi_transport_each(probe->handle, note_transport, &is_shared);
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
    probe->number                   = *number;
    probe->has_arrived              = false;
    params.user_data                = number;
    probe->engine->worker->is_armed = false;
    request = ucp_am_send_nbx(probe->handle, UMI_AM_PROBE, number,
                              sizeof(*number), NULL, 0, &params);
    if (!UCS_PTR_IS_PTR(request)) {
        free(number);
    }
    return !UCS_PTR_IS_ERR(request);
}

/* ---- without the queue ---------------------------------------------------
 */

/* End what needs the queue of `engine`. */
static void
abandon(umi_engine *engine)
{
    umx_worker *worker = engine->worker;

    UMI_LIST_FOREACH_SAFE(node, &worker->links) {
        umi_link *link = umi_container_of(node, umi_link, node);

        if (link->engine == engine && link->has_shm) {
            umi_link_fail(link, reason);
        }
    }
    tell_waiting(worker, engine);
}

/* ---- turns ---------------------------------------------------------------
 */

static void
start_turn(umx_worker *worker)
{
    if (!umi_node_is_linked(&worker->queue_timer.node)) {
        umi_timer_start(worker, &worker->queue_timer,
                        TURN_MS * UINT64_C(1000000));
    }
}

/* Begin a probe of UCX's queues. False: no probe is under way; the next end of
 * a connection asks again. */
static bool
begin(umi_queue_probe *probe)
{
    probe->is_needed = false;
    probe->turns     = 0;
    if (open_handle(probe) && send_message(probe)) {
        return true;
    }
    close_handle(probe);
    return false;
}

/* The worker's own engine is replaced by another. One beside it is not: it gets
 * no more connections. */
static bool
give_up(umi_queue_probe *probe)
{
    umi_engine *engine = probe->engine;
    umx_worker *worker = engine->worker;
    bool        is_own = (engine == worker->engine);
    umx_status  status = is_own ? umi_ops_engines_renew(worker) : UMX_OK;

    if (status != UMX_OK) {
        umi_log(UMI_LOG_ERROR, "%s, and there cannot be another: %s", reason,
                umx_status_string(status));
        probe->turns = 0; /* once more after the same time */
        return true;
    }
    umi_log(UMI_LOG_INFO, "%s: the worker goes on with another", reason);
    engine->is_full = true;
    abandon(engine);
    close_handle(probe);
    return false;
}

/* Take one step of the probe. True: another turn is needed. */
static bool
take_turn(umi_engine *engine)
{
    umi_queue_probe *probe = engine->probe;

    if (probe == NULL) {
        return false;
    }
    if (probe->handle == NULL) {
        return probe->is_needed && begin(probe);
    }
    if (probe->has_arrived) {
        close_handle(probe);
        return probe->is_needed && begin(probe);
    }
    return ++probe->turns < LONGEST_TURNS || give_up(probe);
}

static void
on_turn(umi_timer *timer)
{
    umx_worker *worker  = umi_container_of(timer, umx_worker, queue_timer);
    bool        goes_on = false;

    UMI_LIST_FOREACH_SAFE(node, &worker->other_engines) {
        goes_on |= take_turn(umi_container_of(node, umi_engine, node));
    }
    goes_on |= take_turn(worker->engine);
    if (goes_on) {
        start_turn(worker);
    }
}

void
umi_queue_doubt(umi_engine *engine)
{
    umx_worker *worker = engine->worker;

    if (worker->is_ending || worker->queue_timer.fn == NULL) {
        return;
    }
    if (engine->probe == NULL) {
        engine->probe = calloc(1, sizeof(*engine->probe));
    }
    if (engine->probe == NULL || engine->probe->is_off) {
        return;
    }
    engine->probe->engine    = engine;
    engine->probe->is_needed = true;
    start_turn(worker); /* many may end together */
}

bool
umi_queue_is_in_doubt(umi_engine *engine)
{
    umi_queue_probe *probe = engine->probe;

    UMI_ASSERT_OUTSIDE_UCX(engine->worker);
    if (probe == NULL || engine->worker->is_ending) {
        return false;
    }
    if (probe->is_needed && (probe->handle == NULL || probe->has_arrived)) {
        close_handle(probe); /* somebody waits: begin before the next turn */
        if (begin(probe)) {
            start_turn(engine->worker);
        }
    }
    if (probe->handle == NULL || probe->has_arrived) {
        return false;
    }
    probe->is_waited_for = true;
    return true;
}

umx_status
umi_queue_init(umx_worker *worker)
{
    umi_timer_init(&worker->queue_timer, on_turn);
    return umi_am_set_handler(worker, UMI_AM_PROBE, on_arrival);
}

static void
stop(umi_engine *engine)
{
    if (engine->probe != NULL) {
        close_handle(engine->probe);
    }
}

void
umi_queue_fini(umx_worker *worker)
{
    if (worker->queue_timer.fn == NULL) {
        return;
    }
    umi_timer_stop(&worker->queue_timer);
    stop(worker->engine);
    UMI_LIST_FOREACH(node, &worker->other_engines) {
        stop(umi_container_of(node, umi_engine, node));
    }
}
