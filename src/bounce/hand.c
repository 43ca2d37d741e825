/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* hand.c: messages between memory of devices that UCX moves by itself, by
 * cuda_ipc: faster than any slot. It gets the memory when both sides are known,
 * and has it for no longer than the bytes move:
 *
 *   UMI_AM_HANDED  receiver's endpoint u64 | fetch u64;  the bytes, announced
 *
 * instead of FILLED. While UCX has the memory of a request, that is fixed. */
/* clang-format on */
#include <string.h>

#include "bounce/object.h"
#include "mem/cuda.h"
#include "ops/post.h"
#include "worker/link.h"

enum {
    /* A shorter message is through a slot before UCX has agreed with its peer:
     * bytes. */
    HAND_MIN = 64 * 1024
};

bool
umi_hand_may(const umx_request *req)
{
    const umx_buffer *run = umi_bounce_run(req);

    return run != NULL && run->memtype == UMX_MEMTYPE_CUDA &&
           req->ep->link->has_cuda_ipc && req->worker->context->moves_cuda &&
           umi_cuda_is_exportable(run->data);
}

static void
fill_params(ucp_request_param_t *params, const umx_request *req,
            const umx_buffer *run, void *user_data)
{
    *params = (ucp_request_param_t){
        .op_attr_mask = UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .user_data   = user_data,
        .memory_type = UCS_MEMORY_TYPE_CUDA,
    };
    umi_post_memh(params, req, run);
}

/* ---- sending -------------------------------------------------------------
 */

static void
give_back(umi_fill *fill)
{
    if (fill->req != NULL) {
        fill->req->is_movable = true; /* as it was announced */
    }
    umi_fill_moved(fill);
}

/* The receiver hears of a failure by UCX, and the sender by its own request. */
static void
on_sent(void *request, ucs_status_t status, void *arg)
{
    (void)status;
    ucp_request_free(request);
    give_back(arg);
}

bool
umi_hand_over(umi_fill *fill)
{
    umx_request        *req = fill->req;
    const umx_buffer   *run = umi_bounce_run(req);
    ucs_status_ptr_t    result;
    ucp_request_param_t params;

    if (fill->len < HAND_MIN || fill->filled != 0 || !umi_hand_may(req) ||
        !req->is_movable || umi_memory_enter(run) != UMX_OK) {
        return false;
    }
    /* Where it lies until it has been sent: UCX 1.13 cannot copy it. */
    fill->handed = (umi_handed_header){fill->ep->remote_id, fill->id};
    fill_params(&params, req, run, fill);
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    params.flags          = UCP_AM_SEND_FLAG_RNDV;
    params.cb.send        = on_sent;
    req->worker->is_armed = false;
    result = ucp_am_send_nbx(fill->ep->handle, UMI_AM_HANDED, &fill->handed,
                             sizeof(fill->handed), run->data, fill->len,
                             &params);
    umi_memory_leave(run);
    if (UCS_PTR_IS_ERR(result)) {
        return false;
    }
    fill->is_handed = true;
    req->is_movable = false;
    fill->ep->bounce->sent[UMI_BOUNCE_BY_UCX]++;
    if (result == NULL) {
        give_back(fill);
    }
    return true;
}

/* ---- receiving -----------------------------------------------------------
 */

static void
on_received(void *request, ucs_status_t status, size_t len, void *arg)
{
    umi_fetch *fetch = arg;

    (void)len;
    ucp_request_free(request);
    fetch->is_handed       = false;
    fetch->req->is_movable = true;
    umi_fetch_finish(fetch, umi_ep_status(status));
}

/* The bytes of a fetch that has been stopped are nobody's: UCX drops them, and
 * tells the sender so. */
static int
on_handed(umx_worker *worker, const umi_am_arrival *arrival)
{
    umi_handed_header   header;
    umi_ep_base        *ep;
    umi_fetch          *fetch;
    const umx_buffer   *run;
    umx_status          status;
    ucs_status_ptr_t    result;
    ucp_request_param_t params;

    if (arrival->header_len != sizeof(header) ||
        arrival->way != &umi_way_rndv) {
        worker->stats->protocol_errors++;
        return UMI_AM_REFUSED;
    }
    memcpy(&header, arrival->header, sizeof(header));
    ep    = umi_ids_get(&worker->eps_by_id, header.endpoint);
    fetch = (ep != NULL && ep->link != NULL) ?
                umi_fetch_find(ep, header.fetch) :
                NULL;
    if (fetch == NULL || fetch->is_handed || fetch->len != arrival->len ||
        fetch->filled != 0 || fetch->direct != NULL) {
        return UMI_AM_CONSUMED;
    }
    run = umi_bounce_run(fetch->req);
    if (run == NULL) { /* its receive is cancelled */
        umi_fetch_otherwise(fetch);
        return UMI_AM_CONSUMED;
    }
    status = umi_memory_enter(run);
    if (status != UMX_OK) {
        umi_fetch_fail(fetch, status);
        return UMI_AM_CONSUMED;
    }
    fill_params(&params, fetch->req, run, fetch);
    params.cb.recv_am = on_received;
    worker->is_armed  = false;
    fetch->is_handed  = true;
    ep->bounce->received[UMI_BOUNCE_BY_UCX]++;
    fetch->req->is_movable = false;
    result = ucp_am_recv_data_nbx(ep->engine->ucp, arrival->data, run->data,
                                  arrival->len, &params);
    umi_memory_leave(run);
    if (!UCS_PTR_IS_PTR(result)) {
        fetch->is_handed       = false;
        fetch->req->is_movable = true;
        umi_fetch_finish(fetch, umi_ep_status(UCS_PTR_STATUS(result)));
    }
    return UMI_AM_CONSUMED;
}

umx_status
umi_hand_listen(umx_worker *worker)
{
    return umi_am_set_handler(worker, UMI_AM_HANDED, on_handed);
}
