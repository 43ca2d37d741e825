/* SPDX-License-Identifier: BSD-3-Clause */
/* network.h: has UCX the network by which a connection goes? Thread: the
 * worker's owner. */
#ifndef UMI_ENDPOINT_NETWORK_H
#define UMI_ENDPOINT_NETWORK_H

#include "endpoint/endpoint.h"

/* Let UCX have the network of the socket of `ep`, which has just been
 * connected: if the worker's own engine has not, because addresses of this host
 * have changed or interfaces have come up since, the worker gets another. True
 * if `ep` lives in that one now. Where there can be none, the handshake goes on
 * with what there is, and fails. */
bool umi_network_follow(umx_ep *ep);

/* Do that on the connecting side: HELLO may have been written before the
 * network came up, and is written again then. */
void umi_network_on_connected(umi_socket *sock);

/* Tell, for people, that no transport of UCX leads to the other side. */
const char *umi_network_no_transport(bool is_server);

#endif
