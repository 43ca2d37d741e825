/* SPDX-License-Identifier: BSD-3-Clause */
/* routes.h: which network interfaces of this host lead to an address. UCX's tcp
 * uses those that have the longest matching route, and reads the system's table
 * once (ucs_netlink_is_best_route); this is the same. Thread: any. */
#ifndef UMI_ROUTES_H
#define UMI_ROUTES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* Hash the interfaces that lead to the IP address `ip` of `family` (AF_INET or
 * AF_INET6; others: 0). Addresses of equal hashes are reached alike. */
uint64_t umi_routes_hash(int family, const void *ip);

/* True if the IP address `ip` of `family` belongs to the interface that has the
 * address `local`, as the system tells now. */
bool umi_routes_is_same_interface(const struct sockaddr *local, int family,
                                  const void *ip);

#endif
