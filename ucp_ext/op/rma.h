/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.h: operations on memory of a peer's. */
#ifndef UCP_EXT_OP_RMA_H
#define UCP_EXT_OP_RMA_H

#include "request/request.h"

/* What a *_MANY operation on a peer's memory moves. */
typedef struct rma_list {
    Py_ssize_t    count;
    size_t        len;   /* bytes of all */
    umx_rma_item *items; /* behind `holds` */
    buffer_hold   holds[];
} rma_list;

/* A list for req->list, with room for `count`; NULL with an exception. */
rma_list *rma_list_new(Py_ssize_t count);

extern const op_type op_put, op_get, op_put_many, op_get_many, op_put_signal,
    op_atomic, op_fetch;

#endif
