/* SPDX-License-Identifier: BSD-3-Clause */
/* state.c: what an endpoint keeps of operations on memory, as one side and as
 * the other. */
#include <stdlib.h>

#include "channel/am.h"
#include "rma/rma.h"

umi_rma *
umi_rma_get_state(umx_ep *ep)
{
    if (ep->rma == NULL) {
        ep->rma = calloc(1, sizeof(*ep->rma));
        if (ep->rma != NULL) {
            umi_list_init(&ep->rma->parts);
            umi_list_init(&ep->rma->unsent);
            umi_list_init(&ep->rma->flushes);
            umi_list_init(&ep->rma->held);
            umi_slots_init(&ep->rma->ids);
        }
    }
    return ep->rma;
}

void
umi_rma_free_state(umx_ep *ep)
{
    if (ep->rma != NULL) {
        umi_slots_fini(&ep->rma->ids);
        free(ep->rma);
    }
}

umx_status
umi_rma_init(umx_worker *worker)
{
    umx_status status = umi_channel_am_set_internal(
        worker, UMI_AM_ID_RMA_REQUEST, umi_target_on_request, NULL);

    return (status != UMX_OK) ?
               status :
               umi_channel_am_set_internal(worker, UMI_AM_ID_RMA_REPLY,
                                           umi_initiator_on_reply, NULL);
}

void
umi_rma_finish(umx_ep *ep, umx_status status)
{
    if (ep->rma != NULL) {
        umi_target_finish(ep);
        umi_initiator_fail(ep, status);
    }
}
