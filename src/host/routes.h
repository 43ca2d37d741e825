/* SPDX-License-Identifier: BSD-3-Clause */
/* routes.h: which network interfaces of this host lead to an address. UCX's tcp
 * uses those that have the longest matching route, and reads the system's table
 * once (ucs_netlink_is_best_route); this is the same. Thread: any. */
#ifndef UMI_ROUTES_H
#define UMI_ROUTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* Hash the interfaces that lead to the IP address `ip` of `family` (AF_INET or
 * AF_INET6; others: 0). Addresses of equal hashes are reached alike. */
uint64_t umi_routes_hash(int family, const void *ip);

/* True if the IP address `ip` of `family` belongs to the interface that has the
 * address `local`, as the system tells now. */
bool umi_routes_is_same_interface(const struct sockaddr *local, int family,
                                  const void *ip);

/* True if an interface of this host has the IP address `ip`, as the system
 * tells now; also if the system does not tell. */
bool umi_routes_is_own(int family, const void *ip);

enum {
    UMI_INTERFACES_MAX = 128
};

/* Interfaces that were up at some time, and had an IP address. */
typedef struct umi_interfaces {
    uint64_t names[UMI_INTERFACES_MAX]; /* hashes of them */
    size_t   num;
} umi_interfaces;

/* List the interfaces that are up now. */
void umi_routes_list(umi_interfaces *interfaces);

/* True if the interface that has the address `local` now is none of
 * `interfaces`, which has room for more. */
bool umi_routes_is_new(const umi_interfaces  *interfaces,
                       const struct sockaddr *local);

#endif
