/* SPDX-License-Identifier: BSD-3-Clause */
#include "bounce/movable.h"

#include <stdlib.h>

#include "bounce/bounce.h"
#include "keys/memh.h"
#include "mem/cuda.h"
#include "mem/gather.h"
#include "mem/memtype.h"

/* All memory that `req` has now, of any kind. */
static umi_movable
all_pieces(const umx_request *req)
{
    if (req->is_void) {
        return (umi_movable){NULL, 0};
    }
    return (req->gather != NULL) ?
               (umi_movable){req->gather->pieces, req->gather->count} :
               (umi_movable){&req->buf, 1};
}

/* The one piece of memory that `req` has now; NULL: it has several, or none. */
static const umx_buffer *
one_run(const umx_request *req)
{
    umi_movable it = all_pieces(req);

    return (it.count == 1 && it.pieces->layout == NULL) ? it.pieces : NULL;
}

static bool
is_run_of_device(const umx_buffer *buf)
{
    return buf->layout == NULL && umi_memtype_is_device(buf);
}

const umx_buffer *
umi_bounce_run(const umx_request *req)
{
    const umx_buffer *buf = one_run(req);

    return (buf != NULL && is_run_of_device(buf)) ? buf : NULL;
}

umi_movable
umi_bounce_pieces(const umx_request *req)
{
    umi_movable it = all_pieces(req);

    for (size_t i = 0; i < it.count; i++) {
        if (!is_run_of_device(&it.pieces[i])) {
            return (umi_movable){NULL, 0};
        }
    }
    return it;
}

umx_status
umi_bounce_device(const umi_movable *it, int *device_p)
{
    int        device = UMX_DEVICE_NONE;
    umx_status status = UMX_OK;

    if (*device_p != UMX_DEVICE_NONE) {
        return UMX_OK;
    }
    for (size_t i = 0; i < it->count && status == UMX_OK; i++) {
        int its;

        status = umi_cuda_device_of(it->pieces[i].data, it->pieces[i].len,
                                    &its);
        if (status == UMX_OK && it->count > 1 &&
            ((i != 0 && its != device) ||
             !umi_cuda_is_primary(it->pieces[i].data, its))) {
            status = UMX_ERR_UNSUPPORTED;
        }
        device = its;
    }
    if (status == UMX_OK) {
        *device_p = device;
    }
    return status;
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

umi_movable
umi_bounce_movable(const umx_request *req, const void *pinned, int *device_p)
{
    const umx_buffer *buf;
    umi_movable       it;

    if (pinned != NULL) {
        buf = one_run(req);
        return (umi_movable){buf, buf != NULL && buf->data == pinned};
    }
    it = umi_bounce_pieces(req);
    if (it.count > 1 && umi_bounce_device(&it, device_p) != UMX_OK) {
        it.count = 0;
    }
    return it;
}

/* ---- copies --------------------------------------------------------------
 */

static umi_cuda_move
make_move(const umi_shift *shift, char *slot, char *bytes, size_t len)
{
    return shift->is_out ? (umi_cuda_move){slot, bytes, len} :
                           (umi_cuda_move){bytes, slot, len};
}

/* Write the moves of all pieces that have a part in it, for which there is
 * room, and return how many there are. */
static size_t
make_moves(const umi_movable *it, const umi_shift *shift, umi_cuda_move *moves)
{
    char  *slot = shift->slot;
    size_t skip = shift->offset, left = shift->len, count = 0;

    for (size_t i = 0; i < it->count && left != 0; i++) {
        const umx_buffer *piece = &it->pieces[i];
        size_t            len;

        if (skip >= piece->len) {
            skip -= piece->len;
            continue;
        }
        len            = (left < piece->len - skip) ? left : piece->len - skip;
        moves[count++] = make_move(shift, slot, (char *)piece->data + skip,
                                   len);
        slot += len;
        left -= len;
        skip = 0;
    }
    return count;
}

void
umi_bounce_shift(umi_dma *copy, umx_request *req, const umi_movable *it,
                 int device, const umi_shift *shift, umi_dma_fn done)
{
    umi_cuda_move  one;
    umi_cuda_move *moves = (it->count == 1) ?
                               &one :
                               malloc(it->count * sizeof(*moves));
    size_t         end   = shift->offset + shift->len;

    if (moves == NULL) {
        umi_dma_end(copy, req->worker, UMX_ERR_NO_MEMORY, done);
        return;
    }
    req->moved = (end > req->moved) ? end : req->moved;
    umi_dma_begin(copy, req, device, shift->direction, moves,
                  make_moves(it, shift, moves), done);
    if (moves != &one) {
        free(moves);
    }
}
