/* SPDX-License-Identifier: BSD-3-Clause */
/* port_range.h: UCX's option TCP_PORT_RANGE. A worker of UCX takes a port of it
 * for each network interface; UCX draws numbers until it meets one that is
 * free, and so never returns where none is. Thread: any. */
#ifndef UMI_PORT_RANGE_H
#define UMI_PORT_RANGE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct umi_port_range {
    uint16_t first, last; /* 0: any port */
    bool is_everywhere;   /* UCX uses all interfaces, not those of an option */
} umi_port_range;

/* Read the values of UCX's options TCP_PORT_RANGE and TLS; NULL: not set. What
 * UCX itself refuses counts as any port, as does a range that it does not use.
 */
void umi_port_range_read(umi_port_range *range, const char *ports,
                         const char *transports);

/* True if a worker of UCX finds a port. */
bool umi_port_range_has_free(const umi_port_range *range);

#endif
