/* SPDX-License-Identifier: BSD-3-Clause */
#include <umx/wait.h>

#include <stdatomic.h>

#include "endpoint/endpoint.h"
#include "keys/waiters.h"
#include "mem/memtype.h"
#include "rma/rma.h"
#include "util/atomic.h"

/* ---- checks --------------------------------------------------------------
 */

static umx_status
check(umx_rkey *rkey)
{
    const umx_ep *ep     = umi_endpoint_of(rkey->ep);
    umx_status    status = umi_endpoint_check(ep);

    if (status != UMX_OK) {
        return status;
    }
    if (rkey->is_closed) {
        return UMX_ERR_CLOSED;
    }
    if (ep->state != UMX_EP_OPEN || ep->is_peer_closed) {
        status = umi_endpoint_send_status(ep);
        if (status != UMX_OK) {
            return status;
        }
    }
    umi_rkey_resolve(rkey);
    if (rkey->is_foreign) {
        return UMX_ERR_INVALID_KEY;
    }
    if (rkey->segment != NULL && umi_segment_is_closed(rkey->segment)) {
        return UMX_ERR_STALE_KEY;
    }
    return UMX_OK;
}

static bool
is_in_range(const umx_rkey *rkey, uint64_t offset, uint64_t len)
{
    return offset <= rkey->key.length && len <= rkey->key.length - offset;
}

static umx_status
check_item(const umx_rkey *rkey, const umx_rma_item *item)
{
    if (!is_in_range(rkey, item->offset, item->buf.len)) {
        return UMX_ERR_OUT_OF_RANGE;
    }
    return umi_endpoint_check_buffer(&item->buf);
}

static umx_status
check_items(umx_rkey *rkey, const umx_rma_item *items, size_t count,
            bool is_write)
{
    umx_status status = check(rkey);

    if (status == UMX_OK && is_write && umx_rkey_is_readonly(rkey)) {
        status = UMX_ERR_READONLY;
    }
    for (size_t i = 0; i < count && status == UMX_OK; i++) {
        status = check_item(rkey, &items[i]);
    }
    return status;
}

static umx_status
check_atomic(umx_rkey *rkey, const umx_atomic *atomic)
{
    if (umx_rkey_is_readonly(rkey)) {
        return UMX_ERR_READONLY;
    }
    if (!umi_atomic_is_valid(atomic) ||
        (rkey->key.address + atomic->offset) % atomic->size != 0) {
        return UMX_ERR_INVALID_PARAM;
    }
    return is_in_range(rkey, atomic->offset, atomic->size) ?
               UMX_OK :
               UMX_ERR_OUT_OF_RANGE;
}

/* May a signal of `rkey` go to `signal_rkey`? */
static umx_status
check_other(const umx_rkey *rkey, umx_rkey *signal_rkey)
{
    return (signal_rkey->ep == rkey->ep) ? check(signal_rkey) :
                                           UMX_ERR_INVALID_PARAM;
}

/* ---- mapped memory -------------------------------------------------------
 */

static umx_status
copy_item(const umx_rkey *rkey, const umx_rma_item *item, bool is_write)
{
    char *at = rkey->data + item->offset;

    return is_write ? umi_copy_out(&item->buf, at, item->buf.len) :
                      umi_copy_in(&item->buf, at, item->buf.len);
}

/* True if `next` goes on where `item` ends, here and at the peer. */
static bool
is_neighbour(const umx_rma_item *item, const umx_rma_item *next)
{
    return next->offset == item->offset + item->buf.len &&
           next->buf.data == (char *)item->buf.data + item->buf.len &&
           next->buf.memtype == item->buf.memtype &&
           next->buf.memh == item->buf.memh && next->buf.layout == NULL &&
           item->buf.layout == NULL;
}

size_t
umi_rma_merge(const umx_rma_item *items, size_t count, size_t i,
              umx_rma_item *merged)
{
    *merged = items[i++];
    while (i < count && is_neighbour(merged, &items[i])) {
        merged->buf.len += items[i++].buf.len;
    }
    return i;
}

