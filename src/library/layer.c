/* SPDX-License-Identifier: BSD-3-Clause */
/* layer.c: umx/layer.h, and what its users need of other headers. Libraries
 * above see sizes and functions here, and nothing of what lies behind them. */
#include <umx/layer.h>
#include <umx/rma.h>

#include <stdlib.h>
#include <string.h>

#include "channel/am.h"
#include "channel/tagged.h"
#include "codec/address.h"
#include "endpoint/addressed.h"
#include "keys/memh.h"
#include "mem/memtype.h"
#include "util/count.h"
#include "worker/observe.h"
#include "worker/request.h"
#include "worker/worker.h"

/* ---- requests ------------------------------------------------------------
 */

typedef struct umi_layer_op {
    const umx_request_class *cls;
    _Alignas(8) unsigned char state[UMX_REQUEST_STATE_SIZE];
} umi_layer_op;

UMI_REQUEST_TAIL(umi_layer_op, layer_op_of);

static void
cancel(umx_request *req)
{
    const umx_request_class *cls = layer_op_of(req)->cls;

    if (cls->cancel != NULL) {
        cls->cancel(req);
    }
}

static void
cancel_complete(umx_request *req)
{
    const umx_request_class *cls = layer_op_of(req)->cls;

    if (cls->cancel_complete != NULL) {
        req->status = cls->cancel_complete(req, req->status);
    }
}

static const umi_request_ops layer_ops = {
    .name            = "layer",
    .cancel          = cancel,
    .cancel_complete = cancel_complete,
};

umx_request *
umx_request_create(umx_worker *worker, const umx_request_class *cls,
                   const umx_op_params *params)
{
    UMI_GUARD(worker);
    umx_request *req = umi_request_new(worker, NULL, &layer_ops, params);

    if (req != NULL) {
        memset(layer_op_of(req), 0, sizeof(umi_layer_op));
        memset(&req->info, 0, sizeof(req->info));
        layer_op_of(req)->cls = cls;
        if (UMI_IS_OBSERVED()) {
            umx_request_describe(req, cls->name, 0, 0, -1);
        }
    }
    return req;
}

void *
umx_request_state(const umx_request *req)
{
    return layer_op_of(req)->state;
}

bool
umx_request_is_cancelled(const umx_request *req)
{
    return req->is_cancelled;
}

bool
umx_request_is_abandoned(const umx_request *req)
{
    return req->is_abandoned;
}

bool
umx_request_is_over(const umx_request *req)
{
    return req->status != UMX_INPROGRESS || req->is_done ||
           umi_request_is_detached(req);
}

void
umx_request_set_buffer(umx_request *req, const umx_buffer *buf)
{
    umi_request_hold_buffer(req, buf);
}

const umx_buffer *
umx_request_buffer(const umx_request *req)
{
    return &req->buf;
}

umx_worker *
umx_request_worker(const umx_request *req)
{
    return req->worker;
}

void
umx_request_complete(umx_request *req, umx_status status)
{
    UMI_GUARD(req->worker);
    umi_request_complete(req, status);
}

void
umx_request_lose(umx_request *req, umx_status status)
{
    UMI_GUARD(req->worker);
    umi_request_lose(req, status);
}

void
umx_request_discard(umx_request *req)
{
    UMI_GUARD(req->worker);
    umi_request_free(req);
}

/* ---- giving buffers back -------------------------------------------------
 */

bool
umx_request_was_sent(const umx_request *req)
{
    return umi_send_of(req)->is_sent;
}

umx_status
umx_request_move(umx_request *req, bool is_forced, void **data_p)
{
    UMI_GUARD(req->worker);
    umi_spare *copy;
    umx_status status = umi_recv_move(req, is_forced, &copy);

    if (status == UMX_OK) {
        *data_p = copy->bytes;
    }
    return status;
}

umx_status
umx_request_drop(umx_request *req)
{
    UMI_GUARD(req->worker);
    return umi_recv_drop(req);
}

bool
umx_request_is_withdrawn(const umx_request *req)
{
    return umi_landing_of(req)->is_withdrawn;
}

