/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c: callbacks of libumx about operations that C code posts: see
 * base/event.h. */
#include "capi/event.h"

#include "capi/posted.h"

void
event_check_lost(RequestObject *req)
{
    const posted *all = posted_of(req);

    if (!all->is_open && req->num_pending != 0 &&
        all->num_lost == req->num_pending) {
        event_mark_lost(req, (all->status != UMX_OK) ? all->status : all->lost);
    }
}

/* Forget an operation that has ended. True: its status is the request's. */
static bool
forget_op(posted *all, const umx_request *op)
{
    posted_op *entry = ops_find(&all->ops, op);
    bool       is_late;

    if (entry == NULL) {
        return true; /* it has no name: see posted.is_short */
    }
    all->num_lost -= entry->is_lost;
    is_late = entry->is_late;
    ops_remove(&all->ops, entry);
    return !is_late;
}

/* One that the program has dropped before request_posted() is told as well. */
static void
on_done(umx_request *op, umx_status status, void *arg)
{
    RequestObject *req = arg;
    posted        *all = posted_of(req);

    if (forget_op(all, op) && all->status == UMX_OK) {
        all->status = status;
        if (request_is_length_error(status)) {
            req->info = *umx_request_info(op);
        }
    }
    if (--req->num_pending != 0) {
        event_check_lost(req);
    } else if (!all->is_open || req->is_orphan) {
        req->is_told = true;
        event_mark_done(req, all->status);
        event_tell_request(req);
    }
}

/* Count a lost operation. One without a name is waited for. */
static void
on_lost(umx_request *op, umx_status status, void *arg)
{
    RequestObject *req   = arg;
    posted        *all   = posted_of(req);
    posted_op     *entry = ops_find(&all->ops, op);

    if (entry != NULL && !entry->is_lost) {
        entry->is_lost = true;
        all->lost      = status;
        all->num_lost++;
        event_check_lost(req);
    }
}

umx_op_params
event_posted_params(RequestObject *req)
{
    return (umx_op_params){.field_mask = UMX_OP_FIELD_ON_DONE |
                                         UMX_OP_FIELD_ON_LOST,
                           .on_done = on_done,
                           .arg     = req,
                           .on_lost = on_lost};
}
