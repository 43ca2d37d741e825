/* SPDX-License-Identifier: BSD-3-Clause */
/* log.h: what the life of an endpoint is to the log. Callers ask
 * umi_log_is_on() first. */
#ifndef UMI_ENDPOINT_LOG_H
#define UMI_ENDPOINT_LOG_H

#include "endpoint/endpoint.h"
#include "util/log.h"
#include "worker/listener.h"

enum {
    UMI_ENDPOINT_NAME = UMI_SOCKADDR_TEXT + 64,
    UMI_LANES_TEXT    = 128
};

/* The level of the lines about an endpoint: those that are made by workers'
 * addresses, as each rank makes to others, are details. */
static inline umi_log_level
umi_endpoint_log_level(const umx_ep *ep)
{
    return (ep->is_layers ||
            (ep->accepted_by != NULL && ep->accepted_by->is_internal)) ?
               UMI_LOG_DEBUG :
               UMI_LOG_INFO;
}

/* Write the transports by which UCX sends to the peer; "" if it does not say.
 */
void umi_endpoint_lanes(const umx_ep *ep, char text[UMI_LANES_TEXT]);

/* Write the number of an endpoint and who the peer is, as far as that is known.
 */
void umi_endpoint_name(const umx_ep *ep, char text[UMI_ENDPOINT_NAME]);

void umi_endpoint_log_connect(const umx_ep *ep);
void umi_endpoint_log_open(const umx_ep *ep);

/* `ep` is about to end with `state` and `status`. */
void umi_endpoint_log_end(const umx_ep *ep, umx_ep_state state,
                          umx_status status);

/* A message of `len` bytes goes by the way of that number; `how` says what
 * becomes of such messages. The first one is logged. */
void umi_endpoint_log_way(umx_ep *ep, unsigned way, const char *how,
                          size_t len);

#endif
