/* SPDX-License-Identifier: BSD-3-Clause */
/* many.h: several messages by one request. */
#ifndef UCP_EXT_OP_MANY_H
#define UCP_EXT_OP_MANY_H

#include "request/request.h"

typedef struct many_item {
    RequestObject *parent;
    umx_request   *op; /* NULL: not pending */
    umx_status     status;
    umx_recv_info  info;
    buffer_hold    hold;
} many_item;

typedef struct many {
    Py_ssize_t count;
    Py_ssize_t lost; /* of those that are pending */
    umx_match  match;
    many_item  items[];
} many;

typedef struct TAIL many_tail {
    many *all; /* or NULL */
} many_tail;

static inline many *
many_of(const RequestObject *req)
{
    return TAIL_OF(req, many_tail)->all;
}

/* The first failure, or UMX_OK. */
static inline umx_status
many_status(const many *all)
{
    umx_status status = UMX_OK;

    for (Py_ssize_t i = 0; i < all->count && status == UMX_OK; i++) {
        status = all->items[i].status;
    }
    return status;
}

/* Hold `buffers`, a sequence, for messages that `match`. -1 with an exception.
 */
int many_hold(RequestObject *req, PyObject *buffers, const umx_match *match);

extern const op_type op_send_many, op_recv_many;

#endif
