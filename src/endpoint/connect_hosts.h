/* SPDX-License-Identifier: BSD-3-Clause */
/* connect_hosts.h: connecting to a worker address: its hosts are tried one by
 * one, as long as the time lasts, until the worker that it names answers.
 * Thread: the worker's owner. */
#ifndef UMI_ENDPOINT_CONNECT_HOSTS_H
#define UMI_ENDPOINT_CONNECT_HOSTS_H

#include "codec/address.h"

typedef struct umi_connect_hosts {
    uint8_t          worker_id[UMI_WHERE_ID_SIZE];
    uint16_t         port;
    umx_status       status; /* the most telling so far */
    uint64_t         deadline_ns;
    unsigned         next; /* of `hosts` */
    unsigned         count;
    umi_host_address hosts[UMI_ADDRESS_HOSTS_MAX];
} umi_connect_hosts;

/* `ep`, which is connecting, has failed with `*status_p`. True if another host
 * will be tried; else `*status_p` becomes that of all of them. */
bool umi_connect_hosts_goes_on(umx_ep *ep, umx_status *status_p);

/* Try the next host. */
void umi_connect_hosts_step(umx_ep *ep);

/* True if that is the worker which `ep` connects to. */
bool umi_connect_hosts_is_right(const umx_ep *ep, const uint8_t *worker_id);

#endif
