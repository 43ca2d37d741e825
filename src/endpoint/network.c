/* SPDX-License-Identifier: BSD-3-Clause */
/* network.c: following the networks of the host.
 *
 * UCX looks for network devices once, when its context is made: those that are
 * up then. It looks for the addresses of these once for each of its workers.
 * Hosts get others while processes run: by DHCP, a VPN, a cable, a network that
 * comes up later than the process, or because they are virtual machines that
 * have moved. The socket of a handshake knows the address that the host has
 * now, and by which this very connection goes. */
#include "endpoint/network.h"

#include <netinet/in.h>
#include <string.h>

#include "codec/ucx_address.h"
#include "endpoint/strangers.h"
#include "host/routes.h"
#include "ops/engines.h"
#include "util/log.h"

/* What an engine has of networks, and an address of this host. */
typedef struct view {
    const struct sockaddr *local;
    unsigned               num_tcp;       /* devices */
    bool                   has_local;     /* one has that address */
    bool                   has_interface; /* one is of its interface */
    bool                   has_lost;      /* one has no address any more */
} view;

static bool
has_ip(const umi_ucx_piece *piece, const struct sockaddr *addr)
{
    if (piece->device[1] != addr->sa_family) {
        return false;
    }
    return (addr->sa_family == AF_INET6) ?
               memcmp(piece->device + 2,
                      &((const struct sockaddr_in6 *)addr)->sin6_addr,
                      16) == 0 :
               memcmp(piece->device + 2,
                      &((const struct sockaddr_in *)addr)->sin_addr, 4) == 0;
}

static void
look_for_address(const umi_ucx_piece *piece, void *arg)
{
    view *v = arg;

    if (umi_ucx_is_tcp(piece)) {
        v->num_tcp++;
        v->has_local |= has_ip(piece, v->local);
    }
}

/* Ask the system. */
static void
look_at_interface(const umi_ucx_piece *piece, void *arg)
{
    view *v = arg;

    if (umi_ucx_is_tcp(piece)) {
        int         family = piece->device[1];
        const void *ip     = piece->device + 2;

        v->has_lost |= !umi_routes_is_own(family, ip);
        v->has_interface |= umi_routes_is_same_interface(v->local, family, ip);
    }
}

/* True if UCX is meant to do without the network: it uses other networks than
 * those of tcp, or it has a device of those that the program has chosen. */
static bool
is_left_out(const umx_context *context, const umi_ucx_address *own,
            const view *v)
{
    return own->has_network && (v->num_tcp == 0 || context->has_devices);
}

/* True if UCX has no device for the network, and might have one in a context
 * that is made now. */
static bool
lacks_device(umx_context *context, const umi_engine *engine,
             const umi_ucx_address *own, const view *v)
{
    if (v->has_interface || is_left_out(context, own, v)) {
        return false;
    }
    return !umi_context_is_newest(context, engine->ucx) ||
           umi_routes_is_new(&engine->ucx->interfaces, v->local);
}

/* Use a new engine for all that is new. False: there can be none. */
static bool
renew(umx_ep *ep, bool lacks_device)
{
    umx_worker *worker = umi_endpoint_worker(ep);
    umx_status  status = UMX_OK;

    if (lacks_device) {
        status = umi_context_renew(worker->context, worker->engine->ucx);
    }
    if (status == UMX_OK) {
        status = umi_ops_engines_renew(worker);
    }
    if (status != UMX_OK) {
        umi_log(UMI_LOG_WARN,
                "UCX does not get the networks that this host has now: %s",
                umx_status_string(status));
        return false;
    }
    umi_log(UMI_LOG_INFO, "the networks of this host have changed: the worker "
                          "goes on with another of UCX's");
    umi_strangers_leave(worker);
    umi_ep_base_use(&ep->base, worker->engine);
    return true;
}

bool
umi_network_follow(umx_ep *ep)
{
    umx_worker             *worker = umi_endpoint_worker(ep);
    umi_engine             *engine = worker->engine;
    struct sockaddr_storage local;
    size_t                  local_len = sizeof(local), len;
    view                    v         = {.local = (struct sockaddr *)&local};
    umi_ucx_address         own;
    const void             *address;
    const char             *why;
    bool                    lacks;

    if (ep->socket.is_local || ep->base.engine != engine ||
        umi_socket_address(&ep->socket, false, (struct sockaddr *)&local,
                           &local_len) != UMX_OK ||
        umi_engine_address(engine, true, &address, &len) != UMX_OK ||
        !umi_ucx_address_decode(&own, address, len, &why) || own.version > 2) {
        return false;
    }
    umi_ucx_address_walk(address, len, look_for_address, &v);
    if (v.has_local) {
        return false;
    }
    umi_ucx_address_walk(address, len, look_at_interface, &v);
    lacks = lacks_device(worker->context, engine, &own, &v);
    return (v.has_lost || lacks) && renew(ep, lacks);
}

void
umi_network_on_connected(umi_socket *sock)
{
    umx_ep *ep = umi_container_of(sock, umx_ep, socket);

    umi_ep_base_raise(&ep->base,
                      UMI_EP_EVENT_LAYER); /* holds it past this call */
    if (ep->state == UMX_EP_CONNECTING && umi_network_follow(ep)) {
        umi_socket_unsend(sock);
        umi_handshake_start(ep);
    }
}

/* UCX reads the system's routes once in a process, when it needs one first. */
#define WHY                                                               \
    ": the two have none in common (UCX_TLS), or the process is older "   \
    "than the route of its host that leads there, and has to be started " \
    "again"

const char *
umi_network_no_transport(bool is_server)
{
    return is_server ? "no transport leads to the connecting side" WHY :
                       "no transport leads to the listening side" WHY;
}
