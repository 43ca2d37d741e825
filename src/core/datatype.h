/* SPDX-License-Identifier: BSD-3-Clause */
/* datatype.h: the memory of a request as a datatype of UCX. UCX asks for bytes,
 * or brings some, and the request says where they are at that moment: in one
 * run or in many, in the user's memory or in a copy (detach.c). Thread: the
 * worker's owner. */
#ifndef UMI_DATATYPE_H
#define UMI_DATATYPE_H

#include <ucp/api/ucp.h>
#include <umx/types.h>

/* Make the datatype whose buffer is a umx_request; ucp_dt_destroy() ends it. */
umx_status umi_datatype_create(ucp_datatype_t *datatype_p);

#endif
