/* SPDX-License-Identifier: BSD-3-Clause */
/* host.h: where this host is in the network. Thread: any. */
#ifndef UMI_HOST_H
#define UMI_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An IPv4 or IPv6 address without a port. */
typedef struct umi_host_address {
    bool    is_ipv6;
    bool    is_loopback;
    uint8_t bytes[16]; /* the first 4, or all */
} umi_host_address;

/* The addresses of all interfaces that are up, without those that mean
 * something on one link only. Returns how many, at most `max`. */
unsigned umi_host_addresses(umi_host_address *addresses, unsigned max);

/* The network namespace of the calling thread, by a number that is another one
 * in every other, on this and other hosts; 0 if the system does not say. */
uint64_t umi_host_network_id(void);

/* The namespace of process numbers of this process, by the number that this
 * system gives it; 0 if the system does not say. */
uint32_t umi_host_process_namespace(void);

#endif
