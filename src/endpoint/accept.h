/* SPDX-License-Identifier: BSD-3-Clause */
/* accept.h: endpoints that a listener has accepted. Thread: the worker's owner.
 */
#ifndef UMI_ENDPOINT_ACCEPT_H
#define UMI_ENDPOINT_ACCEPT_H

#include "endpoint/endpoint.h"

/* The handshake is complete: `ep` is the program's, or waits to be taken. */
void umi_accept(umx_ep *ep);

/* True in the progress thread: the callbacks of the listener that are due are
 * called later, by the program. */
bool umi_accept_put_off(umx_listener *listener);

/* umi_worker_hooks.drop_accepted */
void umi_accept_drop(umx_listener *listener);

#endif
