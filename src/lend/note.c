/* SPDX-License-Identifier: BSD-3-Clause */
#include "lend/note.h"

#include "ops/am.h"

static void
on_note_sent(void *request, ucs_status_t status, void *arg)
{
    umi_lend_sent *sent = arg;

    (void)status;
    ucp_request_free(request);
    umi_pool_put(&sent->worker->lend->objects, sent);
}

ucs_status_ptr_t
umi_lend_send_header(umi_ep_base *ep, unsigned id, const void *header,
                     size_t len, ucp_send_nbx_callback_t on_sent, void *arg)
{
    ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags     = UCP_AM_SEND_FLAG_EAGER,
        .cb.send   = on_sent,
        .user_data = arg,
    };

    ep->worker->is_armed = false;
    return ucp_am_send_nbx(ep->handle, id, header, len, NULL, 0, &params);
}

void
umi_lend_send_note(umi_ep_base *ep, const umi_lend_note *note)
{
    umx_worker    *worker = ep->worker;
    umi_lend_sent *sent;

    if (ep->handle == NULL) {
        return;
    }
    sent = umi_pool_get(&worker->lend->objects);
    if (sent == NULL) {
        return;
    }
    sent->worker        = worker;
    sent->note          = *note;
    sent->note.endpoint = ep->remote_id;
    if (!UCS_PTR_IS_PTR(umi_lend_send_header(ep, UMI_AM_NOTE, &sent->note,
                                             sizeof(sent->note), on_note_sent,
                                             sent))) {
        umi_pool_put(&worker->lend->objects, sent);
    }
}