static umx_status
copy_items(umx_rkey *rkey, const umx_rma_item *items, size_t count,
           bool is_write)
{
    umx_rma_item merged;
    umx_status   status = UMX_OK;

    /* The fence stands before the loads: they must see what was stored before a
     * signal that was seen. */
    atomic_thread_fence(memory_order_acquire);
    for (size_t i = 0; i < count && status == UMX_OK;) {
        i      = umi_rma_merge(items, count, i, &merged);
        status = copy_item(rkey, &merged, is_write);
    }
    atomic_thread_fence(memory_order_release);
    return status;
}

/* ---- who waits for mapped memory ------------------------------------------
 */

static __attribute__((noinline, cold)) void
ring_owner(umx_rkey *rkey, uint64_t announcement)
{
    umi_control notify = {.kind            = UMI_NOTIFY,
                          .u.notify.memory = rkey->key.memory};

    if (rkey->rung != announcement) {
        rkey->rung = announcement;
        /* If that fails the connection does, and its end is as good. */
        umi_endpoint_send_control(umi_endpoint_of(rkey->ep), &notify);
    }
}

/* After an atomic operation, which is a fence; the load is not to be done
 * before it either. */
static void
ring_after_atomic(umx_rkey *rkey)
{
    uint64_t waiters = atomic_load_explicit(&rkey->segment->waiters,
                                            memory_order_seq_cst);

    if (umi_waiters_are_announced(waiters)) {
        ring_owner(rkey, umi_waiters_announcement(waiters));
    }
}

/* After stores. */
static void
ring(umx_rkey *rkey)
{
    if (rkey->is_ordered) {
        atomic_signal_fence(memory_order_seq_cst);
    } else {
        atomic_thread_fence(memory_order_seq_cst);
    }
    ring_after_atomic(rkey);
}

/* Apply the signal of a put to mapped memory. The stores of the put come before
 * it. */
static void
signal_owner(umx_rkey *rkey, const umx_atomic *signal)
{
    char *number = rkey->data + signal->offset;

    if (rkey->is_ordered && signal->op == UMX_ATOMIC_SWAP) {
        if (signal->size == 4) {
            __atomic_store_n((uint32_t *)(void *)number,
                             (uint32_t)signal->value, __ATOMIC_RELEASE);
        } else {
            __atomic_store_n((uint64_t *)(void *)number, signal->value,
                             __ATOMIC_RELEASE);
        }
        ring(rkey);
    } else {
        (void)umi_atomic_apply(signal, number);
        ring_after_atomic(rkey);
    }
}

/* ---- which way -----------------------------------------------------------
 */

/* True if memory is reached by requests to its owner only: behind a fence, what
 * is under way on another way comes first, and the owner is the one that can
 * wait. */
static bool
is_fenced(const umx_rkey *rkey)
{
    const umi_rma *rma = umi_endpoint_of(rkey->ep)->rma;

    return rma != NULL && rma->is_fenced;
}

/* True if the CPU of this process reads and writes the memory by itself. */
static bool
goes_by_mapping(const umx_rkey *rkey)
{
    return rkey->data != NULL && !is_fenced(rkey);
}

static bool
goes_by_ucx(const umx_rkey *rkey)
{
    return rkey->ucp != NULL && !is_fenced(rkey);
}

/* True if the bytes must be staged, or do not lie one after the other: then
 * UCX's put and get are of no use. */
static bool
must_stage(const umx_rkey *rkey, const umx_rma_item *items, size_t count)
{
    const umx_context *context = rkey->ep->worker->context;

    for (size_t i = 0; i < count; i++) {
        if (items[i].buf.layout != NULL ||
            umi_must_stage(context, &items[i].buf)) {
            return true;
        }
    }
    return false;
}

static umx_status
ask_items(umx_rkey *rkey, const umx_rma_item *items, size_t count,
          bool is_write, const umx_op_params *params, umx_request **req_p)
{
    umx_request *req = umi_initiator_begin(rkey, params);
    umx_rma_item merged;

    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < count;) {
        i = umi_rma_merge(items, count, i, &merged);
        umi_initiator_transfer(req, rkey, &merged, is_write);
    }
    umi_initiator_end(req);
    *req_p = req;
    return UMX_INPROGRESS;
}

/* ---- public --------------------------------------------------------------
 */

