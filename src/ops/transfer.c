/* SPDX-License-Identifier: BSD-3-Clause */
#include "ops/transfer.h"

#include <string.h>

#include "ops/post.h"
#include "ops/turns.h"

/* What UCX could not send at once. */
typedef struct told {
    umx_worker *worker;
    uint8_t     bytes[sizeof(umi_transfer_header) + UMI_TRANSFER_HEADER_MAX];
} told;

static void
on_told(void *request, ucs_status_t status, void *arg)
{
    told *it = arg;

    (void)status;
    ucp_request_free(request);
    umi_pool_put(&it->worker->transfers->told, it);
}

/* Give UCX a copy of the bytes, to send when it can. UCX takes the copy only
 * without the attribute that asks for a send at once. */
static umx_status
tell_later(const umi_ep_base *ep, unsigned id, const void *bytes, size_t len,
           ucp_request_param_t *params)
{
    umi_pool        *pool = &ep->worker->transfers->told;
    told            *it   = umi_pool_get(pool);
    ucs_status_ptr_t result;

    if (it == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    it->worker = ep->worker;
    memcpy(it->bytes, bytes, len);
    params->user_data = it;
    params->op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
    result = ucp_am_send_nbx(ep->handle, id, it->bytes, len, NULL, 0, params);
    if (UCS_PTR_IS_PTR(result)) {
        ep->worker->is_armed = false;
        return UMX_OK;
    }
    umi_pool_put(pool, it);
    return umi_ep_status(UCS_PTR_STATUS(result));
}

umx_status
umi_transfer_tell(const umi_ep_base *ep, unsigned id, const void *bytes,
                  size_t len)
{
    ucs_status_ptr_t    result;
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS |
                        UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL,
        .flags   = UCP_AM_SEND_FLAG_EAGER,
        .cb.send = on_told,
    };

    if (ep->handle == NULL) {
        return UMX_ERR_CLOSED;
    }
    result = ucp_am_send_nbx(ep->handle, id, bytes, len, NULL, 0, &params);
    return (result == UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE)) ?
               tell_later(ep, id, bytes, len, &params) :
               umi_ep_status(UCS_PTR_STATUS(result));
}

umi_transfer *
umi_transfer_new(umi_ep_base *ep, umi_list *list, unsigned *count, uint64_t id,
                 size_t len)
{
    umi_transfer *transfer = umi_pool_get(&ep->worker->transfers->objects);

    if (transfer == NULL) {
        return NULL;
    }
    *transfer = (umi_transfer){.ep = ep, .count = count, .id = id, .len = len};
    umi_list_append(list, &transfer->node);
    if (count != NULL) {
        (*count)++;
    }
    return transfer;
}

void
umi_transfer_free(umi_transfer *transfer)
{
    umi_transfers *transfers = transfer->ep->worker->transfers;

    if (transfers->arriving == transfer) {
        transfers->arriving = NULL;
    }
    if (transfer->count != NULL) {
        (*transfer->count)--;
    }
    umi_node_remove(&transfer->node);
    umi_pool_put(&transfers->objects, transfer);
}

umi_ep_base *
umi_transfer_find_ep(umx_worker *worker, const void *at)
{
    umi_ep_base *ep;
    uint64_t     endpoint;

    memcpy(&endpoint, at, sizeof(endpoint));
    ep = umi_ids_get(&worker->eps_by_id, endpoint);
    if (ep == NULL) {
        umi_worker_stray(worker, endpoint);
    }
    return (ep != NULL && ep->link != NULL) ? ep : NULL;
}

umi_transfer *
umi_transfer_find(umi_list *list, uint64_t id)
{
    UMI_LIST_FOREACH(node, list) {
        umi_transfer *transfer = umi_transfer_at(node);

        if (transfer->id == id) {
            return transfer;
        }
    }
    return NULL;
}

void
umi_transfer_finish(umi_transfer *transfer, umx_status status)
{
    umx_request *req = transfer->req;

    umi_transfer_free(transfer);
    if (req != NULL) {
        umi_request_complete(req, status);
    }
}

void
umi_transfer_begin(umi_ep_base *ep, umi_transfer_ep *transfers)
{
    *transfers = (umi_transfer_ep){.budget = 0};
    umi_node_init(&transfers->turn_node);
    umi_list_init(&transfers->announced);
    umi_list_init(&transfers->sending);
    umi_list_init(&transfers->offered);
    umi_list_init(&transfers->receiving);
    ep->transfers = transfers;
}

static void
finish_all(umi_list *list, umx_status status)
{
    while (!umi_list_is_empty(list)) {
        umi_transfer_finish(umi_transfer_at(list->next), status);
    }
}

/* What is offered stays: messages point at it. */
void
umi_transfer_end(umi_ep_base *ep, umx_status status)
{
    umi_turns_leave(ep);
    finish_all(&ep->transfers->announced, status);
    finish_all(&ep->transfers->sending, status);
    finish_all(&ep->transfers->receiving, status);
}

void
umi_transfer_init(umx_worker *worker, umi_transfers *transfers)
{
    umi_pool_init(&transfers->objects, sizeof(umi_transfer));
    umi_pool_init(&transfers->told, sizeof(told));
    umi_pool_init(&transfers->blocks, sizeof(umi_piece_block));
    umi_list_init(&transfers->due);
    transfers->arriving = NULL;
    worker->transfers   = transfers;
}

void
umi_transfer_fini(umi_transfers *transfers)
{
    umi_pool_fini(&transfers->objects);
    umi_pool_fini(&transfers->told);
    umi_pool_fini(&transfers->blocks);
}
