/* SPDX-License-Identifier: BSD-3-Clause */
/* event.c: callbacks of libumx about operations that C code posts: see
 * base/event.h. */
#include "capi/event.h"

#include "capi/posted.h"

/* Forget an operation. Most end in the order in which they were posted. */
static void
remove_op(posted *all, const umx_request *op)
{
    for (size_t i = all->first; i < all->count; i++) {
        if (all->ops[i] == op) {
            all->ops[i] = NULL;
            break;
        }
    }
    while (all->first < all->count && all->ops[all->first] == NULL) {
        all->first++;
    }
}

static void
on_done(umx_request *op, umx_status status, void *arg)
{
    RequestObject *req = arg;
    posted        *all = posted_of(req);

    remove_op(all, op);
    if (all->status == UMX_OK) {
        all->status = status;
        if (request_is_length_error(status)) {
            req->info = *umx_request_info(op);
        }
    }
    if (--req->num_pending == 0 && !all->is_open) {
        req->is_told = true;
        event_mark_done(req, all->status);
        event_tell_request(req);
    }
}

/* Count a lost operation; those of an endpoint are all lost at once. */
static void
on_lost(umx_request *op, umx_status status, void *arg)
{
    RequestObject *req = arg;

    (void)op;
    if (++posted_of(req)->num_lost == req->num_pending) {
        event_mark_lost(req, status);
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
