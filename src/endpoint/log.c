/* SPDX-License-Identifier: BSD-3-Clause */
/* log.c: lines about the life of an endpoint: how it was opened, by which
 * transports, and why it ended. */
#include "endpoint/log.h"

#include <inttypes.h>
#include <stdio.h>

#include "util/clock.h"

/* ---- words ---------------------------------------------------------------
 */

typedef struct lane_list {
    char  *text;
    size_t len;
} lane_list;

static void
add_lane(const char *transport, const char *device, void *arg)
{
    lane_list *l    = arg;
    size_t     room = UMI_LANES_TEXT - l->len;
    int        len  = snprintf(l->text + l->len, room, "%s%s/%s",
                       (l->len != 0) ? ", " : "", transport, device);

    l->len += ((size_t)len < room) ? (size_t)len : 0;
}

void
umi_endpoint_lanes(const umx_ep *ep, char text[UMI_LANES_TEXT])
{
    lane_list l = {.text = text};

    (void)!umx_ep_transports(ep, add_lane, &l);
    text[l.len] = '\0';
}

void
umi_endpoint_name(const umx_ep *ep, char text[UMI_ENDPOINT_NAME])
{
    /* Processes that meet by their workers' addresses have none of a network.
     */
    char address[UMI_SOCKADDR_TEXT], process[32] = "";
    bool has = umi_socket_peer_text(&ep->socket, address);

    if (ep->peer_pid != 0) {
        snprintf(process, sizeof(process), "process %u", ep->peer_pid);
    }
    if (has && process[0] != '\0') {
        snprintf(text, UMI_ENDPOINT_NAME, "endpoint %llu to %s (%s)",
                 (unsigned long long)ep->base.id, address, process);
    } else {
        snprintf(text, UMI_ENDPOINT_NAME, "endpoint %llu to %s%s",
                 (unsigned long long)ep->base.id, has ? address : "",
                 (has || process[0] != '\0') ? process : "a worker");
    }
}

static double
ms_since(uint64_t ns)
{
    return (double)(umi_clock_ns() - ns) / 1e6;
}

/* ---- lines ---------------------------------------------------------------
 */

void
umi_endpoint_log_connect(const umx_ep *ep)
{
    char name[UMI_ENDPOINT_NAME];

    umi_endpoint_name(ep, name);
    umi_log_line(UMI_LOG_DEBUG, "%s: connecting", name);
}

void
umi_endpoint_log_open(const umx_ep *ep)
{
    char name[UMI_ENDPOINT_NAME], lanes[UMI_LANES_TEXT];

    umi_endpoint_name(ep, name);
    umi_endpoint_lanes(ep, lanes);
    umi_log_line(umi_endpoint_log_level(ep), "%s: %s after %.1f ms, by %s%s%s",
                 name, ep->is_server ? "accepted" : "connected",
                 ms_since(ep->begun_ns),
                 (lanes[0] != '\0') ? lanes : "transports that are not known",
                 (ep->apart != NULL) ? "; without shared memory: " : "",
                 (ep->apart != NULL) ? ep->apart : "");
}

/* Tell how an endpoint ends whose connection was open. */
static const char *
how_it_ends(const umx_ep *ep, umx_ep_state state, umx_status status)
{
    if (ep->is_peer_closed) {
        return "closed by the peer";
    }
    if (state == UMX_EP_FAILED) {
        return "the connection is lost";
    }
    if (status == UMX_OK) {
        return ep->is_unanswered ? "closed by this side, without an answer" :
                                   "closed by this side";
    }
    return (status == UMX_ERR_TIMED_OUT) ? "closed by this side, by force" :
                                           "aborted by this side";
}

static void
log_failed_connect(const umx_ep *ep, umx_ep_state state, umx_status status,
                   const char *name)
{
    const char *reason = umi_endpoint_reason(ep);

    umi_log_line(umi_endpoint_log_level(ep), "%s: %s after %.1f ms: %s%s%s",
                 name,
                 (state != UMX_EP_FAILED) ? "given up" :
                 ep->is_server            ? "not accepted" :
                                            "not connected",
                 ms_since(ep->begun_ns), umx_status_string(status),
                 (reason[0] != '\0') ? ": " : "", reason);
}

void
umi_endpoint_log_end(const umx_ep *ep, umx_ep_state state, umx_status status)
{
    const char *reason    = umi_endpoint_reason(ep);
    bool        is_failed = state == UMX_EP_FAILED && !ep->is_peer_closed;
    char        name[UMI_ENDPOINT_NAME];

    umi_endpoint_name(ep, name);
    if (ep->state == UMX_EP_CONNECTING) {
        log_failed_connect(ep, state, status, name);
        return;
    }
    umi_log_line(umi_endpoint_log_level(ep),
                 "%s: %s%s%s%s%s; after %.1f ms, messages sent: %" PRIu64
                 ", received: %" PRIu64,
                 name, how_it_ends(ep, state, status), is_failed ? ": " : "",
                 is_failed ? umx_status_string(status) : "",
                 (reason[0] != '\0') ? ": " : "", reason,
                 ms_since(ep->begun_ns), ep->stats.sent_messages,
                 ep->stats.received_messages);
}

void
umi_endpoint_log_way(umx_ep *ep, unsigned way, const char *how, size_t len)
{
    char name[UMI_ENDPOINT_NAME];

    if ((ep->ways & (1u << way)) == 0) {
        ep->ways |= 1u << way;
        umi_endpoint_name(ep, name);
        umi_log_line(UMI_LOG_DEBUG,
                     "%s: messages such as one of %zu bytes are %s", name, len,
                     how);
    }
}
