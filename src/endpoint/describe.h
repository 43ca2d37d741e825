/* SPDX-License-Identifier: BSD-3-Clause */
/* describe.h: endpoints in umx_worker_describe(). */
#ifndef UMI_ENDPOINT_DESCRIBE_H
#define UMI_ENDPOINT_DESCRIBE_H

#include "endpoint/endpoint.h"
#include "util/lines.h"

/* Is there nothing that somebody may wait for, receives aside? */
bool umi_endpoint_is_idle(const umx_ep *ep);

void umi_endpoint_describe(const umx_ep *ep, const umi_lines *lines);

#endif
