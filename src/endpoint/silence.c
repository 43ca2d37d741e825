/* SPDX-License-Identifier: BSD-3-Clause */
/* silence.c: how long a peer has given no sign of life, for heartbeat.c and
 * defer.c, each with a limit of its own.
 *
 * Anything that arrives is a sign of life. Silence is counted in quarters of
 * the limit that have been waited for, so that a pause of our own does not
 * count as the peer's. It is told in seconds, with what the system calls it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "endpoint/endpoint.h"
#include "util/clock.h"
#include "util/log.h"

enum {
    QUARTERS = 4,
    /* Quarters that begin and end without a sign. The first may begin up to a
     * quarter before the peer falls silent, and the peer is not asked in it: so
     * it is given up one to one and a half times the limit after that. */
    SILENT_QUARTERS = QUARTERS + 1
};

unsigned
umi_silence_signs(const umx_ep *ep)
{
    return ep->num_arrivals + ep->socket.num_heard;
}

void
umi_silence_explain(umx_ep *ep, const char *who, uint64_t silent_ns)
{
    char text[256];

    (void)snprintf(
        text, sizeof(text), "%s has been silent for %.1f s: %s (errno %d)", who,
        (double)silent_ns / 1e9, strerror(ep->socket.error), ep->socket.error);
    umi_log(UMI_LOG_WARN, "endpoint %llu: %s", (unsigned long long)ep->base.id,
            text);
    umi_endpoint_set_reason(ep, text, strlen(text));
}

void
umi_silence_forget(const umx_ep *ep, umi_silence *silence)
{
    silence->num_heard  = umi_silence_signs(ep);
    silence->num_silent = 0;
    silence->heard_ns   = umi_clock_ns();
}

void
umi_silence_wait(const umx_ep *ep, umi_silence *silence, uint64_t limit_ns)
{
    umi_timer_start(umi_endpoint_worker(ep), &silence->timer,
                    limit_ns / QUARTERS);
}

bool
umi_silence_count(umx_ep *ep, umi_silence *silence, bool is_alive,
                  const char *who)
{
    if (is_alive || umi_silence_signs(ep) != silence->num_heard) {
        umi_silence_forget(ep, silence);
        return true;
    }
    if (silence->num_silent != 0) { /* it was asked, and has not answered */
        umi_endpoint_worker(ep)->stats->missed_heartbeats++;
    }
    if (++silence->num_silent < SILENT_QUARTERS) {
        return true;
    }
    umi_ep_base_hold(&ep->base);
    ep->socket.error = ETIMEDOUT;
    umi_silence_explain(ep, who, umi_clock_ns() - silence->heard_ns);
    umi_endpoint_finish(ep, UMX_EP_FAILED, UMX_ERR_ENDPOINT_TIMEOUT);
    umi_ep_base_release(&ep->base);
    return false;
}