static umx_status
transfer(umx_rkey *rkey, const umx_rma_item *items, size_t count, bool is_write,
         const umx_op_params *params, umx_request **req_p)
{
    umx_status status = check_items(rkey, items, count, is_write);

    if (status != UMX_OK) {
        return status;
    }
    if (goes_by_mapping(rkey)) {
        status = copy_items(rkey, items, count, is_write);
        if (is_write) {
            ring(rkey);
        }
        return status;
    }
    if (goes_by_ucx(rkey) && !must_stage(rkey, items, count)) {
        return umi_rma_ucx_transfer(rkey, items, count, is_write, params,
                                    req_p);
    }
    return ask_items(rkey, items, count, is_write, params, req_p);
}

UMI_LOCKED(umx_status, umx_rma_put, rkey->ep->worker,
           (umx_rkey * rkey, const umx_rma_item *item,
            const umx_op_params *params, umx_request **req_p),
           (rkey, item, params, req_p))

umx_status
umx_rma_put(umx_rkey *rkey, const umx_rma_item *item,
            const umx_op_params *params, umx_request **req_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(rkey->ep->worker)) {
        return umx_rma_put_locked(rkey, item, params, req_p);
    }
    return transfer(rkey, item, 1, true, params, req_p);
}

UMI_LOCKED(umx_status, umx_rma_get, rkey->ep->worker,
           (umx_rkey * rkey, const umx_rma_item *item,
            const umx_op_params *params, umx_request **req_p),
           (rkey, item, params, req_p))

umx_status
umx_rma_get(umx_rkey *rkey, const umx_rma_item *item,
            const umx_op_params *params, umx_request **req_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(rkey->ep->worker)) {
        return umx_rma_get_locked(rkey, item, params, req_p);
    }
    return transfer(rkey, item, 1, false, params, req_p);
}

UMI_LOCKED(umx_status, umx_rma_put_many, rkey->ep->worker,
           (umx_rkey * rkey, const umx_rma_item *items, size_t count,
            const umx_op_params *params, umx_request **req_p),
           (rkey, items, count, params, req_p))

umx_status
umx_rma_put_many(umx_rkey *rkey, const umx_rma_item *items, size_t count,
                 const umx_op_params *params, umx_request **req_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(rkey->ep->worker)) {
        return umx_rma_put_many_locked(rkey, items, count, params, req_p);
    }
    return transfer(rkey, items, count, true, params, req_p);
}

UMI_LOCKED(umx_status, umx_rma_get_many, rkey->ep->worker,
           (umx_rkey * rkey, const umx_rma_item *items, size_t count,
            const umx_op_params *params, umx_request **req_p),
           (rkey, items, count, params, req_p))

umx_status
umx_rma_get_many(umx_rkey *rkey, const umx_rma_item *items, size_t count,
                 const umx_op_params *params, umx_request **req_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(rkey->ep->worker)) {
        return umx_rma_get_many_locked(rkey, items, count, params, req_p);
    }
    return transfer(rkey, items, count, false, params, req_p);
}

UMI_LOCKED(umx_status, umx_rma_atomic, rkey->ep->worker,
           (umx_rkey * rkey, const umx_atomic *atomic, uint64_t *old,
            const umx_op_params *params, umx_request **req_p),
           (rkey, atomic, old, params, req_p))

umx_status
umx_rma_atomic(umx_rkey *rkey, const umx_atomic *atomic, uint64_t *old,
               const umx_op_params *params, umx_request **req_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(rkey->ep->worker)) {
        return umx_rma_atomic_locked(rkey, atomic, old, params, req_p);
    }
    umx_status   status = check(rkey);
    umx_request *req;
    uint64_t     before;

    if (status == UMX_OK) {
        status = check_atomic(rkey, atomic);
    }
    if (status != UMX_OK) {
        return status;
    }
    if (goes_by_mapping(rkey)) {
        before = umi_atomic_apply(atomic, rkey->data + atomic->offset);
        if (old != NULL) {
            *old = before;
        }
        ring_after_atomic(rkey);
        return UMX_OK;
    }
    req = umi_initiator_begin(rkey, params);
    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_initiator_atomic(req, rkey, atomic, old);
    umi_initiator_end(req);
    *req_p = req;
    return UMX_INPROGRESS;
}

