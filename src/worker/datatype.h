/* SPDX-License-Identifier: BSD-3-Clause */
/* datatype.h: the memory of a request as a datatype of UCX. UCX asks for bytes,
 * or brings some, and the request says where they are at that moment: in one
 * run or in many, in the user's memory or in a copy (detach.c). Thread: the
 * worker's owner. */
#ifndef UMI_DATATYPE_H
#define UMI_DATATYPE_H

#include <ucp/api/ucp.h>
#include <umx/types.h>

typedef struct umi_datatypes {
    ucp_datatype_t movable; /* the buffer is a umx_request: all of `req->buf` */
    ucp_datatype_t arriving; /* likewise, to receive `req->info.length` bytes */
    ucp_datatype_t nowhere;  /* `count` bytes that are received and dropped */
} umi_datatypes;

/* Read or write `len` bytes of the request's memory, from `offset` on, and note
 * how far its bytes have moved. */
umx_status umi_datatype_read(umx_request *req, size_t offset, void *dest,
                             size_t len);
umx_status umi_datatype_write(umx_request *req, size_t offset, const void *src,
                              size_t len);

umx_status umi_datatypes_create(umi_datatypes *datatypes);
void       umi_datatypes_destroy(umi_datatypes *datatypes);

#endif
