/* SPDX-License-Identifier: BSD-3-Clause */
/* transfer_recv.c: the receiving half of transfer.h. */
#include <string.h>

#include "codec/header.h"
#include "ops/follow.h"
#include "ops/transfer.h"
#include "worker/datatype.h"

enum {
    /* Messages whose bytes come unasked: UMI_TRANSFER_UNASKED_MAX, and those
     * of which all is on its way. */
    GOT_MAX = 8 * UMI_TRANSFER_UNASKED_MAX
};

/* ---- receives ------------------------------------------------------------
 */

static umx_status
ask(const umi_transfer *transfer, bool is_over, umx_status status)
{
    umi_transfer_note note = {.endpoint = transfer->ep->remote_id,
                              .id       = transfer->id,
                              .is_over  = is_over,
                              .status   = status};

    return umi_transfer_tell(transfer->ep, UMI_AM_ASK, &note, sizeof(note));
}

static umx_status
transfer_recv(umx_request *req, void *desc, size_t len)
{
    umi_transfer *transfer = desc;

    (void)len;
    if (transfer->is_announced) {
        umx_status status = ask(transfer, false, UMX_OK);

        if (status != UMX_OK) {
            umi_transfer_finish(transfer, status);
            return status;
        }
        transfer->is_announced = false;
        umi_node_remove(&transfer->node);
        umi_list_append(&transfer->ep->transfers->receiving, &transfer->node);
    }
    transfer->req = req;
    umi_request_posted(req);
    req->is_movable = true;
    umi_list_append(&req->ep->inflight, &req->node);
    return UMX_INPROGRESS;
}

/* Drop what nobody receives: of what is not announced the pieces come
 * anyway. */
static void
drop(umi_transfer *transfer, umx_status status)
{
    if (transfer->is_announced) {
        (void)ask(transfer, true, status);
        umi_transfer_finish(transfer, UMX_OK);
    }
}

static void
transfer_release(const umi_ep_base *ep, void *desc)
{
    (void)ep;
    drop(desc, UMX_OK);
}

const umi_way umi_way_pieces = {
    .is_announced = true,
    .recv         = transfer_recv,
    .release      = transfer_release,
};

const umi_way umi_way_pieces_unasked = {
    .suits   = umi_follow_may_move,
    .recv    = transfer_recv,
    .release = transfer_release,
};

bool
umi_transfer_stop(umx_request *req)
{
    UMI_LIST_FOREACH(node, &req->ep->transfers->receiving) {
        umi_transfer *transfer = umi_transfer_at(node);

        if (transfer->req == req) {
            umi_transfer_finish(transfer, UMX_OK);
            return true;
        }
    }
    return false;
}

/* ---- arrival, inside UCX's callback --------------------------------------
 */

static const char *
check_start(const umi_transfer_ep *transfers, const umi_transfer_header *start)
{
    if (start->id != transfers->last_received + 1 || start->len == 0 ||
        start->len > SIZE_MAX / 2 || start->is_announced > 1 ||
        start->zero != 0) {
        return "a transfer that cannot be";
    }
    return (!start->is_announced && transfers->num_got == GOT_MAX) ?
               "too many transfers" :
               NULL;
}

static void
take_start(umx_worker *worker, umi_ep_base *ep,
           const umi_transfer_header *start, umi_am_arrival *message)
{
    umi_transfer_ep *transfers = ep->transfers;
    umi_list        *list      = start->is_announced ? &transfers->offered :
                                                       &transfers->receiving;
    umi_transfer    *transfer  = umi_transfer_new(
            ep, list, start->is_announced ? NULL : &transfers->num_got, start->id,
            start->len);
    int verdict;

    if (transfer == NULL) {
        umi_ep_base_refuse(ep, "out of memory for a transfer");
        return;
    }
    transfers->last_received++;
    transfer->is_announced      = start->is_announced;
    message->way                = start->is_announced ? &umi_way_pieces :
                                                        &umi_way_pieces_unasked;
    message->data               = transfer;
    message->len                = start->len;
    message->can_keep           = start->is_announced;
    worker->transfers->arriving = transfer;
    verdict = worker->am_handlers[UMI_AM_DATA].fn(worker, message);
    if (worker->transfers->arriving != NULL && verdict != UMI_AM_KEPT) {
        drop(transfer, (verdict == UMI_AM_REFUSED) ? UMX_ERR_CANCELED : UMX_OK);
    }
    worker->transfers->arriving = NULL;
}

