/* SPDX-License-Identifier: BSD-3-Clause */
/* silence.c: how long a peer has given no sign of life, for heartbeat.c and
 * defer.c, each with a limit of its own.
 *
 * Anything that arrives is a sign of life. Silence is counted in quarters of
 * the limit that have been waited for, so that a pause of our own does not
 * count as the peer's. */
#include <string.h>

#include "endpoint/endpoint.h"
#include "util/log.h"

enum {
    QUARTERS = 4
};

static unsigned
count_signs(const umx_ep *ep)
{
    return ep->num_arrivals + ep->socket.num_heard;
}

static void
give_up(umx_ep *ep, const char *reason)
{
    umi_log(UMI_LOG_WARN, "endpoint %llu: %s", (unsigned long long)ep->base.id,
            reason);
    umi_endpoint_set_reason(ep, reason, strlen(reason));
    umi_endpoint_finish(ep, UMX_EP_FAILED, UMX_ERR_ENDPOINT_TIMEOUT);
}

void
umi_silence_forget(const umx_ep *ep, umi_silence *silence)
{
    silence->num_heard  = count_signs(ep);
    silence->num_silent = 0;
}

void
umi_silence_wait(const umx_ep *ep, umi_silence *silence, uint64_t limit_ns)
{
    umi_timer_start(umi_endpoint_worker(ep), &silence->timer,
                    limit_ns / QUARTERS);
}

bool
umi_silence_count(umx_ep *ep, umi_silence *silence, bool is_alive,
                  const char *reason)
{
    if (is_alive || count_signs(ep) != silence->num_heard) {
        umi_silence_forget(ep, silence);
        return true;
    }
    if (++silence->num_silent < QUARTERS) {
        return true;
    }
    umi_ep_base_hold(&ep->base);
    give_up(ep, reason);
    umi_ep_base_release(&ep->base);
    return false;
}
