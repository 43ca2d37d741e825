/* SPDX-License-Identifier: BSD-3-Clause */
/* transfer_send.c: the sending half of transfer.h, but for the pieces. */
#include <string.h>
#include <umx/am.h>

#include "codec/header.h"
#include "ops/post.h"
#include "ops/turns.h"

_Static_assert(UMX_AM_HEADER_MAX + UMI_HEADER_MAX <= UMI_TRANSFER_HEADER_MAX,
               "a message with the longest header");

typedef struct start {
    umi_transfer_header transfer;
    uint8_t             message[UMI_TRANSFER_HEADER_MAX];
} start;

bool
umi_transfer_may_send(const umx_request *req, size_t header_len)
{
    return header_len <= UMI_TRANSFER_HEADER_MAX &&
           (req->gather != NULL || umi_memtype_is_device(&req->buf) ||
            umi_context_is_host_buffer(req->worker->context, &req->buf));
}

/* Tell the receiver of a transfer, and give it its number. */
static umx_status
tell_start(umi_transfer *transfer, const void *header, size_t header_len)
{
    umi_transfer_ep *transfers = transfer->ep->transfers;
    size_t           size      = sizeof(umi_transfer_header) + header_len;
    start            it;
    umx_status       status;

    it.transfer = (umi_transfer_header){.id  = transfers->last_sent + 1,
                                        .len = transfer->len,
                                        .is_announced = transfer->is_announced};
    memcpy(it.message, header, header_len);
    status = umi_transfer_tell(transfer->ep, UMI_AM_TRANSFER, &it, size);
    if (status == UMX_OK) {
        transfer->id = ++transfers->last_sent;
    }
    return status;
}

umx_status
umi_transfer_start(umi_transfer *transfer)
{
    size_t len = transfer->header_len;

    transfer->header_len = 0;
    return tell_start(transfer, transfer->header, len);
}

/* May a message go whole? A longer header is not kept. */
static bool
may_go_whole(const umi_transfer *transfer, size_t header_len)
{
    return !transfer->is_announced && header_len <= UMI_HEADER_MAX &&
           header_len + transfer->len <= UMI_WHOLE_BYTES;
}

umx_status
umi_transfer_send(umx_request *req, const void *header, size_t header_len,
                  bool is_announced, uint32_t number)
{
    umi_ep_base     *ep        = req->ep;
    umi_transfer_ep *transfers = ep->transfers;
    umi_transfer    *transfer;

    transfer = umi_transfer_new(
        ep, is_announced ? &transfers->announced : &transfers->sending,
        is_announced ? NULL : &transfers->num_unasked, 0, req->buf.len);
    if (transfer == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    transfer->is_announced = is_announced;
    if (may_go_whole(transfer, header_len)) {
        transfer->header_len = (uint8_t)header_len;
        memcpy(transfer->header, header, header_len);
    } else {
        umx_status status = tell_start(transfer, header, header_len);

        if (status != UMX_OK) {
            umi_transfer_free(transfer);
            return status;
        }
    }
    transfer->req    = req;
    transfer->number = number;
    umi_request_posted(req);
    req->is_movable = true;
    umi_list_append(&ep->inflight, &req->node);
    if (!is_announced) {
        umi_turns_enter(ep);
    }
    return UMX_INPROGRESS;
}

static umi_transfer *
find_request(umi_list *list, const umx_request *req)
{
    UMI_LIST_FOREACH(node, list) {
        if (umi_transfer_at(node)->req == req) {
            return umi_transfer_at(node);
        }
    }
    return NULL;
}

umi_transfer *
umi_transfer_of(const umx_request *req)
{
    umi_transfer *transfer = find_request(&req->ep->transfers->announced, req);

    return (transfer != NULL) ? transfer :
                                find_request(&req->ep->transfers->sending, req);
}

void
umi_transfer_withdraw(umi_transfer *transfer, umx_status status)
{
    umi_ep_base *ep = transfer->ep;

    if (transfer->header_len != 0) { /* the receiver is to miss nothing */
        (void)umi_transfer_start(transfer);
    }
    umi_transfer_finish(transfer, status);
    if (umi_list_is_empty(&ep->transfers->sending)) {
        umi_turns_leave(ep);
    }
}

uint32_t
umi_transfer_first(const umi_ep_base *ep, uint32_t none)
{
    uint32_t first = none;

    UMI_LIST_FOREACH(node, &ep->transfers->sending) {
        uint32_t number = umi_transfer_at(node)->number;

        if ((int32_t)(number - first) < 0) {
            first = number;
        }
    }
    return first;
}

/* ---- arrival, inside UCX's callback --------------------------------------
 */

/* Act on what the receiver says of a transfer that was announced. It may have
 * been withdrawn meanwhile. */
int
umi_transfer_on_ask(umx_worker *worker, const umi_am_arrival *arrival)
{
    umi_transfer_note note;
    umi_transfer     *transfer;
    umi_ep_base      *ep;

    if (arrival->header_len != sizeof(note)) {
        worker->stats->protocol_errors++;
        return UMI_AM_CONSUMED;
    }
    memcpy(&note, arrival->header, sizeof(note));
    ep = umi_transfer_find_ep(worker, &note.endpoint);
    if (ep == NULL) {
        return UMI_AM_CONSUMED;
    }
    transfer = umi_transfer_find(&ep->transfers->announced, note.id);
    if (transfer == NULL) {
        if (note.id == 0 || note.id > ep->transfers->last_sent) {
            umi_ep_base_refuse(ep, "a transfer that was never announced");
        }
        return UMI_AM_CONSUMED;
    }
    if (note.is_over) {
        umi_transfer_finish(
            transfer, (note.status == UMX_OK) ? UMX_OK : UMX_ERR_CANCELED);
        return UMI_AM_CONSUMED;
    }
    transfer->is_announced = false;
    umi_node_remove(&transfer->node);
    umi_list_append(&ep->transfers->sending, &transfer->node);
    umi_turns_enter(ep);
    return UMI_AM_CONSUMED;
}
