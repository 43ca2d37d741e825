/* SPDX-License-Identifier: BSD-3-Clause */
#include "endpoint/connect_hosts.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint/wireup.h"
#include "util/clock.h"

/* ---- which hosts ---------------------------------------------------------
 */

/* True if it is worth trying to connect to `host`. In the address's own network
 * namespace the loopback is enough, and always there; in another namespace the
 * loopback is somebody else's. An unknown namespace may be either. */
static bool
is_useful(const umi_host_address *host, uint64_t theirs, uint64_t ours)
{
    if (theirs == 0 || ours == 0) {
        return true;
    }
    return host->is_loopback == (theirs == ours);
}

static umi_connect_hosts *
new_route(const umi_address *address, uint64_t timeout_ns)
{
    umi_connect_hosts *hosts = calloc(1, sizeof(*hosts));
    uint64_t           ours  = umi_host_network_id();
    uint64_t           now   = umi_clock_ns();

    if (hosts == NULL) {
        return NULL;
    }
    memcpy(hosts->worker_id, address->worker_id, UMI_WHERE_ID_SIZE);
    hosts->port        = address->port;
    hosts->status      = UMX_ERR_UNREACHABLE;
    hosts->deadline_ns = (timeout_ns < UINT64_MAX - now) ? now + timeout_ns :
                                                           UINT64_MAX;
    for (unsigned i = 0; i < address->count; i++) {
        if (is_useful(&address->hosts[i], address->network_id, ours)) {
            hosts->hosts[hosts->count++] = address->hosts[i];
        }
    }
    return hosts;
}

static size_t
make_sockaddr(const umi_host_address *host, uint16_t port,
              struct sockaddr_storage *addr)
{
    struct sockaddr_in  *in  = (void *)addr;
    struct sockaddr_in6 *in6 = (void *)addr;

    memset(addr, 0, sizeof(*addr));
    if (host->is_ipv6) {
        in6->sin6_family = AF_INET6;
        in6->sin6_port   = htons(port);
        memcpy(&in6->sin6_addr, host->bytes, 16);
        return sizeof(*in6);
    }
    in->sin_family = AF_INET;
    in->sin_port   = htons(port);
    memcpy(&in->sin_addr, host->bytes, 4);
    return sizeof(*in);
}

/* ---- what failures tell --------------------------------------------------
 */

/* Translate the end of one host's attempt into terms of the worker: a host that
 * refuses, speaks something else or goes away is not it. */
static umx_status
verdict(umx_status status)
{
    switch (status) {
    case UMX_ERR_NOT_CONNECTED:
    case UMX_ERR_CONNECTION_RESET:
    case UMX_ERR_PROTOCOL:
        return UMX_ERR_WORKER_GONE;
    case UMX_ERR_INVALID_ADDR:
        return UMX_ERR_UNREACHABLE;
    default:
        return status;
    }
}

static int
rank(umx_status status)
{
    switch (status) {
    case UMX_ERR_UNREACHABLE:
        return 0;
    case UMX_ERR_WORKER_GONE:
        return 1;
    case UMX_ERR_TIMED_OUT:
        return 2;
    default:
        return 3; /* the worker has said it */
    }
}

bool
umi_connect_hosts_goes_on(umx_ep *ep, umx_status *status_p)
{
    umi_connect_hosts *hosts  = ep->handshake->hosts;
    umx_status         status = verdict(*status_p);
    uint64_t           now    = umi_clock_ns();

    if (rank(status) >= rank(hosts->status)) {
        hosts->status = status;
    }
    if (hosts->next == hosts->count || now >= hosts->deadline_ns ||
        (ep->is_closing && now >= ep->close_deadline_ns)) {
        *status_p = hosts->status;
        return false;
    }
    umi_timer_stop(&ep->timer);
    umi_socket_close(&ep->socket);
    umi_link_detach(&ep->base, true);
    umi_endpoint_due(ep, UMI_DUE_CONNECT);
    return true;
}

/* ---- connecting ----------------------------------------------------------
 */

/* Compute the next host's share of the time that is left. */
static uint64_t
next_timeout(const umx_ep *ep)
{
    const umi_connect_hosts *hosts    = ep->handshake->hosts;
    uint64_t                 deadline = hosts->deadline_ns;
    uint64_t                 now      = umi_clock_ns();

    if (deadline != UINT64_MAX && deadline > now) {
        deadline = now + (deadline - now) / (hosts->count - hosts->next);
    }
    if (ep->is_closing && ep->close_deadline_ns < deadline) {
        deadline = ep->close_deadline_ns;
    }
    if (deadline == UINT64_MAX) {
        return UINT64_MAX;
    }
    return (deadline > now) ? deadline - now : 0;
}

void
umi_connect_hosts_step(umx_ep *ep)
{
    umi_connect_hosts      *hosts;
    struct sockaddr_storage addr;
    uint64_t                timeout_ns;
    size_t                  len;
    umx_status              status;

    if (ep->state != UMX_EP_CONNECTING) {
        return;
    }
    hosts = ep->handshake->hosts;
    if (hosts->next == hosts->count) {
        umi_endpoint_finish(ep, UMX_EP_FAILED, UMX_ERR_UNREACHABLE);
        return;
    }
    timeout_ns = next_timeout(ep);
    len = make_sockaddr(&hosts->hosts[hosts->next++], hosts->port, &addr);
    umi_handshake_reset(ep);
    status = umi_socket_connect(&ep->socket, (struct sockaddr *)&addr, len,
                                NULL, 0);
    if (status != UMX_OK) {
        umi_endpoint_finish(ep, UMX_EP_FAILED, status);
        return;
    }
    umi_timer_start(umi_endpoint_worker(ep), &ep->timer, timeout_ns);
    umi_handshake_start(ep);
}

bool
umi_connect_hosts_is_right(const umx_ep *ep, const uint8_t *worker_id)
{
    const umi_connect_hosts *hosts = ep->handshake->hosts;

    return hosts == NULL ||
           memcmp(hosts->worker_id, worker_id, UMI_WHERE_ID_SIZE) == 0;
}

umx_status
umx_ep_connect_address(umx_worker *worker, const void *data, size_t data_len,
                       const umx_connect_params *params, umx_ep **ep_p)
{
    UMI_GUARD(worker);
    uint64_t    timeout_ns = worker->context->config.connect_timeout_ns;
    umx_status  status     = umi_worker_check_begin(worker);
    umx_window  window     = {0};
    umi_address address;
    const char *why;
    size_t      len;
    umx_ep     *ep;

    if (status != UMX_OK) {
        return status;
    }
    if (!umi_address_decode(&address, data, data_len, &len, &why)) {
        return UMX_ERR_INVALID_ADDR;
    }
    if (params->field_mask & UMX_CONNECT_FIELD_TIMEOUT) {
        timeout_ns = params->timeout_ns;
    }
    if (params->field_mask & UMX_CONNECT_FIELD_WINDOW) {
        window = params->window;
    }
    status = umi_endpoint_new(worker, &window, &ep);
    if (status != UMX_OK) {
        return status;
    }
    ep->handshake->hosts = new_route(&address, timeout_ns);
    if (ep->handshake->hosts == NULL) {
        umx_ep_destroy(ep);
        return UMX_ERR_NO_MEMORY;
    }
    if (params->field_mask & UMX_CONNECT_FIELD_ON_STATE) {
        ep->on_state = params->on_state;
        ep->arg      = params->arg;
    }
    umi_connect_hosts_step(ep);
    worker->is_armed = false; /* what is due runs at the next drain */
    *ep_p            = ep;
    return UMX_OK;
}
