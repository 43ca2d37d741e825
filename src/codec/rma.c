/* SPDX-License-Identifier: BSD-3-Clause */
#include "codec/rma.h"

#include <string.h>

#include "util/atomic.h"

static bool
is_atomic(const umi_rma_request *request)
{
    umx_atomic atomic = {.op   = (umx_atomic_op)request->atomic,
                         .size = request->size};

    return umi_atomic_is_valid(&atomic) && request->length == request->size;
}

static bool
is_transfer(const umi_rma_request *request)
{
    return request->atomic == 0 && request->size == 0 && request->value == 0 &&
           request->compare == 0;
}

bool
umi_codec_rma_request_decode(umi_rma_request *request, const void *data,
                             size_t len, size_t payload_len)
{
    if (len != sizeof(*request)) {
        return false;
    }
    memcpy(request, data, sizeof(*request));
    if ((request->flags & ~(UMI_RMA_FENCE | UMI_RMA_SIGNAL)) != 0 ||
        request->zero != 0) {
        return false;
    }
    switch (request->op) {
    case UMI_RMA_PUT:
        return is_transfer(request) && request->length == payload_len;
    case UMI_RMA_GET:
        return is_transfer(request) && payload_len == 0;
    case UMI_RMA_ATOMIC:
        return is_atomic(request) && payload_len == 0;
    default:
        return false;
    }
}

bool
umi_codec_rma_reply_decode(umi_rma_reply *reply, const void *data, size_t len)
{
    if (len != sizeof(*reply)) {
        return false;
    }
    memcpy(reply, data, sizeof(*reply));
    return reply->status <= 0 && reply->zero == 0;
}