static int
on_transfer(umx_worker *worker, const umi_am_arrival *arrival)
{
    umi_transfer_header start;
    umi_ep_base        *ep;
    const char         *why;
    umi_am_arrival      message = {0};

    if (arrival->header_len < sizeof(start) + UMI_HEADER_MIN ||
        arrival->len != 0) {
        worker->stats->protocol_errors++; /* whose it is cannot be known */
        umi_worker_stray(worker, 0);
        return UMI_AM_CONSUMED;
    }
    memcpy(&start, arrival->header, sizeof(start));
    message.header     = (const char *)arrival->header + sizeof(start);
    message.header_len = arrival->header_len - sizeof(start);
    ep = umi_transfer_find_ep(worker, (const char *)message.header +
                                          offsetof(umi_header, endpoint));
    if (ep == NULL) {
        return UMI_AM_CONSUMED;
    }
    why = check_start(ep->transfers, &start);
    if (why != NULL) {
        umi_ep_base_refuse(ep, why);
    } else {
        take_start(worker, ep, &start, &message);
    }
    return UMI_AM_CONSUMED;
}

/* Put bytes into the request, if there is one. A request whose memory cannot be
 * written ends, and the bytes that are left are nobody's. */
static void
take_bytes(umi_transfer *transfer, const void *bytes, size_t len)
{
    umx_request *req = transfer->req;
    umx_status   status;

    if (req == NULL) {
        return;
    }
    status = umi_datatype_write(req, transfer->moved, bytes, len);
    if (status != UMX_OK) {
        transfer->req = NULL;
        req->worker->hooks->fail_landing(req, status);
    }
}

static int
on_piece(umx_worker *worker, const umi_am_arrival *arrival)
{
    size_t           len = arrival->len - sizeof(umi_piece_header);
    umi_piece_header header;
    umi_transfer    *transfer;
    umi_ep_base     *ep;

    if (arrival->len <= sizeof(header) || !umi_am_is_at_hand(arrival)) {
        worker->stats->protocol_errors++;
        umi_worker_stray(worker, 0);
        return UMI_AM_CONSUMED;
    }
    memcpy(&header, arrival->data, sizeof(header));
    ep = umi_transfer_find_ep(worker, &header);
    if (ep == NULL) {
        return UMI_AM_CONSUMED;
    }
    transfer = umi_transfer_find(&ep->transfers->receiving, header.id);
    if (transfer == NULL || len > transfer->len - transfer->moved) {
        umi_ep_base_refuse(ep, "bytes of no transfer");
        return UMI_AM_CONSUMED;
    }
    worker->hooks->tell_ep(ep, UMI_NEWS_PIECE, NULL);
    take_bytes(transfer, (const char *)arrival->data + sizeof(header), len);
    transfer->moved += len;
    if (transfer->moved == transfer->len) {
        umi_transfer_finish(transfer, UMX_OK);
    }
    return UMI_AM_CONSUMED;
}

umx_status
umi_transfer_listen(umx_worker *worker)
{
    umx_status status = umi_am_set_handler(worker, UMI_AM_TRANSFER,
                                           on_transfer);

    if (status == UMX_OK) {
        status = umi_am_set_handler(worker, UMI_AM_PIECE, on_piece);
    }
    if (status == UMX_OK) {
        status = umi_am_set_handler(worker, UMI_AM_ASK, umi_transfer_on_ask);
    }
    return status;
}
