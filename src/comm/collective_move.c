/* SPDX-License-Identifier: BSD-3-Clause */
/* collective_move.c: what operations that move bytes share. */
#include "comm/collective_move.h"

#include <stdlib.h>

umx_status
umi_comm_move_new(umx_comm *comm, const umi_comm_coll_type *type,
                  size_t max_xfers, umi_comm_move **move_p)
{
    umi_comm_coll *coll;
    umx_status     status = umi_comm_coll_new(comm, type, max_xfers, &coll);

    if (status == UMX_OK) {
        *move_p = umi_comm_move_of(coll);
    }
    return status;
}

void
umi_comm_move_fini(umi_comm_coll *coll, umx_status status)
{
    umi_comm_move *move = umi_comm_move_of(coll);

    (void)status;
    free(move->send.counts);
    free(move->recv.counts);
}

umx_status
umi_comm_side_set(umi_comm_move *move, umi_comm_side *side,
                  const umx_buffer *buf, const umx_pieces *pieces,
                  const umx_buffer *own)
{
    umi_comm_coll *coll   = &move->base;
    size_t         size   = (size_t)coll->comm->size;
    size_t         next   = 0;
    umx_status     status = umi_comm_coll_check_buffer(buf);

    if (status != UMX_OK) {
        return status;
    }
    if (pieces == NULL || pieces->counts == NULL) {
        return UMX_ERR_INVALID_PARAM;
    }
    status = (side == &move->recv) ?
                 umi_comm_coll_take_recv(coll, buf, &side->buf) :
                 umi_comm_coll_take_send(coll, buf, &side->buf);
    if (status != UMX_OK) {
        return status;
    }
    side->counts = malloc(2 * size * sizeof(*side->counts));
    if (side->counts == NULL) {
        return UMX_ERR_NO_MEMORY;
    }
    side->displs = side->counts + size;
    for (size_t i = 0; i < size; i++) {
        size_t count = pieces->counts[i];
        size_t displ = (pieces->displs != NULL) ? pieces->displs[i] : next;

        if (displ > buf->len || count > buf->len - displ) {
            return UMX_ERR_OUT_OF_RANGE;
        }
        side->counts[i] = count;
        side->displs[i] = displ;
        next            = displ + count;
    }
    return (own == NULL || side->counts[coll->comm->rank] == own->len) ?
               UMX_OK :
               UMX_ERR_INVALID_PARAM;
}
