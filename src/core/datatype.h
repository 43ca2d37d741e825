/* datatype.h: buffers with a layout, as UCX's datatype. Thread: any. */
#ifndef UMI_DATATYPE_H
#define UMI_DATATYPE_H

#include <ucp/api/ucp.h>
#include <umx/buffer.h>

/* The datatype of one umx_buffer that has a layout; ucp_dt_destroy() ends it.
 */
umx_status umi_strided_create(ucp_datatype_t *datatype_p);

#endif
