/* SPDX-License-Identifier: BSD-3-Clause */
#include "bounce/note.h"

#include <string.h>

#include "bounce/object.h"
#include "core/link.h"

static void
on_sent(void *request, ucs_status_t status, void *arg)
{
    umi_bounce_sent *it = arg;

    (void)status; /* the link hears of it */
    ucp_request_free(request);
    umi_pool_put(&it->worker->bounce->objects, it);
}

umx_status
umi_bounce_tell(const umi_ep_base *ep, const umi_bounce_note *note)
{
    umi_pool           *pool = &ep->worker->bounce->objects;
    umi_bounce_sent    *it;
    ucs_status_ptr_t    result;
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags   = UCP_AM_SEND_FLAG_EAGER,
        .cb.send = on_sent,
    };

    if (ep->handle == NULL) {
        return UMX_ERR_CLOSED;
    }
    it = umi_pool_get(pool);
    if (it == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    it->worker           = ep->worker;
    it->note             = *note;
    it->note.endpoint    = ep->remote_id;
    params.user_data     = it;
    ep->worker->is_armed = false;
    result               = ucp_am_send_nbx(ep->handle, UMI_AM_BOUNCE, &it->note,
                                           sizeof(it->note), NULL, 0, &params);
    if (UCS_PTR_IS_PTR(result)) {
        return UMX_OK;
    }
    umi_pool_put(pool, it);
    return umi_ep_status(UCS_PTR_STATUS(result));
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
    ep = umi_ids_get(&worker->eps_by_id, note.endpoint);
    if (ep == NULL) {
        umi_worker_stray(worker, note.endpoint);
    }
    if (ep == NULL || ep->link == NULL) {
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
