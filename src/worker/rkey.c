/* SPDX-License-Identifier: BSD-3-Clause */
#include "worker/rkey.h"

#include <stdlib.h>
#include <string.h>

#include "util/membarrier.h"
#include "worker/link.h"

/* A worker's id begins with its context's. */
static bool
is_of_peer(const umi_key *key, const umi_link *link)
{
    return memcmp(&key->context, link->worker_id, sizeof(key->context)) == 0;
}

/* Unpack UCX's key. Where that is not possible the owner executes the
 * operations. */
static void
unpack(umx_rkey *rkey)
{
    umx_worker *worker = rkey->ep->worker;

    if (rkey->key.rkey_len == 0 ||
        ucp_ep_rkey_unpack(rkey->ep->handle, rkey->bytes, &rkey->ucp) !=
            UCS_OK) {
        rkey->ucp = NULL;
        return;
    }
    umi_list_append(&worker->rkeys, &rkey->node);
}

static bool
wants_ucx(const umx_worker *worker, const umi_link *link)
{
    return worker->context->has_rma &&
           (link->has_rdma ||
            worker->context->config.rma_ucx == UMX_RMA_UCX_ALWAYS);
}

void
umi_rkey_resolve(umx_rkey *rkey)
{
    const umi_key  *key  = &rkey->key;
    const umi_link *link = rkey->ep->link;

    if (rkey->is_resolved || link == NULL || !rkey->ep->is_bound) {
        return;
    }
    rkey->is_resolved = true;
    if (!is_of_peer(key, link)) {
        rkey->is_foreign = true;
        return;
    }
    if ((key->flags & UMI_KEY_SEGMENT) && link->has_shm) {
        rkey->segment = umi_segment_map(key, &rkey->data);
    }
    rkey->is_ordered = rkey->segment != NULL &&
                       atomic_load_explicit(&rkey->segment->is_ordered,
                                            memory_order_acquire) != 0 &&
                       umi_membarrier_register();
    if (wants_ucx(rkey->ep->worker, link)) {
        unpack(rkey);
    }
}

/* ---- life ----------------------------------------------------------------
 */

static void
retire_rkey(umi_retire *retire)
{
    umx_rkey_destroy(umi_container_of(retire, umx_rkey, retire));
}

umx_status
umx_rkey_open(umx_ep *ep, const void *key, size_t len, umx_rkey **rkey_p)
{
    UMI_GUARD_IF_ANY(umi_ep_base_of(ep)->worker);
    umi_ep_base *base = umi_ep_base_of(ep);
    umi_key      decoded;
    umx_rkey    *rkey;
    umx_status   status;

    if (base->worker == NULL) {
        return UMX_ERR_CLOSED;
    }
    status = umi_worker_check(base->worker);
    if (status != UMX_OK) {
        return status;
    }
    if (!umi_key_decode(&decoded, key, len)) {
        return UMX_ERR_INVALID_KEY;
    }
    rkey = calloc(1, sizeof(*rkey) + decoded.rkey_len);
    if (rkey == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    umi_node_init(&rkey->node);
    rkey->ep = base;
    umi_refs_init(&rkey->refs);
    rkey->key       = decoded;
    rkey->key.rkey  = rkey->bytes;
    rkey->retire.fn = retire_rkey;
    memcpy(rkey->bytes, decoded.rkey, decoded.rkey_len);
    umi_rkey_resolve(rkey);
    if (rkey->is_foreign) {
        free(rkey);
        return UMX_ERR_INVALID_KEY;
    }
    umi_ep_base_hold(base);
    *rkey_p = rkey;
    return UMX_OK;
}

uint64_t
umx_rkey_length(const umx_rkey *rkey)
{
    return rkey->key.length;
}

bool
umx_rkey_is_readonly(const umx_rkey *rkey)
{
    return (rkey->key.flags & UMI_KEY_READONLY) != 0;
}

void *
umx_rkey_pointer(umx_rkey *rkey)
{
    umx_worker *worker = rkey->ep->worker;

    UMI_GUARD_IF_ANY(worker);
    if (!rkey->is_resolved && worker != NULL &&
        umi_worker_check(worker) == UMX_OK) {
        umi_rkey_resolve(rkey); /* it was opened before the handshake */
    }
    return rkey->data;
}

const uint64_t *
umx_rkey_waiters(umx_rkey *rkey, bool *is_ordered_p)
{
    UMI_GUARD_IF_ANY(rkey->ep->worker);
    if (umx_rkey_pointer(rkey) == NULL) {
        return NULL;
    }
    *is_ordered_p = rkey->is_ordered;
    return (const uint64_t *)(const void *)&rkey->segment->waiters;
}

void
umx_rkey_close(umx_rkey *rkey)
{
    UMI_GUARD_IF_ANY(rkey->ep->worker);
    rkey->is_closed = true;
}

static void
destroy_ucp(umx_rkey *rkey)
{
    umi_node_remove(&rkey->node);
    if (rkey->ucp != NULL) {
        ucp_rkey_destroy(rkey->ucp);
        rkey->ucp = NULL;
    }
}

void
umi_rkey_put(umx_rkey *rkey)
{
    umi_ep_base *ep = rkey->ep;

    if (!umi_refs_put(&rkey->refs)) {
        return;
    }
    destroy_ucp(rkey);
    if (rkey->segment != NULL) {
        umi_segment_unmap(rkey->segment, rkey->key.place);
    }
    free(rkey);
    umi_ep_base_release(ep);
}

void
umx_rkey_destroy(umx_rkey *rkey)
{
    UMI_GUARD_IF_ANY(rkey->ep->worker);
    rkey->is_closed = true;
    umi_rkey_put(rkey);
}

void
umi_rkeys_fini(umx_worker *worker)
{
    while (!umi_list_is_empty(&worker->rkeys)) {
        destroy_ucp(umi_container_of(worker->rkeys.next, umx_rkey, node));
    }
}

void
umx_rkey_retire(umx_rkey *rkey)
{
    if (rkey->ep->worker == NULL) {
        umx_rkey_destroy(rkey);
    } else {
        umi_worker_retire(rkey->ep->worker, &rkey->retire);
    }
}