void *
umx_copy_new(umx_worker *worker, size_t len)
{
    UMI_GUARD(worker);
    umi_spare *copy;

    return (umi_spare_new(worker, len, true, &copy) == UMX_OK) ? copy->bytes :
                                                                 NULL;
}

void
umx_copy_free(umx_worker *worker, void *data)
{
    umi_spare *copy = umi_container_of(data, umi_spare, bytes);

    if (worker == NULL) {
        free(copy);
    } else {
        umi_spare_free(copy);
    }
}

/* ---- timers --------------------------------------------------------------
 */

_Static_assert(sizeof(umx_timer) == sizeof(umi_timer) &&
                   offsetof(umx_timer, deadline_ns) ==
                       offsetof(umi_timer, deadline_ns) &&
                   offsetof(umx_timer, fn) == offsetof(umi_timer, fn),
               "umx_timer is umi_timer, without its types");

static umi_timer *
timer_of(umx_timer *timer)
{
    return (umi_timer *)(void *)timer;
}

void
umx_timer_init(umx_timer *timer, void (*fn)(umx_timer *timer))
{
    umi_timer_init(timer_of(timer), (umi_timer_fn)fn);
}

void
umx_timer_start(umx_worker *worker, umx_timer *timer, uint64_t timeout_ns)
{
    UMI_GUARD(worker);
    umi_timer_start(worker, timer_of(timer), timeout_ns);
}

void
umx_timer_stop(umx_timer *timer)
{
    umi_timer_stop(timer_of(timer));
}

/* ---- the progress thread -------------------------------------------------
 */

_Static_assert(UMX_OP_FLAG_LAYER == UMI_OP_FLAG_INTERNAL, "one flag");

umx_guard *
umx_worker_lock(umx_worker *worker)
{
    return (worker != NULL) ? umi_guard_enter(worker->guard) : NULL;
}

void
umx_worker_unlock(umx_guard *guard)
{
    umi_guard_leave(&guard);
}

bool
umx_worker_is_in_thread(const umx_worker *worker)
{
    return umi_guard_is_in_thread(worker);
}

void
umx_worker_crowd(umx_worker *worker, bool is_one_more)
{
    if (is_one_more) {
        worker->yields.num_crowds++;
    } else {
        UMI_DECREMENT(worker->yields.num_crowds);
    }
}

void
umx_layer_ep_set_on_state(umx_ep *ep, umx_ep_state_fn fn, void *arg)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    ep->is_layers = true;
    umx_ep_set_on_state(ep, fn, arg);
}

/* ---- the worker's end ----------------------------------------------------
 */

_Static_assert(
    sizeof(umx_dependent) == sizeof(umi_dependent) &&
        offsetof(umx_dependent, on_destroy) == offsetof(umi_dependent, end) &&
        offsetof(umx_dependent, is_busy) == offsetof(umi_dependent, is_busy) &&
        offsetof(umx_dependent, describe) == offsetof(umi_dependent, describe),
    "umx_dependent is umi_dependent, without its types");

void
umx_worker_attach(umx_worker *worker, umx_dependent *dependent)
{
    umi_list_append(&worker->dependents,
                    &((umi_dependent *)(void *)dependent)->node);
}

void
umx_worker_detach(umx_dependent *dependent)
{
    umi_node_remove(&((umi_dependent *)(void *)dependent)->node);
}

_Static_assert(sizeof(umx_errand) == sizeof(umi_retire) &&
                   offsetof(umx_errand, fn) == offsetof(umi_retire, fn),
               "umx_errand is umi_retire, without its types");

void
umx_worker_post(umx_worker *worker, umx_errand *errand)
{
    umi_worker_retire(worker, (umi_retire *)(void *)errand);
}

void
umx_memh_hold(umx_memh *memh)
{
    umi_memh_hold(memh);
}

void
umx_memh_put(umx_memh *memh)
{
    umi_memh_put(memh);
}

umx_context *
umx_worker_get_context(const umx_worker *worker)
{
    return worker->context;
}