/* Both by requests, of which the owner executes the second after the first. */
static umx_status
ask_put_signal(umx_rkey *rkey, const umx_rma_item *item, umx_rkey *signal_rkey,
               const umx_atomic *signal, const umx_op_params *params,
               umx_request **req_p)
{
    umx_request *req = umi_initiator_begin(rkey, params);

    if (req == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_initiator_transfer(req, rkey, item, true);
    if (umi_rma_op_of(req)->status == UMX_OK) {
        umi_initiator_signal(req, signal_rkey, signal);
    }
    umi_initiator_end(req);
    *req_p = req;
    return UMX_INPROGRESS;
}

UMI_LOCKED(umx_status, umx_rma_put_signal_to, rkey->ep->worker,
           (umx_rkey * rkey, const umx_rma_item *item, umx_rkey *signal_rkey,
            const umx_atomic *signal, const umx_op_params *params,
            umx_request **req_p),
           (rkey, item, signal_rkey, signal, params, req_p))

umx_status
umx_rma_put_signal_to(umx_rkey *rkey, const umx_rma_item *item,
                      umx_rkey *signal_rkey, const umx_atomic *signal,
                      const umx_op_params *params, umx_request **req_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(rkey->ep->worker)) {
        return umx_rma_put_signal_to_locked(rkey, item, signal_rkey, signal,
                                            params, req_p);
    }
    umx_status status = check_items(rkey, item, 1, true);

    if (status == UMX_OK && signal_rkey != rkey) {
        status = check_other(rkey, signal_rkey);
    }
    if (status == UMX_OK) {
        status = check_atomic(signal_rkey, signal);
    }
    if (status != UMX_OK) {
        return status;
    }
    if (goes_by_mapping(rkey) && goes_by_mapping(signal_rkey)) {
        status = copy_items(rkey, item, 1, true);
        if (status == UMX_OK) {
            signal_owner(signal_rkey, signal);
            if (signal_rkey != rkey) {
                ring(rkey);
            }
        }
        return status;
    }
    if (goes_by_ucx(rkey) && !must_stage(rkey, item, 1)) {
        return umi_rma_ucx_signal(rkey, item, signal_rkey, signal, params,
                                  req_p);
    }
    return ask_put_signal(rkey, item, signal_rkey, signal, params, req_p);
}

UMI_LOCKED(umx_status, umx_rma_put_signal, rkey->ep->worker,
           (umx_rkey * rkey, const umx_rma_item *item, const umx_atomic *signal,
            const umx_op_params *params, umx_request **req_p),
           (rkey, item, signal, params, req_p))

umx_status
umx_rma_put_signal(umx_rkey *rkey, const umx_rma_item *item,
                   const umx_atomic *signal, const umx_op_params *params,
                   umx_request **req_p)
{
    if (UMI_IS_UNLOCKED_IF_ANY(rkey->ep->worker)) {
        return umx_rma_put_signal_locked(rkey, item, signal, params, req_p);
    }
    return umx_rma_put_signal_to(rkey, item, rkey, signal, params, req_p);
}

umx_status
umx_rkey_notify(umx_rkey *rkey)
{
    UMI_GUARD_IF_ANY(rkey->ep->worker);
    umx_status status = check(rkey);

    if (status == UMX_OK && rkey->segment != NULL) {
        ring(rkey);
    }
    return status;
}

static void
fence(umx_ep *ep)
{
    if (umi_initiator_is_busy(ep)) {
        ep->rma->is_fence_due = true;
        ep->rma->is_fenced    = true;
    }
}

umx_status
umx_ep_fence(umx_ep *ep)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    umx_status status = umi_endpoint_check(ep);

    if (status == UMX_OK) {
        fence(ep);
    }
    return status;
}

umx_status
umx_worker_fence(umx_worker *worker)
{
    UMI_GUARD(worker);
    umx_status status = umi_worker_check(worker);

    if (status != UMX_OK) {
        return status;
    }
    UMI_LIST_FOREACH(node, &worker->eps) {
        fence(umi_endpoint_of(umi_container_of(node, umi_ep_base, node)));
    }
    return UMX_OK;
}
