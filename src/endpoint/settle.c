/* SPDX-License-Identifier: BSD-3-Clause */
/* settle.c: a close that its peer does not answer.
 *
 * A peer that runs answers GOODBYE with GOODBYE-ACK. One that computes, or is
 * stopped, answers when it runs again, and is not waited for once nothing needs
 * this side any more: each operation is complete, that of GOODBYE, too, and the
 * kernel has delivered what it was given. Then all of it lies in the peer's
 * queue in shared memory, or in that of its socket, and the peer finds GOODBYE
 * behind it.
 *
 * Announced messages, loans and messages without credit need this side. They
 * are waited for until the close's deadline. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "endpoint/endpoint.h"
#include "util/log.h"
#include "worker/engine.h"

enum {
    ANSWER_MS      = 100, /* that a peer which runs is given to answer */
    LOOK_MS        = 20,
    QUIET_LOOKS    = 2, /* that must find nothing */
    COMPLAIN_LOOKS = 50
};

/* ---- what is not over ----------------------------------------------------
 */

static bool
has_operations(const umx_ep *ep)
{
    return !umi_list_is_empty(&ep->base.inflight) ||
           !umi_list_is_empty(&ep->base.waiting) ||
           ep->hooks->ask(ep, UMI_HAS_WAITING) ||
           ep->hooks->ask(ep, UMI_IS_BUSY);
}

/* Look once. UCX's flush is no help: over tcp it is the peer's program that
 * answers it. Hardware may need both sides until the peer has read. */
static bool
is_quiet(const umx_ep *ep)
{
    const umi_link *link = ep->base.link;

    return (ep->is_goodbye_sent || ep->is_ack_sent) && link != NULL &&
           !link->has_hardware && !has_operations(ep) &&
           (!link->has_tcp || umi_engine_has_sent(link->engine));
}

/* Look, and count the looks in a row that found nothing. True: there were
 * enough of them. One is not enough: UCX keeps what a socket did not take, and
 * tells its sender that it is done. A socket that the kernel has emptied takes
 * it at once. */
static bool
stays_quiet(umx_ep *ep)
{
    ep->settle.num_quiet = is_quiet(ep) ? ep->settle.num_quiet + 1 : 0;
    return ep->settle.num_quiet == QUIET_LOOKS;
}

/* ---- words ---------------------------------------------------------------
 */

/* Write what the close of `ep` waits for. */
static void
describe(const umx_ep *ep, char *text, size_t size)
{
    umx_ep_stats waiting = {0};
    uint64_t     bytes   = umi_endpoint_unsent_bytes(ep);

    ep->hooks->count_waiting(ep, &waiting);
    if (waiting.waiting_sends != 0) {
        snprintf(text, size,
                 "%" PRIu64 " messages wait until the peer has read earlier "
                 "ones; %" PRIu64 " bytes are not delivered",
                 waiting.waiting_sends, bytes);
    } else if (bytes != 0) {
        snprintf(text, size,
                 "the peer has not read %" PRIu64
                 " bytes that were sent or announced to it",
                 bytes);
    } else if (ep->hooks->ask(ep, UMI_IS_RECEIVING)) {
        snprintf(text, size,
                 "the peer has not sent all bytes of a message that is being "
                 "received");
    } else if (ep->is_goodbye_sent && ep->base.link != NULL &&
               ep->base.link->has_tcp && !has_operations(ep)) {
        snprintf(text, size,
                 "the peer does not read, and its system has not taken all "
                 "bytes yet");
    } else {
        snprintf(text, size, "the peer does not answer");
    }
}

void
umi_settle_explain(umx_ep *ep)
{
    char text[160];

    describe(ep, text, sizeof(text));
    umi_endpoint_set_reason(ep, text, strlen(text));
}

static void
complain(const umx_ep *ep)
{
    char text[160], peer[UMI_SOCKADDR_TEXT];

    describe(ep, text, sizeof(text));
    umi_socket_peer_text(&ep->socket, peer);
    umi_log(UMI_LOG_WARN, "closing the connection to %s waits: %s", peer, text);
}

/* ---- the wait ------------------------------------------------------------
 */

static void
wait_for(umx_ep *ep, unsigned ms)
{
    umi_timer_start(umi_endpoint_worker(ep), &ep->settle.timer,
                    ms * UINT64_C(1000000));
}

static void
on_timer(umi_timer *timer)
{
    umx_ep *ep = umi_container_of(timer, umx_ep, settle.timer);

    if (ep->state != UMX_EP_DRAINING) {
        return;
    }
    umi_ep_base_hold(&ep->base);
    if (stays_quiet(ep)) {
        ep->is_unanswered = true;
        umi_endpoint_finish(ep, UMX_EP_CLOSED, UMX_OK);
    } else {
        if (++ep->settle.num_looks == COMPLAIN_LOOKS) {
            complain(ep);
        }
        wait_for(ep, LOOK_MS);
    }
    umi_ep_base_release(&ep->base);
}

void
umi_settle_init(umx_ep *ep)
{
    umi_timer_init(&ep->settle.timer, on_timer);
}

void
umi_settle_start(umx_ep *ep)
{
    wait_for(ep, ANSWER_MS);
}
