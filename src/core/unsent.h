/* SPDX-License-Identifier: BSD-3-Clause */
/* unsent.h: what the kernel still has to send for UCX. Thread: the worker's
 * owner. */
#ifndef UMI_UNSENT_H
#define UMI_UNSENT_H

#include "core/engine.h"

/* Tell whether each byte that UCX's tcp sockets were given has reached the
 * kernel of its peer. False if that cannot be told. What is there is not lost
 * when this process ends, and what is not may be: a close with unread bytes
 * resets the connection. */
bool umi_engine_has_sent(const umi_engine *engine);

/* Have the kernel take, of what UCX's tcp sockets are given, no more than each
 * needs to be kept busy: what it has not sent lies in front of all that comes
 * later. UCX then waits, and its completions keep pace with the network. What
 * a socket needs changes: call it often, it does so from time to time, or at
 * once for a socket that `is_new`. */
void umi_engine_tune(umi_engine *engine, bool is_new);

/* Limit, as umi_socket_keep_alive(), how long the networks of UCX's tcp sockets
 * may be silent, which need not be that of a connection's own socket. Of
 * several limits the longest holds, as connections share these sockets. */
void umi_engine_keep_alive(umi_engine *engine, uint64_t keepalive_ns);

#endif
