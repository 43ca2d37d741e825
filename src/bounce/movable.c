/* SPDX-License-Identifier: BSD-3-Clause */
#include "bounce/movable.h"

#include "bounce/bounce.h"
#include "core/memh.h"
#include "mem/cuda.h"
#include "mem/gather.h"
#include "mem/memtype.h"

/* The one piece of memory that `req` has now; NULL: it has several, or none. */
static const umx_buffer *
one_run(const umx_request *req)
{
    const umx_buffer *buf = &req->buf;

    if (req->gather != NULL) {
        if (req->gather->count != 1) {
            return NULL;
        }
        buf = &req->gather->pieces[0];
    }
    return (buf->layout == NULL && !req->is_void) ? buf : NULL;
}

const umx_buffer *
umi_bounce_run(const umx_request *req)
{
    const umx_buffer *buf = one_run(req);

    return (buf != NULL && umi_memtype_is_device(buf)) ? buf : NULL;
}

umx_status
umi_bounce_device(const umx_buffer *buf, int *device_p)
{
    return (*device_p != UMX_DEVICE_NONE) ?
               UMX_OK :
               umi_cuda_device_of(buf->data, buf->len, device_p);
}

const void *
umi_bounce_pinned(const umx_request *req, int *device_p)
{
    const umx_buffer *buf = one_run(req);
    umx_memory_info   info;

    if (buf == NULL || umi_memtype_is_device(buf) ||
        buf->len <= UMI_BOUNCE_SHORT || !umx_cuda_is_present()) {
        return NULL;
    }
    if (umi_cuda_describe(buf->data, buf->len, &info) != UMX_OK ||
        info.memtype != UMX_MEMTYPE_HOST || info.device < 0) {
        umi_memh_pin(req->worker->context, buf);
        return NULL;
    }
    *device_p = info.device;
    return buf->data;
}

const umx_buffer *
umi_bounce_movable(const umx_request *req, const void *pinned)
{
    const umx_buffer *buf;

    if (pinned == NULL) {
        return umi_bounce_run(req);
    }
    buf = one_run(req);
    return (buf != NULL && buf->data == pinned) ? buf : NULL;
}
