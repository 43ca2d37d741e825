/* SPDX-License-Identifier: BSD-3-Clause */
/* loan.c: umx/loan.h. */
#include <umx/loan.h>

#include "endpoint/endpoint.h"
#include "lend/lend.h"
#include "worker/worker.h"

void
umx_worker_take_loans(umx_worker *worker)
{
    UMI_GUARD(worker);
    worker->lend->takes_loans = true;
}

static umi_lend_loan
name_of(const umx_loan *loan)
{
    return (umi_lend_loan){
        .id = loan->id, .len = loan->len, .slot = loan->slot};
}

umx_status
umx_loan_begin(umx_ep *ep, const umx_buffer *buf, umx_loan *loan)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    umi_lend_loan name;

    if (umi_endpoint_check(ep) != UMX_OK ||
        umi_endpoint_send_status(ep) != UMX_OK ||
        !umi_lend_memory(&ep->base, buf, &name)) {
        return UMX_ERR_UNSUPPORTED;
    }
    *loan = (umx_loan){.id = name.id, .len = name.len, .slot = name.slot};
    return UMX_OK;
}

void
umx_loan_end(umx_ep *ep, const umx_loan *loan)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    umi_lend_loan name = name_of(loan);

    umi_lend_take_back(&ep->base, &name);
}

umx_status
umx_loan_read(umx_ep *ep, const umx_loan *loan, const umx_buffer *buf)
{
    UMI_GUARD_IF_ANY(umi_endpoint_worker(ep));
    umi_lend_loan name = name_of(loan);

    return umi_lend_read_memory(&ep->base, &name, buf);
}
