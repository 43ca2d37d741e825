/* SPDX-License-Identifier: BSD-3-Clause */
#include "bounce/note.h"

#include <string.h>

#include "bounce/object.h"
#include "ops/transfer.h"

umx_status
umi_bounce_tell(const umi_ep_base *ep, const umi_bounce_note *note)
{
    umi_bounce_note it = *note;

    it.endpoint = ep->remote_id;
    return umi_transfer_tell(ep, UMI_AM_BOUNCE, &it, sizeof(it));
}

/* ---- arrival, inside UCX's callback --------------------------------------
 */

static int
on_note(umx_worker *worker, const umi_am_arrival *arrival)
{
    umi_bounce_note note;
    umi_ep_base    *ep;

    if (arrival->header_len != sizeof(note)) {
        worker->stats->protocol_errors++; /* whose it is cannot be known */
        return UMI_AM_CONSUMED;
    }
    memcpy(&note, arrival->header, sizeof(note));
    ep = umi_transfer_find_ep(worker, &note.endpoint);
    if (ep == NULL) {
        return UMI_AM_CONSUMED;
    }
    worker->hooks->tell_ep(ep, UMI_NEWS_PIECE, NULL);
    switch ((umi_bounce_kind)note.kind) {
    case UMI_BOUNCE_FETCH:
        umi_fill_on_fetch(ep, &note);
        break;
    case UMI_BOUNCE_STOP:
        umi_fill_on_stop(ep, &note);
        break;
    case UMI_BOUNCE_FREED:
        umi_fill_on_freed(ep, &note);
        break;
    case UMI_BOUNCE_FILLED:
        umi_fetch_on_filled(ep, &note);
        break;
    case UMI_BOUNCE_DIRECT:
        umi_fetch_on_direct(ep, &note);
        break;
    case UMI_BOUNCE_TAKEN:
        umi_fetch_on_taken(ep, &note);
        break;
    case UMI_BOUNCE_UNABLE:
        umi_fetch_on_unable(ep, &note);
        break;
    default:
        umi_ep_base_refuse(ep, "an unknown note about a fetch");
        break;
    }
    return UMI_AM_CONSUMED;
}

/* ---- for people ----------------------------------------------------------
 */

const umi_bounce_route_text umi_bounce_texts[UMI_BOUNCE_ROUTES] = {
    [UMI_BOUNCE_BY_READ]   = {"direct", "read by the receiver's device, which "
                                          "is of the same process"},
    [UMI_BOUNCE_BY_UCX]    = {"cuda_ipc", "moved between two devices by UCX"},
    [UMI_BOUNCE_BY_DEVICE] = {"device slots",
                              "copied through memory of the sender's device, "
                              "which the receiver's device maps"},
    [UMI_BOUNCE_BY_HOST]   = {"host slots",
                              "copied through memory of the host that both "
                                "processes map"},
};

/* ---- life ----------------------------------------------------------------
 */

void
umi_bounce_init(umx_worker *worker, umi_bounce *bounce)
{
    umi_pool_init(&bounce->objects, sizeof(umi_bounce_object));
    umi_bounce_pools_begin(worker, &bounce->pools, umi_fill_on_timer);
    bounce->arriving = NULL;
    worker->bounce   = bounce;
}

void
umi_bounce_fini(umi_bounce *bounce)
{
    umi_bounce_pools_end(&bounce->pools);
    umi_pool_fini(&bounce->objects);
}

void
umi_bounce_begin(umi_ep_base *ep, umi_bounce_ep *bounce)
{
    *bounce = (umi_bounce_ep){.last_fetch = 0};
    umi_list_init(&bounce->fills);
    umi_list_init(&bounce->fetches);
    ep->bounce = bounce;
}

void
umi_bounce_end(umi_ep_base *ep, umx_status status)
{
    umi_fills_end(ep);
    umi_fetches_end(ep, status);
}

umx_status
umi_bounce_listen(umx_worker *worker)
{
    umx_status status = umi_fetch_listen(worker);

    if (status == UMX_OK) {
        status = umi_hand_listen(worker);
    }
    return (status == UMX_OK) ?
               umi_am_set_handler(worker, UMI_AM_BOUNCE, on_note) :
               status;
}