umx_status
umx_buffer_write(const umx_buffer *buf, const void *data, size_t len)
{
    return umi_copy_in(buf, data, len);
}

umx_status
umx_buffer_read(const umx_buffer *buf, void *data, size_t len)
{
    return umi_copy_out(buf, data, len);
}

umx_status
umx_buffer_copy(const umx_buffer *to, const umx_buffer *from)
{
    return umi_copy_between(to, from);
}

/* ---- active messages -----------------------------------------------------
 */

static bool
is_layers(uint16_t id)
{
    return id >= UMX_AM_ID_LAYER_MIN && id < UMX_AM_ID_MIN;
}

UMI_LOCKED(umx_status, umx_layer_am_send, umi_endpoint_worker(ep),
           (umx_ep * ep, uint16_t id, const void *header, size_t header_len,
            const umx_buffer *buf, const umx_op_params *params,
            umx_request **req_p),
           (ep, id, header, header_len, buf, params, req_p))

umx_status
umx_layer_am_send(umx_ep *ep, uint16_t id, const void *header,
                  size_t header_len, const umx_buffer *buf,
                  const umx_op_params *params, umx_request **req_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(umi_endpoint_worker(ep))) {
        return umx_layer_am_send_locked(ep, id, header, header_len, buf, params,
                                        req_p);
    }
    return is_layers(id) ? umi_channel_am_send(ep, id, header, header_len, buf,
                                               params, req_p) :
                           UMX_ERR_OUT_OF_RANGE;
}

umx_status
umx_worker_set_layer(umx_worker *worker, uint16_t id, umx_am_fn fn, void *arg)
{
    UMI_GUARD(worker);
    return is_layers(id) ? umi_channel_am_set_internal(worker, id, fn, arg) :
                           UMX_ERR_OUT_OF_RANGE;
}

void *
umx_worker_get_layer(const umx_worker *worker, uint16_t id)
{
    const umi_channel_am_user *user = umi_channel_am_find(
        worker, umi_header_channel_id(UMI_KIND_AM, id));

    return (user != NULL) ? user->arg : NULL;
}

/* ---- who the peer is -----------------------------------------------------
 */

_Static_assert((int)UMX_WORKER_ID_SIZE == (int)UMI_WORKER_ID_SIZE &&
                   (int)UMX_WORKER_ID_SIZE == (int)UMI_WHERE_ID_SIZE,
               "one number");

bool
umx_ep_claim(umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    return umi_addressed_claim(ep);
}

bool
umx_ep_peer_worker_id(const umx_ep *ep, uint8_t *id)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    if (ep->base.link == NULL || !ep->base.is_bound) {
        return false;
    }
    memcpy(id, ep->base.link->worker_id, UMX_WORKER_ID_SIZE);
    return true;
}

umx_ep *
umx_worker_find_addressed(const umx_worker *worker, const uint8_t *worker_id,
                          const umx_ep *after)
{
    UMI_GUARD(worker);
    umx_ep *ep = umi_addressed_next(worker, after);
    uint8_t id[UMX_WORKER_ID_SIZE];

    while (ep != NULL && (!umx_ep_peer_worker_id(ep, id) ||
                          memcmp(id, worker_id, sizeof(id)) != 0)) {
        ep = umi_addressed_next(worker, ep);
    }
    return ep;
}

/* Read the network namespace of an address; 0: unknown. */
static uint64_t
network_of(const void *address, size_t len)
{
    umi_address decoded;
    size_t      used;
    const char *why;

    return umi_address_decode(&decoded, address, len, &used, &why) ?
               decoded.network_id :
               0;
}

bool
umx_address_is_beside(const void *address, size_t len, const void *other,
                      size_t other_len)
{
    uint64_t network = network_of(address, len);

    return network != 0 && network == network_of(other, other_len);
}

bool
umx_address_worker_id(const void *address, size_t len, uint8_t *id)
{
    umi_address decoded;
    size_t      used;
    const char *why;

    if (!umi_address_decode(&decoded, address, len, &used, &why)) {
        return false;
    }
    memcpy(id, decoded.worker_id, UMX_WORKER_ID_SIZE);
    return true;
}
