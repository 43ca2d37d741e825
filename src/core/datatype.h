/* SPDX-License-Identifier: BSD-3-Clause */
/* datatype.h: memory that is not contiguous, as UCX's datatypes. Thread: any.
 */
#ifndef UMI_DATATYPE_H
#define UMI_DATATYPE_H

#include <ucp/api/ucp.h>
#include <umx/buffer.h>

/* The datatype of one umx_buffer that has a layout; ucp_dt_destroy() ends it.
 */
umx_status umi_strided_create(ucp_datatype_t *datatype_p);

/* Make the datatype of one umi_gather. */
umx_status umi_gathered_create(ucp_datatype_t *datatype_p);

#endif
