/* SPDX-License-Identifier: BSD-3-Clause */
/* strangers.h: what peers may cost that nothing is known of: they have shown no
 * token, and the program has received nothing of them.
 *
 * UCX keeps a configuration for each kind of address (worker/kinds_of_peers.h).
 * A stranger chooses its address, so strangers could use all the room that
 * there is for configurations, for ever. Therefore the worker's own engine
 * takes a few configurations of strangers only. Further ones live in guest
 * engines, which are destroyed with their last connection, and there is a limit
 * to all that are in use. A stranger whose configuration exists needs none of
 * this.
 *
 * Thread: the worker's owner. */
#ifndef UMI_ENDPOINT_STRANGERS_H
#define UMI_ENDPOINT_STRANGERS_H

#include "endpoint/endpoint.h"

enum {
    UMI_STRANGERS_MAX = 16 /* configurations in use by strangers only */
};

typedef struct umi_strangers {
    umi_engine *guest; /* held: the newest guest engine; or NULL */
    umi_timer   idle;  /* looks whether it is needed */
} umi_strangers;

void umi_strangers_init(umx_worker *worker, umi_strangers *strangers);
void umi_strangers_fini(umx_worker *worker);

/* Choose the engine in which `ep`, of the listening side, is going to live; its
 * handshake knows the peer's claim. A status and its reason; UMX_ERR_REJECTED:
 * strangers use too many configurations. */
umx_status umi_strangers_place(umx_ep *ep, const char **reason_p);

/* Write the kind of the peer's address into the claim of the handshake of `ep`.
 */
void umi_strangers_note_kind(umx_ep *ep);

/* Let `ep`, which connects, live in an engine of which UCX counts no endpoints
 * yet: a new one. */
umx_status umi_strangers_begin_anew(umx_ep *ep);

/* Place no stranger in the guest engines that there are. */
void umi_strangers_leave(umx_worker *worker);

/* Replace the worker's own engine if it has no room for configurations. */
void umi_strangers_renew(umx_worker *worker);

#endif
