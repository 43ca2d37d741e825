/* SPDX-License-Identifier: BSD-3-Clause */
/* land.c: bytes that are with their sender come into a receive's buffer. */
#include "channel/channel.h"
#include "lend/lend.h"

umx_status
umi_land_post(umx_request *req, void *desc, size_t len)
{
    return umi_cma_is_loan(desc) ? umi_cma_read(req, desc) :
                                   umi_am_recv(req, desc, len);
}
