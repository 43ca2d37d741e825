/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/* detach.c: the end of a request's two parts, where they do not end together.
 *
 * UCX cannot give memory back: it has no way to cancel a send, nor a receive
 * whose first bytes have come. So UCX is not given the user's memory, but a
 * datatype (datatype.h) that looks up in the request where the memory is. When
 * the user cancels, the request is given memory of the library's, and the
 * user's part ends at once:
 *
 *            pending --umi_request_detach()--> detached
 *   user's      |                                 | on_done(CANCELED), release
 *   part        v                                 v
 *             ended                             ended
 *   operation's part:  in UCX's hands ... umi_request_complete(), finish()
 *
 * The object is freed once both parts have ended. */
/* clang-format on */
#include <stdlib.h>

#include "worker/dma.h"
#include "worker/request.h"
#include "worker/observe.h"
#include "worker/worker.h"
#include "mem/gather.h"
#include "mem/memtype.h"

/* ---- memory --------------------------------------------------------------
 */

static bool
is_within_limit(const umx_worker *worker, size_t len)
{
    size_t limit = worker->context->config.cancel_bytes;

    return len <= limit && worker->copied_bytes <= limit - len;
}

bool
umi_request_may_copy(const umx_request *req, size_t len)
{
    return req->is_abandoned || is_within_limit(req->worker, len);
}

umx_status
umi_spare_new(umx_worker *worker, size_t len, bool is_forced,
              umi_spare **copy_p)
{
    umi_spare *copy;

    if (!is_forced && !is_within_limit(worker, len)) {
        return UMX_INPROGRESS;
    }
    copy = malloc(sizeof(*copy) + len);
    if (copy == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    copy->worker = worker;
    copy->len    = len;
    worker->copied_bytes += len;
    *copy_p = copy;
    return UMX_OK;
}

void
umi_spare_free(umi_spare *copy)
{
    assert(copy->worker->copied_bytes >= copy->len);
    copy->worker->copied_bytes -= copy->len;
    free(copy);
}

/* Let `req` have its bytes in `copy` from now on. */
static void
move_to(umx_request *req, umi_spare *copy)
{
    umx_buffer buf = umx_host_buffer(copy->bytes, copy->len);

    umi_request_drop_buffer(req);
    req->copy = copy;
    if (req->gather != NULL) {
        umi_gather_init(req->gather);
        umi_gather_add(req->gather, &buf);
    } else {
        req->buf = buf;
    }
}

umx_status
umi_request_copy(umx_request *req, size_t size, size_t len, bool is_forced)
{
    umi_spare *copy;
    umx_status status;

    if (req->copy != NULL || req->small != NULL) {
        return UMX_OK;
    }
    umi_dma_settle(req);
    if (umi_request_is_fixed(req)) {
        return UMX_INPROGRESS;
    }
    status = umi_spare_new(req->worker, size, is_forced || req->is_abandoned,
                           &copy);
    if (status != UMX_OK) {
        return status;
    }
    if (len != 0) {
        status = (req->gather != NULL) ?
                     umi_gather_read(req->gather, 0, copy->bytes, len) :
                     umi_copy_out(&req->buf, copy->bytes, len);
    }
    if (status != UMX_OK) {
        umi_spare_free(copy);
        return status;
    }
    move_to(req, copy);
    return UMX_OK;
}

bool
umi_request_void(umx_request *req)
{
    if (umi_request_is_fixed(req)) {
        return false;
    }
    umi_dma_settle(req);
    req->is_void = true;
    return true;
}

/* ---- the user's part -----------------------------------------------------
 */

void
umi_request_detach_as(umx_request *req, umx_status status)
{
    UMI_ASSERT_LOCKED(req->worker);
    assert(req->status == UMX_INPROGRESS && !req->is_done);
    umi_dma_settle(req);
    req->user_status = (int16_t)status;
    umi_request_set_user(req, UMI_USER_DETACHED);
    req->on_lost = NULL; /* it is of the user's part */
    umi_node_init(&req->detached_node);
    umi_request_drop_buffer(req);
    umi_list_append(&req->worker->detached, &req->detached_node);
    req->worker->has_events = true;
    req->worker->is_armed   = false;
}

void
umi_request_detach(umx_request *req)
{
    umi_request_detach_as(req, UMX_ERR_CANCELED);
}

static void
report(umx_request *req)
{
    bool is_kept = req->is_kept;

    umi_node_remove(&req->detached_node);
    req->is_done = true;
    umi_observe_failure(req, (umx_status)req->user_status);
    if (req->is_observed) {
        umi_observe_end(req, (umx_status)req->user_status);
    }
    if (req->on_done != NULL) {
        req->on_done(req, (umx_status)req->user_status, req->arg);
        if (!is_kept) {
            umi_request_free(req);
        }
    }
}

void
umi_requests_report_detached(umx_worker *worker)
{
    umi_node *node = worker->detached.next;

    while (node != &worker->detached) {
        umx_request *req = umi_container_of(node, umx_request, detached_node);

        if (worker->is_in_thread && !req->is_internal) {
            worker->guard->is_tell_due = true;
            node                       = node->next;
        } else {
            report(req);
            node = worker->detached.next; /* `on_done` may detach others */
        }
    }
}

bool
umi_requests_have_deferred(const umi_list *list, const struct umi_ep_base *ep)
{
    UMI_LIST_FOREACH(node, list) {
        const umx_request *req = umi_container_of(node, umx_request, node);

        if (req->user == UMI_USER_DEFERRED && req->ep == ep) {
            return true;
        }
    }
    return false;
}

/* ---- the operation's part ------------------------------------------------
 */

void
umi_request_end_detached(umx_request *req)
{
    if (req->state != UMI_REQUEST_STUCK) {
        umi_request_set_state(req, UMI_REQUEST_OVER);
    }
    if (req->user == UMI_USER_RELEASED) {
        umi_request_free(req);
    }
}
